"""Replay the last real commits of git repositories through the real daemon, one by one, and measure it.

    python -m benchmarks.replay --commits 20 [--folder DIR] [--json FILE] [NAME=]REPOSITORY ...

REPOSITORY is any git directory; it is only read. Each gets a bare remote in the folder (objects shared with
the source) with its default branch set N first-parent commits back. A daemon watches them all (no Lean),
imports the baseline, and then each branch is advanced commit by commit, with a poll of the daemon as by
`everlean poll`. The columns of a commit's row:

    seen after   seconds from `git update-ref` until the commit is scanned in the view
    job, peak    seconds of the scan job as a process, and its peak resident memory
    daemon       resident memory of the daemon afterwards
    files        Lean files read
    opened ...   sorry events of the commit; "context" are moves with changes only in the text around the
        sorry

At the end the daemon gets SIGTERM and `everlean db verify` compares the view with the log. With --folder
everything stays there, for `everlean sorries --config DIR/config.toml`.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from daemon.place.control_client import ControlError, request
from daemon.place.paths import Paths, paths_from_config
from daemon.settings import repository_key
from store.log.reader import LogReader
from store.view import queries
from store.view.rows import JobRow

EVERLEAN = Path(sys.executable).with_name("everlean")
DEADLINE_S = 600.0
LOOK_EVERY_S = 0.02
LIVES = ("opened", "moved", "context", "changed", "filled", "removed")
MIB = 1024 * 1024


class ReplayError(Exception):
    """The replay cannot go on; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """The cost and the results of one commit."""

    repository: str
    sha: str
    subject: str
    baseline: bool
    seen_after_s: float
    job_s: float
    job_peak_rss_bytes: int | None
    daemon_rss_bytes: int
    files: int
    files_failed: int
    lives: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remote:
    """A replayed repository; `commits` are the ones to come, oldest first, `origins` the source's names."""

    name: str
    path: Path
    branch: str
    base: str
    commits: tuple[str, ...]
    origins: dict[str, str]

    @property
    def key(self) -> str:
        return repository_key(str(self.path))

    def advance(self, sha: str) -> None:
        git(self.path, "update-ref", f"refs/heads/{self.branch}", sha)


def git(repository: Path, *arguments: str, text: str = "") -> str:
    result = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if result.returncode:
        raise ReplayError(f"git {' '.join(arguments)} in {repository}: {result.stderr.strip()}")
    return result.stdout.strip()


def make_remote(source: str, folder: Path, commits: int) -> Remote:
    """Clone `[NAME=]REPOSITORY` and set its default branch some commits back."""
    name, _, path = source.rpartition("=")
    original = Path(path).resolve()
    name = name or original.name.removesuffix(".git") or original.parent.name
    target = folder / f"{name}.git"
    if target.exists():
        raise ReplayError(f"{target} exists; give two sources two names (NAME=REPOSITORY), or another folder")
    git(folder, "clone", "--quiet", "--shared", "--bare", str(original), str(target))
    branch = git(target, "symbolic-ref", "--short", "HEAD")
    # One more than the commits: the last of the list is the baseline.
    line = git(target, "rev-list", "--first-parent", f"--max-count={commits + 1}", branch).split()[::-1]
    if len(line) < 2:
        raise ReplayError(f"{source}: branch {branch} has no two commits to replay")
    origins = {sha: sha for sha in line}
    if "\n?" in git(target, "rev-list", "--objects", "--missing=print", branch):
        print(f"{name}: objects are missing in its history; replayed without what is older", file=sys.stderr)
        origins = without_history(target, line)
    base, *later = origins
    remote = Remote(name, target, branch, base, tuple(later), origins)
    remote.advance(remote.base)
    return remote


def without_history(repository: Path, line: list[str]) -> dict[str, str]:
    """Write these commits again, the first without parents: a partial copy cannot be fetched from otherwise.

    Trees, people, dates and messages are the same. Returns the originals by the new names.
    """
    origins: dict[str, str] = {}
    parent = ""
    for sha in line:
        head, _, message = git(repository, "cat-file", "commit", sha).partition("\n\n")
        kept = {row.split(" ")[0]: row for row in head.split("\n") if not row.startswith(" ")}
        rows = [kept["tree"], *([f"parent {parent}"] if parent else []), kept["author"], kept["committer"]]
        text = "\n".join(rows) + f"\n\n{message}\n"
        parent = git(repository, "hash-object", "-t", "commit", "-w", "--stdin", text=text)
        origins[parent] = sha
    return origins


def write_config(folder: Path, remotes: list[Remote]) -> Path:
    config = folder / "config.toml"
    entries = "".join(f"\n[[repos]]\nurl = {json.dumps(str(remote.path))}\n" for remote in remotes)
    config.write_text(
        '[daemon]\nstate_dir = "state"\ncache_dir = "cache"\nruntime_dir = "run"\nlog_format = "json"\n'
        f'[poll]\nevery = "1h"\n[lean]\nbackend = "none"\n{entries}',
        encoding="utf-8",
    )
    return config


class Replay:
    """The daemon's process and its outside: the view, the log, its memory."""

    def __init__(self, config: Path, log: Path) -> None:
        self.paths: Paths = paths_from_config(config)
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(EVERLEAN), "run", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.memory = psutil.Process(self.process.pid)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        if code := self.process.wait(timeout=60):
            raise ReplayError(f"the daemon ended with {code}; see {self.log}")

    def poll(self, remote: Remote) -> None:
        try:
            status, answer = request(self.paths, "POST", "/poll", {"repository": remote.key})
        except ControlError as error:
            raise ReplayError(f"{error}; see {self.log}") from error
        if status != 202:
            raise ReplayError(f"poll of {remote.key}: {status} {answer}")

    def wait_ready(self) -> None:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                request(self.paths, "GET", "/health")
            except ControlError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise ReplayError(f"the daemon does not come up: {error}; see {self.log}") from error
                time.sleep(LOOK_EVERY_S)
            else:
                return

    def wait_scanned(self, remote: Remote, sha: str, *, since: float) -> float:
        """Wait until the commit is scanned in the view; return the seconds since `since`."""
        while not self._is_scanned(remote, sha):
            if self.process.poll() is not None:
                raise ReplayError(f"the daemon ended with {self.process.returncode}; see {self.log}")
            if time.monotonic() - since > DEADLINE_S:
                raise ReplayError(
                    f"{remote.name} {sha[:9]}: not scanned within {DEADLINE_S:.0f} s; see {self.log}"
                )
            time.sleep(LOOK_EVERY_S)
        return time.monotonic() - since

    def _is_scanned(self, remote: Remote, sha: str) -> bool:
        view = queries.connect(self.paths.database_db)
        try:
            for repository in queries.repositories(view):
                if repository.repository == remote.key and repository.state not in ("new", "ok"):
                    raise ReplayError(f"{remote.name} is {repository.state}: {repository.reason}")
            return any(branch.scanned == sha for branch in queries.branches(view, remote.key))
        finally:
            view.close()

    def row(self, remote: Remote, sha: str, *, seen_after_s: float) -> Row:
        """Gather the log's facts on this commit; the job's end is recorded after its events."""
        lives: Counter[str] = Counter()
        files = failed = 0
        job = None
        end = time.monotonic() + 30
        while job is None and time.monotonic() < end:
            time.sleep(LOOK_EVERY_S)
            job = self._job(remote, sha)
        if job is None or job.seconds is None:
            raise ReplayError(f"{remote.name} {sha[:9]}: no ended scan job in the view")
        with LogReader.open(self.paths.events_db) as log:
            for event in log.read(stream=f"repository:{remote.key}"):
                if event.data.get("sha") != sha:
                    continue
                if event.type == "commit_scanned":
                    files, failed = event.data["files_scanned"], event.data["files_failed"]
                elif event.type.startswith("sorry_"):
                    context_only = event.data.get("what") == ["context"]
                    lives["context" if context_only else event.type.removeprefix("sorry_")] += 1
        return Row(
            repository=remote.name,
            sha=remote.origins[sha],
            subject=git(remote.path, "show", "--no-patch", "--format=%s", sha),
            baseline=sha == remote.base,
            seen_after_s=round(seen_after_s, 3),
            job_s=job.seconds,
            job_peak_rss_bytes=job.peak_rss_bytes,
            daemon_rss_bytes=self.memory.memory_info().rss,
            files=files,
            files_failed=failed,
            lives={life: lives[life] for life in LIVES},
        )

    def _job(self, remote: Remote, sha: str) -> JobRow | None:
        view = queries.connect(self.paths.database_db)
        try:
            ended = queries.jobs(view, state="succeeded", kind="scan")
        finally:
            view.close()
        return next((job for job in ended if job.repository == remote.key and job.sha == sha), None)


def replay(daemon: Replay, remotes: list[Remote]) -> list[Row]:
    """Replay the baselines first, then one commit of each repository in turn."""
    begin = time.monotonic()
    rows = []
    daemon.wait_ready()
    for remote in remotes:
        seconds = daemon.wait_scanned(remote, remote.base, since=begin)
        rows.append(daemon.row(remote, remote.base, seen_after_s=seconds))
    for turn in range(max(len(remote.commits) for remote in remotes)):
        for remote in remotes:
            if turn >= len(remote.commits):
                continue
            sha = remote.commits[turn]
            since = time.monotonic()
            remote.advance(sha)
            daemon.poll(remote)
            seconds = daemon.wait_scanned(remote, sha, since=since)
            rows.append(daemon.row(remote, sha, seen_after_s=seconds))
            print(f"{remote.name} {turn + 1}/{len(remote.commits)} {seconds:.2f} s", file=sys.stderr)
    return rows


def _mib(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / MIB:.0f}"


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def tables(rows: list[Row]) -> str:
    """Return tables of Markdown: of the commits of each repository, then of the totals."""
    heads = ("commit", "seen after s", "job s", "peak MiB", "daemon MiB", "files", *LIVES, "subject")
    lines: list[str] = []
    totals = [
        _line("repository", "commits", "median s", "slowest s", "peak MiB", "files", "failed", *LIVES),
        _line(*["---"] * (7 + len(LIVES))),
    ]
    for name in dict.fromkeys(row.repository for row in rows):
        own = [row for row in rows if row.repository == name]
        lines += [f"### {name}", "", _line(*heads), _line(*["---"] * len(heads))]
        for row in own:
            lines.append(
                _line(
                    f"`{row.sha[:9]}`" + (" (baseline)" if row.baseline else ""),
                    f"{row.seen_after_s:.2f}",
                    f"{row.job_s:.2f}",
                    _mib(row.job_peak_rss_bytes),
                    _mib(row.daemon_rss_bytes),
                    row.files,
                    *(row.lives[life] or "" for life in LIVES),
                    row.subject[:60],
                )
            )
        lines.append("")
        later = [row for row in own if not row.baseline]
        seconds = [row.seen_after_s for row in later]
        totals.append(
            _line(
                name,
                len(later),
                f"{statistics.median(seconds):.2f}",
                f"{max(seconds):.2f}",
                _mib(max(row.job_peak_rss_bytes or 0 for row in later)),
                sum(row.files for row in later),
                sum(row.files_failed for row in later),
                *(sum(row.lives[life] for row in later) for life in LIVES),
            )
        )
    return "\n".join([*lines, "### Totals, without the baselines", "", *totals])


def run(sources: list[str], *, commits: int, folder: Path, json_file: Path | None) -> int:
    remotes_folder = folder / "remotes"
    remotes_folder.mkdir(parents=True, exist_ok=True)
    remotes = [make_remote(source, remotes_folder, commits) for source in sources]
    config = write_config(folder, remotes)
    daemon = Replay(config, folder / "daemon.log")
    try:
        rows = replay(daemon, remotes)
    finally:
        daemon.stop()
    print(tables(rows))
    if json_file:
        document = json.dumps([asdict(row) for row in rows], indent=1)
        json_file.write_text(document + "\n", encoding="utf-8")
    verify = [str(EVERLEAN), "db", "verify", "--config", str(config)]
    print("\n$ everlean db verify", flush=True)
    return subprocess.run(verify, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("repositories", nargs="+", metavar="[NAME=]REPOSITORY")
    parser.add_argument("--commits", type=int, default=20, help="how many of each to replay (20)")
    parser.add_argument("--folder", type=Path, help="keep everything here, in place of a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here too")
    options = parser.parse_args()
    try:
        if options.folder:
            folder = options.folder.resolve()
            return run(options.repositories, commits=options.commits, folder=folder, json_file=options.json)
        with tempfile.TemporaryDirectory(prefix="everlean-replay-") as temporary:
            folder = Path(temporary)
            return run(options.repositories, commits=options.commits, folder=folder, json_file=options.json)
    except ReplayError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
