"""The stand-in `elan`, and its proxies `lake` and `lean`, which run the toolchain that `lean-toolchain` names.

Knows `elan --version`, `elan show`, `elan which PROGRAM` and `elan toolchain install|list|uninstall`. What can be
installed and whether there is a network is in `$ELAN_HOME/standin.json` (`toolchain.make_elan`).
"""

# ruff: noqa: T201 - programs print
from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.lean.toolchain import SETTINGS, STANDS_IN, make_sysroot

_NAME = re.compile(r"(?:([a-zA-Z0-9-_]+/[a-zA-Z0-9-_]+):)?([a-zA-Z0-9-.]+)")


def main(name: str, arguments: Sequence[str]) -> int:
    home = Path(os.environ.get("ELAN_HOME") or Path.home() / ".elan")
    if name != "elan":
        return _proxy(home, name, arguments)
    match list(arguments):
        case ["--version"]:
            print(f"elan 4.2.3 ({STANDS_IN})")
        case ["toolchain", "install", *names] if names:
            return max(_install(home, each) for each in names)
        case ["toolchain", "list"]:
            for folder in sorted((home / "toolchains").iterdir()):
                print(folder.name.replace("---", ":").replace("--", "/"))
        case ["toolchain", "uninstall", each]:
            return _uninstall(home, each)
        case ["which", program]:
            sysroot = _active(home)
            if sysroot is None:
                return _error("no default toolchain configured")
            print(sysroot / "bin" / program)
        case ["show"]:
            print(_active(home) or "no active toolchain")
        case _:
            return _error(f"The subcommand '{' '.join(arguments)}' wasn't recognized")
    return 0


def _full_name(name: str) -> str | None:
    """Complete a name as elan does; None where it is no name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    origin, release = found[1] or "leanprover/lean4", found[2]
    if release.startswith("nightly") and not origin.endswith("-nightly"):
        origin += "-nightly"
    return f"{origin}:{'v' + release if release[0].isdigit() else release}"


def _folder_name(toolchain: str) -> str:
    return toolchain.replace("/", "--").replace(":", "---")


def _install(home: Path, name: str) -> int:
    toolchain = _full_name(name)
    if toolchain is None:
        return _error(f"invalid toolchain name: '{name}'")
    settings = json.loads((home / SETTINGS).read_text("utf-8"))
    release = toolchain.partition(":")[2]
    folder = home / "toolchains" / _folder_name(toolchain)
    if folder.is_dir():
        return 0  # elan looks no further: whatever is in it counts as installed
    if settings["offline"]:
        return _error(
            "could not download file from 'https://release.lean-lang.org'",
            "[6] Could not resolve hostname (Could not resolve host: release.lean-lang.org)",
        )
    if settings["releases"] is not None and toolchain not in settings["releases"]:
        return _error(f"no such release: '{release}'")
    _say(f"info: downloading https://releases.lean-lang.org/lean4/{release}/lean-{release[1:]}-linux.tar.zst")
    _say(f"info: installing {folder}")
    make_sysroot(home, toolchain)
    print(f"\n  {toolchain} installed - Lean (version {release.removeprefix('v')}, {STANDS_IN})\n")
    return 0


def _uninstall(home: Path, name: str) -> int:
    toolchain = _full_name(name)
    folder = home / "toolchains" / _folder_name(toolchain or "")
    if toolchain is None or not folder.is_dir():
        return _error(f"toolchain '{name}' is not installed")
    shutil.rmtree(folder)
    return 0


def _active(home: Path) -> Path | None:
    name = os.environ.get("ELAN_TOOLCHAIN", "")
    for folder in (Path.cwd(), *Path.cwd().parents):
        marker = folder / "lean-toolchain"
        if not name and marker.is_file():
            name = marker.read_text("utf-8").strip()
    toolchain = _full_name(name) if name else None
    return None if toolchain is None else home / "toolchains" / _folder_name(toolchain)


def _proxy(home: Path, program: str, arguments: Sequence[str]) -> int:
    sysroot = _active(home)
    if sysroot is None:
        return _error("no default toolchain configured. run `elan default stable` to install & configure one")
    if not sysroot.exists():
        # As elan does: a proxy that lacks its toolchain goes and gets it.
        installed = _install(home, sysroot.name.replace("---", ":").replace("--", "/"))
        if installed != 0:
            return installed
    path = sysroot / "bin" / program
    if not path.exists():
        return _error(f"toolchain '{sysroot.name}' does not have the binary `{program}`")
    return os.execv(path, [str(path), *arguments])


def _error(text: str, cause: str = "") -> int:
    _say(f"error: {text}" + (f"\ninfo: caused by: {cause}" if cause else ""))
    return 1


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
