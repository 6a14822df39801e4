"""Measure the store: the log, its view, and LeanDojo-v2's database at the same work, if it does it.

    python benchmarks/store.py [--quick] [--only NAME ...] [--peer FOLDER] [--json FILE] [--folder FOLDER]

    commit    one commit that changes 50 theorems, in databases of 5,000, 50,000 and 500,000
    export    export_merged_data of 16,000 and of 160,000 theorems, both splits
    append    durable appends, one by one and by thousands, against sqlite3 without the log's checks
    rebuild   the view of a log of 1,000,000 events, made anew
    status    `everlean status` as a process over 500,000 theorems

Prints a table; --json writes it with the machine and the versions. Every ratio is of two figures of the same
run. The peer is lean-dojo-v2 1.0.9, fetched by pip without its dependencies, or unpacked in --peer FOLDER;
without either, the ratios to it are not measured, and the table says so. --quick does all of it at a fraction
of the size: a test of this program, no measurement. Everything is made in a temporary folder (--folder: in
that one) and removed.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # As a script this file's folder comes first on the path, where `store` is this file.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]

from benchmarks.store_bench import (
    Bench,
    BenchmarkError,
    Row,
    Sizes,
    fetch_peer,
    machine,
    run,
    say,
    table,
    timed,
)
from benchmarks.store_history import record_history
from benchmarks.store_library import STREAM, Library, write_for_leandojo
from store.domain.identity import event_id
from store.leandojo import DynamicDatabase
from store.leandojo.exporting import export_leandojo
from store.leandojo.reading import import_leandojo
from store.log.envelope import Expect, NewEvent, now_text, prepare
from store.log.log import Batch, EventLog
from store.log.reader import LogReader
from store.sqlite import script
from store.view import queries
from store.view.view import View
from tests.support.events import attempt, declaration, place, scanned, sha

WRITERS = 32
EVERLEAN = Path(sys.executable).with_name("everlean")
MIB = 1024 * 1024
SAME_TIME = 1.5
"""The largest ratio of two sizes' times to count as the same: runs on one machine differ by as much."""

REBUILD_PROGRAM = """
import json, sys, time
from pathlib import Path
from store.log.reader import LogReader
from store.view.rebuild import build
log_path, target, upto = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
with LogReader.open(log_path) as log:
    began = time.perf_counter()
    stopped = build(target, log, upto=upto, polls=[])
    seconds = time.perf_counter() - began
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"stopped": stopped, "seconds": seconds, "peak_bytes": peak * 1024}))
"""


# --- the measurements ---------------------------------------------------------------------------------------


def measure_commit(bench: Bench) -> Iterator[Row]:
    """Measure append and projection of a commit's events, as in the daemon: its scan, then its trace."""
    sizes = bench.sizes
    ours: dict[int, float] = {}
    recorded: dict[int, float] = {}
    for n_theorems in sizes.commit:
        appends, took = _commits(bench.library(n_theorems), sizes.repeats)
        recorded[n_theorems], ours[n_theorems] = statistics.median(appends), statistics.median(took)
        what = f"of {n_theorems:,} theorems"
        yield Row("commit", f"recorded, {what}", 1000 * recorded[n_theorems], "ms", samples=tuple(appends))
        yield Row("commit", f"ours, {what}", 1000 * ours[n_theorems], "ms", samples=tuple(took))
    smallest, largest = min(ours), max(ours)
    for name, of in (("recorded", recorded), ("ours", ours)):
        growth = of[largest] / of[smallest]
        yield Row(
            "commit", f"{name}, {largest:,} to {smallest:,}", growth, "x", "about 1", growth < SAME_TIME
        )
    theirs = bench.ask_peer("commit", sizes.commit_peer, times=3)
    yield from _against(
        "commit", f"of {sizes.commit_peer:,} theorems", theirs, ours[sizes.commit_peer], least=100
    )


def _commits(library: Library, times: int) -> tuple[list[float], list[float]]:
    """Return each commit's seconds until it is on disk in the log, and until it is in the view too."""
    recorded, took = [], []
    with (
        EventLog.open(library.events_db) as log,
        log.reader() as reader,
        View.open(library.database_db, reader) as view,
    ):
        for _ in range(times):
            batches = library.next_commit()
            began = time.perf_counter()
            in_log = 0.0
            for events, blobs in batches:
                before = time.perf_counter()
                log.append(events, expect={STREAM: Expect.ANY}, blobs=blobs)
                in_log += time.perf_counter() - before
                view.catch_up()
            recorded.append(in_log)
            took.append(time.perf_counter() - began)
    return recorded, took


def measure_export(bench: Bench) -> Iterator[Row]:
    """Measure an export of everything, both splits, in the place of an earlier one."""
    small, large = bench.sizes.export
    ours: dict[int, float] = {}
    for n_theorems in (small, large):
        library = bench.library(n_theorems)
        out = library.folder.parent / "export"
        took = []
        with LogReader.open(library.events_db) as log, closing(queries.connect(library.database_db)) as view:
            for _ in range(3):
                began = time.perf_counter()
                export_leandojo(out, log=log, view=view, with_database=False)
                took.append(time.perf_counter() - began)
        ours[n_theorems] = min(took)
        yield Row("export", f"ours, {n_theorems:,} theorems", ours[n_theorems], "s", samples=tuple(took))
    growth = ours[large] / ours[small]
    yield Row("export", f"ours, {large:,} to {small:,}", growth, "x", "at most 12", growth <= 12)
    theirs = bench.ask_peer("export", small, times=1)
    yield from _against("export", f"of {small:,} theorems", theirs, ours[small], least=20)


def measure_import(bench: Bench) -> Iterator[Row]:
    """Measure importing LeanDojo's database into an empty log, durably; theirs makes objects in memory."""
    small, _ = bench.sizes.export
    folder = bench.folder / "import"
    folder.mkdir()
    write_for_leandojo(small, folder / "given.json")
    state = {
        "events_db": folder / "events.db",
        "database_db": folder / "database.db",
        "stage": folder / "stage",
    }
    ours = timed(import_leandojo, folder / "given.json", **state)
    yield Row("import", f"ours, {small:,} theorems", ours, "s")
    reads = timed(DynamicDatabase, folder / "given.json")
    yield Row("import", f"ours, {small:,} theorems, objects in memory", reads, "s")
    theirs = bench.ask_peer("import", small, times=1)
    yield from _against("import", f"of {small:,} theorems, objects in memory", theirs, reads, least=0.5)


def measure_append(bench: Bench) -> Iterator[Row]:
    """Measure the log with all its checks, and the same rows by sqlite3 alone, turn by turn."""
    sizes = bench.sizes
    folder = bench.folder / "append"
    folder.mkdir()
    events = [
        [_event(turn, index) for index in range(sizes.batch)] for turn in range(sizes.batches)
    ]  # fmt: skip
    singles = [_event(-1, index) for index in range(sizes.single_appends)]
    with (
        EventLog.open(folder / "events.db") as log,
        closing(_plain(folder / "plain.db")) as plain,
        log.reader() as reader,
        View.open(folder / "database.db", reader) as view,
    ):
        plain_rows = _Plain(plain)
        took: dict[str, list[float]] = {"ours": [], "raw": [], "ours in batches": [], "raw in batches": []}
        for event in singles:
            took["ours"].append(timed(_append, log, [event]))
            took["raw"].append(timed(plain_rows.put, plain_rows.of([event])))
        for batch in events:
            took["ours in batches"].append(timed(_append, log, batch))
            took["raw in batches"].append(timed(plain_rows.put, plain_rows.of(batch)))
        view.catch_up()
        seconds = []
        for index in range(sizes.single_appends // 4):
            _append(log, [_event(-2, index)])
            seconds.append(timed(view.catch_up))
    rates = {name: 1 / statistics.median(times) for name, times in took.items()}
    share = rates["ours"] / rates["raw"]
    yield Row("append", "one by one, ours", rates["ours"], "events/s")
    yield Row("append", "one by one, sqlite3 alone", rates["raw"], "events/s")
    yield Row("append", "one by one, share", 100 * share, "%", "at least 60", share >= 0.6)
    share = rates["ours in batches"] / rates["raw in batches"]
    name = f"in batches of {sizes.batch:,}"
    yield Row("append", f"{name}, ours", sizes.batch * rates["ours in batches"], "events/s")
    yield Row("append", f"{name}, sqlite3 alone", sizes.batch * rates["raw in batches"], "events/s")
    yield Row("append", f"{name}, share", 100 * share, "%", "at least 30", share >= 0.3)
    yield Row("append", "from one append to its row in the view", 1000 * statistics.median(seconds), "ms")
    yield from _measure_waiting(bench)


def _measure_waiting(bench: Bench) -> Iterator[Row]:
    """Measure single appends of writers waiting together and one after the other, turn by turn."""
    took: dict[str, list[float]] = {"together": [], "in turn": []}
    batches = [
        [Batch([_event(turn, index)], {STREAM: Expect.ANY}, {}) for index in range(WRITERS)]
        for turn in range(-4 - bench.sizes.batches, -4)
    ]
    with EventLog.open(bench.folder / "append" / "waiting.db") as log:
        for at, group in enumerate(batches):
            if at % 2:
                took["in turn"].append(timed(lambda group=group: [log.append_all([one]) for one in group]))
            else:
                took["together"].append(timed(log.append_all, group))
    rates = {name: WRITERS / statistics.median(times) for name, times in took.items()}
    for name, rate in rates.items():
        yield Row("append", f"of {WRITERS} writers {name}", rate, "events/s")
    gain = rates["together"] / rates["in turn"]
    yield Row("append", f"of {WRITERS} writers, gain", gain, "times", "at least 5", gain >= 5)


def _event(turn: int, index: int) -> NewEvent:
    scan = scanned("Logic/Basic.lean", [declaration("a")], with_sorry=["a"])
    spot = place(scan, scan.sorries[0], blob=sha("blob", turn, index))
    body = attempt(f"{index:016x}", spot, commit=sha(turn), outcome="exhausted")
    return NewEvent(STREAM, body, event_id=event_id("benchmark", str(turn), str(index)))


def _append(log: EventLog, events: Sequence[NewEvent]) -> None:
    log.append(events, expect={STREAM: Expect.ANY})


def _plain(path: Path) -> sqlite3.Connection:
    """Return the log's tables and indexes without its triggers, as durable as the log's."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(script("log/schema"))
    triggers = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    return connection


class _Plain:
    """Rows of events, made ready beforehand, and put in by one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seq = 0

    def of(self, events: Sequence[NewEvent]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for event in map(prepare, events):
            self._seq += 1
            head = (self._seq, event.event_id, event.stream, self._seq, event.type, event.schema_version)
            rows.append((*head, event.data, now_text(), None, None, None, event.actor))
        return rows

    def put(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(f"INSERT INTO events VALUES ({', '.join('?' * 12)})", rows)
        self._connection.execute("COMMIT")


def measure_rebuild(bench: Bench) -> Iterator[Row]:
    """Measure each rebuild as a process, for its peak memory: of the log's first tenth, then of all of it."""
    folder = bench.folder / "rebuild"
    folder.mkdir()
    n_events = bench.sizes.events
    say(f"recording {n_events:,} events")
    began = time.perf_counter()
    with EventLog.open(folder / "events.db") as log:
        counts = record_history(log, n_events=n_events)
    seconds = time.perf_counter() - began
    mix = ", ".join(f"{100 * count / n_events:.1f}% {name}" for name, count in counts.most_common())
    yield Row("rebuild", "recording the log", n_events / seconds, "events/s", note=mix)
    done: dict[int, dict[str, Any]] = {}
    for upto in (n_events // 10, n_events):
        say(f"rebuild of {upto:,} events")
        target = folder / f"database-{upto}.db"
        command = [sys.executable, "-c", REBUILD_PROGRAM, str(folder / "events.db"), str(target), str(upto)]
        done[upto] = json.loads(run(command))
        if done[upto]["stopped"] is not None:
            raise BenchmarkError(f"the rebuild stopped: {done[upto]['stopped']}")
    tenth, whole = (done[upto] for upto in (n_events // 10, n_events))
    rate = n_events / whole["seconds"]
    yield Row("rebuild", f"of {n_events:,} events", rate, "events/s", "at least 15,000", rate >= 15_000)
    peak = whole["peak_bytes"] / MIB
    yield Row("rebuild", f"peak memory, {n_events:,} events", peak, "MiB", "under 400 MB", peak * MIB < 400e6)
    peak_of_tenth = tenth["peak_bytes"] / MIB
    yield Row("rebuild", f"peak memory, {n_events // 10:,} events", peak_of_tenth, "MiB")
    yield Row(
        "rebuild",
        "peak memory, ten times the log",
        peak / peak_of_tenth,
        "x",
        "about 1",
        peak < 1.5 * peak_of_tenth,
    )


def measure_status(bench: Bench) -> Iterator[Row]:
    """Measure `everlean status --json` from the start of the process to its end, without a daemon."""
    library = bench.library(bench.sizes.status)
    config = library.folder.parent / "config.toml"
    config.write_text(
        '[daemon]\nstate_dir = "state"\ncache_dir = "cache"\nruntime_dir = "run"\n[lean]\nbackend = "none"\n'
    )
    # As installed: compiled, also if the environment forbids writing bytecode.
    compiled = {"PYTHONPYCACHEPREFIX": str(bench.folder / "pycache"), "PYTHONDONTWRITEBYTECODE": ""}
    command = [str(EVERLEAN), "status", "--json", "--config", str(config)]
    document = json.loads(run(command, env=compiled))
    if document["theorems"] < bench.sizes.status:
        raise BenchmarkError(f"status counts {document['theorems']:,} theorems of {bench.sizes.status:,}")
    took = tuple(timed(run, command, env=compiled) for _ in range(bench.sizes.repeats))
    value = 1000 * statistics.median(took)
    what = f"status over {document['theorems']:,} theorems, whole process"
    yield Row("status", what, value, "ms", "under 300", value < 300, samples=took)


def _against(
    of: str, what: str, theirs: Sequence[float] | None, ours: float, *, least: float
) -> Iterator[Row]:
    target = f"at least {least:g}"
    if theirs is None:
        yield Row(of, f"LeanDojo-v2, {what}", None, "s", note="no peer here: not measured")
        yield Row(of, f"LeanDojo-v2 to ours, {what}", None, "x", target, note="no peer here: not measured")
        return
    seconds = statistics.median(theirs)
    yield Row(of, f"LeanDojo-v2, {what}", seconds, "s", samples=tuple(theirs))
    yield Row(of, f"LeanDojo-v2 to ours, {what}", seconds / ours, "x", target, seconds / ours >= least)


MEASUREMENTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "append": measure_append,
    "rebuild": measure_rebuild,
    "commit": measure_commit,
    "export": measure_export,
    "import": measure_import,
    "status": measure_status,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=sorted(MEASUREMENTS), metavar="NAME", help="some of them"
    )
    parser.add_argument("--quick", action="store_true", help="a two-hundredth of the size: does it run?")
    parser.add_argument("--peer", type=Path, metavar="FOLDER", help="where LeanDojo-v2 is unpacked")
    parser.add_argument("--no-peer", action="store_true", help="measure nothing against LeanDojo-v2")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in here (a local disk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args()
    names = [name for name in MEASUREMENTS if not options.only or name in options.only]
    sizes = Sizes().divided(200) if options.quick else Sizes()
    about = machine()
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="everlean-benchmark-", dir=options.folder) as temporary:
            folder = Path(temporary)
            with_peer = not options.no_peer and {"commit", "export", "import"} & set(names)
            peer = options.peer or (fetch_peer(folder) if with_peer else None)
            bench = Bench(folder, sizes, peer.resolve() if peer and not options.no_peer else None)
            for name in names:
                say(f"{name} …")
                rows += MEASUREMENTS[name](bench)
    except BenchmarkError as error:
        print(f"store: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    if options.json:
        document = {"machine": about, "quick": options.quick, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
