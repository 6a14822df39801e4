#!/usr/bin/env python3
"""Run jobs where the daemon's state and cache are not: only what a job's specification lists is there, for tests.

with deployment.daemon(prelude=apart.prelude(settings.paths, folder)):
    ...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_PYTHON, _STATE, _CACHE = "APART_PYTHON", "APART_STATE", "APART_CACHE"
_ALONE = 'test ! -e "$0"/events.db && test ! -e "$0"/database.db && exec "$@"'


def prelude(state: Path, cache: Path, folder: Path) -> str:
    """Return Python that the daemon runs first, by which its jobs run apart.

    Args:
        state, cache: what the jobs do not see.
        folder: for the program that stands in for Python.
    """
    program = folder / "python-apart"
    lines = [
        "#!/bin/sh",
        f"export {_PYTHON}='{sys.executable}' {_STATE}='{state}' {_CACHE}='{cache}'",
        f"exec '{sys.executable}' '{__file__}' \"$@\"",
    ]
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    program.chmod(0o755)
    return (
        "import types; from pipeline.jobs import child; "
        f"child.sys = types.SimpleNamespace(executable={str(program)!r})"
    )


def main(words: list[str]) -> None:
    """Run the job's Python with these words, apart; what freezes its inputs runs beside the daemon."""
    python = os.environ.pop(_PYTHON)
    state, cache = os.environ.pop(_STATE), os.environ.pop(_CACHE)
    if "pipeline.freeze" in words:
        os.execv(python, [python, *words])
    spec = json.loads(Path(words[-1]).read_bytes())
    seen = [spec["directory"], spec["inputs"]["folder"], spec["worktree"], spec["mirror"]]
    folders = [
        path
        for path in spec["folders"].values()
        if any(Path(path).is_relative_to(hidden) for hidden in (state, cache))
    ]
    for folder in folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    binds = [
        word for path in (*seen, *folders) if path and Path(path).exists() for word in ("--bind", path, path)
    ]
    hidden = [
        "--dev-bind",
        "/",
        "/",
        "--tmpfs",
        state,
        "--tmpfs",
        cache,
        *binds,
        "--unsetenv",
        "EVERLEAN_DAEMON_PID",
    ]
    os.execvp(
        "bwrap", ["bwrap", *hidden, "--die-with-parent", "--", "sh", "-c", _ALONE, state, python, *words]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
