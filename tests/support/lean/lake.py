"""The stand-in for lake: one file, with nothing but Python's own library, copied into a toolchain as `bin/lake`.

Knows what everlean asks of lake: `build [TARGET…]` (a module, `+MODULE`, `@PACKAGE`, `PACKAGE:release`) and
`exe cache get`. Prints what lake prints (`✔ [2/3] Built A.B`, `error: build failed`, …), keeps its layout
(`.lake/build/lib/lean`, `.lake/packages`) and its habits: each command evaluates the lakefile, packages are cloned by
git at the revision of the manifest, what is up to date is not built again, and what it said is said again.

In a toolchain of Lean 4.35.0 itself (`real_gate`) modules are compiled by its `bin/lean`. In one of
`tests.support.lean.toolchain`, which says so in a file, nothing is: there a line of a module that begins with
`--! error TEXT` is an error, a sorry a warning, and lines that begin with `--! run ` (`#! run ` in TOML) are code.
"""

# ruff: noqa: T201 - programs print
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

# It starts some thousand times: what takes long to load is not loaded, or not before it is needed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

SETTINGS = "standin.json"
STANDS_IN = "stand-in for tests, not Lean"
_SYSROOT = Path(__file__).resolve().parent.parent
_IMPORT = re.compile(r"^\s*(?:public\s+)?(?:meta\s+)?import\s+(?:all\s+)?([\w.«»'-]+)", re.MULTILINE)
_LIBRARY = Path(".lake", "build", "lib", "lean")
_PLAIN = re.compile(r'(?:\w+ = "[^"\\\n]*"\n)*\Z')
"""A lakefile that says nothing which is looked for."""


class Failed(Exception):  # noqa: N818 - named by what happened
    """A step did not succeed; what lake prints has been printed."""


class Workspace:
    """A project as its lakefile, its manifest and its folders have it."""

    def __init__(
        self,
        errors: dict[str, str] | None,
        packages: list[str],
        targets: list[str],
        modules: dict[str, Path],
    ) -> None:
        """Args:
        errors: what compiling a module says, by a pattern that is found in its text; None: that is Lean's to say.
        packages: by their names.
        targets: those that `lake build` alone builds.
        modules: the file of each.
        """
        self.errors = errors
        self.packages = packages
        self.targets = targets
        self.modules = modules
        self.hashes: dict[str, str] = {}


def main(arguments: Sequence[str]) -> int:
    """Run one command in this folder, with the toolchain that this program lies in."""
    try:
        match list(arguments):
            case ["--version"]:
                print(f"Lake version 5.0.0-src ({STANDS_IN})")
            case ["build", target] if target.endswith(":release"):
                _release(_workspace(), target.removesuffix(":release"))
            case ["build", *targets]:
                _build(_workspace(), targets)
            case ["exe", "cache", "get"]:
                _cache(_workspace())
            case _:
                _fail(f"unknown command '{' '.join(arguments)}'")
    except Failed:
        return 1
    return 0


def _workspace() -> Workspace:
    """Evaluate the lakefile, and have the manifest's packages there."""
    settings = _SYSROOT / SETTINGS
    table: dict[str, Any] = {}
    for path in filter(Path.is_file, map(Path, ("lakefile.lean", "lakefile.toml"))):
        text = path.read_text("utf-8", errors="replace")
        _run_lines(path, text)
        if path.suffix == ".toml" and not _PLAIN.match(text):
            import tomllib

            try:
                table = tomllib.loads(text)
            except ValueError as problem:
                _fail(f"{path}: {problem}")
        break
    folders = [Path(), *(Path(one["srcDir"]) for one in table.get("lean_lib", ()) if "srcDir" in one)]
    return Workspace(
        json.loads(settings.read_text("utf-8"))["errors"] if settings.is_file() else None,
        _packages(),
        list(table.get("defaultTargets", ())),
        _modules(folders),
    )


def _packages() -> list[str]:
    manifest = Path("lake-manifest.json")
    if not manifest.is_file():
        return []
    try:
        packages = json.loads(manifest.read_text("utf-8")).get("packages", [])
    except ValueError as problem:
        _fail(f"manifest: {problem}")
    for package in packages:
        if package["type"] == "git":
            _materialize(package)
    return [str(package["name"]) for package in packages]


def _materialize(package: dict[str, Any]) -> None:
    name, folder = package["name"], Path(".lake", "packages", package["name"])
    if not folder.is_dir():
        print(f"info: {name}: cloning {package['url']}", flush=True)
        _git("clone", "--quiet", "--no-checkout", package["url"], str(folder))
        print(f"info: {name}: checking out revision '{package['rev']}'", flush=True)
        try:
            _git("-C", str(folder), "checkout", "--quiet", "--detach", package["rev"], "--")
        except Failed:
            shutil.rmtree(folder)
            raise


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        print(done.stderr.decode("utf-8", errors="replace").rstrip(), flush=True)
        _fail(f"external command 'git' exited with code {done.returncode}")


def _modules(folders: Sequence[Path]) -> dict[str, Path]:
    """Return every module below these folders by its name, without the quotes that a strange name has."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.lean")):
            if not path.parts[0].startswith(".") and path != Path("lakefile.lean"):
                found.setdefault(".".join(path.relative_to(folder).with_suffix("").parts), path)
    return found


def _imports(path: Path) -> list[str]:
    return [name.replace("«", "").replace("»", "") for name in _IMPORT.findall(path.read_text("utf-8"))]


def _cache(workspace: Workspace) -> None:
    if "mathlib" not in workspace.packages:
        _fail("unknown executable cache")
    _write_outputs(Path(".lake", "packages", "mathlib"), "Mathlib", "from the cache")
    print("Decompressing 1 file(s)\nCompleted successfully!")


def _release(workspace: Workspace, name: str) -> None:
    """Fetch the archive that a package's release has of its compiled files."""
    if name not in workspace.packages:
        _fail(f"{name}:release: failed to fetch GitHub release (run with '-v' for details)")
    _write_outputs(Path(".lake", "packages", name), "Released", "from the release")


def _build(workspace: Workspace, targets: Sequence[str]) -> None:
    modules, wanted = workspace.modules, list[str]()
    for target in targets or workspace.targets or list(modules):
        name = re.sub("[«»]", "", target.lstrip("+@"))
        if name not in modules:
            _fail(f"unknown target `{target}`")
        wanted.append(name)
    order: list[str] = []
    for module in wanted:
        _in_order(module, modules, order)
    failed, unreached = list[str](), set[str]()
    for number, module in enumerate(order, 1):
        if any(needed in failed or needed in unreached for needed in _imports(modules[module])):
            unreached.add(module)
        elif not _build_module(workspace, module, f"[{number}/{len(order)}]"):
            failed.append(module)
    if failed:
        print("Some required targets logged failures:\n" + "\n".join(f"- {module}" for module in failed))
        _fail("build failed")
    print(f"Build completed successfully ({len(order) + len(workspace.packages)} jobs).")


def _in_order(module: str, modules: dict[str, Path], order: list[str], chain: tuple[str, ...] = ()) -> None:
    if module in chain:
        _fail(f"build cycle detected:\n  {' -> '.join([*chain, module])}")
    if module not in order:
        for needed in _imports(modules[module]):
            if needed in modules:
                _in_order(needed, modules, order, (*chain, module))
        order.append(module)


def _build_module(workspace: Workspace, module: str, at: str) -> bool:
    path, hashes = workspace.modules[module], workspace.hashes
    text = path.read_text("utf-8")
    parts = [str(_SYSROOT), text, *(hashes.get(needed, needed) for needed in _imports(path))]
    data = "\0".join(parts).encode()
    hashes[module] = f"{zlib.crc32(data):08x}{zlib.adler32(data):08x}"
    olean = _olean(Path(), module)
    trace = olean.with_suffix(".trace")
    if trace.is_file() and (kept := json.loads(trace.read_text("utf-8")))["depHash"] == hashes[module]:
        if kept["said"]:
            print(f"⚠ {at} Replayed {module}\n{kept['said']}", flush=True)
        return True
    olean.parent.mkdir(parents=True, exist_ok=True)
    errors = workspace.errors
    said, failed = _compiled(path, olean) if errors is None else _believed(path, text, errors)
    if failed:
        print(f"✖ {at} Building {module}", flush=True)
        print(f"trace: .> LEAN_PATH=./{_LIBRARY} {_SYSROOT}/bin/lean {path}\n{said}", flush=True)
        print("error: Lean exited with code 1", file=sys.stderr, flush=True)
        return False
    print(
        f"{'⚠' if said else '✔'} {at} Built {module}" + (f"\n{said}" if said else ""),
        flush=True,
    )
    if errors is not None:
        _write_outputs(Path(), module, hashes[module])
    trace.write_text(json.dumps({"depHash": hashes[module], "said": said}), "utf-8")
    return True


def _olean(root: Path, module: str) -> Path:
    """Return the path of what a module is compiled to."""
    return root / _LIBRARY / Path(*module.split(".")).with_suffix(".olean")


def _write_outputs(root: Path, module: str, trace: str) -> None:
    olean = _olean(root, module)
    olean.parent.mkdir(parents=True, exist_ok=True)
    olean.write_text(f"{STANDS_IN}: {module} {trace}\n", "utf-8")
    olean.with_suffix(".ilean").write_text(json.dumps({"module": module}), "utf-8")


def _compiled(path: Path, olean: Path) -> tuple[str, bool]:
    """Compile a file with Lean itself; return what it says, and whether it failed."""
    lean = str(_SYSROOT / "bin" / "lean")
    libraries = [one / _LIBRARY for one in Path(".lake", "packages").glob("*")]
    text = Path("lakefile.lean").read_text("utf-8") if Path("lakefile.lean").is_file() else ""
    options = [f"-D{name}={value}" for name, value in re.findall(r"⟨`([\w.]+), (\w+)⟩", text)]
    ran = subprocess.run(
        [lean, "--json", *options, "-o", str(olean), "-i", str(olean.with_suffix(".ilean")), str(path)],
        env={**os.environ, "LEAN_PATH": ":".join(str(one.absolute()) for one in (_LIBRARY, *libraries))},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = []
    for message in map(json.loads, ran.stdout.splitlines()):
        severity = {"information": "info"}.get(message["severity"], message["severity"])
        place = f"{path}:{message['pos']['line']}:{message['pos']['column']}"
        lines.append(f"{severity}: {place}: {message['data']}")
    return "\n".join([*lines, *ran.stderr.splitlines()]), ran.returncode != 0


def _believed(path: Path, text: str, errors: dict[str, str]) -> tuple[str, bool]:
    """Compile nothing, but run what a file has Lean run, and look for marks and sorries."""
    _run_lines(path, text)
    lines = [said for pattern, said in errors.items() if re.search(pattern, text)]
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("--! error "):
            lines.append(f"error: {path}:{number}:0: {line.removeprefix('--! error ')}")
    failed = bool(lines)
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\bsorry\b", line.partition("--")[0]):
            lines.append(f"warning: {path}:{number}:{line.index('sorry')}: declaration uses 'sorry'")
    return "\n".join(lines), failed


def _run_lines(path: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        command = re.match(r"(?:--|#)! run (.*)", line)
        if command is not None:
            sys.stdout.flush()
            status = subprocess.run(["/bin/sh", "-c", command[1]], check=False).returncode
            if status < 0:  # what kills the code that lake runs kills lake
                signal.signal(-status, signal.SIG_DFL) if -status not in (9, 19) else None
                os.kill(os.getpid(), -status)
            if status != 0:
                _fail(f"{path}:{number}:0: the code here ended with status {status}")


def _fail(text: str) -> NoReturn:
    """Print an error of lake's own, and end the command."""
    sys.stdout.flush()
    print(f"error: {text}", file=sys.stderr, flush=True)
    raise Failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
