"""`make test-changed` leaves out no test that a change can affect, and little else is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests.support import changed
from tests.support.changed import ALWAYS, BY_PROCESS, EVERYTHING, PACKAGES, ROOT, by_process, changes, select
from tests.support.daemon.remote import git

FILES = {
    "daemon/__init__.py": "",
    "daemon/run.py": "def go():\n    from pipeline import scan\n",
    "pipeline/__init__.py": "",
    "pipeline/scan.py": "import store.rows\n",
    "pipeline/prove/__init__.py": "",
    "pipeline/prove/search.py": "",
    "store/__init__.py": "",
    "store/rows.py": "",
    "store/view/__init__.py": "",
    "store/view/tables.py": "",
    "store/view/schema.sql": "",
    "docs/cli.md": "",
    "tests/conftest.py": "import store.rows\n",
    "tests/support/__init__.py": "",
    "tests/support/world.py": "import pipeline.scan\n",
    "tests/support/pages.py": "PAGE = 'docs/cli.md'\n",
    "tests/cli/test_verbs.py": "from tests.support import pages\n",
    "tests/daemon/test_service.py": "",
    "tests/daemon/test_view.py": "import store.view.tables\n",
    "tests/models/conftest.py": "import pipeline.prove.search\n",
    "tests/models/test_model.py": "",
    "tests/prove/test_proving.py": "",
    "tests/scanner/test_scan.py": "from tests.support.world import scan\n",
    "tests/golden/test_outputs.py": "",
    "tests/golden/outputs/verbs/status.json": "",
    "tests/unit/test_architecture.py": "",
    "tests/unit/test_run.py": "import daemon.run\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def graph(root: Path) -> grimp.ImportGraph:
    program = (
        "import sys, json, os, grimp\n"
        "sys.path[:] = ['', *(p for p in sys.path if not os.path.isdir(f'{p}/tests/support'))]\n"
        "graph = grimp.build_graph('daemon', 'pipeline', 'store', 'tests', cache_dir=None)\n"
        "print(json.dumps({m: sorted(graph.find_modules_directly_imported_by(m)) for m in graph.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    graph = grimp.ImportGraph()
    for module, imported in json.loads(done.stdout).items():
        graph.add_module(module)
        for one in imported:
            graph.add_import(importer=module, imported=one)
    return graph


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/daemon/test_service.py", ["daemon/test_service"]),
        (
            "pipeline/scan.py",
            ["daemon/test_service", "daemon/test_view", "scanner/test_scan", "unit/test_run"],
        ),
        ("tests/support/world.py", ["scanner/test_scan"]),
        ("pipeline/prove/search.py", ["models/test_model", "prove/test_proving"]),
        ("tests/models/conftest.py", ["models/test_model"]),
        ("docs/cli.md", ["cli/test_verbs"]),
        ("docs/c.md", []),
        (
            "store/view/schema.sql",
            ["cli/test_verbs", "daemon/test_service", "daemon/test_view", "golden/test_outputs"],
        ),
        (
            "store/view/__init__.py",
            ["cli/test_verbs", "daemon/test_service", "daemon/test_view", "golden/test_outputs"],
        ),
        ("tests/golden/outputs/verbs/status.json", ["golden/test_outputs"]),
    ],
)
def test_what_a_change_can_affect_is_chosen(
    root: Path, graph: grimp.ImportGraph, path: str, expected: list[str]
) -> None:
    tests = sorted(name for name in FILES if "/test_" in name)
    assert select(root, [path], tests, graph) == sorted(
        [*(f"tests/{name}.py" for name in expected), "tests/unit/test_architecture.py"]
    )


@pytest.mark.parametrize("path", EVERYTHING)
def test_a_change_of_what_every_test_depends_on_chooses_all(
    root: Path, graph: grimp.ImportGraph, path: str
) -> None:
    tests = sorted(name for name in FILES if "/test_" in name)
    assert select(root, [path, "docs/cli.md"], tests, graph) == tests


def test_every_room_and_folder_that_is_named_is_there_and_no_room_is_without_tests() -> None:
    named = {f"tests/{folder}" for folders in BY_PROCESS.values() for folder in folders}
    assert [path for path in (*named, *ALWAYS, *EVERYTHING, *PACKAGES) if not (ROOT / path).exists()] == []
    rooms = {
        f"{package}.{path.stem}"
        for package in ("daemon", "pipeline", "store")
        for path in (ROOT / package).iterdir()
        if path.stem != "__init__" and (path.suffix == ".py" or (path / "__init__.py").is_file())
    }
    assert [room for room in sorted(rooms) if not by_process(room)] == []


def test_new_changed_and_deleted_files_count_and_a_base_that_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "-q")
    for name in ("a.py", "b.py", "ü.md"):
        (tmp_path / name).write_text("")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.py").unlink()
    git(tmp_path, "commit", "-qam", "two")
    (tmp_path / "ü.md").write_text("text\n")
    (tmp_path / "new.py").write_text("")
    assert changes(tmp_path, "HEAD~1") == ["a.py", "b.py", "new.py", "ü.md"]
    assert changes(tmp_path, "HEAD") == ["new.py", "ü.md"]
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    assert changed.main("origin/main") == 1
    assert "origin/main" in (said := capsys.readouterr().err)
    assert "make test-changed BASE=" in said
