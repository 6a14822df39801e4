"""The common parts of `benchmarks/store.py`'s measurements: sizes, rows, libraries, peer, machine."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.store_library import Library, make_library, write_for_leandojo

PEER = "lean-dojo-v2==1.0.9"
PEER_PROGRAM = Path(__file__).with_name("store_peer.py")


class BenchmarkError(Exception):
    """The benchmark cannot go on; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of everything; `divided` is for a quick look at whether it runs."""

    commit: tuple[int, ...] = (5_000, 50_000, 500_000)
    commit_peer: int = 50_000
    export: tuple[int, int] = (16_000, 160_000)
    single_appends: int = 400
    batches: int = 20
    batch: int = 1_000
    events: int = 1_000_000
    status: int = 500_000
    repeats: int = 9

    def divided(self, by: int) -> Sizes:
        return Sizes(
            commit=tuple(max(250, size // by) for size in self.commit),
            commit_peer=max(250, self.commit_peer // by),
            export=(max(250, self.export[0] // by), max(250, self.export[1] // by)),
            single_appends=20,
            batches=2,
            batch=50,
            events=self.events // by,
            status=max(250, self.status // by),
            repeats=2,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One figure with its target, if any; `reached` is None without a target or a figure."""

    of: str
    what: str
    value: float | None
    unit: str
    target: str = ""
    reached: bool | None = None
    note: str = ""
    samples: tuple[float, ...] = ()


@dataclass(slots=True)
class Bench:
    """The common parts of the measurements: the folder, the amounts, the peer, and the libraries so far."""

    folder: Path
    sizes: Sizes
    peer: Path | None
    libraries: dict[int, Library] = field(default_factory=dict)

    def library(self, n_theorems: int) -> Library:
        if n_theorems not in self.libraries:
            say(f"making a library of {n_theorems:,} theorems")
            folder = self.folder / f"library-{n_theorems}" / "state"
            self.libraries[n_theorems] = make_library(folder, n_theorems)
        return self.libraries[n_theorems]

    def ask_peer(self, what: str, n_theorems: int, *, times: int) -> tuple[float, ...] | None:
        """Have the peer do its work in a process of its own; None without a peer."""
        if self.peer is None:
            return None
        say(f"LeanDojo-v2: {what}, {n_theorems:,} theorems")
        folder = self.folder / f"peer-{what}"
        folder.mkdir()
        source = folder / "given.json"
        write_for_leandojo(n_theorems, source)
        command = [
            sys.executable,
            str(PEER_PROGRAM),
            str(self.peer),
            what,
            str(source),
            str(folder),
            str(times),
        ]
        return tuple(json.loads(run(command)))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def timed(work: Callable[..., object], *arguments: Any, **named: Any) -> float:
    began = time.perf_counter()
    work(*arguments, **named)
    return time.perf_counter() - began


def run(command: Sequence[str], *, env: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )
    if result.returncode:
        raise BenchmarkError(
            f"{' '.join(command[:3])} … ended with {result.returncode}: {result.stderr.strip()[-2000:]}"
        )
    return result.stdout


def fetch_peer(folder: Path) -> Path | None:
    """Install the peer without its dependencies; None if it cannot be fetched."""
    target = folder / "peer"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), PEER]
    try:
        run(command)
    except BenchmarkError as error:
        say(f"no peer, so nothing is measured against it: {error}")
        return None
    return target


def machine() -> dict[str, Any]:
    """Return the machine of the run."""
    processor = platform.processor()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: metadata.version(name) for name in ("pydantic", "sqlmodel", "sqlalchemy")},
        "peer": PEER,
    }


def table(rows: Sequence[Row]) -> str:
    """Return a table of Markdown, one row a figure."""
    lines = ["| | what | measured | target | reached |", "|---|---|---|---|---|"]
    for row in rows:
        value = "not measured" if row.value is None else f"{_round(row.value)} {row.unit}"
        reached = {True: "yes", False: "**no**", None: ""}[row.reached]
        lines.append(f"| {row.of} | {row.what} | {value} | {row.target} | {reached} |")
    return "\n".join(lines)


def _round(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
