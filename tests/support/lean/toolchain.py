"""A Lean toolchain for tests: `elan`, `lake` and `lean`, laid out as elan lays them out. None of it is Lean.

    tools = make_toolchain(tmp_path, version="v4.21.0")     # an ELAN_HOME with one toolchain in it
    tools.lake, tools.sysroot, tools.toolchain              # …/bin/lake, the toolchain's folder, its full name
    tools.configure(answers=[Answer("lean", "#print axioms", "'mine' depends on axioms: [propext]")])
    environment = {"PATH": f"{tools.bin}:/usr/bin:/bin", "ELAN_HOME": str(tools.home)}

Everything that the programs need lies below `tools.home` (and once more below each sysroot), so a sandbox that binds
the sysroot read-only can run them; they read no environment variable but elan's own.

What the programs do is in `tests.support.lean.elan` and `tests.support.lean.lake`. In short:

- `lake build [MODULE…]` clones what lake-manifest.json names into `.lake/packages`, writes one
  `.lake/build/lib/lean/**/X.olean`, `.ilean` and `.trace` a module, skips what is up to date, and names errors as
  lake does.
- `lake env PROGRAM…` sets LEAN_PATH (relative entries) and LEAN_SYSROOT; `lake exe cache get`; `lake update`.
- `lean FILE` answers by the first `Answer` whose pattern is found in the file; without one it looks for `sorry`.
- Loading a lakefile or building a module runs code, as in Lean. A line in `lakefile.lean`, `lakefile.toml` or a
  module that begins with `--! run ` (`#! run ` in TOML) is given to /bin/sh in the project's folder; its exit status
  other than 0 fails the step, a signal ends lake with it. That is how tests make lake hang (`--! run sleep 1000`),
  flood (`--! run yes`), die (`--! run kill -9 $PPID`) or attack (`--! run cat /etc/shadow`). A line `--! error TEXT`
  is a compile error at that line.

The programs live in a folder that a test made, are on no PATH but a test's, and `lean --version` and `lake --version`
say that they are stand-ins.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

VERSION = "v4.21.0"
SETTINGS = "standin.json"
STANDS_IN = "stand-in for tests, not Lean"
_SOURCE = (
    "tests/support/__init__.py",
    "tests/support/lean",
)
_PROGRAMS = {"lean": "lake", "lake": "lake", "leanchecker": "lake", "elan": "elan"}
_LAUNCHER = """#!{interpreter} -IS
import sys
sys.path.insert(0, {library!r})
from tests.support.lean.{module} import main
sys.exit(main({name!r}, sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program says where `pattern` (a regular expression) is found.

    `program` "lean" looks into the text of the file that it is given, "build" into the source of the module to be
    built, "leanchecker" into its arguments. `exit` is the exit status; with "build" the text is what is logged.
    """

    program: Literal["lean", "build", "leanchecker"]
    pattern: str
    text: str = ""
    exit: int = 0


@dataclass(frozen=True, slots=True)
class StandIn:
    """Where the parts of a made toolchain are. `sandboxed` says whether its interpreter is found in a sandbox."""

    home: Path
    toolchain: str
    sysroot: Path
    sandboxed: bool

    @property
    def bin(self) -> Path:
        """The folder for PATH: elan, and its proxies lake and lean, which obey `lean-toolchain`."""
        return self.home / "bin"

    @property
    def elan(self) -> Path:
        return self.bin / "elan"

    @property
    def lake(self) -> Path:
        return self.sysroot / "bin" / "lake"

    @property
    def lean(self) -> Path:
        return self.sysroot / "bin" / "lean"

    def configure(self, *, answers: Sequence[Answer] = (), leanchecker: bool = False) -> None:
        """Rewrite what the programs of this toolchain answer; `leanchecker` puts that program there or not."""
        configure(self.sysroot, answers=answers, leanchecker=leanchecker)


def make_toolchain(
    folder: Path,
    *,
    version: str = VERSION,
    origin: str = "leanprover/lean4",
    releases: Sequence[str] | None = None,
    offline: bool = False,
    answers: Sequence[Answer] = (),
    leanchecker: bool = False,
) -> StandIn:
    """Make an ELAN_HOME in `folder`/elan with the toolchain `origin:version` installed.

    Args:
        releases: full toolchain names that `elan toolchain install` finds; None: every name.
        offline: elan, `lake exe cache get` and the like fail as without a network.
    """
    tools = make_elan(folder, releases=releases, offline=offline)
    toolchain = f"{origin}:{version}"
    sysroot = make_sysroot(tools, toolchain)
    configure(sysroot, answers=answers, leanchecker=leanchecker)
    return StandIn(tools, toolchain, sysroot, sandboxed=interpreter_in_usr() is not None)


def make_elan(folder: Path, *, releases: Sequence[str] | None = None, offline: bool = False) -> Path:
    """Make an ELAN_HOME in `folder`/elan with no toolchain in it, and return it."""
    home = folder / "elan"
    (home / "toolchains").mkdir(parents=True)
    _install_source(home)
    settings = {"releases": None if releases is None else list(releases), "offline": offline}
    (home / SETTINGS).write_text(json.dumps(settings), "utf-8")
    for name in ("elan", "lake", "lean"):
        _launcher(home, name, module="elan")
    return home


def make_sysroot(home: Path, toolchain: str) -> Path:
    """Put a toolchain's folder where elan puts it: `toolchains/leanprover--lean4---v4.21.0`."""
    sysroot = home / "toolchains" / toolchain.replace("/", "--").replace(":", "---")
    sysroot.mkdir()
    _install_source(sysroot)
    for name in ("lean", "lake"):
        _launcher(sysroot, name, module=_PROGRAMS[name])
    offline = bool(json.loads((home / SETTINGS).read_text("utf-8"))["offline"])
    (sysroot / SETTINGS).write_text(
        json.dumps({"toolchain": toolchain, "offline": offline, "answers": []}), "utf-8"
    )
    return sysroot


def configure(sysroot: Path, *, answers: Sequence[Answer], leanchecker: bool) -> None:
    """Write what a toolchain's programs answer."""
    path = sysroot / SETTINGS
    settings = json.loads(path.read_text("utf-8"))
    settings |= {"answers": [asdict(answer) for answer in answers]}
    path.write_text(json.dumps(settings), "utf-8")
    if leanchecker:
        _launcher(sysroot, "leanchecker", module="lake")
    else:
        (sysroot / "bin" / "leanchecker").unlink(missing_ok=True)


def interpreter_in_usr() -> str | None:
    """Return a Python 3.11 or newer that a sandbox sees (below /usr), or None."""
    own = os.path.realpath(sys.executable)
    if own.startswith("/usr/"):
        return own
    for folder in ("/usr/local/bin", "/usr/bin"):
        for minor in (11, 12, 13, 14):
            candidate = Path(folder, f"python3.{minor}")
            if candidate.exists():
                return str(candidate)
    return None


def _interpreter() -> str:
    return interpreter_in_usr() or os.path.realpath(sys.executable)


def _launcher(folder: Path, name: str, *, module: str) -> None:
    library = str(folder / "lib" / "standin")
    text = _LAUNCHER.format(interpreter=_interpreter(), library=library, module=module, name=name)
    _program(folder / "bin" / name, text)


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


def _install_source(folder: Path) -> None:
    """Put this source into `folder`/lib/standin: a sandbox sees nothing of the place where we are installed."""
    shutil.copytree(_compiled_source(), folder / "lib" / "standin", copy_function=_linked, dirs_exist_ok=True)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@functools.lru_cache(maxsize=1)
def _compiled_source() -> Path:
    """Our source, once a process, with byte code: a start without it takes several times as long."""
    root = Path(__file__).resolve().parents[3]
    if root.name == "standin":
        return root  # we are such a copy ourselves
    copy = Path(tempfile.mkdtemp(prefix="standin-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in _SOURCE:
        source, target = root / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    command = [
        _interpreter(),
        "-I",
        "-m",
        "compileall",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        str(copy),
    ]
    # A file that does not compile is the business of the program that imports it.
    subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=60)
    return copy
