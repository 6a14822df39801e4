"""The routes of the control socket by which people steer the work: pause, resume, trigger, cancel, retry.

Who asked is who connected, as the kernel says; what becomes of it is `daemon.desk`'s.

    POST /pause    200: {"work", "paused": whether it was not before}; body {"work": "poll", "train", "prove" or "all",
                   "reason": text or absent}
    POST /resume   200: {"work", "resumed"}; body {"work"}; 409 where it is paused with everything
    POST /trigger  202: {"work", "repository", "triggered", "waits"}; body {"work": "trace", "train" or "prove",
                   "repository": key}; 404 for one that is not watched, 409 where that cannot be done there
    POST /cancel   202: {"job", "was": "running" or "waiting"}; body {"job": id}; 404 for no job, 409 for one that ended
    POST /retry    202: {"job"}; body {"job": id}; 404 for no job, 409 for one that neither failed nor was cancelled
"""

from __future__ import annotations

import pwd
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from daemon.desk import Desk, WorkStateError
from store.events.jobs import PausedWork, TriggeredWork

_LONGEST_REASON = 200
Read = Callable[..., Awaitable[dict[str, Any]]]
"""Reads a request's body: (request, remedy=…) to its JSON object, ValueError where it is none."""


class Steered(Protocol):
    """What these routes need of the service."""

    @property
    def desk(self) -> Desk: ...


def work_routes(service: Steered, read: Read) -> list[Route]:
    """Return the routes."""

    async def pause(request: Request) -> JSONResponse:
        remedy = f'send {{"work": one of {", ".join(get_args(PausedWork))}, "reason": text}}'
        body = await read(request, remedy=remedy)
        work = _one_of(body, "work", get_args(PausedWork), remedy)
        reason = body.get("reason", "")
        if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
            raise ValueError(f"the reason is no text of at most {_LONGEST_REASON} characters; {remedy}")
        paused = await service.desk.pause(work, by=_who(request), reason=reason)
        return JSONResponse({"work": work, "paused": paused})

    async def resume(request: Request) -> JSONResponse:
        remedy = f'send {{"work": one of {", ".join(get_args(PausedWork))}}}'
        work = _one_of(await read(request, remedy=remedy), "work", get_args(PausedWork), remedy)
        return JSONResponse({"work": work, "resumed": await service.desk.resume(work, by=_who(request))})

    async def trigger(request: Request) -> JSONResponse:
        remedy = f'send {{"work": one of {", ".join(get_args(TriggeredWork))}, "repository": its key}}'
        body = await read(request, remedy=remedy)
        work = _one_of(body, "work", get_args(TriggeredWork), remedy)
        repository = _text(body, "repository", remedy)
        try:
            came = await service.desk.trigger(work, repository, by=_who(request))
        except KeyError:
            message = f"{repository}: not watched; `unsorry repos` lists what is"
            return JSONResponse({"error": message}, status_code=404)
        return JSONResponse({"work": work, "repository": repository, **came}, status_code=202)

    async def cancel(request: Request) -> JSONResponse:
        remedy = 'send {"job": id}'
        job = _text(await read(request, remedy=remedy), "job", remedy)
        try:
            was = await service.desk.cancel(job, by=_who(request))
        except KeyError:
            message = f"{job}: no such job; `unsorry jobs` lists them"
            return JSONResponse({"error": message}, status_code=404)
        return JSONResponse({"job": job, "was": was}, status_code=202)

    async def retry(request: Request) -> JSONResponse:
        remedy = 'send {"job": id}'
        job = _text(await read(request, remedy=remedy), "job", remedy)
        try:
            await service.desk.retry(job)
        except KeyError:
            message = f"{job}: no such job; `unsorry jobs` lists them"
            return JSONResponse({"error": message}, status_code=404)
        return JSONResponse({"job": job}, status_code=202)

    verbs = {"pause": pause, "resume": resume, "trigger": trigger, "cancel": cancel, "retry": retry}
    return [Route(f"/{name}", _answered(verb), methods=["POST"]) for name, verb in verbs.items()]


def _answered(
    verb: Callable[[Request], Awaitable[JSONResponse]],
) -> Callable[[Request], Awaitable[JSONResponse]]:
    """Turn what is wrong with a request, or does not fit how things stand, into its answer."""

    async def answer(request: Request) -> JSONResponse:
        try:
            return await verb(request)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except WorkStateError as error:
            return JSONResponse({"error": str(error)}, status_code=409)

    return answer


def _who(request: Request) -> str:
    """Name the user who connected; by number where the machine has no name for it."""
    uid = request.state.peer.uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _one_of(body: dict[str, Any], name: str, choices: tuple[str, ...], remedy: str) -> Any:
    value = body.get(name)
    if value not in choices:
        raise ValueError(f"{name} is {str(value)[:40]!r}; {remedy}")
    return value


def _text(body: dict[str, Any], name: str, remedy: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"no {name} in the body; {remedy}")
    return value
