"""A file's key names all that its trace depends on, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.trace import tree
from pipeline.trace.run import lean_version
from pipeline.trace.tree import Tree, header_imports

FILES = {
    "Base.lean": "theorem base : True := trivial\n",
    "Mid.lean": "import Base\n",
    "Leaf.lean": "import Mid\nimport Mathlib.Logic.Basic\n",
    "src/Other/Part.lean": "import Leaf\n",
    "Uses.lean": "import Other.Part\n",
    "lean-toolchain": "leanprover/lean4:v4.21.0\n",
    "lake-manifest.json": "{}\n",
}
PATHS = [path for path in FILES if path.endswith(".lean")]


def keys(
    root: Path, changes: dict[str, str] | None = None, *, tracer: str = "t 1", lean: str = ""
) -> dict[str, str]:
    for name, content in (FILES | (changes or {})).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    tree = Tree(root, sha="0" * 40, tracer=tracer, lean=lean, core=None)
    return {path: tree.key(tree.files[path]) for path in tree.files}


@pytest.mark.parametrize(
    ("changes", "retraced"),
    [
        ({}, []),
        ({"README.md": "words"}, []),
        ({"Uses.lean": "import Other.Part\n-- more\n"}, ["Uses.lean"]),
        ({"Leaf.lean": "import Mid\n"}, ["Leaf.lean", "src/Other/Part.lean", "Uses.lean"]),
        ({"Base.lean": "theorem base : True := by trivial\n"}, PATHS),
        ({"lean-toolchain": "leanprover/lean4:v4.22.0\n"}, PATHS),
        ({"lake-manifest.json": '{"packages": []}\n'}, PATHS),
    ],
    ids=["nothing", "another file", "a leaf", "in the middle", "what all import", "toolchain", "manifest"],
)
def test_a_change_gives_another_key_to_what_depends_on_it(
    tmp_path: Path, changes: dict[str, str], retraced: list[str]
) -> None:
    before, after = keys(tmp_path / "a"), keys(tmp_path / "b", changes)
    assert {path for path in before if before[path] != after[path]} == set(retraced)


def test_another_tracer_traces_everything_again(tmp_path: Path) -> None:
    before, after = keys(tmp_path / "a"), keys(tmp_path / "b", tracer="t 2")
    assert all(before[path] != after[path] for path in before)


def test_another_lean_traces_a_project_again_that_names_none(tmp_path: Path) -> None:
    nothing = {"lean-toolchain": ""}
    before = keys(tmp_path / "a", nothing, lean="leanprover/lean4:v4.21.0")
    after = keys(tmp_path / "b", nothing, lean="leanprover/lean4:v4.22.0")
    assert all(before[path] != after[path] for path in before)


def test_a_toolchain_s_white_space_does_not_matter(tmp_path: Path) -> None:
    same = {"lean-toolchain": "leanprover/lean4:v4.21.0"}
    assert keys(tmp_path / "a") == keys(tmp_path / "b", same)


def test_files_that_import_each_other_have_keys_that_change_with_each_of_them(tmp_path: Path) -> None:
    circle = {"A.lean": "import B\n", "B.lean": "import A\n"}
    before = keys(tmp_path / "a", circle)
    after = keys(tmp_path / "b", circle | {"B.lean": "import A\n-- more\n"})
    assert before["B.lean"] != after["B.lean"]
    assert before["A.lean"] != after["A.lean"]


def test_imports_are_read_off_the_beginning_however_long_the_first_comment_is() -> None:
    header = "/-" + "words\n" * 2000 + "-/\nimport A\nimport B.C\n"
    rest = "\n".join(f"theorem t{n} : True := trivial" for n in range(500))
    assert header_imports((header + rest).encode()) == ("A", "B.C")
    assert header_imports(rest.encode()) == ()
    assert header_imports(b"") == ()


def test_imports_are_the_same_wherever_the_piece_that_is_read_first_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header = "/- Copyright\n∀ -/\nmodule\n\npublic import A.B\nimport all «C d»\n"
    data = f"{header}\n/-! ∀ -/\n\ntheorem t : True := trivial\n".encode()
    for size in range(1, len(data) + 1):
        monkeypatch.setattr(tree, "_HEADER_BYTES", size)
        assert header_imports(data) == ("A.B", "«C d»"), size


def test_a_link_is_not_followed_out_of_the_worktree(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "secret").mkdir(parents=True)
    (outside / "secret" / "Secret.lean").write_text("def secret := 1\n")
    root = tmp_path / "tree"
    (root / ".lake").mkdir(parents=True)
    (root / ".lake" / "packages").symlink_to(outside)
    (root / "Linked.lean").symlink_to(outside / "secret" / "Secret.lean")
    (root / "A.lean").write_text("import Secret\n")
    tree = Tree(root, sha="0" * 40, tracer="t", lean="", core=None)
    assert set(tree.files) == {"A.lean"}
    assert [item.path for item in tree.dependencies(lambda _path: True)] == [
        ".lake/packages/secret/Secret.lean"
    ]


def test_lean_s_own_source_is_what_leandojo_calls_it(tmp_path: Path) -> None:
    core, root = tmp_path / "core", tmp_path / "tree"
    (core / "Init").mkdir(parents=True)
    (core / "Init.lean").write_text("prelude\nimport Init.Prelude\n")
    (core / "Init" / "Prelude.lean").write_text("prelude\ndef id (a : α) := a\n")
    root.mkdir()
    (root / "A.lean").write_text("theorem a : True := trivial\n")
    tree = Tree(root, sha="0" * 40, tracer="t", lean="", core=core)
    found = [item.path for item in tree.dependencies(lambda _path: True)]
    assert found == [
        ".lake/packages/lean4/src/lean/Init.lean",
        ".lake/packages/lean4/src/lean/Init/Prelude.lean",
    ]


@pytest.mark.parametrize(
    ("toolchain", "version"),
    [
        ("leanprover/lean4:v4.21.0", "v4.21.0"),
        ("leanprover/lean4:v4.21.0-rc3\n", "v4.21.0-rc3"),
        ("leanprover/lean4:nightly-2026-01-02", "nightly-2026-01-02"),
        ("stable", "stable"),
        ("", "unknown"),
    ],
)
def test_the_lean_version_is_what_the_toolchain_names(toolchain: str, version: str) -> None:
    assert lean_version(toolchain) == version
