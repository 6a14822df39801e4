"""Routes of the control socket, HTTP over a unix socket, and the socket's file; handlers call the service.

The command line speaks to the running daemon here, by `daemon.place.control_client`. The kernel names each
connection's user, and `daemon.place.peers` the user's rights: GET reads, the rest acts. Others are answered
403.

    GET  /health   200, or 503 if a problem is an error: {"healthy", "problems"}, as in `everlean status`
    GET  /status   200: the state of the living daemon alone
    GET  /metrics  200: numbers for Prometheus, as text; 503 if the view cannot be read
    GET  /report   200: the page of `everlean report`; 304 if the client has it; 503 if it cannot be made
    GET  /badge.svg, /feed.atom    200: the number of sorries, and their news (`daemon.http.feed`)
    POST /poll     202: {"polling": [...]}; body {"repository": key or null}; 404 if it is not watched, 503
                   while the disk is full
    POST /promote  200: the promotion; body {"checkpoint": id, "force": true or absent}; 404 for an unknown
                   one, 409 if the promotion rule or its state forbids it
    POST /rollback 200: the promotion; body {"model": name}; 404 for no model's name, 409 without an
                   earlier one
    POST /offer    202: the event; body: its fields but `by`; 404 for a repository without a trace
    POST /pull-request  200: the event; body: its fields; 400 for others, 404 for an unknown proof, 409 if it
                   is not verified or has another pull request
    POST /reload   202: {"reloading": true}; the outcome is in /status and in the log

Pauses, triggers, cancellations, second tries and claims have their own part below.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from daemon.agents.claims import LONGEST_S, SHORTEST_S, Claims
from daemon.http.feed import feed_routes
from daemon.http.metrics import Metrics, metrics_route
from daemon.http.report_page import ReportPage, report_routes
from daemon.http.status import RuntimeStatus
from daemon.place.control_client import short_address
from daemon.place.peers import Doorkeeper, Peer, group_id, peer_of
from daemon.polling.schedule import PollScheduler
from daemon.results.models import ModelStateError
from daemon.results.pull_requests import PullRequestStateError, record
from daemon.scheduling.maintenance import Maintenance
from daemon.scheduling.scheduler import Operator, WorkStateError
from daemon.state.context import Context
from daemon.state.store_service import NoRoomError, StoreFailedError, StoreService
from pipeline.connections import BoundedProtocol, Serving, ServingError, Sparing
from store.events.jobs import PausedWork, TriggeredWork
from store.events.models import ModelOffered
from store.events.proofs import PullRequestOpened

# ---- The control socket's file
# Made for its group, taken over from a dead daemon, refused by a living one. Its mode is 0660 and its folder
# the daemon's own.


_MODE = 0o660


class SocketInUseError(Exception):
    """The control socket cannot be made; the message has the reason and the remedy."""


def listen(path: Path) -> socket.socket:
    """Return the socket, listening; only its user and group may use it.

    Raises:
        SocketInUseError: something else is in the way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Made without permissions for others from its first moment on.
        before = os.umask(0o777 & ~_MODE)
        try:
            with short_address(path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        path.chmod(_MODE)
        listener.listen(64)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SocketInUseError(
            f"{path}: the control socket cannot be made: {error.strerror or error}; check runtime_dir"
        ) from error
    return listener


def admitted(path: Path, control_group: str) -> Doorkeeper:
    """Give the socket to the group, or to our own if none is configured; return its doorkeeper.

    Raises:
        SocketInUseError: there is no such group, or it cannot be given the socket.
    """
    try:
        named_group = group_id(control_group) if control_group else None
        group = os.getegid() if named_group is None else named_group
        if path.stat().st_gid != group:
            os.chown(path, -1, group)
        if named_group is not None:
            _let_through(path.parent, group)
    except KeyError as error:
        raise SocketInUseError(
            f"[daemon] control_group: there is no group {control_group!r} here; create it, or name another"
        ) from error
    except OSError as error:
        raise SocketInUseError(
            f"[daemon] control_group: {path} cannot be given to the group {control_group!r} ({error.strerror});"
            " make the daemon's user a member of it, or name the daemon's own group"
        ) from error
    return Doorkeeper.here(group=group, control_group=named_group)


def _let_through(folder: Path, group: int) -> None:
    """Let a configured group pass through a folder that is ours alone."""
    about = folder.stat()
    if about.st_uid == os.geteuid() and stat.S_IMODE(about.st_mode) == 0o700:
        os.chown(folder, -1, group)
        folder.chmod(0o710)


def _clear(path: Path) -> None:
    """Remove the socket of a dead daemon; refuse a living one's, and any other file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketInUseError(f"{path}: in the way of the control socket and no socket; move it elsewhere")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            with short_address(path) as address:
                probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise SocketInUseError(
                f"{path}: cannot tell whether a daemon listens there ({error}); remove the file if none does"
            ) from error
    raise SocketInUseError(
        f"{path}: another daemon listens there; give this one another runtime_dir, or stop that one"
    )


# ---- The routes for people's requests: pause, resume, trigger, bump, cancel, retry, accept
# The kernel names the asking user; `daemon.scheduling.scheduler` does the work.
#
#     POST /pause    200: {"work", "paused": whether it was not before}; body {"work": "poll", "train",
#                    "prove" or "all", "reason": text or absent}
#     POST /resume   200: {"work", "resumed"}; body {"work"}; 409 if it is paused with everything
#     POST /trigger  202: {"work", "repository", "triggered", "waits"}; body {"work": "trace", "train" or
#                    "prove", "repository": key}; 404 if it is not watched, 409 if it cannot be done there
#     POST /bump     202: the event, also of an earlier unfinished one, and "waits": the reason, or null; body
#                    {"repository", "toolchain"}, {"repository", "package", "rev"} or all of them; 404 if it
#                    is not watched, 409 if it cannot be tried
#     POST /cancel   202: {"job", "was": "running" or "waiting"}; body {"job": id}; 404 for no job, 409 if it
#                    has ended
#     POST /retry    202: {"job"}; body {"job": id}; 404 for no job, 409 if it neither failed nor was
#                    cancelled
#     POST /accept   200: the event; body {"repository": key}; 404 if it was never watched, 409 if it was not
#                    replaced


_LONGEST_REASON = 200


def work_routes(desk: Operator) -> list[Route]:
    """Return the routes."""

    async def pause(request: Request) -> JSONResponse:
        remedy = f'send {{"work": one of {", ".join(get_args(PausedWork))}, "reason": text}}'
        body = await _object(request, remedy=remedy)
        work = _one_of(body, "work", get_args(PausedWork), remedy)
        reason = body.get("reason", "")
        if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
            raise ValueError(f"the reason is no text of at most {_LONGEST_REASON} characters; {remedy}")
        paused = await desk.pause(work, by=_who(request), reason=reason)
        return JSONResponse({"work": work, "paused": paused})

    async def resume(request: Request) -> JSONResponse:
        remedy = f'send {{"work": one of {", ".join(get_args(PausedWork))}}}'
        work = _one_of(await _object(request, remedy=remedy), "work", get_args(PausedWork), remedy)
        return JSONResponse({"work": work, "resumed": await desk.resume(work, by=_who(request))})

    async def trigger(request: Request) -> JSONResponse:
        remedy = f'send {{"work": one of {", ".join(get_args(TriggeredWork))}, "repository": its key}}'
        body = await _object(request, remedy=remedy)
        work = _one_of(body, "work", get_args(TriggeredWork), remedy)
        repository = _text_of(body, "repository", remedy)
        with _missing_is_404(f"{repository}: not watched; `everlean repos` lists what is"):
            came = await desk.trigger(work, repository, by=_who(request))
        return JSONResponse({"work": work, "repository": repository, **came}, status_code=202)

    async def cancel(request: Request) -> JSONResponse:
        job = await _only(request, "job", "id")
        with _missing_is_404(f"{job}: no such job; `everlean jobs` lists them"):
            was = await desk.cancel(job, by=_who(request))
        return JSONResponse({"job": job, "was": was}, status_code=202)

    async def retry(request: Request) -> JSONResponse:
        job = await _only(request, "job", "id")
        with _missing_is_404(f"{job}: no such job; `everlean jobs` lists them"):
            await desk.retry(job)
        return JSONResponse({"job": job}, status_code=202)

    async def accept(request: Request) -> JSONResponse:
        repository = await _only(request, "repository", "key")
        with _missing_is_404(f"{repository}: not watched; `everlean repos` lists what is"):
            accepted = await desk.accept(repository, by=_who(request))
        return JSONResponse(accepted.model_dump(mode="json"))

    return [
        _acts("/accept", accept),
        _acts("/pause", pause),
        _acts("/resume", resume),
        _acts("/trigger", trigger),
        _acts("/cancel", cancel),
        _acts("/retry", retry),
    ]


def bump_route(desk: Operator) -> Route:
    """Return the route to request a bump."""

    async def bump(request: Request) -> JSONResponse:
        remedy = 'send {"repository": key, "toolchain": text}, or "package": name and "rev": commit, or all of them'
        body = await _object(request, remedy=remedy)
        repository = _text_of(body, "repository", remedy)
        options = {name: body.get(name, "") for name in ("toolchain", "package", "rev")}
        for name, text in options.items():
            if (
                not isinstance(text, str)
                or len(text) > _LONGEST_REASON
                or not (text == "" or text.isprintable())
            ):
                raise ValueError(f"{name} is no line of at most {_LONGEST_REASON} characters; {remedy}")
        if not (options["toolchain"] or options["package"]) or bool(options["package"]) != bool(
            options["rev"]
        ):
            raise ValueError(f"neither a toolchain nor a package with its commit; {remedy}")
        with _missing_is_404(f"{repository}: not watched; `everlean repos` lists what is"):
            event, waits = await desk.bump(repository, **options, by=_who(request))
        return JSONResponse({**event.model_dump(mode="json"), "waits": waits}, status_code=202)

    return _acts("/bump", bump)


# ---- The routes of agents
#
#     POST /claim    200: the event; body {"sorry": whole id, "agent": name, "seconds": number, "claim": the one
#                    to renew, by its id, or absent}; 404 for no sorry, 409 if it cannot be claimed
#     POST /release  200: the event; body {"claim": id}; 404 without a claim of this id
#     POST /submit   200: {"proofs": a proof_found for each}; body {"sorry": whole id, "proof": text, "others":
#                    proofs of its declaration's other sorries, by their whole ids, or absent, "agent": name,
#                    "claim": id or absent}; 404 for no sorry, 409 if it takes no proof of this agent's, or
#                    nothing could judge one


_LONGEST_NAME = 100


def claim_routes(claims: Claims) -> list[Route]:
    """Return the routes."""

    def named(body: dict[str, Any], remedy: str) -> tuple[str, str, str | None]:
        sorry, agent = (_text_of(body, name, remedy) for name in ("sorry", "agent"))
        if len(agent) > _LONGEST_NAME or not agent.isprintable():
            raise ValueError(f"the agent's name is no line of at most {_LONGEST_NAME} characters; {remedy}")
        claim = body.get("claim")
        if claim is not None and not isinstance(claim, str):
            raise ValueError(f"claim is no id; {remedy}")
        return sorry, agent, claim

    async def claim(request: Request) -> JSONResponse:
        remedy = 'send {"sorry": id, "agent": name, "seconds": number}, and "claim": id to renew one'
        body = await _object(request, remedy=remedy)
        sorry, agent, renewed = named(body, remedy)
        seconds = body.get("seconds")
        if (
            not isinstance(seconds, int | float)
            or isinstance(seconds, bool)
            or not SHORTEST_S <= seconds <= LONGEST_S
        ):
            raise ValueError(f"seconds is no number from {SHORTEST_S:g} to {LONGEST_S:g}; {remedy}")
        with _missing_is_404(f"{sorry[:100]}: no such sorry; `everlean sorries` lists them"):
            claimed = await claims.claim(sorry, agent=agent, by=_who(request), seconds=seconds, claim=renewed)
        return JSONResponse(claimed.model_dump(mode="json"))

    async def release(request: Request) -> JSONResponse:
        claim_id = await _only(request, "claim", "id")
        with _missing_is_404(f"{claim_id[:100]}: no such claim stands; its lease may have ended"):
            released = await claims.release(claim_id, by=_who(request))
        return JSONResponse(released.model_dump(mode="json"))

    async def submit(request: Request) -> JSONResponse:
        remedy = (
            'send {"sorry": id, "proof": text, "agent": name}, "claim": id where it is claimed, and "others":'
            " {id: text} for the declaration's other sorries"
        )
        body = await _object(request, remedy=remedy, most_bytes=_MOST_PROOF_BYTES)
        sorry, agent, claim = named(body, remedy)
        others = body.get("others", {})
        if not isinstance(others, dict) or sorry in others:
            raise ValueError(f"others is no object of other sorries' proofs; {remedy}")
        texts = {one: _text_of(others, one, remedy) for one in others}
        proofs = {sorry: _text_of(body, "proof", remedy), **texts}
        try:
            "".join(proofs.values()).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the proof has half of a surrogate pair, which is no text; {remedy}") from error
        with _missing_is_404(f"{sorry[:100]}: no such sorry; `everlean sorries` lists them"):
            result = await claims.submit(proofs, agent=agent, by=_who(request), claim=claim)
        return JSONResponse({"proofs": [one.model_dump(mode="json") for one in result]})

    return [
        _acts("/claim", claim),
        _acts("/release", release),
        _acts("/submit", submit),
    ]


class _UnknownError(Exception):
    """The request names a missing thing."""


@contextmanager
def _missing_is_404(refusal: str) -> Iterator[None]:
    """Answer 404 with this text if the call inside finds no such thing (KeyError)."""
    try:
        yield
    except KeyError:
        raise _UnknownError(refusal) from None


def _acts(path: str, verb: Callable[[Request], Awaitable[JSONResponse]]) -> Route:
    """Return the route of a verb; a wrong request, or one that does not fit the present state, gets an answer
    too."""

    async def answer(request: Request) -> JSONResponse:
        try:
            return await verb(request)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except _UnknownError as error:
            return JSONResponse({"error": str(error)}, status_code=404)
        except (WorkStateError, ModelStateError, PullRequestStateError) as error:
            return JSONResponse({"error": str(error)}, status_code=409)

    return Route(path, answer, methods=["POST"])


def _who(request: Request) -> str:
    """Return the connected user's name, or number without a name."""
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


def _text_of(body: dict[str, Any], name: str, remedy: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"no {name} in the body; {remedy}")
    return value


_READS = frozenset({"GET", "HEAD"})
_MOST_BODY_BYTES = 65536
_MOST_PROOF_BYTES = 2**20


log = structlog.get_logger("daemon.http.control")


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the daemon that the routes call."""

    desk: Operator
    claims: Claims
    store: StoreService
    living: RuntimeStatus
    metrics: Metrics
    page: ReportPage
    polls: PollScheduler
    upkeep: Maintenance
    context: Context


class _Connection(BoundedProtocol):
    """A connection with its user's identity, for `request.state.peer`.

    Root and the daemon's own user have room of their own, whatever the others do.
    """

    def who(self, transport: asyncio.Transport) -> tuple[int, bool]:
        peer = peer_of(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer": peer}
        return peer.uid, peer.uid not in (0, os.geteuid())


class _Guarded:
    """The routes behind the doorkeeper, who may change at a reload."""

    def __init__(self, routes: ASGIApp, keeper: Doorkeeper) -> None:
        self._routes = routes
        self._sparing = Sparing()
        self.keeper = keeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            peer: Peer = scope["state"]["peer"]
            acts = scope["method"] not in _READS
            about = {
                "method": scope["method"],
                "route": scope["path"][:100],
                "uid": peer.uid,
                "pid": peer.pid,
            }
            refusal = self.keeper.refusal(peer, acts=acts)
            if refusal is not None:
                left_out = self._sparing.line(peer.uid)
                if left_out is not None:
                    log.warning("control_refused", left_out=left_out, **about)
                await JSONResponse({"error": refusal}, status_code=403)(scope, receive, send)
                return
            if acts:
                log.info("control_asked", **about)
        await self._routes(scope, receive, send)


class ControlServer:
    """The listening socket. Made with `start`, ended with `stop`."""

    def __init__(self, path: Path, guarded: _Guarded, serving: Serving) -> None:
        self.path = path
        self._guarded = guarded
        self._serving = serving

    @classmethod
    async def start(cls, path: Path, parts: Parts, *, control_group: str = "") -> ControlServer:
        """Listen.

        Args:
            control_group: the group whose members may act, beside the daemon's own user and root; "" for
                none.

        Raises:
            SocketInUseError: something else is in the way, or the group cannot be given the socket.
        """
        listener = await asyncio.to_thread(listen, path)
        try:
            guarded = _Guarded(_application(parts), await asyncio.to_thread(admitted, path, control_group))
        except BaseException:
            listener.close()
            path.unlink()  # noqa: ASYNC240 - also where we are cancelled
            raise
        try:
            serving = await Serving.start(
                guarded, listener, protocol=_Connection, keep_alive_s=2, name="control"
            )
        except ServingError as error:
            raise SocketInUseError(f"{path}: {error}; start the daemon again") from error
        return cls(path, guarded, serving)

    async def admit(self, control_group: str) -> None:
        """Let the members of this group act from now on, and no longer those of the previous group.

        Raises:
            SocketInUseError: the group cannot be given the socket; it stays as it was.
        """
        self._guarded.keeper = await asyncio.to_thread(admitted, self.path, control_group)

    @property
    def serves(self) -> bool:
        """Return whether the server still answers requests."""
        return self._serving.serves

    async def stop(self) -> None:
        """Finish the answers under way, close, and remove the socket."""
        await self._serving.stop()
        await asyncio.to_thread(self.path.unlink, missing_ok=True)


def _application(parts: Parts) -> Starlette:
    async def health(_request: Request) -> JSONResponse:
        problems = await parts.living.problems()
        healthy = not any(one.severity == "error" for one in problems)
        content = {"healthy": healthy, "problems": [asdict(one) for one in problems]}
        return JSONResponse(content, status_code=200 if healthy else 503)

    async def status(_request: Request) -> JSONResponse:
        return JSONResponse(asdict(parts.living.status()))

    async def poll(request: Request) -> JSONResponse:
        remedy = 'send {"repository": "host/owner/name"}, or null for all'
        repository = (await _object(request, remedy=remedy)).get("repository")
        if repository is not None and not isinstance(repository, str):
            raise ValueError(f"no repository in the body; {remedy}")
        if problem := parts.store.room.problem:
            raise NoRoomError(problem)
        with _missing_is_404(f"{repository}: not watched, or not enabled; `everlean repos` lists what is"):
            polling = parts.polls.poll_now(repository)
        return JSONResponse({"polling": list(polling)}, status_code=202)

    async def reload(_request: Request) -> JSONResponse:
        parts.context.requests.reload_soon()
        return JSONResponse({"reloading": True}, status_code=202)

    async def not_recorded(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=503)

    return Starlette(
        # For any request: the disk is full, or the store has failed. The message has the reason and the
        # remedy.
        exception_handlers={StoreFailedError: not_recorded},
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/status", status, methods=["GET"]),
            metrics_route(parts.metrics.text),
            *report_routes(parts.page.now),
            *feed_routes(parts.store.ask),
            _acts("/poll", poll),
            *_model_routes(parts),
            _pull_request_route(parts.store),
            *work_routes(parts.desk),
            bump_route(parts.desk),
            *claim_routes(parts.claims),
            Route("/reload", reload, methods=["POST"]),
        ],
    )


def _model_routes(parts: Parts) -> list[Route]:
    async def promote(request: Request) -> JSONResponse:
        remedy = 'send {"checkpoint": id}, and "force": true against the rule'
        body = await _object(request, remedy=remedy)
        checkpoint, force = _text_of(body, "checkpoint", remedy), body.get("force", False)
        if not isinstance(force, bool):
            raise ValueError(f"force is neither true nor false; {remedy}")
        with _missing_is_404(f"{checkpoint}: no such checkpoint; `everlean models` lists them"):
            promoted = await parts.upkeep.models.promote(checkpoint, force=force)
        return JSONResponse(promoted.model_dump(mode="json"))

    async def rollback(request: Request) -> JSONResponse:
        model = await _only(request, "model", "name")
        with _missing_is_404(f"{model}: no such model; `everlean models` lists the checkpoints of each"):
            promoted = await parts.upkeep.models.roll_back(model)
        return JSONResponse(promoted.model_dump(mode="json"))

    async def offer(request: Request) -> JSONResponse:
        fields = await _object(request, remedy="send the fields of a model_offered, without by")
        body = ModelOffered.model_validate({**fields, "by": _who(request)})
        with _missing_is_404(
            f"{body.repository}: has no trace to measure a model on; `everlean trigger trace` makes one"
        ):
            await parts.upkeep.models.offer(body)
        return JSONResponse(body.model_dump(mode="json"), status_code=202)

    return [_acts("/offer", offer), _acts("/promote", promote), _acts("/rollback", rollback)]


def _pull_request_route(store: StoreService) -> Route:
    async def pull_request(request: Request) -> JSONResponse:
        fields = await _object(request, remedy="send the fields of a pull_request_opened")
        opened = PullRequestOpened.model_validate(fields)
        with _missing_is_404(f"{opened.proof}: no such proof; `everlean proofs` lists them"):
            await record(store, opened)
        return JSONResponse(opened.model_dump(mode="json"))

    return _acts("/pull-request", pull_request)


async def _object(request: Request, *, remedy: str, most_bytes: int = _MOST_BODY_BYTES) -> dict[str, Any]:
    """Return the body's JSON object; an empty one without a body."""
    size = request.headers.get("content-length", "0")
    if not size.isdecimal() or int(size) > most_bytes:
        raise ValueError(f"the body is too long; {remedy}")
    if int(size) == 0:
        return {}
    try:
        content = await request.json()
    except ValueError as error:
        raise ValueError(f"the body is no JSON; {remedy}") from error
    if not isinstance(content, dict):
        raise ValueError(f"no object in the body; {remedy}")
    return content


async def _only(request: Request, name: str, what: str) -> str:
    """Return the one text required in the body; `what` it is."""
    remedy = f'send {{"{name}": {what}}}'
    return _text_of(await _object(request, remedy=remedy), name, remedy)
