"""What only the running daemon knows or does, through its control socket: progress of jobs, what waits, commands.

The answer is an addition. Where the daemon does not answer, a reading verb still answers from the database, and
`Live.error` says what was wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from daemon import control_client
from daemon.cli.context import Place
from daemon.cli.exits import CliError, ExitCode

TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Live:
    """The daemon's own answer to GET /status; empty where there is none."""

    status: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    permitted: bool = True

    def progress(self, job: str) -> dict[str, Any] | None:
        """Return `{"done", "total", "note"}` of a running job, None where it has said nothing."""
        for item in self.status.get("jobs", []):
            if isinstance(item, dict) and item.get("job") == job:
                progress = item.get("progress")
                return progress if isinstance(progress, dict) and progress else None
        return None

    def progress_text(self, job: str) -> str:
        """Return "3/10 Basic.lean"."""
        progress = self.progress(job)
        if progress is None:
            return ""
        total = progress.get("total")
        count = f"{progress.get('done', 0)}/{total}" if total else str(progress.get("done", 0))
        return f"{count} {progress.get('note') or ''}".strip()


def ask(place: Place) -> Live:
    """Ask the daemon, if one runs and the question is about now."""
    if not place.running or place.moment is not None:
        return Live()
    try:
        status, answer = control_client.request(place.paths, "GET", "/status", timeout_s=TIMEOUT_S)
    except control_client.NotPermittedError as error:
        return Live(error=str(error), permitted=False)
    except control_client.ControlError as error:
        return Live(error=str(error))
    if status != 200:
        return Live(error=f"{place.paths.socket}: GET /status answered {status}; see the daemon's log")
    return Live(status=answer)


def command(place: Place, route: str, body: dict[str, Any]) -> dict[str, Any]:
    """Have the daemon do something; return its answer.

    Raises:
        CliError: nobody listens, or it refused and says why.
    """
    try:
        status, answer = control_client.request(place.paths, "POST", route, body, timeout_s=10)
    except control_client.DaemonNotRunningError as error:
        raise CliError(str(error), code=ExitCode.NOT_RUNNING) from error
    except control_client.ControlError as error:
        raise CliError(str(error)) from error
    if status >= 400:
        raise CliError(str(answer.get("error") or answer.get("message") or f"the daemon answered {status}"))
    return answer
