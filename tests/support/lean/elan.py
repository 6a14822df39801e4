"""The stand-in for elan: one file, with nothing but Python's own library, that is copied as `$ELAN_HOME/bin/elan`.

Knows `elan --version` and `elan toolchain install NAME`, which makes the toolchain's folder of `$ELAN_HOME/made`. What
can be installed and whether there is a network is in `$ELAN_HOME/standin.json` (`toolchain.make_elan`).
"""

# ruff: noqa: T201 - programs print
from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Run one command."""
    match list(arguments):
        case ["--version"]:
            print("elan 4.2.3 (stand-in for tests, not Lean)")
        case ["toolchain", "install", toolchain]:
            return _install(Path(os.environ["ELAN_HOME"]), toolchain)
        case _:
            return _fail(f"The subcommand '{' '.join(arguments)}' wasn't recognized")
    return 0


def _install(home: Path, toolchain: str) -> int:
    settings = json.loads((home / "standin.json").read_text("utf-8"))
    release = toolchain.partition(":")[2]
    folder = home / "toolchains" / toolchain.replace("/", "--").replace(":", "---")
    if folder.is_dir():
        return 0  # elan looks no further: whatever is in it counts as installed
    if settings["offline"]:
        return _fail(
            "could not download file from 'https://release.lean-lang.org'\n"
            "info: caused by: [6] Could not resolve hostname (Could not resolve host: release.lean-lang.org)"
        )
    if settings["releases"] is not None and toolchain not in settings["releases"]:
        return _fail(f"no such release: '{release}'")
    shutil.copytree(home / "made", folder)
    print(f"\n  {toolchain} installed - a stand-in for tests, not Lean\n")
    return 0


def _fail(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
