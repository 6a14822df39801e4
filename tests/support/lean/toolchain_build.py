"""A finished build in a cache of toolchains, for tests that do not care how it got there."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.lean.toolchain.toolchains import (
    MARKER,
    RECORD,
    REPL,
    Toolchain,
    Toolchains,
    file_record,
    parse_version,
)


def write_build(cache: Path, version: str, *, home: Path, repl: str = "#!/bin/sh\nexit 1\n") -> Toolchain:
    """Write the build for `version` into the cache as an installation leaves it, and return it.

    `home` is an ELAN_HOME; a toolchain's folder with nothing but `bin/lean` in it is made there if it lacks. `repl` is
    the text of the program that stands for the REPL.
    """
    lean = parse_version(version)
    sysroot = home / "toolchains" / lean.elan_folder
    folder = cache / lean.release
    for path, text in ((sysroot / "bin" / "lean", "#!/bin/sh\nexit 1\n"), (folder / REPL, repl)):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            path.chmod(0o755)
    (folder / MARKER).write_text(lean.toolchain + "\n", "utf-8")
    made = Toolchain(
        lean,
        folder,
        sysroot=str(sysroot),
        revision="0" * 40,
        source="file:///nowhere",
        says="0.3 (a stand-in of a test)",
        built_at="2026-01-02T03:04:05+00:00",
        files=tuple(file_record(folder / name) for name in (REPL, MARKER)),
    )
    (folder / RECORD).write_text(json.dumps(made.record()), "utf-8")
    found = Toolchains(cache).find(lean)
    if found is None or found.problem:
        raise RuntimeError(f"{folder}: not written as a build: {found}")
    return found
