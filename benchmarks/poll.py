"""Measure polling: 500 repositories behind a local server in GitHub's place, one in a hundred changing.

    python benchmarks/poll.py [--quick] [--json FILE] [--folder FOLDER] [--rounds N]

The repositories are real git repositories on disk; the server (tests.support.daemon.github) is a process of
its own and so is the poller, whose CPU seconds and memory are its own: git's are counted beside them. A round
asks every repository once, through the daemon's own parts: the turns, the client, the mirrors, the log, the
view.

    first       the first sight of all: mirrors are made, branches recorded
    unchanged   nothing is new: at most a conditional request for each, and under 5 s
    changing    1% of them have a new commit

Prints a table; --json writes it with the machine and the versions. --quick takes a fraction of everything and
only tests this program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # As a script this file's folder comes first on the path, where `store` is a file of the benchmarks.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]

from benchmarks.store_bench import BenchmarkError, Row, machine, say, table

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "the-token-of-the-benchmark"
UNCHANGED_S = 5.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of everything."""

    repositories: int = 500
    rounds: int = 5
    percent: float = 1.0

    @property
    def changing(self) -> int:
        return max(1, round(self.repositories * self.percent / 100))


QUICK = Sizes(repositories=6, rounds=1)


@dataclass(frozen=True, slots=True)
class Round:
    """A round's cost: CPU of the poller itself, of its git and of the server; its memory after it."""

    requests: int
    not_modified: int
    seconds: float
    cpu_s: float
    git_cpu_s: float
    server_cpu_s: float
    rss_mib: float
    changed: int
    unchanged: int


class Child:
    """A process with an answer in JSON for each line."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "EVERLEAN_GITHUB_TOKEN": TOKEN},
            text=True,
        )

    def ask(self, *words: str) -> dict[str, Any]:
        """Write a line and return the answer.

        Raises:
            BenchmarkError: the process ended; its last words are on standard error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise BenchmarkError(f"{self._process.args!r} ended with {self._process.wait()}")
        content: dict[str, Any] = json.loads(answer)
        return content

    def end(self) -> None:
        """Close its input, its signal to end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def make_repositories(folder: Path, number: int) -> list[Path]:
    """Make real repositories of one commit and one file of Lean each, copies of the first."""
    from tests.support.daemon.remote import Remote

    say(f"making {number} repositories")
    result = [folder / "owner" / f"r{index:04}" for index in range(number)]
    first = Remote(result[0])
    first.commit("first", {"A.lean": "theorem one : 1 + 1 = 2 := by sorry\n"})
    for path in result[1:]:
        subprocess.run(["cp", "-r", str(result[0]), str(path)], check=True)
    return result


def commit(path: Path, subject: str) -> None:
    """Add a commit to a repository."""
    from tests.support.daemon.remote import Remote

    Remote.at(path).commit(subject)


@contextmanager
def measured_parts(folder: Path, remotes: Sequence[Path]) -> Iterator[tuple[Child, Child]]:
    """Run the server, and a poller with its state in `folder`."""
    server = Child("benchmarks.poll_server", TOKEN, *map(str, remotes))
    try:
        url = server.ask("url")["url"]
        entries = "\n".join(f'[[repos]]\nurl = "{path}"\n' for path in remotes)
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(
            f'[daemon]\nstate_dir = "state"\n[poll]\nevery = "5m"\n[lean]\nbackend = "none"\n'
            f'[github]\napi_url = "{url}"\n{entries}',
            encoding="utf-8",
        )
        poller = Child("benchmarks.poll_poller", str(folder / "config.toml"))
        try:
            yield server, poller
        finally:
            poller.end()
    finally:
        server.end()


def one_round(server: Child, poller: Child) -> Round:
    """Ask every repository once."""
    server.ask("forget")
    answer = poller.ask("round")
    answered = server.ask("statuses")
    statuses = answered["statuses"]
    return Round(
        requests=sum(statuses.values()),
        not_modified=int(statuses.get("304", 0)),
        server_cpu_s=answered["cpu_s"],
        **answer,
    )


def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """Measure all kinds of round."""
    remotes = make_repositories(folder / "remotes", sizes.repositories)
    with measured_parts(folder / "daemon", remotes) as (server, poller):
        say("first sight")
        first = one_round(server, poller)
        _expect(first, changed=sizes.repositories)
        unchanged, changing = [], []
        for number in range(sizes.rounds):
            say(f"round {number + 1} of {sizes.rounds}")
            unchanged.append(one_round(server, poller))
            _expect(unchanged[-1], changed=0)
            step = sizes.repositories // sizes.changing
            for path in remotes[number % step :: step][: sizes.changing]:
                commit(path, f"change {number}")
            changing.append(one_round(server, poller))
            _expect(changing[-1], changed=sizes.changing)
    n = sizes.repositories
    return [
        *_rows(f"REST, first sight of {n}", [first]),
        *_rows(f"REST, {n} unchanged", unchanged, most_requests=n, most_seconds=UNCHANGED_S),
        *_rows(f"REST, {sizes.changing} of {n} changed", changing),
    ]


def _expect(result: Round, *, changed: int) -> None:
    if result.changed != changed:
        raise BenchmarkError(f"a round found {result.changed} changes where there were {changed}")


def _rows(
    of: str, rounds: Sequence[Round], *, most_requests: int | None = None, most_seconds: float | None = None
) -> list[Row]:
    def row(what: str, values: Sequence[float], unit: str, most: float | None = None) -> Row:
        worst = max(values)
        return Row(
            of,
            what,
            worst,
            unit,
            target="" if most is None else f"at most {most:g}",
            reached=None if most is None else worst <= most,
            samples=tuple(values),
        )

    return [
        row("requests", [one.requests for one in rounds], "requests", most_requests),
        row("of them answered 304", [one.not_modified for one in rounds], "requests"),
        row("time", [one.seconds for one in rounds], "s", most_seconds),
        row("CPU of the poller", [one.cpu_s for one in rounds], "s"),
        row("CPU of git", [one.git_cpu_s for one in rounds], "s"),
        row("CPU of the server", [one.server_cpu_s for one in rounds], "s"),
        row("memory of the poller", [one.rss_mib for one in rounds], "MiB"),
    ]


def about() -> dict[str, Any]:
    """Return the machine and the versions of the run."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    packages = {name: metadata.version(name) for name in ("httpx2", "pydantic", "structlog")}
    return {**machine(), "peer": None, "git": git, "packages": packages}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 0 if every target is reached."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--quick", action="store_true", help="a fraction of everything: only tests this program"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures and what they were measured on"
    )
    parser.add_argument("--folder", type=Path, help="work here instead of in a temporary folder")
    parser.add_argument("--rounds", type=int, help="rounds of each kind; the slowest is reported")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    if options.rounds:
        sizes = Sizes(sizes.repositories, options.rounds, sizes.percent)
    measured_on = about()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="poll-") as folder:
        rows = measure(Path(folder), sizes)
        print(table(rows))
        if options.json:
            document = {
                "quick": options.quick,
                "sizes": asdict(sizes),
                "machine": measured_on,
                "rows": [asdict(row) for row in rows],
            }
            options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if options.quick or all(row.reached is not False for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchmarkError as error:
        sys.exit(f"benchmark: {error}")
