"""What a docstring, a comment or a page of the documentation names is there: modules, what is in them, and files.

A docstring that names its own module is a leftover of a module that was joined to another. It may only say how it is
run (`python -m …`) or imported.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "daemon|store|pipeline|tests|benchmarks|experiments"
DOTTED = re.compile(rf"(?<![\w./-])(?:{PACKAGES})(?:\.\w+)+(?![\w(]*/)")
A_FILE = re.compile(
    rf"(?<![\w./-])(?:(?:{PACKAGES}|docs|examples|systemd|locks)/)(?:[\w.-]+/)*[\w-]+\.\w+(?!\w)"
)
RUN_OR_IMPORTED = re.compile(r"(?:-m|from|import)\s+\Z")
FILE_ENDINGS = ("log", "md", "json", "py")
"""`daemon.log` is a file, and no module of that name is missing."""
AN_IMPORT = re.compile(rf"^ *(?:from|import) (?:{PACKAGES})\b.*", re.MULTILINE)


def listed() -> frozenset[str]:
    """The files of the repository; of an unpacked archive, all that lie there."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return frozenset(filter(None, done.stdout.split("\0")))
    return frozenset(str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file())


FILES = listed()
SOURCES = sorted(name for name in FILES if name.endswith(".py") and (ROOT / name).exists())
PAGES = sorted(name for name in FILES if name.endswith(".md") and (ROOT / name).exists())
MODULES = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in SOURCES}


@cache
def words_of(module: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", (ROOT / MODULES[module]).read_text(encoding="utf-8")))


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings, the texts below constants and fields, and the comments, each with its line."""
    code = AN_IMPORT.sub("", source)
    if not (DOTTED.search(code) or A_FILE.search(code)):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
    if not any(DOTTED.search(text) or A_FILE.search(text) for text in re.findall("#.*", code)):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def complaint(name: str, own: str) -> str | None:
    """Why a dotted name may not stand in the module `own`."""
    parts = name.split(".")
    known = next((at for at in range(len(parts), 0, -1) if ".".join(parts[:at]) in MODULES), 0)
    module = ".".join(parts[:known])
    if known and (known == len(parts) or parts[known] in words_of(module)):
        return f"it names itself: {name}" if module == own else None
    return None if parts[-1] in FILE_ENDINGS else f"there is no {name}"


def wrong(text: str, own: str = "") -> Iterator[str]:
    for match in DOTTED.finditer(text):
        used = RUN_OR_IMPORTED.search(text, 0, match.start()) is not None
        if told := complaint(match.group(), "" if used else own):
            yield told
    for match in A_FILE.finditer(text):
        if match.group() not in FILES:
            yield f"there is no file {match.group()}"


@pytest.mark.parametrize("package", sorted({name.split("/")[0] for name in SOURCES}))
def test_no_docstring_and_no_comment_names_its_own_module_or_what_is_gone(package: str) -> None:
    found = []
    for name in SOURCES:
        if name.split("/")[0] == package:
            own = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for line, text in prose((ROOT / name).read_text(encoding="utf-8")):
                found += [f"{name}:{line}: {told}" for told in wrong(text, own)]
    assert found == []


def test_no_page_names_a_module_or_a_file_that_is_gone() -> None:
    found = [f"{name}: {told}" for name in PAGES for told in wrong((ROOT / name).read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see `store.log.log`", None),
        ("see `store.log.log.EventLog`", None),
        ("see `store.gone`", "there is no store.gone"),
        ("see `store.log.log.Gone`", "there is no store.log.log.Gone"),
        ("see `daemon.state.clock`", "it names itself: daemon.state.clock"),
        ("`python -m daemon.state.clock`", None),
        ("    from daemon.state.clock import elapsed_s", None),
        ("`python -m daemon.gone`", "there is no daemon.gone"),
        ("in `pipeline/scan.py`", None),
        ("in `pipeline/gone.py`", "there is no file pipeline/gone.py"),
        ("in `docs/gone.md`", "there is no file docs/gone.md"),
    ],
)
def test_what_is_looked_for_is_found(text: str, expected: str | None) -> None:
    assert next(wrong(text, "daemon.state.clock"), None) == expected
