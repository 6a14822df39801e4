"""The log of an experiment: an event log of its own, for measurements to be made only once.

    <folder>/events.db      what was begun, measured and finished; the product's log, with a chain of hashes
    <folder>/...            a trial's working files

A figure's key is its trial's identity, a hash of the trial's part of the file, and its name. A figure in the
log is read and not measured again: after a kill at any moment a run continues with the first missing one, and
a changed file only needs the figures it concerns. A new version of the program measures nothing anew: it
takes another folder. The versions and the machine of each run are events too, and the page reports
differences.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from pydantic import BaseModel

from experiments.file import digest
from store.domain.identity import event_id
from store.events.base import Digest, EventBody, Part
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog

LIBRARIES = ("everlean", "torch", "transformers", "peft", "trl", "numpy")


class Machine(Part):
    """The machine of a run."""

    processor: str
    cores: int
    system: str
    python: str
    gpu: str


class RunBegun(EventBody):
    """A run of the experiment began, on this machine with these versions; `file` is the whole text of its file."""

    type: ClassVar[str] = "experiment_run_begun"
    experiment: str
    file: str
    digest: Digest
    machine: Machine
    versions: dict[str, str]


class FiguresMeasured(EventBody):
    """A trial's figures of one thing, with this process's seconds of processor time for them."""

    type: ClassVar[str] = "experiment_figures_measured"
    experiment: str
    trial: str
    arm: str
    seed: int
    what: str
    figures: dict[str, float]
    seconds: float


class TrialFinished(EventBody):
    """All of a trial is measured. `order`: the names of its parts in working order."""

    type: ClassVar[str] = "experiment_trial_finished"
    experiment: str
    trial: str
    arm: str
    seed: int
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One arm with one seed. `follows_from`: the trial's part of the file."""

    arm: str
    seed: int
    follows_from: tuple[str, ...]

    @property
    def identity(self) -> str:
        content = json.dumps([self.seed, *self.follows_from])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def as_text(part: BaseModel) -> str:
    """Return a part of a file as text, for a trial's `follows_from`."""
    return json.dumps(part.model_dump(mode="json"), sort_keys=True)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The log's results of one trial. `seconds`: of processor time, all its figures together."""

    figures: Mapping[str, Mapping[str, float]]
    order: tuple[str, ...]
    seconds: float


class Lab:
    """The log of an experiment in its folder, open in one process at a time."""

    def __init__(self, folder: Path, name: str, text: str, say: Callable[[str], None]) -> None:
        """Open the log, made if missing, and record the begin of a run.

        Raises:
            LogError: another process has it, it is damaged, or the disk refuses.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.say = folder, name, say
        self._log = EventLog.open(folder / "events.db")
        self._figures: dict[tuple[str, str], FiguresMeasured] = {}
        self._finished: dict[str, TrialFinished] = {}
        try:
            self.runs: list[RunBegun] = []
            with self._log.reader() as reader:
                for event in reader.read():
                    self._take(event.type, event.data_json)
            begun = RunBegun(
                experiment=name, file=text, digest=digest(text), machine=machine(), versions=versions()
            )
            self._append(begun, None)
        except BaseException:
            self._log.close()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._log.close()

    def once(
        self, trial: Trial, what: str, measure: Callable[[], Mapping[str, float]]
    ) -> Mapping[str, float]:
        """Return figures from the log; measure and record missing ones.

        Raises:
            ValueError: a figure is no finite number.
        """
        recorded = self._figures.get((trial.identity, what))
        if recorded is not None:
            return recorded.figures
        began = time.process_time()
        result = dict(measure())
        seconds = time.process_time() - began
        if wrong := [name for name, value in result.items() if not math.isfinite(value)]:
            raise ValueError(f"{trial.arm}, seed {trial.seed}, {what}: {wrong[0]} is {result[wrong[0]]}")
        body = FiguresMeasured(
            experiment=self.name,
            trial=trial.identity,
            arm=trial.arm,
            seed=trial.seed,
            what=what,
            figures=result,
            seconds=seconds,
        )
        self._append(body, event_id("figures of an experiment", trial.identity, what))
        return result

    def each(self, trials: Sequence[Trial]) -> Iterator[Trial]:
        """Yield the unfinished trials, reporting the run's progress before each."""
        due = [trial for trial in trials if self.finished(trial) is None]
        began = time.monotonic()
        for number, trial in enumerate(due):
            left = ""
            if number:
                minutes = (time.monotonic() - began) / number * (len(due) - number) / 60
                left = f", about {max(1, round(minutes))} min left"
            self.say(f"{number + 1} of {len(due)}: {trial.arm}, seed {trial.seed}{left}")
            yield trial

    def finish(self, trial: Trial, order: Sequence[str]) -> None:
        """Record the end of a trial's measurements."""
        body = TrialFinished(
            experiment=self.name,
            trial=trial.identity,
            arm=trial.arm,
            seed=trial.seed,
            order=tuple(order),
        )
        self._append(body, event_id("end of a trial of an experiment", trial.identity))

    def finished(self, trial: Trial) -> TrialResult | None:
        """Return a trial's results; None before its end."""
        ended = self._finished.get(trial.identity)
        if ended is None:
            return None
        own = {what: one for (identity, what), one in self._figures.items() if identity == trial.identity}
        seconds = sum(one.seconds + one.figures.get("processor_seconds", 0.0) for one in own.values())
        return TrialResult({what: one.figures for what, one in own.items()}, ended.order, seconds)

    @property
    def head(self) -> str:
        """The number of events, and the last hash of the log."""
        return f"{self._log.head.seq} events, ending with {self._log.head.hash.hex()[:16]}"

    def _append(self, body: EventBody, identity: str | None) -> None:
        stream = f"experiment:{self.name}"
        event = NewEvent(stream, body, event_id=identity, actor="experiment")
        self._log.append([event], expect={stream: Expect.ANY})
        self._take(body.type, body.model_dump_json())

    def _take(self, kind: str, text: str) -> None:
        match kind:
            case RunBegun.type:
                self.runs.append(RunBegun.model_validate_json(text))
            case FiguresMeasured.type:
                one = FiguresMeasured.model_validate_json(text)
                self._figures[one.trial, one.what] = one
            case TrialFinished.type:
                ended = TrialFinished.model_validate_json(text)
                self._finished[ended.trial] = ended


def versions() -> dict[str, str]:
    """Return the versions of this program and of the installed libraries behind the figures."""
    result = {}
    for name in LIBRARIES:
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return result


def machine() -> Machine:
    """Return the machine of this process."""
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    for line in information.read_text(encoding="utf-8").splitlines() if information.exists() else ():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    import torch

    return Machine(
        processor=processor,
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    )


_T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t for a two-sided interval of 95%, by degrees of freedom."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of Student's 95% interval; infinity for one value, 1.96 deviations beyond ten.

    Raises:
        statistics.StatisticsError: there is no value.
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.inf
    t = _T95.get(len(values) - 1, 1.96)
    return mean, t * statistics.stdev(values) / math.sqrt(len(values))
