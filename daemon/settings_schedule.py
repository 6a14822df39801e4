"""[schedule] of config.toml: when which work is done, what goes first, what makes way; and limits of single kinds.

The hours themselves are `daemon.hours`', what follows from all this for a job is `daemon.timetable`'s.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from daemon.due import PRIORITY, Kind
from daemon.hours import Window
from daemon.settings_fields import Section, Text, duration, table_list
from daemon.settings_types import parse_duration, parse_size

KINDS: tuple[str, ...] = get_args(Kind)
Sort = Literal["poll", "train", "prove"]
"""Work that has quiet hours and can be paused."""
OF_SORT: dict[Kind, Sort] = {
    "prove": "prove",
    "check": "prove",
    "train": "train",
    "train_tactics": "train",
    "train_progress": "train",
    "evaluate": "train",
}
"""The sort of a kind of job; what is not here only stops with everything."""
PREEMPTS = ("prove", "quiet", "pause")
"""What a training or a search that runs may make way for; `prove`: a training alone."""
_SMALLEST_BYTES = 2**28
_LONGEST_S = 30 * 86400.0


def _window(text: str) -> str:
    Window.parse(text)
    return text


def _budget(value: Any) -> Any:
    return None if value in ("", None) else duration(minimum_s=60, maximum_s=86400, example="8h")(value)


def _no_kind(name: object, example: str) -> ValueError:
    return ValueError(
        f'names the kind "{str(name)[:40]}", which no job is of; the kinds are {", ".join(KINDS)}, write for'
        f" instance {example}"
    )


def _kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    example = 'priority = ["check", "scan"]'
    for name in value:
        if name not in KINDS:
            raise _no_kind(name, example)
    if len(set(value)) < len(value):
        raise ValueError(f"names a kind twice; write for instance {example}")
    return value


def _preempt(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if name not in PREEMPTS:
            raise ValueError(
                f'names "{name[:40]}", for which no job makes way; write some of {", ".join(PREEMPTS)}, or []'
            )
    return value


def _running(value: dict[str, Any]) -> dict[str, int]:
    for kind, most in value.items():
        if kind not in KINDS:
            raise _no_kind(kind, "prove = 1")
        if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= 256:
            raise ValueError(
                f"{kind} must be a whole number from 1 to 256 (got {most}); write for instance {kind} = 1"
            )
    return value


class Limit(Section):
    """What the jobs of one kind may take instead of what the table says that they have it from."""

    memory_bytes: int | None = None
    timeout_s: float | None = None


def _limits(value: dict[str, Any]) -> dict[str, Limit]:
    return {kind: _limit(kind, given) for kind, given in value.items()}


def _limit(kind: str, given: Any) -> Limit:
    example = f'{kind} = {{ memory = "8G", timeout = "1h" }}'
    if isinstance(given, Limit):
        return given
    if kind not in KINDS:
        raise _no_kind(kind, 'trace = { memory = "8G" }')
    if kind == "build":
        raise ValueError("build has its limits in a table of its own; write memory and timeout under [build]")
    if not isinstance(given, dict) or not given or set(given) - {"memory", "timeout"}:
        raise ValueError(f"{kind} must have memory, timeout or both, and nothing else; write {example}")
    for name, text in given.items():
        if not isinstance(text, str):
            raise ValueError(f"{kind}.{name} must be a string with a unit (got {text}); write {example}")
    try:
        memory = given.get("memory")
        timeout = given.get("timeout")
        return Limit(
            memory_bytes=None
            if memory is None
            else parse_size(memory, minimum_bytes=_SMALLEST_BYTES, example="8G"),
            timeout_s=None
            if timeout is None
            else parse_duration(timeout, minimum_s=1, maximum_s=_LONGEST_S, example="1h"),
        )
    except ValueError as error:
        raise ValueError(f"{kind}: {error}") from None


Limits = Annotated[dict[str, Any], AfterValidator(_limits)]
"""The limits of single kinds, by kind."""
Hours = Annotated[tuple[Annotated[Text, AfterValidator(_window)], ...], BeforeValidator(table_list)]
Budget = Annotated[float | None, BeforeValidator(_budget)]


class Quiet(Section):
    """[schedule.quiet]: hours in which no work of a sort begins."""

    poll: Hours = Field((), examples=[["22:00-06:00"]])
    train: Hours = Field((), examples=[["mon-fri 08:00-18:00"]])
    prove: Hours = Field((), examples=[["22:00-06:00"]])

    def windows(self, sort: Sort) -> tuple[Window, ...]:
        """Return the quiet hours of a sort of work."""
        return tuple(Window.parse(text) for text in getattr(self, sort))


class PerNight(Section):
    """[schedule.per_night]: how long the jobs of a sort may run from one noon to the next, all of them together."""

    train_s: Budget = Field(None, alias="train", examples=["8h"])
    prove_s: Budget = Field(None, alias="prove", examples=["8h"])

    def seconds(self, sort: Sort) -> float | None:
        """Return what a sort of work may take, None where there is no limit."""
        return {"train": self.train_s, "prove": self.prove_s}.get(sort)


class Schedule(Section):
    """[schedule]: when which work is done, what goes first, and what makes way for what."""

    priority: Annotated[tuple[Text, ...], AfterValidator(_kinds), BeforeValidator(table_list)] = Field(
        (), examples=[["check", "scan"]]
    )
    preempt: Annotated[tuple[Text, ...], AfterValidator(_preempt), BeforeValidator(table_list)] = Field(
        ("quiet", "pause"), examples=[["prove", "quiet", "pause"]]
    )
    grace_s: Annotated[float, BeforeValidator(duration(minimum_s=1, maximum_s=3600, example="1m"))] = Field(
        60.0, alias="grace", examples=["1m"]
    )
    running: Annotated[dict[str, Any], AfterValidator(_running)] = Field(default_factory=dict)
    quiet: Quiet = Field(default_factory=Quiet)
    per_night: PerNight = Field(default_factory=PerNight)

    def urgency(self, kind: Kind) -> int:
        """Return the place of a kind in the queue: the lower go first."""
        order = [*self.priority, *(other for other in PRIORITY if other not in self.priority)]
        return order.index(kind)
