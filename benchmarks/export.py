"""Measure the gate's speed in reading an export, and its memory.

    python -m benchmarks.export [--megabytes 2000]

The export is made up: terms of constants, applications and binders over one another and a theorem every
hundred lines, about 50 bytes a line, as Lean's are. It is written to a temporary file and read as a closure
is; beside it the same lines are only decoded as JSON. Memory is the process's peak, less its memory before.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.lean.export import FORMAT, read_export

_BYTES_A_LINE = 50


def lines_of(n_lines: int) -> Iterator[str]:
    """Make an export of about `n_lines` lines."""
    rng = random.Random(0)
    yield f'{{"meta":{{"format":{{"version":"{FORMAT}"}}}}}}'
    yield '{"ie":0,"sort":0}'
    names = 0
    for term in range(1, n_lines):
        one, other = rng.randrange(max(term - 1000, 0), term), rng.randrange(term)
        if term % 100 == 1:
            names += 1
            yield f'{{"in":{names},"str":{{"pre":0,"str":"name{names}"}}}}'
            yield f'{{"thm":{{"name":{names},"levelParams":[],"type":{one},"value":{other},"all":[{names}]}}}}'
        if term % 5 == 1:
            yield f'{{"ie":{term},"const":{{"name":{rng.randint(1, names)},"us":[0]}}}}'
        elif term % 5 == 2:
            yield f'{{"ie":{term},"lam":{{"name":0,"type":{one},"body":{other},"binderInfo":"default"}}}}'
        else:
            yield f'{{"ie":{term},"app":{{"fn":{one},"arg":{other}}}}}'


def peak_bytes() -> int:
    """Return this process's peak of memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure, and print a line for each reading."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the export; default: 2000")
    size_bytes = parser.parse_args().megabytes * 10**6
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "export.ndjson"
        with file.open("w", encoding="utf-8") as out:
            n_lines = sum(1 for line in lines_of(size_bytes // _BYTES_A_LINE) if out.write(line + "\n"))
        size, before = file.stat().st_size, peak_bytes()
        began = time.process_time()
        with file.open(encoding="utf-8") as lines:
            export = read_export(line.rstrip("\n") for line in lines)
        read_s, memory = time.process_time() - began, peak_bytes() - before
        began = time.process_time()
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                json.loads(line)
        decoded_s = time.process_time() - began
    print(f"{size / 1e9:.2f} GB, {n_lines:,} lines, {len(export.declared):,} constants")
    print(
        f"read and digested: {read_s:.0f} s of processor, {n_lines / read_s:,.0f} lines a second, {memory / 1e6:.0f} MB"
    )
    print(
        f"decoded as JSON alone: {decoded_s:.0f} s; the whole reading takes {read_s / decoded_s:.1f} times that"
    )


if __name__ == "__main__":
    main()
