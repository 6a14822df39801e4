"""Measure `everlean diff`: a pull request of 50 made-up files, and the last commits of real repositories.

    python -m benchmarks.diff [--files 50] [--lines 400] [--commits 100] [NAME=FOLDER …]

For the pull request, the whole process is measured, five times: each file has every second theorem proved
anew. For a repository (a clone or bare), every commit is compared with its first parent, in one process; the
table counts the differences, and `--show` prints them, to be read beside the commits' own diffs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pipeline.diff import KINDS, compare_commits
from pipeline.jobs.mirror import Mirror
from pipeline.lean.source.globs import path_filter

RUNS = 5
THEOREM = (
    "theorem t{0} (a b : Nat) (h : a ≤ b) : a ≤ b + {0} := by\n"
    "  have : b ≤ b + {0} := {1}\n"
    "  exact h.trans this\n\n"
)
LINES = THEOREM.count("\n")


def made_up(folder: Path, *, files: int, lines: int) -> None:
    """Write a bare repository with two commits of `files` files."""
    stream = []
    for number in (1, 2):
        stream.append(
            f"commit refs/heads/main\nmark :{number}\ncommitter A <a@example.org> {number} +0000\ndata 1\nx\n"
        )
        stream += [f"from :{number - 1}\n"] * (number - 1)
        for file in range(files):
            proofs = [
                "sorry" if at % 8 == number else f"le_add{number}" if at % 2 else "by omega"
                for at in range(lines // LINES)
            ]
            text = "import Init\n\n" + "".join(THEOREM.format(at, proof) for at, proof in enumerate(proofs))
            stream.append(f"M 100644 inline Made/F{file}.lean\ndata {len(text.encode())}\n{text}\n")
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    subprocess.run(
        ["git", "-C", folder, "fast-import", "--quiet"], input="".join(stream).encode(), check=True
    )


def pull_request(*, files: int, lines: int) -> None:
    """Print the seconds of the whole process, and those of the processor."""
    with tempfile.TemporaryDirectory() as name:
        made_up(Path(name), files=files, lines=lines)
        command = [f"{Path(sys.executable).parent}/everlean", "diff", "-C", name, "main~1", "main"]
        took, busy = [], []
        for _ in range(RUNS):
            before, began = os.times(), time.perf_counter()
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            after = os.times()
            took.append(time.perf_counter() - began)
            busy.append(
                after.children_user + after.children_system - before.children_user - before.children_system
            )
    print(f"{files} files of {lines} lines: {result.stdout.splitlines()[-1]}")
    print(
        f"seconds: median {statistics.median(took):.2f}, best {min(took):.2f}; processor {min(busy):.2f} at best"
    )


def commits(name: str, folder: Path, *, last: int, show: bool) -> None:
    """Print a row for the last first-parent commits of a repository."""
    git = folder / ".git" if (folder / ".git").exists() else folder
    listed = subprocess.run(
        ["git", f"--git-dir={git}", "rev-list", "--first-parent", f"-{last}", "HEAD"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    counts: Counter[str] = Counter()
    busy, files = [], 0
    meant = path_filter((), ())
    with Mirror(git) as mirror:
        for sha in listed:
            base = mirror.commit_of(f"{sha}^")
            if base is None:
                continue
            began = time.process_time()
            result = compare_commits(mirror, base, sha, meant=meant)
            busy.append(time.process_time() - began)
            files += result.files
            counts.update(finding.kind for finding in result.findings)
            if show:
                for finding in result.findings:
                    print(f"{sha[:9]} {finding.path}:{finding.line}: {finding.kind}: {finding.message}")
    row = [f"{len(busy)}", f"{files}", f"{statistics.median(busy):.2f}", f"{max(busy):.2f}"]
    print(f"| {name} | {' | '.join([*row, *(str(counts[kind]) for kind in KINDS)])} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repositories", nargs="*", metavar="NAME=FOLDER")
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--show", action="store_true", help="print every finding")
    options = parser.parse_args()
    pull_request(files=options.files, lines=options.lines)
    print(f"| repository | commits | files | median s | slowest s | {' | '.join(KINDS)} |")
    for repository in options.repositories:
        name, _, folder = repository.partition("=")
        commits(name, Path(folder), last=options.commits, show=options.show)


if __name__ == "__main__":
    main()
