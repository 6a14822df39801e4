"""Which bytes of lean-toolchain, manifest and lakefile a bump changes: exactly one package's, or it says why none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.bump.raising import Raised, raised
from pipeline.jobs.protocol import JobError
from pipeline.lean.build.dependencies import PackageFiles
from pipeline.lean.source.manifest import GitPackage

OLD, NEW = "a" * 40, "b" * 40
URL = "https://x.org/base"
ENTRY = {"url": URL, "type": "git", "name": "base", "rev": OLD, "inputRev": "v1", "inherited": False}
OTHER = {**ENTRY, "name": "other"}
GIT = f'require base from git "{URL}"'


def project(
    folder: Path, lakefile: str, *, name: str = "lakefile.toml", packages: Any = (OTHER, ENTRY)
) -> Path:
    # As Lake writes it, and not as Python would.
    entries = ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in packages)
    (folder / "lake-manifest.json").write_text(
        f'{{"version": "1.1.0",\n "packages":\n [{entries}],\n "name": "x"}}\n'
    )
    (folder / name).write_bytes(lakefile.encode())
    (folder / "lean-toolchain").write_text("leanprover/lean4:v4.1.0\n")
    return folder


def base_raised(
    folder: Path, requires: Mapping[str, Any] | None = None, *, lean: str = "", **given: str
) -> Raised:
    """Raise `base`; `requires` are the packages in the manifests of packages, by their names."""

    def files_of(package: GitPackage) -> PackageFiles:
        assert package.rev == (given.get("rev", NEW) if package.name == given.get("package", "base") else OLD)
        result = (requires or {}).get(package.name)
        if isinstance(result, Exception):
            raise result
        if result is None or isinstance(result, bytes):
            return PackageFiles(lean, result)
        return PackageFiles(lean, json.dumps({"version": 7, "packages": result}).encode())

    what = {"toolchain": "", "package": "base", "rev": NEW, **given}
    return raised(
        folder, toolchain=what["toolchain"], package=what["package"], rev=what["rev"], files_of=files_of
    )


def the_change(found: Raised, name: str) -> list[tuple[str, str]]:
    """Return the lines of a file that changed, before and after."""
    before, after = (text.decode().split("\n") for text in found.files[name])
    return [(one, other) for one, other in zip(before, after, strict=True) if one != other]


@pytest.mark.parametrize(
    ("lakefile", "line"),
    [
        ('[[require]]\nname = "base"\nrev = "v1"\n[[lean_lib]]\nname = "v1"\nrev = "v1"\n', 'rev = "{}"'),
        ('[[require]]\nname = "other"\nrev = "v1"\n\n[[require]]\nrev = \'v1\'\nname = \'base\'', "rev = '{}'"),
        (('x = """\n[[require]]\nname = "base"\nrev = "v1"\n"""\n[[require]]\n# rev = "v1"\n"name" = "base"\n'
         '"rev"="v1" # "v1"\n'), '"rev"="{}" # "v1"'),
        ('require = [{name = "other", rev = "v1"}, {rev = "v1", name = "base"}]\r\n',
         'require = [{{name = "other", rev = "v1"}}, {{rev = "{}", name = "base"}}]\r'),
        ('[[require]]\nname = "base"\nscope = "v1"\nversion = "git#v1"\n', 'version = "git#{}"'),
        ('[[require]]\nname = "base"\nrev = "main"\n', 'rev = "{}"'),
        ('[[require]]\nname = "base"\n  rev = "base"\n' + '[[other]]\nrev = "base"\n' * 500, '  rev = "{}"'),
    ],
    ids=["later", "another package", "text and comments", "one line", "version", "not the manifest's", "many"],
)  # fmt: skip
def test_in_a_toml_lakefile_only_the_revision_of_this_package_changes(
    tmp_path: Path, lakefile: str, line: str
) -> None:
    result = base_raised(project(tmp_path, lakefile))
    ((before, after),) = the_change(result, "lakefile.toml")
    assert after == line.format(NEW)
    assert before in [line.format(old) for old in ("v1", "main", "base")]
    ((before, after),) = the_change(result, "lake-manifest.json")
    assert json.loads(after.rstrip("],")) == {**ENTRY, "rev": NEW, "inputRev": NEW}
    assert result.notes == ()


@pytest.mark.parametrize(
    ("lakefile", "line"),
    [
        (f'{GIT} @ "v1"\n\ndef version := "v1"\n', f'{GIT} @ "{{}}"'),
        (f'{GIT}\n  @"v1" / "v1" with NameMap.empty\n', '  @"{}" / "v1" with NameMap.empty'),
        ((f'-- {GIT} @ "v1"\n/- /- {GIT} @ "v1" -/\n{GIT} @ "v1" -/\ndef s := "\n{GIT} @ \\"v1\\""\n'
         f'require other from git "{URL}" @ "v1"\nrequire «base» from git\n  "{URL}" @ /- "v1" -/ "v1" -- "v1"\n'),
         f'  "{URL}" @ /- "v1" -/ "{{}}" -- "v1"'),
        (('meta if get_config? env = some "v1" then\nrequire "base" from git (url "v1") @ "v1"\n@[default_target]\n'
         'lean_lib A\n'), 'require "base" from git (url "v1") @ "{}"'),
        ('require "v1" / "base" @ git "v1"\nrequire "v1" / "other" @ git "v1"\n', 'require "v1" / "base" @ git "{}"'),
        ('require "v1" / base @ "git#v1"\n', 'require "v1" / base @ "git#{}"'),
        (f'require base @ git "v1" from git "{URL}" @ "v1"\n', f'require base @ git "v1" from git "{URL}" @ "{{}}"'),
    ],
    ids=["a later string", "folder and options", "comments and strings", "conditional", "scope", "version", "both"],
)  # fmt: skip
def test_in_a_lean_lakefile_only_the_revision_of_this_package_changes(
    tmp_path: Path, lakefile: str, line: str
) -> None:
    result = base_raised(project(tmp_path, f"import Lake\nopen Lake DSL\n{lakefile}", name="lakefile.lean"))
    assert the_change(result, "lakefile.lean") == [(line.format("v1"), line.format(NEW))]


@pytest.mark.parametrize(
    ("name", "lakefile"),
    [
        ("lakefile.lean", f'{GIT}\nrequire other from git "{URL}" @ "v1"\n'),
        ("lakefile.lean", 'require "v1" / base @ "1.0.0"\n'),
        ("lakefile.toml", '[[require]]\nname = "base"\nscope = "v1"\n'),
    ],
)
def test_where_the_lakefile_names_no_revision_it_stays_and_that_is_said(
    tmp_path: Path, name: str, lakefile: str
) -> None:
    result = base_raised(project(tmp_path, lakefile, name=name))
    assert [*result.files] == ["lake-manifest.json"]
    assert json.loads(result.files["lake-manifest.json"][1])["packages"][1] == {**ENTRY, "rev": NEW}
    assert result.notes == (f"{name}: no revision of base is named there, so that it stays as it is.",)


def test_what_a_package_requires_is_raised_in_the_manifest_alone_of_any_age(tmp_path: Path) -> None:
    old = {"git": {"name": "«doc-gen4»", "rev": OLD, "inputRev?": "main", "url": URL, "inherited": True}}
    folder = project(tmp_path, 'name = "x"\n', packages=[{"path": {"name": "here", "dir": "here"}}, old])
    result = base_raised(folder, package="doc-gen4")
    ((_, line),) = the_change(result, "lake-manifest.json")
    assert line == f"  {json.dumps(old, ensure_ascii=False)}],".replace(OLD, NEW)
    assert result.notes == ()


REQUIRE = '[[require]]\nname = "base"\nrev = "v1"\n'


def of(name: str, rev: str, /, **more: Any) -> dict[str, Any]:
    return {
        "url": f"https://x.org/{name}",
        "type": "git",
        "name": name,
        "rev": rev * 40,
        "inherited": True,
        **more,
    }


def test_what_came_with_packages_is_made_anew_as_lake_update_makes_it(tmp_path: Path) -> None:
    mine = of("mine", "a", inherited=False, inputRev="v1")
    old = [of("first", "a", inherited=False), mine, ENTRY, of("batt", "a"), of("gone", "a"), of("both", "a"),
           of("same", "a")]  # fmt: skip
    folder = project(tmp_path, f'{REQUIRE}[[require]]\nname = "mine"\n', packages=old)
    theirs = [
        of("batt", "c", url="https://y.org/batt", inputRev="main", subDir="lib", scope="x", manifestFile="m.json"),
        of("fresh", "c", inherited=False), of("both", "c"), of("mine", "c"), of("same", "a"), of("base", "c"),
    ]  # fmt: skip
    result = base_raised(folder, {"first": [of("both", "d")], "mine": [], "base": theirs})
    packages = {one["name"]: one for one in json.loads(result.files["lake-manifest.json"][1])["packages"]}
    assert [*packages] == ["first", "mine", "base", "batt", "both", "same", "fresh"]
    changed = {"subDir": "lib", "scope": "x", "inputRev": "main", "manifestFile": "m.json"}
    assert packages["batt"] == {
        **of("batt", "c", url="https://y.org/batt"),
        **changed,
        "configFile": "lakefile.lean",
    }
    assert (packages["both"]["rev"], packages["fresh"]["rev"], packages["fresh"]["inherited"]) == (
        "d" * 40, "c" * 40, True,
    )  # fmt: skip
    assert (packages["mine"], packages["same"]) == (mine, of("same", "a"))
    assert result.notes == (
        f"base at {NEW[:12]} requires both at {'c' * 12}; taken is {'d' * 12}, which first requires.",
        f"base at {NEW[:12]} requires mine at {'c' * 12}; taken is {'a' * 12}, which the project itself requires.",
    )  # fmt: skip


def test_where_a_package_has_no_manifest_nothing_is_removed(tmp_path: Path) -> None:
    packages = [OTHER, ENTRY, of("batt", "a"), of("more", "a")]
    folder = project(tmp_path, REQUIRE, packages=packages)
    result = base_raised(folder)
    assert len(the_change(result, "lake-manifest.json")) == 1
    assert result.notes == (
        f"base at {NEW[:12]} has no manifest, so that what came with packages stays as it is.",
    )
    for unread in (None, b"[", OSError()):
        result = base_raised(folder, {"base": [of("batt", "c")], "other": unread})
        names = {
            one["name"]: one["rev"][0]
            for one in json.loads(result.files["lake-manifest.json"][1])["packages"]
        }
        assert names == {"other": "a", "base": "b", "batt": "c", "more": "a"}
        assert result.notes == ("more: kept, since other has no manifest that can be read.",)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        ('{"packages": []}'.encode("utf-16"), "no JSON in UTF-8"),
        ('{"packages": []}'.encode("utf-8-sig"), "byte order mark"),
        ([{"type": "path", "name": "batt", "dir": "near"}, of("batt", "c")], "batt: named twice"),
        ([of("batt", "c")] * 201, "at most 200"),
        (OSError("5000000 bytes, more than 4194304"), "more than 4194304"),
        ([{"type": "path", "name": "near", "dir": "near"}], "requires near, which is a folder beside it"),
        ([{"type": "path", "name": "near", "dir": "../near"}], "dir"),
        ([of("batt", "c", url="file:///etc")], "only https can be fetched"),
        ([of("batt", "c", url="https://a@x.org/b")], "a user or a password"),
        ([of("batt", "c", rev="main")], "no full commit id"),
        ([of("../batt", "c")], "no name of a package"),
        ([of("batt", "c", subDir="../..")], "subDir"),
    ],
    ids=range(14),
)
def test_a_package_whose_manifest_names_what_is_not_fetched_is_refused(
    tmp_path: Path, manifest: Any, said: str
) -> None:
    with pytest.raises(JobError, match=said) as caught:
        base_raised(project(tmp_path, REQUIRE), {"base": manifest})
    assert (caught.value.reason, caught.value.deterministic) == ("cannot_raise", True)
    assert f"base at {NEW[:12]}" in str(caught.value)
    assert caught.value.remedy


def test_a_manifest_of_version_6_gets_entries_of_its_own_form(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "url": URL,
        "subDir?": None,
        "rev": OLD,
        "opts": {},
        "name": "base",
        "inputRev?": "v1",
    }
    base: dict[str, Any] = {"git": {**fields, "inherited": False}}
    result = base_raised(
        project(tmp_path, REQUIRE, packages=[base]), {"base": [of("batt", "c", name="«b-t»")]}
    )
    raised_one, batt = json.loads(result.files["lake-manifest.json"][1])["packages"]
    assert raised_one == {"git": {**base["git"], "rev": NEW, "inputRev?": NEW}}
    assert batt == {"git": {"url": "https://x.org/batt", "subDir?": None, "rev": "c" * 40, "opts": {},
                            "name": "«b-t»", "inputRev?": None, "inherited": True}}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "lakefile", "said"),
    [
        ("lakefile.lean", f"{GIT} @ rev\n", "cannot be read at `rev`"),
        ("lakefile.lean", f'{GIT} @ s!"v{{1}}"\n', "cannot be read at `s!`"),
        ("lakefile.lean", f'{GIT} @ r"v1"\n', "cannot be read at `r`"),
        ("lakefile.lean", f'{GIT} ++ "" @ "v1"\n', r"cannot be read at `\+`"),
        ("lakefile.lean", f'{GIT} @ "v1" ++ suffix\n', r"cannot be read at `\+`"),
        ("lakefile.lean", 'require base from git (f "x" @ "v1"\n', r"cannot be read at `\(`"),
        ("lakefile.lean", f'{GIT} @ "v1"\n{GIT} @ "v1"\n', "requires base twice"),
        ("lakefile.lean", "require base from git (" * 500, "requires base twice"),
        ("lakefile.lean", f'{GIT} @ "v1\n', "a string that begins in line 1 is not closed"),
        ("lakefile.lean", f"def lemma := `({GIT} ++ 1)\n", "cannot be read"),
        ("lakefile.lean", "require", "no lakefile requires it"),
        ("lakefile.lean", f'-- {GIT} @ "v1"\n', "no lakefile requires it"),
        ("lakefile.toml", 'name = "base"\nrev = "v1"\n', "no lakefile requires it"),
        ("lakefile.toml", 'require = "base"\n', "no lakefile requires it"),
        ("lakefile.toml", '[[require]]\nname = "base"\nrev = "\\u00761"\n', "cannot be found in its text"),
        ("lakefile.toml", '[[require]]\nname = "base"\nrev = "\\u0035"\n', "cannot be found in its text"),
        ("lakefile.toml", '[[require]]\nname = "base"\nrev = 1\n', "no string"),
        ("lakefile.toml", '[[require]]\nname = "base"\n[[require]]\nname = "base"\n', "requires base twice"),
        ("lakefile.toml", "x = " + "[" * 30_000, "cannot be read"),
        (
            "lakefile.toml",
            '[[require]]\nname = "base"\nrev = "v1"\na' + ".a" * 1200 + " = 1\n",
            "a key of more than 100 parts",
        ),
        ("lakefile.toml", "# " + "x" * 300_000, "cannot be read: .*bytes, more than"),
    ],
    ids=range(21),
)
def test_a_lakefile_that_cannot_be_raised_exactly_is_refused_with_reason_and_remedy(
    tmp_path: Path, name: str, lakefile: str, said: str
) -> None:
    with pytest.raises(JobError, match=said) as caught:
        base_raised(project(tmp_path, lakefile, name=name))
    assert (caught.value.reason, caught.value.deterministic) == ("cannot_raise", True)
    assert caught.value.remedy


def test_a_package_for_another_lean_is_refused_unless_lake_takes_it(tmp_path: Path) -> None:
    folder = project(tmp_path, '[[require]]\nname = "base"\nrev = "v1"\n')
    result = base_raised(folder, toolchain="leanprover/lean4:v4.2.0", lean="leanprover/lean4:v4.2.0")
    assert sorted(result.files) == ["lake-manifest.json", "lakefile.toml", "lean-toolchain"]
    assert result.notes == ()
    for lean in ("v4.1.1", "v4.10.0-rc1", "nightly-2020-01-01", "me/lean:v4.0.0"):
        with pytest.raises(JobError, match=f"is for '{lean}', and cannot be built with .*v4.1.0") as caught:
            base_raised(folder, lean=lean)
        assert f"--to` its version and `--package base={NEW}" in caught.value.remedy
    earlier = "leanprover/lean4:v4.1.0-rc1"
    result = base_raised(folder, lean=earlier)
    assert result.notes == (
        f"base at {NEW[:12]} is for '{earlier}', and the project for 'leanprover/lean4:v4.1.0'.",
    )
    mathlib = [{**ENTRY, "name": "mathlib"}]
    folder = project(tmp_path, '[[require]]\nname = "mathlib"\nrev = "v1"\n', packages=mathlib)
    with pytest.raises(JobError, match="is for"):
        base_raised(folder, package="mathlib", lean=earlier)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"package": "", "toolchain": "leanprover/lean4:v4.1.0"}, "has leanprover/lean4:v4.1.0 already"),
        ({"rev": OLD}, "has base at a+ already"),
        ({"rev": "main"}, "no full commit id"),
        ({"package": "gone"}, "no git package gone"),
        ({"package": "other"}, "lake-manifest.json has other, and no lakefile requires it"),
    ],
)
def test_what_is_not_there_or_there_already_is_refused(
    tmp_path: Path, given: dict[str, str], said: str
) -> None:
    with pytest.raises(JobError, match=said):
        base_raised(project(tmp_path, '[[require]]\nname = "base"\nrev = "v1"\n'), None, lean="", **given)
