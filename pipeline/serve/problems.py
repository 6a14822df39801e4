"""What a client is told when it gets no answer: one shape of JSON for every route, with a remedy.

    {"error": what, "reason": why, "remedy": what to do, "detail": "why; what to do"}

`error` is a stable word; `detail` is where clients of FastAPI look.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse


class ProblemBody(BaseModel):
    """Why there is no answer."""

    model_config = ConfigDict(frozen=True)

    error: str
    reason: str
    remedy: str
    detail: str


class Problem(Exception):  # noqa: N818 - it is an answer, and no defect
    """A request gets no answer: `status` is HTTP's, `error` a stable word, `reason` and `remedy` are for people."""

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
    # What a client sent may stand in a reason, and half of a surrogate pair is no UTF-8.
    told = {
        name: text.encode("utf-8", "replace").decode("utf-8")
        for name, text in problem.body().model_dump().items()
    }
    return JSONResponse(told, status_code=problem.status, headers=problem.headers)
