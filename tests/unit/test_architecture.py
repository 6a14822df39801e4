"""The shape of the program: imports point downwards, and heavy libraries stay out of the daemon."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("daemon", "pipeline", "store")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LARGE_FOLDER = 3000
"""Lines of a folder, with all below it, from which on its own layers are declared in pyproject.toml."""
CLOSURES = ROOT / "tests/unit/import_closures.toml"
HEAVY = {"torch", "numpy", "transformers", "trl", "peft", "pytorch_lightning", "lightning", "datasets"}


WHOLE = """
import importlib, pkgutil, daemon
for found in pkgutil.walk_packages(daemon.__path__, "daemon."):
    if not found.name.endswith("__main__"): importlib.import_module(found.name)
"""
LOADED = {
    "the daemon and the command line, whole": (WHOLE, HEAVY),
    "the daemon, and the models of the view": ("import daemon.process.run", {"sqlmodel", "sqlalchemy"}),
    "whole proofs by an endpoint": (
        "import pipeline.endpoint.client, pipeline.prove.authors, pipeline.prove.rungs",
        {"torch", "numpy", "transformers", "jinja2"},
    ),
    "what finds premises without a trained retriever": (
        "import pipeline.models.finding, pipeline.serve.retrieve",
        {"torch", "transformers"},
    ),
    "what carries a job elsewhere": (
        "import daemon.jobs.carrier",
        {"daemon.settings", "pipeline.jobs.specs", "store.view", "uvicorn"},
    ),
    "reading": (
        "import store.log.log, store.view.queries, store.view.model_queries, store.view.report_queries",
        {"sqlmodel", "sqlalchemy", "pydantic", "pydantic_core", "torch"},
    ),
    "asking the daemon": (
        "import daemon.place.control_client, daemon.place.lock",
        {"pydantic", "structlog", "httpx2", "sqlalchemy", "starlette", "asyncio", "http", "email", "ssl"},
    ),
}


@pytest.mark.parametrize(("program", "heavy"), LOADED.values(), ids=list(LOADED))
def test_what_starts_often_loads_nothing_that_it_does_without(program: str, heavy: set[str]) -> None:
    """And the package `daemon` is ours, and not python-daemon's."""
    program += f"\nimport sys, daemon; print(sorted({heavy!r} & set(sys.modules)), daemon.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == f"[] {ROOT / 'daemon' / '__init__.py'}"


def changes() -> list[tuple[str, list[tuple[str, str]]]]:
    """The rows of CONTRIBUTING's table: what changes, and the places with what is looked for there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ") and "`" in line]
    return [(row[1].strip(), re.findall(r"`([^`]+)`(?: \(`([^`]+)`\))?", row[2])) for row in rows]


@pytest.mark.parametrize(("change", "places"), changes(), ids=[change for change, _ in changes()])
def test_the_places_of_a_usual_change_exist(change: str, places: list[tuple[str, str]]) -> None:
    """That none is missing, no test can know: an archive or a shallow clone has no history to derive them from."""
    assert places, change
    for path, symbol in places:
        if path.startswith("make "):
            assert re.search(rf"^{path.removeprefix('make ')}:", MAKEFILE, re.MULTILINE), path
            continue
        assert (ROOT / path).exists(), path
        if symbol:
            assert symbol in (ROOT / path).read_text(encoding="utf-8"), f"{path}: {symbol}"


def test_every_large_folder_has_its_layers_and_every_module_in_it_a_place() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    assert not linter.get("exclude_type_checking_imports"), "what is imported for types is an import too"
    layered = {
        container
        for contract in linter["contracts"]
        if contract["type"] == "layers" and contract.get("exhaustive")
        for container in contract.get("containers", ())
    }
    lines: Counter[str] = Counter()
    for package in PACKAGES:
        for module in (ROOT / package).rglob("*.py"):
            number = len(module.read_text(encoding="utf-8").splitlines())
            *folders, _ = module.relative_to(ROOT).parts
            lines.update({".".join(folders[:depth]): number for depth in range(1, len(folders) + 1)})
    large = {folder for folder, number in lines.items() if number > LARGE_FOLDER}
    assert large, "nothing is large: the test looks in the wrong place"
    assert large - layered == set()


def test_no_module_is_too_long_to_read_in_one_go() -> None:
    lengths = {
        str(module.relative_to(ROOT)): len(module.read_text(encoding="utf-8").splitlines())
        for package in PACKAGES
        for module in (ROOT / package).rglob("*.py")
    }
    assert {name: n for name, n in lengths.items() if n > 1000} == {}


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def lines_of(module: str) -> int:
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(file.read_text(encoding="utf-8").splitlines())


def closure(imports: grimp.ImportGraph, starts: Iterable[str]) -> set[str]:
    """All modules that come with these, and the packages that they lie in, which Python loads before them."""
    modules = {module for start in starts for module in {start, *imports.find_upstream_modules(start)}}
    packages = {
        module.rsplit(".", depth)[0] for module in modules for depth in range(1, module.count(".") + 1)
    }
    return modules | packages


@pytest.mark.parametrize(("entrance", "row"), tomllib.loads(CLOSURES.read_text(encoding="utf-8")).items())
def test_no_entrance_imports_more_than_is_written(
    entrance: str, row: dict[str, Any], imports: grimp.ImportGraph
) -> None:
    found = closure(imports, row["starts"])
    lines = sum(map(lines_of, found))
    rooms = Counter(".".join(module.split(".")[:2]) for module in found)
    said = f"{entrance} imports {len(found)} modules of {lines} lines"
    by_room = ", ".join(f"{room} {number}" for room, number in sorted(rooms.items()))
    print(f"{said}: {by_room}")  # noqa: T201 - shown where this fails, and with -rP
    # With room for some hundreds of lines and a few modules more: a sentence in a docstring is no growth.
    write = {"modules": -(-len(found) // 5) * 5, "lines": -(-(lines + 500) // 1000) * 1000}
    numbers = " and ".join(f"{name} = {number}" for name, number in write.items())
    remedy = f"write {numbers} into {CLOSURES.relative_to(ROOT)}"
    for name, number in (("modules", len(found)), ("lines", lines)):
        assert number <= row[name], f"{said}: import less, or {remedy}, and say in the commit why"
        assert number > 0.8 * row[name], (
            f"{said}, far less than is written: {remedy}, or they grow back unseen"
        )
