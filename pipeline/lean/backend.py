"""Find out what can run Lean here: `pantograph-repl`, the simulator, or nothing. Starts no process.

Looked at in order: the configured path, the REPL inside an installed PyPantograph (found through its files, not
by importing it), `pantograph-repl` on PATH. The package index's `pantograph` is a library for HTML5 canvases;
it is recognised and named. "auto" never chooses the simulator. A REPL that must be sandboxed on a machine
without bubblewrap is no REPL.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pipeline.lean.sandbox import bubblewrap_path

Kind = Literal["pantograph", "simulator", "none"]
Sandbox = Literal["bubblewrap", "none"]

INSTALL_PYPANTOGRAPH = "pip install git+https://github.com/stanford-centaur/PyPantograph"
CHOICES = ("auto", "pantograph", "simulator", "none")


@dataclass(frozen=True, slots=True)
class LeanBackend:
    """What runs Lean. `detail` is one sentence for people; for kind "none" it is the reason and the remedy.

    `toolchain` is the content of the REPL's `lean-toolchain` ("" when unknown), `sysroot` the folder of that
    toolchain where elan has it ("" when not found).
    """

    kind: Kind
    argv: tuple[str, ...]
    detail: str
    toolchain: str
    simulated: bool
    sandbox: Sandbox
    sysroot: str = ""

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "argv": list(self.argv)}

    @classmethod
    def from_json(cls, raw: Mapping[str, object]) -> LeanBackend:
        """Read what `as_json` wrote; anything else is a ValueError."""
        kind, sandbox, argv = raw.get("kind"), raw.get("sandbox"), raw.get("argv")
        if kind not in ("pantograph", "simulator", "none") or sandbox not in ("bubblewrap", "none"):
            raise ValueError(f"lean backend: unknown kind {kind!r} or sandbox {sandbox!r}")
        if not isinstance(argv, list | tuple) or not all(isinstance(word, str) for word in argv):
            raise ValueError("lean backend: argv is no list of strings")
        simulated = raw.get("simulated")
        if not isinstance(simulated, bool) or simulated != (kind == "simulator"):
            raise ValueError(f"lean backend: simulated is {simulated!r} for kind {kind!r}")
        return cls(
            kind="pantograph" if kind == "pantograph" else "simulator" if kind == "simulator" else "none",
            argv=tuple(argv),
            detail=str(raw.get("detail", "")),
            toolchain=str(raw.get("toolchain", "")),
            simulated=simulated,
            sandbox="bubblewrap" if sandbox == "bubblewrap" else "none",
            sysroot=str(raw.get("sysroot", "")),
        )


def find_lean(*, backend: str, repl: str, sandbox: str) -> LeanBackend:
    """Return the backend for the settings `[lean] backend, repl, sandbox`.

    What is asked for and cannot be had comes back as kind "none" with the reason in `detail`.

    Raises:
        ValueError: a setting has none of its words.
    """
    if backend not in CHOICES:
        raise ValueError(f"lean.backend: {backend!r} is none of {', '.join(CHOICES)}")
    if sandbox not in ("bubblewrap", "none"):
        raise ValueError(f"lean.sandbox: {sandbox!r} is neither bubblewrap nor none")
    box: Sandbox = "bubblewrap" if sandbox == "bubblewrap" else "none"
    if backend == "none":
        return _nothing("Lean is switched off by the settings (lean.backend = none)", box)
    if backend == "simulator":
        return LeanBackend(
            kind="simulator",
            # -I: the working directory is somebody's repository; nothing in it may be imported.
            argv=(sys.executable, "-I", "-m", "pipeline.lean.simulator"),
            detail="the simulator: a small logic that speaks Lean's protocol; nothing it accepts is checked by Lean",
            toolchain="",
            simulated=True,
            sandbox="none",
        )
    found, reason = _find_repl(repl)
    if found is None:
        return _nothing(reason, box)
    if box == "bubblewrap" and bubblewrap_path() is None:
        return _nothing(
            f"{found}: found, but repositories' code may only run in a sandbox and bwrap is not on PATH;"
            ' install bubblewrap, or write sandbox = "none" under [lean]',
            box,
        )
    toolchain = _toolchain_of(found)
    sysroot = _sysroot_of(toolchain)
    named = f" for {toolchain}" if toolchain else ""
    return LeanBackend(
        kind="pantograph",
        argv=(str(found),),
        detail=f"pantograph-repl{named} at {found}",
        toolchain=toolchain,
        simulated=False,
        sandbox=box,
        sysroot=str(sysroot) if sysroot else "",
    )


def _nothing(reason: str, sandbox: Sandbox) -> LeanBackend:
    return LeanBackend("none", (), reason, "", simulated=False, sandbox=sandbox)


def _find_repl(configured: str) -> tuple[Path | None, str]:
    """Return the REPL's path, or None and why there is none."""
    if configured:
        path = Path(configured).expanduser().absolute()
        if not path.is_file():
            return (
                None,
                f"{path}: no such file (lean.repl); give the path of a pantograph-repl, or leave it empty",
            )
        if not os.access(path, os.X_OK):
            return None, f"{path}: not executable (lean.repl); chmod +x it"
        return path, ""
    bundled, reason = _bundled_repl()
    if bundled is not None:
        return bundled, ""
    on_path = shutil.which("pantograph-repl")
    if on_path is not None:
        return Path(on_path).absolute(), ""
    return None, reason


def _bundled_repl() -> tuple[Path | None, str]:
    missing = f"no pantograph-repl found: install PyPantograph ({INSTALL_PYPANTOGRAPH}) or set lean.repl"
    spec = importlib.util.find_spec("pantograph")
    if spec is None:
        return None, missing
    for folder in map(Path, spec.submodule_search_locations or ()):
        candidate = folder / "pantograph-repl"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.absolute(), ""
        if (folder / "server.py").is_file() and (folder / "expr.py").is_file():
            return None, (
                f"{folder}: PyPantograph is installed without its pantograph-repl, which its build makes with lake;"
                f" install elan, then: {INSTALL_PYPANTOGRAPH}"
            )
    return None, (
        f"the installed package pantograph{_version_of_pantograph()} is a library for HTML5 canvases, not Lean's"
        f" Pantograph; pip uninstall pantograph, then: {INSTALL_PYPANTOGRAPH}"
    )


def _version_of_pantograph() -> str:
    try:
        return " " + importlib.metadata.version("pantograph")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _toolchain_of(repl: Path) -> str:
    """Read the `lean-toolchain` that PyPantograph's build leaves beside the REPL, or lake's above `.lake`."""
    folders = (repl.parent, *repl.resolve().parents[:5])
    for folder in folders:
        marker = folder / "lean-toolchain"
        if marker.is_file():
            return marker.read_text("utf-8", errors="replace").strip()
    return ""


def _sysroot_of(toolchain: str) -> Path | None:
    if not toolchain:
        return None
    home = Path(os.environ.get("ELAN_HOME") or Path.home() / ".elan")
    folder = home / "toolchains" / toolchain.replace("/", "--").replace(":", "---")
    return folder if (folder / "bin" / "lean").exists() else None
