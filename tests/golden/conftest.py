"""Golden outputs: answers about a stored state, which must not change by accident, each in a file of its own.

`EVERLEAN_GOLDEN=write pytest tests/golden` writes them anew; the difference is then git's to show.
"""

from __future__ import annotations

import difflib
import json
import lzma
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden import reach

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs"
_WRITE = os.environ.get("EVERLEAN_GOLDEN") == "write"
_MOST_LINES = 60
"""Of a difference that are shown."""
_VARIES = {"seconds_today", "week", "news", "elan", "python", "sqlite"}
"""Keys of JSON whose values are of the day or of the machine."""

Golden = Callable[[str, str], None]


def _unpack(folder: Path) -> Path:
    """Write the stored state into a folder, as a daemon left it."""
    (folder / "state").mkdir(parents=True)
    shutil.copy(HERE / "state" / "config.toml", folder)
    for name in ("events.db", "database.db"):
        packed = (HERE / "state" / f"{name}.xz").read_bytes()
        (folder / "state" / name).write_bytes(lzma.decompress(packed))
    return folder


@pytest.fixture(scope="session")
def as_left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored state, both databases as they were written then. Not to be changed."""
    return _unpack(tmp_path_factory.mktemp("as-left") / "demo")


@pytest.fixture(scope="session")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored state with a view that this version made of the log. Not to be changed."""
    folder = _unpack(tmp_path_factory.mktemp("rebuilt") / "demo")
    answer = reach.run_verb("db", "rebuild", "--config", str(folder / "config.toml"), home=folder)
    assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def golden() -> Golden:
    """Compare a text with the golden file of that name."""

    def compare(name: str, text: str) -> None:
        path = OUTPUTS / name
        if _WRITE:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        if text == expected:
            return
        lines = list(
            difflib.unified_diff(
                expected.splitlines(),
                text.splitlines(),
                f"{name} (golden)",
                f"{name} (now)",
                lineterm="",
                n=1,
            )
        )
        more = [f"… and {len(lines) - _MOST_LINES} lines more"] if len(lines) > _MOST_LINES else []
        shown = [line if len(line) < 400 else f"{line[:400]}…" for line in lines[:_MOST_LINES]]
        pytest.fail(
            "\n".join([*shown, *more, "on purpose? EVERLEAN_GOLDEN=write pytest tests/golden"]), pytrace=False
        )

    return compare


def normalised(text: str, folder: Path) -> str:
    """Return the text without what depends on where and when it was asked for."""
    text = text.replace(str(folder), "<demo>").replace(str(reach.ROOT), "<root>")
    span = r"\d+(\.\d+)?[smhd](\d+[smh])?"
    return re.sub(rf"just now|\b{span} ago|\bin {span}\b", "<time> ago", text)


def lines_of(document: Any, *, indent: str = "") -> str:
    """Return JSON with sorted keys, where a row of a list has a line of its own, so that differences are by line."""
    if isinstance(document, dict) and len(_compact(document)) > 100 and len(indent) < 4:
        inner = ",\n".join(
            f"{indent} {json.dumps(key)}: {lines_of(_fixed({key: value})[key], indent=indent + ' ')}"
            for key, value in sorted(document.items())
        )
        return f"{{\n{inner}\n{indent}}}"
    if isinstance(document, list) and len(_compact(document)) > 100:
        inner = ",\n".join(f"{indent} {_compact(item)}" for item in document)
        return f"[\n{inner}\n{indent}]"
    return _compact(document)


def _fixed(value: Any) -> Any:
    """Return the value without what is of the day or of the machine, however deep it is."""
    if isinstance(value, dict):
        return {key: "<varies>" if key in _VARIES else _fixed(item) for key, item in value.items()}
    return [_fixed(item) for item in value] if isinstance(value, list) else value


def _compact(value: Any) -> str:
    return json.dumps(_fixed(value), ensure_ascii=False, sort_keys=True)
