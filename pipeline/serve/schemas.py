"""The HTTP schemas: requests, responses, and problems.

Every route reports errors in one JSON shape, with a remedy:

    {"error": what, "reason": why, "remedy": what to do, "detail": "why; what to do"}

`error` is a stable word; clients of FastAPI read `detail`.

The requests and responses of LeanCopilot are reproduced exactly.

`LeanCopilot/Models/External.lean` sends `{"prefix": …, "name": …, "input": …}` and `{"name": …, "input": …}` with curl,
and reads `outputs`: `output` and `score` of a generation; Aesop reads the score as a probability (and refuses values
outside 0 to 1). LeanDojo-v2's server added `use_reward` and its three numbers; they are absent without it, and not
null. Other fields of a request are ignored, as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import JSONResponse


class ProblemBody(BaseModel):
    """The reason for a missing answer."""

    model_config = ConfigDict(frozen=True)

    error: str
    reason: str
    remedy: str
    detail: str


class Problem(Exception):  # noqa: N818 - it is an answer, and no defect
    """An error response: `status` is HTTP's, `error` a stable word, `reason` and `remedy` are for people."""

    def __init__(
        self, status: int, error: str, reason: str, remedy: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.status = status
        self.error = error
        self.reason = reason
        self.remedy = remedy
        self.headers = dict(headers or {})

    def body(self) -> ProblemBody:
        return ProblemBody(
            error=self.error, reason=self.reason, remedy=self.remedy, detail=f"{self.reason}; {self.remedy}"
        )


def problem_response(problem: Problem) -> JSONResponse:
    """Return a problem as the response to send."""
    # A reason may quote the request, and half of a surrogate pair is no UTF-8.
    body = {
        name: text.encode("utf-8", "replace").decode("utf-8")
        for name, text in problem.body().model_dump().items()
    }
    return JSONResponse(body, status_code=problem.status, headers=problem.headers)


State = Literal["loading", "loaded", "waiting", "failed"]

_ASKED = ConfigDict(strict=True, frozen=True)
_ANSWERED = ConfigDict(frozen=True)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""Of a request's integer, behind its `Field`: JSON Schema's 16.0 is one, and "16" and true are none."""
_Finite = Annotated[float, Field(allow_inf_nan=False)]

_WHAT = {
    400: "Bad request",
    401: "The bearer token is missing or wrong",
    403: "A page of another origin sent it",
    404: "Not found",
    409: "It does not fit the model, or what there is now",
    413: "The body is too long",
    421: "Only this machine is answered",
    422: "The body is not as the schema has it",
    429: "The queue is full; Retry-After says when to come again",
    500: "Model error",
    502: "The endpoint behind the model refused or failed",
    503: "The model is not loaded yet, or cannot answer now",
    504: "It took too long",
}
_ALWAYS = (401, 403, 421)
_OF_A_BODY = (400, 413, 422, 429, 500, 503, 504)


def responses(*others: int, body: bool = True) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI error responses of a route: the common ones and `others`.

    Args:
        others: statuses of this route.
        body: whether the route takes a body (and so has a place in the queue).
    """
    statuses = {*_ALWAYS, *(_OF_A_BODY if body else ()), *others}
    return {status: {"model": ProblemBody, "description": _WHAT[status]} for status in sorted(statuses)}


def _left_out(schema: dict[str, Any]) -> None:
    """An absent field has no visible default."""
    schema.pop("default", None)


def _absent(description: str) -> Any:
    return Field(default=None, description=description, json_schema_extra=_left_out)


# Input must not be blank.
_Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class GenerateRequest(BaseModel):
    """The request of LeanCopilot's ExternalGenerator."""

    model_config = _ASKED

    name: str = Field(description="The model; GET /models lists them.")
    input: _Text = Field(
        description="The tactic state, as Lean prints it. What is too long for the model is cut: premises first, then "
        "goals after the first, then the oldest hypotheses."
    )
    prefix: str | None = Field(
        default=None,
        description="The beginning of each tactic. A model that runs here continues it; an endpoint reads it in the "
        "prompt, and what it answers otherwise is left out.",
    )
    use_reward: bool = Field(
        default=False,
        description="Rank by the progress model: score and reward are minus the steps that remain.",
    )


class Generation(BaseModel):
    """A tactic. No one has checked it: it is the model's word, and no proof."""

    model_config = _ANSWERED

    output: str = Field(description="The whole tactic, its prefix with it.")
    score: _Finite = Field(
        description="The model's probability of it, from 0 to 1; of an endpoint's, how often it was suggested. With "
        "use_reward: the reward, 0 or less."
    )
    model_score: _Finite | SkipJsonSchema[None] = _absent("With use_reward: the model's probability.")
    steps_remaining: _Finite | SkipJsonSchema[None] = _absent(
        "With use_reward: the steps that remain, 0 or more."
    )
    reward: _Finite | SkipJsonSchema[None] = _absent("With use_reward: minus the steps that remain.")


class GenerateResponse(BaseModel):
    """The answer to ExternalGenerator: different tactics, the highest score first; empty if the model has none."""

    model_config = _ANSWERED

    outputs: list[Generation]


class EncodeRequest(BaseModel):
    """The request of LeanCopilot's ExternalEncoder."""

    model_config = _ASKED

    name: str = Field(description="The model; GET /models lists them.")
    input: _Text = Field(description="The text. What is too long for the model loses its end.")


class EncodeResponse(BaseModel):
    """The answer to ExternalEncoder."""

    model_config = _ANSWERED

    outputs: list[_Finite] = Field(
        description="The text's vector; a retriever's is scaled to length 1, an encoder's is not."
    )


class ModelInfo(BaseModel):
    """A model of the server."""

    model_config = _ANSWERED

    name: str
    kind: str = Field(
        description="tactics, retrieval and endpoint generate; encoder and retriever encode; progress rates."
    )
    source: str = Field(description="A folder, a name of the hub, the endpoint's name for it, or promoted.")
    state: State = Field(
        description="waiting: nothing has been promoted yet that may be used; failed: it is tried again after a while."
    )
    loaded: bool = Field(description="Whether it can be asked now.")
    reason: str = Field(
        description="Why it cannot be asked, or why a newer checkpoint is not in its place; else empty."
    )
    checkpoint: str = Field(
        description="The checkpoint in use; empty where the model is none of the daemon's."
    )


class ModelsResponse(BaseModel):
    """All models, and the one behind `use_reward`; null if there is none."""

    model_config = _ANSWERED

    models: list[ModelInfo]
    progress: ModelInfo | None


class HealthResponse(BaseModel):
    """The process answers."""

    model_config = _ANSWERED

    status: Literal["ok"] = "ok"
    version: str


class ReadyResponse(BaseModel):
    """The readiness of the server: no model is being loaded, and at least one is ready."""

    model_config = _ANSWERED

    ready: bool
    reason: str = Field(description="Why not; empty where it is.")
    models: Mapping[str, State]
    progress: State | None = Field(description="The model behind use_reward; null without one.")
