"""What the gate asks Lean's own library, and what of an export is not the library's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pipeline.gate import vouched
from pipeline.gate.answers import Answer, BuiltModule, Constants, Stated, read_constants
from pipeline.gate.questions import ask_constants
from pipeline.gate.vouched import Library, UnknownError
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.export import Declared, Export, Name
from pipeline.lean.source import imports
from tests.support.lean.exported import Exported

HOMES: dict[Name, str] = {
    ("Nat", "le"): "Init.Prelude",
    ("propext",): "Init.Core",
    ("odd name", "#1"): "Init",
}


class Site:
    """A project, a toolchain's library and a trusted package, whose process is the test's own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.core, self.package = (folder / one for one in ("project", "core", "package"))
        self.asked: list[str] = []
        self.meant = dict.fromkeys(HOMES, b"meant")
        self.has(self.core, "Init", "Init.Prelude", "Init.Core", "Std", "Std.Data", "Lean", "Lake")
        self.has(self.package, "Mathlib.Order", "Mathlib.Data")
        self.project.mkdir()
        monkeypatch.setattr(vouched, "ask_constants", self.answer)

    def has(self, folder: Path, *modules: str) -> None:
        for one in modules:
            file = imports.compiled_file(folder, one)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def source(self, path: str, text: str) -> None:
        file = self.project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def answer(
        self, _: LakeRunner, *, modules: Sequence[str], names: Sequence[Name], **__: object
    ) -> Constants:
        self.asked = list(modules)
        homes = {name: HOMES[name] for name in names if name in HOMES}
        read = {one: BuiltModule(one, imports.compiled_file(self.core, one), ()) for one in homes.values()}
        return Constants("4.28.0", read, homes, self.meant)

    def differs(
        self,
        *texts: str,
        packages: bool = True,
        rests: dict[str, tuple[str, ...]] | None = None,
        **kinds: str,
    ) -> str | None:
        """Ask about an export of the library's constants and of these kinds of constants, for these imports."""
        declared = {name: Declared("definition", b"meant", b"") for name in HOMES}
        declared[("propext",)] = Declared("axiom", b"meant", b"")
        declared |= {(name,): Declared(kind, b"own", b"") for name, kind in kinds.items()}
        modules = (
            BuiltModule("A", self.project / "A.olean", ()),
            BuiltModule("Mathlib.Data", imports.compiled_file(self.package, "Mathlib.Data"), ()),
        )
        answer = Answer(
            "4.28.0", modules, (), {}, (), (), (), rests or {}, ("t",), Stated("theorem", b""), {},
            frozenset(), None, None, Export(declared=declared),
        )  # fmt: skip
        folders = (self.core, self.package) if packages else (self.core,)
        runner = LakeRunner(Path("/lake"), None, "none", self.project)
        return Library(runner, folders).differs(answer, answer, imports=texts)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_an_export_with_the_library_s_constants_and_the_project_s_own_differs_in_nothing(site: Site) -> None:
    assert site.differs("Init", own="definition", mine="theorem") is None


def test_a_constant_that_means_something_else_in_the_library_is_named_with_its_module(site: Site) -> None:
    site.meant["Nat", "le"] = b"another"
    assert site.differs("Init") == "it has another Nat.le than Init.Prelude"


def test_an_axiom_of_an_allowed_name_that_the_library_does_not_have_is_another(site: Site) -> None:
    assert site.differs("Init", sound="axiom") == "its axiom sound is not of Lean's own library"


def test_a_name_that_the_project_says_is_a_package_s_has_to_be_there(site: Site) -> None:
    assert site.differs("Init", rests={"Mathlib.Data": ("«odd name».1", "Nat.le"), "A": ("own",)}) is None
    assert site.differs("Init", rests={"Mathlib.Data": ("Nat.lt",)}) == (
        "it takes Nat.lt from Mathlib.Data, which declares none"
    )


def test_the_library_is_asked_for_what_the_text_imports_and_what_the_project_says(site: Site) -> None:
    (site.project / "Base.lean").write_text("import Std.Data\nimport Mathlib.Order\n", "utf-8")
    site.differs("Base")
    assert site.asked == ["Init", "Mathlib.Data", "Mathlib.Order", "Std.Data"]


def test_with_a_stranger_s_package_all_of_lean_s_own_library_counts(site: Site) -> None:
    site.differs("Strange", packages=False)
    assert site.asked == ["Init", "Lean", "Std"]


def test_an_import_that_cannot_be_read_leaves_unknown_what_is_a_package_s(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.project / "Base.lean").touch()
    monkeypatch.setattr(imports, "MAX_FILES", 0)
    with pytest.raises(UnknownError, match="some imports of the file could not be read"):
        site.differs("Base")
    site.differs("Base", packages=False)
    assert site.asked == ["Init", "Lean", "Std"]


def decoy_of_a_package(site: Site) -> str:
    site.source("Mathlib/Order.lean", "")
    return "Mathlib.Order"


def two_folders(site: Site) -> str:
    site.source("lakefile.toml", '[[lean_lib]]\nsrcDir = "one"\n[[lean_lib]]\nsrcDir = "other"\n')
    site.source("other/Base.lean", "")
    site.source("one/Base.lean", "import Mathlib.Order")
    return "Base"


def a_package_of_the_project(site: Site) -> str:
    site.source("lake-manifest.json", '{"packages": [{"type": "path", "name": "own", "dir": "./own"}]}')
    site.source("own/lakefile.toml", 'srcDir = "src"\n')
    site.source("own/src/Own.lean", "import Mathlib.Order")
    return "Own"


@pytest.mark.parametrize("made", [decoy_of_a_package, two_folders, a_package_of_the_project])
def test_a_package_s_constants_are_compared_wherever_the_project_imports_it(
    site: Site, made: Callable[[Site], str]
) -> None:
    site.differs(made(site))
    assert site.asked == ["Init", "Mathlib.Data", "Mathlib.Order"]


def test_a_module_whose_text_is_not_found_leaves_unknown_what_is_a_package_s(site: Site) -> None:
    with pytest.raises(UnknownError, match="no folder that the lakefile names has Computed"):
        site.differs("Computed", "Mathlib.Order")


def test_a_constant_that_was_not_written_is_unknown(site: Site) -> None:
    del site.meant["Nat", "le"]
    with pytest.raises(UnknownError, match=r"the meaning of Nat\.le is unknown"):
        site.differs("Init")


def test_a_name_that_could_hide_those_behind_it_is_not_asked_about(tmp_path: Path) -> None:
    runner = LakeRunner(Path("/lake"), None, "none", tmp_path)
    names: list[Name] = [("Nat", "le"), ("end\0",), ("Nat", "lt")]
    found = ask_constants(runner, folders=(), modules=("Init",), names=names, write=False)
    assert found == "Questions.lean: a name with a zero character cannot be asked about; name it otherwise"
    assert not list(tmp_path.iterdir())


FACTS = """everlean-questions 1 abc
lean 4.28.0
module\tInit.Core\t/lean/Core.olean
home\t1\tInit.Core
lines\t1
end abc
"""
NAMES: list[Name] = [("a",), ("b", "c")]


def test_an_answer_about_constants_is_read_whole_or_not_at_all() -> None:
    def read(facts: str = FACTS) -> Constants | str:
        return read_constants(facts, Exported("4.28.0").lines, nonce="abc", names=NAMES)

    whole = read()
    assert isinstance(whole, Constants)
    assert (whole.lean, whole.homes, whole.digests) == ("4.28.0", {("b", "c"): "Init.Core"}, {})
    for found, instead in (
        ("abc\nlean", "abd\nlean"),
        ("home\t1", "home\t2"),
        ("home\t1", "home\t-1"),
        ("home\t1\tInit.Core", "home\t1\tInit"),
        ("home\t1\tInit.Core", "home\t1"),
        ("lines\t1", "lines\t2"),
        ("end abc\n", ""),
    ):
        assert found in FACTS
        assert isinstance(read(FACTS.replace(found, instead)), str), instead
