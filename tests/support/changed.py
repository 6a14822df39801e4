"""`make test-changed`: the test files that a change can affect, chosen by what imports what.

Chosen are changed test files; tests that import a changed module, however indirectly; tests that name a changed file
which is no module; and, since no import leads through a process, the folders of tests that `BY_PROCESS` has for the
room of a changed module. Everything, where the change is to what every test depends on.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath

import grimp

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("daemon", "pipeline", "store", "tests", "benchmarks", "examples", "experiments")
EVERYTHING = ("pyproject.toml", "constraints.txt", "Makefile", "tests/conftest.py")
"""What every test depends on. Of what tests/conftest.py imports only the change of itself counts, or all would."""
ALWAYS = ("tests/unit/test_architecture.py", "tests/acceptance/test_documents.py")
"""They read the whole tree."""
BY_PROCESS = {
    "daemon": ("daemon", "cli", "golden", "e2e", "life"),
    "daemon.cli": ("cli", "golden", "e2e"),
    "daemon.planning.serve_spec": ("daemon", "serve"),
    "daemon.settings": ("cli", "daemon"),
    "pipeline": ("daemon", "e2e"),
    "pipeline.build": ("lean", "e2e"),
    "pipeline.bump": ("bump",),
    "pipeline.count": ("daemon",),
    "pipeline.gate": ("traps", "lean", "e2e"),
    "pipeline.jobs": ("daemon", "e2e", "life"),
    "pipeline.lean": ("lean", "traps", "e2e"),
    "pipeline.models": ("models", "agents", "experiments"),
    "pipeline.prove": ("prove", "lean", "e2e"),
    "pipeline.report": ("report",),
    "pipeline.scan": ("scanner", "daemon", "e2e"),
    "pipeline.serve": ("serve", "agents"),
    "pipeline.trace": ("lean", "e2e"),
    "examples": ("acceptance", "agents"),
    "store": ("store", "daemon", "cli", "golden", "e2e", "life"),
    "store.leandojo": ("store",),
}
"""The folders in tests/ that reach a room through processes; of two rooms that hold a module, the inner one counts."""


def select(root: Path, changed: Collection[str], tests: Sequence[str], graph: grimp.ImportGraph) -> list[str]:
    """Return the test files that a change of files can affect, in order; all paths are relative to `root`."""
    if any(path in EVERYTHING for path in changed):
        return sorted(tests)
    modules = {module for path in changed for module in _modules(path, root, graph)}
    touched = modules | {module for module in graph.modules if _names_one(module, changed, root)}
    affected = touched.union(*map(graph.find_downstream_modules, touched))
    files = {f"{module.replace('.', '/')}.py" for module in affected}
    # Every test below a conftest.py has its fixtures.
    folders = {file.removesuffix("conftest.py") for file in files if file.endswith("/conftest.py")}
    folders.discard("tests/")
    folders |= {f"tests/{folder}/" for module in modules for folder in by_process(module)}
    # What lies in a folder of tests and is neither test nor module is read by a test beside it, or by one above.
    folders |= {_folder_of_data(path, tests) for path in changed if _is_data_of_tests(path)}
    return sorted(
        test for test in tests if test in files or test in ALWAYS or test.startswith(tuple(folders))
    )


def by_process(module: str) -> tuple[str, ...]:
    """Return the folders in tests/ that reach a module through processes."""
    rooms = [room for room in BY_PROCESS if f"{module}.".startswith(f"{room}.")]
    return BY_PROCESS[max(rooms, key=len)] if rooms else ()


def _modules(path: str, root: Path, graph: grimp.ImportGraph) -> set[str]:
    """Return the modules that a changed file is part of: itself, or for what is no module those of its package."""
    place = PurePosixPath(path)
    if place.suffix == ".py" and place.name != "__init__.py":
        return {".".join(place.with_suffix("").parts)} & graph.modules
    # An __init__.py runs before each module of its package; SQL, a template or Lean source is read by one of them.
    for folder in place.parents:
        if (root / folder / "__init__.py").is_file():
            package = ".".join(folder.parts)
            return {package, *graph.find_descendants(package)} if package in graph.modules else set()
    return set()


def _names_one(module: str, changed: Iterable[str], root: Path) -> bool:
    """Return whether a module of tests/ names one of the changed files that are no modules."""
    names = [PurePosixPath(path).name for path in changed if not path.endswith(".py")]
    file = root / f"{module.replace('.', '/')}.py"
    if not names or not module.startswith("tests.") or not file.is_file():
        return False
    pattern = rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-])"
    return re.search(pattern, file.read_text(encoding="utf-8")) is not None


def _is_data_of_tests(path: str) -> bool:
    return path.startswith("tests/") and not path.startswith("tests/support/") and not path.endswith(".py")


def _folder_of_data(path: str, tests: Iterable[str]) -> str:
    folders = {str(PurePosixPath(test).parent) for test in tests}
    nearest = next(folder for folder in PurePosixPath(path).parents if str(folder) in {*folders, "tests"})
    return f"{nearest}/"


def changes(root: Path, base: str) -> list[str]:
    """Return the files that differ from where this branch left `base`, those that git does not have yet among them.

    Raises:
        subprocess.CalledProcessError: `base` is no commit, or has none in common with this branch.
    """
    commit = _git(root, "merge-base", base, "HEAD")[0]
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return sorted({*_git(root, "diff", "--name-only", "--no-renames", commit), *new})


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", "-c", "core.quotePath=false", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def summary(chosen: Sequence[str], tests: Sequence[str], changed: Sequence[str], base: str) -> str:
    """Return what is run and what is left out, for people."""
    left = Counter(test.split("/")[1] for test in tests if test not in chosen)
    folders = ", ".join(f"{folder} {count}" for folder, count in sorted(left.items()))
    return (
        f"{len(changed)} files differ from {base}: {len(chosen)} of {len(tests)} test files can be affected.\n"
        f"Left out, and run by `make test` alone: lint, and of tests/ {folders or 'nothing'}."
    )


def main(base: str) -> int:
    """Print the paths of the tests to run, and to standard error what is left out."""
    try:
        changed = changes(ROOT, base)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip() or "it has no commit in common with this branch"
        print(  # noqa: T201 - a program's message
            f"test-changed: {base}: {reason}; fetch it, or name another commit: make test-changed BASE=HEAD~1",
            file=sys.stderr,
        )
        return 1
    tests = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    chosen = select(ROOT, changed, tests, grimp.build_graph(*PACKAGES, cache_dir=None)) if changed else []
    print(summary(chosen, tests, changed, base), file=sys.stderr)  # noqa: T201
    print(*chosen)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
