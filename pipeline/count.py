"""The count job: `python -m pipeline.count --spec spec.json`, with a `CountSpec` as parameters.

Counts the sorries of commits before a branch's first scan, from the bare mirror, as a scan reads them. It has no slot
and runs at the lowest priority. Counts recorded before its end stay, and the next job goes on.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.jobs.protocol import JobSpec, Recorded, Reporter, bad_spec, run_job
from pipeline.jobs.specs import CountSpec
from pipeline.jobs.version import content
from pipeline.lean.source.globs import path_filter
from pipeline.lean.source.scanner import read_file
from store.events.scans import PastCounted

GATHERS_S = 0.5
"""Seconds for which counts wait for more, to be made durable together."""
_LOWEST_PRIORITY = 19


@dataclass(frozen=True, slots=True)
class _Count:
    sorries: int
    failed: bool


def count_commits(spec: JobSpec[CountSpec], reporter: Reporter) -> dict[str, Any]:
    """Count the sorries of the commits, one after the other."""
    started, given = time.monotonic(), spec.parameters
    if spec.mirror is None:
        raise bad_spec(spec.kind, "mirror: there is none")
    os.nice(_LOWEST_PRIORITY)
    meant = path_filter(given.include, given.exclude)
    known: dict[str, _Count] = {}
    waiting: list[Recorded] = []
    sent = started
    with Mirror(spec.mirror) as mirror:
        for done, sha in enumerate(given.commits):
            reporter.progress(done, len(given.commits), sha)
            counts = [_count(mirror, item, known) for item in mirror.files(sha) if meant(item.path)]
            body = PastCounted(
                repository=given.repository,
                branch=given.branch,
                sha=sha,
                sorries=sum(one.sorries for one in counts),
                files=len(counts),
                files_failed=sum(one.failed for one in counts),
            )
            natural_key = given.repository, given.branch, sha
            waiting.append(Recorded(f"repository:{given.repository}", body, natural_key))
            if time.monotonic() - sent > GATHERS_S:
                reporter.events(waiting)
                waiting, sent = [], time.monotonic()
    reporter.events(waiting)
    return {
        "commits": len(given.commits),
        "versions": len(known),
        "seconds": round(time.monotonic() - started, 3),
    }


def _count(mirror: Mirror, item: TreeFile, known: dict[str, _Count]) -> _Count:
    """Count the sorries of a file; most files are the same in commits a week apart."""
    if not item.readable:
        return _Count(0, failed=True)
    if item.blob not in known:
        data = content(mirror, item)
        if isinstance(data, str):
            known[item.blob] = _Count(0, failed=True)
        else:
            scan = read_file(data, path=item.path).scan
            known[item.blob] = _Count(len(scan.sorries), scan.error is not None)
    return known[item.blob]


def main() -> int:
    """Run the job of `--spec`."""
    return run_job(CountSpec, count_commits)


if __name__ == "__main__":
    sys.exit(main())
