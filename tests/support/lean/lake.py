"""The stand-in `lake`, `lean` and `leanchecker` of one made toolchain; `toolchain` says how to steer them.

Prints what lake prints (`✔ [2/3] Built A.B`, `error: build failed`, …), keeps its layout (`.lake/build/lib/lean`,
`.lake/packages`) and its habits: the lakefile is evaluated by every command that loads the workspace, packages are
cloned by git at the revision of the manifest, what is up to date is not built again.
"""

# ruff: noqa: T201 - programs print
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.lean.toolchain import SETTINGS, STANDS_IN

_SYSROOT = Path(__file__).resolve().parents[5]
_IMPORT = re.compile(r"^\s*(?:public\s+)?(?:meta\s+)?import\s+(?:all\s+)?([\w.«»']+)", re.MULTILINE)
_LIBRARY = Path(".lake", "build", "lib", "lean")


class Failed(Exception):  # noqa: N818 - named by what happened
    """A step did not succeed; what lake prints has been printed."""


@dataclass(frozen=True, slots=True)
class Said:
    """The messages of one compiled file and whether there is an error among them."""

    text: str
    failed: bool


def main(name: str, arguments: Sequence[str]) -> int:
    settings = json.loads((_SYSROOT / SETTINGS).read_text("utf-8"))
    try:
        if name == "lake":
            return _lake(settings, list(arguments))
        return (
            _leanchecker(settings, arguments) if name == "leanchecker" else _lean(settings, list(arguments))
        )
    except Failed:
        return 1


def _version(settings: dict[str, Any]) -> str:
    return str(settings["toolchain"]).partition(":")[2].removeprefix("v")


def _lean(settings: dict[str, Any], arguments: list[str]) -> int:
    match [word for word in arguments if not word.startswith(("-D", "-R", "--root", "-o", "-i"))]:
        case ["--version"]:
            print(f"Lean (version {_version(settings)}, {STANDS_IN})")
        case ["--print-prefix"]:
            print(_SYSROOT)
        case [file]:
            path = Path(file)
            if not path.is_file():
                return _error(f"file '{file}' not found")
            text = path.read_text("utf-8")
            answer = _answer(settings, "lean", text)
            if answer is not None:
                _show(answer["text"])
                return int(answer["exit"])
            said = _compile(path, text)
            _show(said.text)
            return int(said.failed)
        case _:
            return _error(f"the stand-in lean does not know {' '.join(arguments)}")
    return 0


def _leanchecker(settings: dict[str, Any], arguments: Sequence[str]) -> int:
    answer = _answer(settings, "leanchecker", " ".join(arguments))
    if answer is None:
        return 0
    _show(answer["text"])
    return int(answer["exit"])


def _lake(settings: dict[str, Any], arguments: list[str]) -> int:
    match arguments:
        case ["--version"]:
            print(f"Lake version 5.0.0-src ({STANDS_IN}; Lean version {_version(settings)})")
            return 0
        case ["env", *command]:
            _load_workspace()
            return _env(command)
        case ["build", target] if target.endswith(":release"):
            return _release(settings, _load_workspace(), target.removesuffix(":release"))
        case ["build", *words]:
            packages = _load_workspace()
            return _build(settings, [word for word in words if not word.startswith("-")], packages)
        case ["exe", "cache", *verbs]:
            return _cache(settings, _load_workspace(), verbs)
        case ["update", *_]:
            _load_workspace()
            _show("info: toolchain not updated; no toolchain information found")
            return 0
        case ["exe" | "exec", program, *rest]:
            _load_workspace()
            path = Path(".lake", "build", "bin", program)
            if not path.exists():
                return _error(f"unknown executable {program}")
            return _ended(subprocess.run([str(path), *rest], check=False).returncode)
        case _:
            return _error(f"unknown command '{' '.join(arguments)}'")


def _load_workspace() -> list[str]:
    """Evaluate the lakefile and have the manifest's packages there; return their names."""
    files = [Path(name) for name in ("lakefile.lean", "lakefile.toml") if Path(name).is_file()]
    if not files:
        _error("[root]: no configuration file with a supported extension:\nlakefile.lean\nlakefile.toml")
        raise Failed
    _run_lines(files[0], files[0].read_text("utf-8", errors="replace"))
    manifest = Path("lake-manifest.json")
    if not manifest.is_file():
        return []
    try:
        packages = json.loads(manifest.read_text("utf-8")).get("packages", [])
    except ValueError as problem:
        _error(f"manifest: {problem}")
        raise Failed from problem
    for package in packages:
        if package["type"] == "git":
            _materialize(package)
    return [str(package["name"]) for package in packages]


def _materialize(package: dict[str, Any]) -> None:
    name, folder = package["name"], Path(".lake", "packages", package["name"])
    if not folder.is_dir():
        _show(f"info: {name}: cloning {package['url']}")
        _git("clone", "--quiet", "--no-checkout", package["url"], str(folder))
        _show(f"info: {name}: checking out revision '{package['rev']}'")
        try:
            _git("-C", str(folder), "checkout", "--quiet", "--detach", package["rev"], "--")
        except Failed:
            shutil.rmtree(folder)
            raise


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        _show(done.stderr.decode("utf-8", errors="replace").rstrip())
        _error(f"external command 'git' exited with code {done.returncode}")
        raise Failed


def _env(command: list[str]) -> int:
    packages = sorted(Path(".lake", "packages").glob("*")) if Path(".lake", "packages").is_dir() else []
    libraries = [*(f"./{package / _LIBRARY}" for package in packages), f"./{_LIBRARY}"]
    environment = {
        **os.environ,
        "LEAN_PATH": ":".join(libraries),
        "LEAN_SRC_PATH": ":".join([*(f"./{package}" for package in packages), "."]),
        "LEAN_SYSROOT": str(_SYSROOT),
        "PATH": f"{_SYSROOT}/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
    }
    if not command:
        for name in ("LEAN_SYSROOT", "LEAN_PATH", "LEAN_SRC_PATH", "PATH"):
            print(f"{name}={environment[name]}")
        return 0
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        return _error(f"could not execute external process '{command[0]}'")


def _cache(settings: dict[str, Any], packages: list[str], verbs: list[str]) -> int:
    if "mathlib" not in packages:
        return _error("unknown executable cache")
    if settings["offline"]:
        _show("Attempting to download 1 file(s)\ncurl: (6) Could not resolve host: mathlib4.lean-cache.cloud")
        return 1
    if verbs[:1] in (["get"], ["get!"]):
        _write_outputs(Path(".lake", "packages", "mathlib"), "Mathlib", "from the cache")
        print("Decompressing 1 file(s)\nCompleted successfully!")
    return 0


def _release(settings: dict[str, Any], packages: list[str], name: str) -> int:
    """Fetch the archive that a package's release has of its compiled files."""
    if settings["offline"] or name not in packages:
        return _error(f"{name}:release: failed to fetch GitHub release (run with '-v' for details)")
    _write_outputs(Path(".lake", "packages", name), "Released", "from the release")
    return 0


def _build(settings: dict[str, Any], targets: list[str], packages: list[str]) -> int:
    modules = _modules()
    wanted: list[str] = []
    for target in targets or list(modules):
        name = target.lstrip("+@").partition(":")[0]
        below = [module for module in modules if module == name or module.startswith(f"{name}.")]
        if not below:
            return _error(f"unknown target `{target}`")
        wanted += below
    order: list[str] = []
    for module in wanted:
        _in_order(module, modules, order)
    failed, unreached, hashes = list[str](), set[str](), dict[str, str]()
    for number, module in enumerate(order, 1):
        if any(needed in failed or needed in unreached for needed in _imports(modules[module])):
            unreached.add(module)
        elif not _build_module(settings, module, modules[module], f"[{number}/{len(order)}]", hashes):
            failed.append(module)
    if failed:
        _show("Some required targets logged failures:\n" + "\n".join(f"- {module}" for module in failed))
        return _error("build failed")
    _show(f"Build completed successfully ({len(order) + len(packages)} jobs).")
    return 0


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted(Path().rglob("*.lean")):
        if not path.parts[0].startswith(".") and path.name != "lakefile.lean":
            found[".".join(path.with_suffix("").parts)] = path
    return found


def _imports(path: Path) -> list[str]:
    return [name.replace("«", "").replace("»", "") for name in _IMPORT.findall(path.read_text("utf-8"))]


def _in_order(module: str, modules: dict[str, Path], order: list[str], chain: tuple[str, ...] = ()) -> None:
    if module in chain:
        _error(f"build cycle detected:\n  {' -> '.join([*chain, module])}")
        raise Failed
    if module not in order:
        for needed in _imports(modules[module]):
            if needed in modules:
                _in_order(needed, modules, order, (*chain, module))
        order.append(module)


def _build_module(settings: dict[str, Any], module: str, path: Path, at: str, hashes: dict[str, str]) -> bool:
    text = path.read_text("utf-8")
    parts = [settings["toolchain"], text, *(hashes.get(needed, needed) for needed in _imports(path))]
    hashes[module] = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    trace = _LIBRARY.joinpath(*module.split(".")).with_suffix(".trace")
    if trace.is_file() and json.loads(trace.read_text("utf-8"))["depHash"] == hashes[module]:
        return True
    answer = _answer(settings, "build", text)
    told = None if answer is None else Said(answer["text"], failed=answer["exit"] != 0)
    said = told or _compile(path, text)
    if said.failed:
        _show(f"✖ {at} Building {module}")
        _show(f"trace: .> LEAN_PATH=./{_LIBRARY} {_SYSROOT}/bin/lean {path}\n{said.text}")
        _error("Lean exited with code 1")
        return False
    _show(f"{'⚠' if said.text else '✔'} {at} Built {module}" + (f"\n{said.text}" if said.text else ""))
    _write_outputs(Path(), module, hashes[module])
    return True


def _write_outputs(root: Path, module: str, trace: str) -> None:
    base = (root / _LIBRARY).joinpath(*module.split("."))
    base.parent.mkdir(parents=True, exist_ok=True)
    base.with_suffix(".olean").write_text(f"{STANDS_IN}: {module} {trace}\n", "utf-8")
    base.with_suffix(".ilean").write_text(json.dumps({"module": module}), "utf-8")
    base.with_suffix(".trace").write_text(json.dumps({"depHash": trace}), "utf-8")


def _compile(path: Path, text: str) -> Said:
    """Look for what a file says that is wrong with it, and for sorries; what it tells Lean to run is run."""
    _run_lines(path, text)
    lines, failed = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("--! error "):
            lines.append(f"error: {path}:{number}:0: {line.removeprefix('--! error ')}")
            failed = True
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\bsorry\b", line.partition("--")[0]):
            lines.append(f"warning: {path}:{number}:{line.index('sorry')}: declaration uses 'sorry'")
    return Said("\n".join(lines), failed)


def _run_lines(path: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        command = re.match(r"(?:--|#)! run (.*)", line)
        if command is not None:
            sys.stdout.flush()
            done = _ended(subprocess.run(["/bin/sh", "-c", command[1]], check=False).returncode)
            if done != 0:
                _error(f"{path}:{number}:0: the code here ended with status {done}")
                raise Failed


def _ended(returncode: int) -> int:
    """Die of the signal that a child died of; otherwise pass its status on."""
    if returncode < 0:
        signal.signal(-returncode, signal.SIG_DFL) if -returncode not in (9, 19) else None
        os.kill(os.getpid(), -returncode)
    return returncode


def _answer(settings: dict[str, Any], program: str, text: str) -> dict[str, Any] | None:
    for answer in settings["answers"]:
        if answer["program"] == program and re.search(answer["pattern"], text):
            return dict(answer)
    return None


def _show(text: str) -> None:
    if text:
        print(text, flush=True)


def _error(text: str) -> int:
    sys.stdout.flush()
    print(f"error: {text}", file=sys.stderr, flush=True)
    return 1
