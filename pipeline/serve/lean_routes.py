"""The routes that are more than LeanCopilot's: premises for a place, the gate's verdict, and searches.

What `/check` and `/fill` say is advice: they run the daemon's own jobs, and what those would record goes to the client
and into no log.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pipeline.serve.check import CheckRequest, CheckResponse, check
from pipeline.serve.fill import FillRequest, fill
from pipeline.serve.fill_events import EVENTS
from pipeline.serve.leaving import while_connected
from pipeline.serve.retrieve import RetrieveRequest, RetrieveResponse
from pipeline.serve.rooms import Rooms
from pipeline.serve.wire import responses


def routes(rooms: Rooms) -> APIRouter:
    """Return the routes; `rooms` are open while they are asked."""
    router = APIRouter(tags=["Lean"])

    @router.post("/retrieve", responses=responses(404))
    async def retrieve_route(asked: RetrieveRequest, request: Request) -> RetrieveResponse:
        """Find premises for a goal: those that may be used where it stands, the most promising first."""
        async with rooms.serving.retriever() as retriever:
            return await while_connected(request, rooms.premises.retrieve(retriever, asked))

    @router.post("/check", responses=responses(403, 404, 409))
    async def check_route(asked: CheckRequest, request: Request) -> CheckResponse:
        """Have the gate judge a proof. Advice: nothing is recorded."""
        return await while_connected(request, check(rooms, asked))

    @router.post(
        "/fill",
        response_class=Response,
        responses={**responses(403, 404, 409), 200: {"description": _told(), "content": _STREAM}},
    )
    async def fill_route(asked: FillRequest) -> Response:
        """Search for proofs of a file's sorrys, and have the gate judge them. Advice: nothing is recorded."""
        return await fill(rooms, asked)

    return router


_STREAM: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}


def _told() -> str:
    """Describe the events, for the schema's readers."""
    lines = ["Server-sent events; the data of each is one JSON object:", ""]
    for event in EVENTS:
        fields = ", ".join(event.model_fields)
        lines.append(f"- `{event.name}`: {event.__doc__} ({fields})")
    return "\n".join(lines)
