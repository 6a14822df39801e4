"""The application: the middlewares before every route, the routes, the lifespan.

    POST /generate, POST /encode                      LeanCopilot's (`pipeline.serve.schemas`)
    POST /retrieve, POST /check, POST /fill           premises for a place, the gate's verdict, searches
    GET /models, /health, /ready, /metrics, /docs, /openapi.json

Middlewares from the outside in: counting, the page's origin, token, queue, time, body. Every error is a problem of one
shape (`pipeline.serve.schemas`). Headers name the answering checkpoint. `/check` and `/fill` give advice: they run the
daemon's own jobs, and the results go to the client alone, not into a log.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse

from pipeline.serve.auth import HereGuard, TokenGuard
from pipeline.serve.check import CheckRequest, CheckResponse, check
from pipeline.serve.fill import EVENTS, FillRequest, fill
from pipeline.serve.limits import BodyLimit, QueueLimit, TimeLimit, share, while_connected
from pipeline.serve.measures import CONTENT_TYPE, Measures, MeasuringGuard
from pipeline.serve.models import LOOK_S, Registry
from pipeline.serve.retrieve import RetrieveRequest, RetrieveResponse
from pipeline.serve.schemas import (
    EncodeRequest,
    EncodeResponse,
    GenerateRequest,
    GenerateResponse,
    Generation,
    HealthResponse,
    ModelsResponse,
    Problem,
    ReadyResponse,
    problem_response,
    responses,
)
from pipeline.serve.spec import ENCODING, GENERATING, Provenance, ServeSpec
from pipeline.serve.workspace import Workspace

if TYPE_CHECKING:
    from pipeline.serve.engines import GeneratingModel, LoadedRetriever


def guards(spec: ServeSpec, *, token: str | None, measures: Measures) -> list[Middleware]:
    """Return the middlewares of an application, the outermost first. `token` comes from `auth.read_token`."""
    limits = spec.limits
    return [
        Middleware(MeasuringGuard, measures=measures),
        Middleware(HereGuard, alone=not spec.open),
        Middleware(TokenGuard, token=token),
        Middleware(QueueLimit, most=limits.queue, most_lean=share(limits), inside=measures.queued),
        Middleware(TimeLimit, seconds=limits.seconds, lean_seconds=limits.lean_seconds),
        Middleware(BodyLimit, most_bytes=limits.body_bytes),
    ]


def lean_routes(workspace: Workspace) -> APIRouter:
    """Return the routes; `workspace` is open while they serve."""
    router = APIRouter(tags=["Lean"])

    @router.post("/retrieve", responses=responses(404))
    async def retrieve_route(asked: RetrieveRequest, request: Request) -> RetrieveResponse:
        """Find premises for a goal: those accessible at its place, the most promising first."""
        async with workspace.serving.retriever() as retriever:
            return await while_connected(request, workspace.premises.retrieve(retriever, asked))

    @router.post("/check", responses=responses(403, 404, 409))
    async def check_route(asked: CheckRequest, request: Request) -> CheckResponse:
        """Judge a proof by the gate. Advice: nothing is recorded."""
        return await while_connected(request, check(workspace, asked))

    @router.post(
        "/fill",
        response_class=Response,
        responses={**responses(403, 404, 409), 200: {"description": _events_text(), "content": _STREAM}},
    )
    async def fill_route(asked: FillRequest) -> Response:
        """Search for proofs of a file's sorries, and have the gate judge them. Advice: nothing is recorded."""
        return await fill(workspace, asked)

    return router


_STREAM: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}


def _events_text() -> str:
    """Describe the events, for the schema's readers."""
    lines = ["Server-sent events; the data of each is one JSON object:", ""]
    for event in EVENTS:
        fields = ", ".join(event.model_fields)
        lines.append(f"- `{event.name}`: {event.__doc__} ({fields})")
    return "\n".join(lines)


CHECKPOINT = "X-Everlean-Checkpoint"
_PROBLEMS_TOLD = 5
_STATE = "n : ℕ\n⊢ Nat.gcd n n = n"

_log = logging.getLogger(__name__)


def make_app(spec: ServeSpec, *, token: str | None = None, look_s: float = LOOK_S) -> FastAPI:
    """Return the application; its models are loaded while its lifespan lasts (`app.state.serving` is the registry, and
    `app.state.workspace` the rest).

    Args:
        spec: of the server.
        token: required from clients; None: none.
        look_s: seconds between checks for a newly promoted checkpoint.
    """
    measures = Measures()

    async def nearest(retriever: LoadedRetriever, state: str, k: int) -> tuple[str, ...]:
        return await workspace.premises.nearest(retriever, state, k)

    async def warm(before: LoadedRetriever, after: LoadedRetriever) -> None:
        await workspace.premises.warm(before, after)

    registry = Registry(spec, measures=measures, nearest=nearest, warm=warm, look_s=look_s)
    workspace = Workspace(spec, registry, guarded=token is not None)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with workspace, registry:
            try:
                yield
            finally:
                workspace.premises.close()

    app = FastAPI(
        title="everlean",
        version=version("everlean"),
        summary="Tactics, premises and checked proofs for editors: LeanCopilot's protocol, and more.",
        description="Tactics and premises are a model's word. What `/check` and `/fill` say was judged as the daemon "
        "judges.",
        middleware=guards(spec, token=token, measures=measures),
        lifespan=lifespan,
        # Its page would fetch a script from another host, and `_routes_page` needs none.
        docs_url=None,
        redoc_url=None,
        # A route with a slash behind it is none: a redirect would lose a POST's body.
        redirect_slashes=False,
    )
    app.state.serving, app.state.workspace = registry, workspace
    app.include_router(_copilot(registry))
    app.include_router(lean_routes(workspace))
    app.include_router(_about_itself(registry))
    app.add_api_route("/docs", _routes_page, include_in_schema=False)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _defect)
    return app


def _copilot(registry: Registry) -> APIRouter:
    router = APIRouter(tags=["LeanCopilot"])

    @router.post(
        "/generate",
        response_model_exclude_none=True,
        responses=responses(404, 409, 502),
        openapi_extra=_examples(registry, GENERATING, prefix=""),
    )
    async def generate(asked: GenerateRequest, request: Request, response: Response) -> GenerateResponse:
        """Suggest tactics for a state."""
        result, provenance = await while_connected(request, _generated(registry, asked))
        _mark(response, provenance)
        return GenerateResponse(outputs=result)

    @router.post("/encode", responses=responses(404, 409), openapi_extra=_examples(registry, ENCODING))
    async def encode(asked: EncodeRequest, request: Request, response: Response) -> EncodeResponse:
        """Embed a text."""
        async with registry.encoder(asked.name).use() as model:
            vector = await while_connected(request, model.encode(asked.input))
            _mark(response, model.provenance)
        return EncodeResponse(outputs=vector)

    return router


def _examples(registry: Registry, kinds: frozenset[str], **more: object) -> dict[str, object]:
    """Return a route's examples for the schema: one for each model usable there."""
    names = [model.name for model in registry.spec.models if model.kind in kinds]
    examples = {name: {"value": {"name": name, "input": _STATE, **more}} for name in names}
    return {"requestBody": {"content": {"application/json": {"examples": examples}}}} if examples else {}


async def _generated(registry: Registry, asked: GenerateRequest) -> tuple[list[Generation], Provenance]:
    slot = registry.generator(asked.name)
    if not asked.use_reward:
        async with slot.use() as model:
            return await _suggested(model, asked), model.provenance
    # The progress model first: without it, no tactics are generated.
    async with registry.progress().use() as progress, slot.use() as model:
        result = await _suggested(model, asked)
        if not result:
            return [], model.provenance
        tactics = [one.output for one in result]
        remaining = await progress.remaining(asked.input, tactics, asked.prefix or "")
    rated = [
        Generation(
            output=one.output,
            # 0.0 and not -0.0.
            score=0.0 - steps,
            model_score=one.score,
            steps_remaining=steps,
            reward=0.0 - steps,
        )
        for one, steps in zip(result, remaining, strict=True)
    ]
    return sorted(rated, key=lambda one: -one.score), model.provenance


async def _suggested(model: GeneratingModel, asked: GenerateRequest) -> list[Generation]:
    result = await model.tactics(asked.input, asked.prefix or "")
    return [Generation(output=one.tactic, score=_probability(one.log_probability)) for one in result]


def _probability(log_probability: float) -> float:
    """Return a probability from 0 to 1: Aesop refuses a value rounded above 1."""
    return min(1.0, math.exp(min(0.0, log_probability)))


def _mark(response: Response, provenance: Provenance) -> None:
    if provenance.checkpoint:
        response.headers[CHECKPOINT] = provenance.checkpoint


def _about_itself(registry: Registry) -> APIRouter:
    router = APIRouter(tags=["the server"])

    @router.get("/models", responses=responses(body=False))
    async def models() -> ModelsResponse:
        """List the models and their states."""
        return registry.models()

    @router.get("/health", responses=responses(body=False))
    async def health() -> HealthResponse:
        """Report that the server is alive."""
        return HealthResponse(version=version("everlean"))

    @router.get(
        "/ready",
        responses={**responses(body=False), 503: {"model": ReadyResponse, "description": "It is not ready"}},
    )
    async def ready(response: Response) -> ReadyResponse:
        """Answer whether models are ready: 503 while one is being loaded, or if there is none."""
        result = registry.ready()
        if not result.ready:
            response.status_code = 503
        return result

    @router.get(
        "/metrics",
        response_class=Response,
        responses={**responses(body=False), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Return the server's metrics in Prometheus' text format."""
        return Response(registry.measures.text(), headers={"Content-Type": CONTENT_TYPE})

    return router


_AUTHORIZATION = ' -H "Authorization: Bearer $EVERLEAN_SERVE_TOKEN"'


async def _routes_page(request: Request) -> HTMLResponse:
    """List the routes, each with an example as a command, with the token where this request had to carry it."""
    header = _AUTHORIZATION if "authorization" in request.headers else ""
    lines = [
        "<!doctype html><meta charset=utf-8><title>everlean</title><body style='max-width:50em;margin:2em auto'>"
    ]
    lines += ["<h1>everlean</h1><p><a href=openapi.json>openapi.json</a> has every field."]
    if header:
        lines.append("<p>Every request has to carry the token: put it in $EVERLEAN_SERVE_TOKEN first.")
    for path, methods in request.app.openapi()["paths"].items():
        for method, about in methods.items():
            lines.append(f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(about['summary'])}")
            if told := about.get("description"):
                lines.append(f"<p>{escape(told)}")
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            for example in body.get("examples", {}).values():
                asked = shlex.quote(json.dumps(example["value"], ensure_ascii=False))
                where = shlex.quote(f"{request.base_url}{path.removeprefix('/')}")
                command = f"curl -s {where}{header} -H 'Content-Type: application/json' -d {asked}"
                lines.append(f"<pre style='white-space:pre-wrap'>{escape(command)}</pre>")
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    return HTMLResponse("\n".join(lines), headers={"Content-Security-Policy": policy})


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error)


async def _invalid(_request: Request, error: Exception) -> Response:
    """Name the wrong fields; the request's content is not repeated."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{_field(one)}: {one['msg']}" for one in error.errors()[:_PROBLEMS_TOLD]]
    return problem_response(
        Problem(422, "invalid_request", "; ".join(lines), "GET /openapi.json says what a request looks like")
    )


def _field(error: Any) -> str:
    return ".".join(str(part) for part in error["loc"] if part != "body") or "the body"


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    word = {404: "unknown_path", 405: "wrong_method"}.get(error.status_code, "bad_request")
    return problem_response(
        Problem(
            error.status_code,
            word,
            f"{request.method} {request.url.path[:200]}: {error.detail}",
            "GET /docs lists the routes",
            headers=error.headers,
        )
    )


async def _defect(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(
        Problem(
            500,
            "defect",
            "the server failed, by a defect of its own",
            "send it again; report it, with the request, if it fails again",
        )
    )
