"""Run a command as a task of a Ray cluster, or print the cluster's resources.

    python -m daemon.jobs.ray_task HOST:PORT --gpus 1 --memory 8589934592 -- COMMAND…
    python -m daemon.jobs.ray_task HOST:PORT --look

The command gets this program's standard input, and its standard output comes back in pieces, as they are
written. It runs where Ray finds a CPU and these GPUs and memory; until then it waits. When this process ends,
Ray ends the task. `--look` prints a line of JSON every few seconds, with the total and the free resources.
Needs the extra `ray`; the daemon never loads Ray itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.jobs.protocol import end_with_the_daemon

_PIECE_BYTES = 2**18
_PIECES = 16
"""The pieces on their way after which the command waits."""
_LOOK_EVERY_S = 5.0


def output_of(command: Sequence[str], stdin: bytes) -> Iterator[bytes | int]:
    """Run a command here; yield its output, then its exit status."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(stdin)
            process.stdin.close()
            while piece := os.read(process.stdout.fileno(), _PIECE_BYTES):
                yield piece
            yield process.wait()
        finally:
            process.kill()


def run(ray: Any, command: Sequence[str], stdin: bytes, *, gpus: int, memory_bytes: int) -> int:
    """Run a command in the cluster, write its output, return its exit status."""
    task = ray.remote(output_of).options(
        num_cpus=1,
        num_gpus=gpus,
        memory=memory_bytes,
        num_returns="streaming",
        max_retries=0,
        _generator_backpressure_num_objects=_PIECES,
        # Ray's own variables only: nothing of the daemon's crosses but by standard input.
        runtime_env={},
    )
    for reference in task.remote(list(command), stdin):
        piece: bytes | int = ray.get(reference)
        if isinstance(piece, int):
            return piece
        _write(piece)
    return 1


def look(ray: Any) -> None:
    """Print the cluster's resources, without end."""
    while True:
        there, free = ray.cluster_resources(), ray.available_resources()
        resources = {"cpus": there.get("CPU", 0), "gpus": there.get("GPU", 0)}
        resources |= {"free_cpus": free.get("CPU", 0), "free_gpus": free.get("GPU", 0)}
        _write(json.dumps(resources).encode() + b"\n")
        time.sleep(_LOOK_EVERY_S)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    own, _, command = (list(part) for part in _at_dashes(arguments))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--look", action="store_true")
    options = parser.parse_args(own)
    end_with_the_daemon()
    import ray

    # Ray prints much on standard output, which is the job's.
    ray.init(
        address=options.address,
        namespace="everlean",
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=True,
    )
    if options.look:
        look(ray)
    try:
        return run(ray, command, sys.stdin.buffer.read(), gpus=options.gpus, memory_bytes=options.memory)
    except ray.exceptions.RayError as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)  # noqa: T201
        return 1


def _at_dashes(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at : at + 1], arguments[at + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
