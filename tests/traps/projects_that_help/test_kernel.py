"""Red team: a project whose own code adds to its modules what no kernel has seen.

Only a replay by the toolchain's own program, of the proof's module and of all below it that is neither the toolchain's
nor a trusted package's, shows that a kernel took the proof. The grade of the verdict says how far it came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.gate import lake_checks
from pipeline.gate.answers import Answer, BuiltModule
from pipeline.gate.questions import ask_exactly
from pipeline.lean.build import dependencies
from pipeline.lean.build.dependencies import Dependencies, key_of
from store.events.proofs import ProofChecked, ProofVerified
from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.credulous import TOOLCHAIN, Rule

PROOF = "exact ⟨h.2, h.1⟩"
LIBRARY = ".lake/build/lib/lean"
UNCHECKED = "-- theorem cheat : False, unchecked\n"
REFUSED = Rule("unchecked", replay="(kernel) declaration type mismatch")
WITH_IMPORT = Case(PROOF, file="import Evil\n" + FILE, others={"Evil.lean": UNCHECKED})


def evidence(verdict: ProofChecked | ProofVerified) -> str:
    return next(one.evidence for one in verdict.checks if one.step == "kernel")


def first_line(court: GateProject, verdict: ProofChecked | ProofVerified) -> str:
    return (court.folder / "job" / "staging" / verdict.patch.sha256).read_text("utf-8").splitlines()[0]


def without_checker(court: GateProject) -> None:
    (court.tools.sysroot / "bin" / "leanchecker").unlink()


def test_a_replay_of_all_modules_is_the_first_grade_and_names_the_kernel(court: GateProject) -> None:
    case = Case(PROOF, file="import Good\n" + FILE, others={"Good.lean": "-- honest\n"})
    verdict = court.verified(case)
    assert (verdict.grade, verdict.kernel) == ("L1", "leanchecker of v4.34.1")
    assert "all 1 modules below it" in evidence(verdict)
    assert first_line(court, verdict).endswith("verified by Lean")


def test_an_imported_file_that_the_kernel_refuses_verifies_nothing(court: GateProject) -> None:
    """A replay of one module adds it to its imports as they are."""
    verdict = court.candidate(Case(PROOF, file=WITH_IMPORT.file, others=WITH_IMPORT.others, rules=(REFUSED,)))
    assert verdict.not_checked == ("kernel",)
    assert "refuses what A imports, one of Evil" in evidence(verdict)


def test_a_module_that_the_kernel_refuses_even_without_the_proof_verifies_nothing(court: GateProject) -> None:
    """The one with an unchecked `theorem cheat : False` is refused with and without the proof that cites it."""
    verdict = court.candidate(Case(PROOF, file=UNCHECKED + FILE, rules=(REFUSED,)))
    assert verdict.not_checked == ("kernel",)
    assert "refuses it without the proof too" in evidence(verdict)


@pytest.mark.parametrize(
    ("module", "why"),
    [("A", "A: out of memory"), ("Evil", "below it that the project or its packages bring, 0")],
)
def test_a_replay_that_has_no_memory_for_a_module_refuses_nothing(
    court: GateProject, module: str, why: str
) -> None:
    checker = court.tools.sysroot / "bin" / "leanchecker"
    able = checker.rename(checker.with_name("able"))
    text = (
        f'#!/bin/sh\n[ "$*" = {module} ] || exec {able} "$@"\necho "INTERNAL PANIC: out of memory"\nexit 1\n'
    )
    checker.write_text(text, "utf-8")
    checker.chmod(0o755)
    verdict = court.verified(WITH_IMPORT)
    assert (verdict.grade, verdict.not_checked) == ("L0", ("kernel",))
    assert why in evidence(verdict)
    assert evidence(verdict).count("out of memory; raise [jobs] memory") == 1


def test_a_refusal_that_speaks_of_memory_is_one(court: GateProject) -> None:
    rule = Rule("unchecked", replay="(kernel) declaration type mismatch, «out of memory»")
    verdict = court.candidate(replace(WITH_IMPORT, rules=(rule,)))
    assert "refuses what A imports, one of Evil" in evidence(verdict)


HIDDEN = {
    "a name put together in a program": {"file": 'run_cmd opt "skip" "KernelTC"\n' + FILE},
    "a package": {
        "file": "import Evil\n" + FILE,
        "others": {".lake/packages/evil/Evil.lean": "-- skipKernelTC\n"},
    },
    "a module with a quoted name": {
        "file": "import «Evil-x».Y\n" + FILE,
        "others": {"Evil-x/Y.lean": 'run_cmd opt "skip" "KernelTC"\n'},
    },
}


@pytest.mark.parametrize("edit", HIDDEN.values(), ids=HIDDEN.keys())
def test_without_a_replay_the_grade_says_so_however_the_project_reads(
    court: GateProject, edit: dict[str, object]
) -> None:
    """Whether a project can bypass the kernel cannot be read off its text."""
    without_checker(court)
    verdict = court.verified(Case(PROOF, **edit))  # type: ignore[arg-type]
    assert (verdict.grade, verdict.kernel, verdict.not_checked) == ("L0", "", ("kernel",))
    assert first_line(court, verdict).endswith("accepted by Lean; no kernel replayed all that it rests on")


def test_a_module_that_the_checker_cannot_name_lowers_the_grade(court: GateProject) -> None:
    case = Case(PROOF, file="import «Evil-x»\n" + FILE, others={"Evil-x.lean": "-- no text gives it away\n"})
    verdict = court.verified(case)
    assert (verdict.grade, verdict.kernel) == ("L0", "")
    assert "of the 1 modules below it that the project or its packages bring, 0 replayed" in evidence(verdict)


def test_a_quoted_module_is_replayed_by_the_plain_part_of_its_name(court: GateProject) -> None:
    """The checker reads no quotes; it replays all below a name, and says what."""
    others = {"Demo/week-1/Sets.lean": "-- honest\n"}
    verdict = court.verified(Case(PROOF, file="import Demo.«week-1».Sets\n" + FILE, others=others))
    assert (verdict.grade, verdict.kernel) == ("L1", "leanchecker of v4.34.1")
    refused = {"Demo/week-1/Sets.lean": UNCHECKED}
    case = Case(PROOF, file="import Demo.«week-1».Sets\n" + FILE, others=refused, rules=(REFUSED,))
    assert "one of Demo.«week-1».Sets" in evidence(court.candidate(case))


def test_a_module_behind_a_link_is_not_taken_for_replayed(court: GateProject) -> None:
    """The checker does not find it by its name, and is content with what lies below that name."""
    lake = court.tools.sysroot / "bin" / "lake"
    real = lake.rename(lake.with_name("real-lake"))
    file, aside = f"{LIBRARY}/Evil.olean", ".lake/aside.olean"
    text = (
        f'#!/bin/sh\n"{real}" "$@"\n[ -L {file} ] || {{ mv {file} {aside}; ln -s "$PWD/{aside}" {file}; }}\n'
    )
    lake.write_text(text, "utf-8")
    lake.chmod(0o755)
    others = {"Evil.lean": UNCHECKED, "Evil/Child.lean": "-- honest\n"}
    verdict = court.verified(Case(PROOF, file="import Evil\nimport Evil.Child\n" + FILE, others=others))
    assert (verdict.grade, verdict.kernel) == ("L0", "")
    assert "of the 2 modules below it that the project or its packages bring, 1 replayed" in evidence(verdict)


def test_a_file_beside_a_module_of_one_file_verifies_nothing(court: GateProject) -> None:
    """Lean imports the first file, and the checker replays the last."""
    lake = court.tools.sysroot / "bin" / "lake"
    real = lake.rename(lake.with_name("real-lake"))
    copies = "".join(
        f"cp {LIBRARY}/Good.olean {LIBRARY}/Evil.olean.{part}\n" for part in ("server", "private")
    )
    lake.write_text(f'#!/bin/sh\n"{real}" "$@"\n{copies}', "utf-8")
    lake.chmod(0o755)
    others = {"Evil.lean": UNCHECKED, "Good.lean": "-- honest\n"}
    verdict = court.candidate(Case(PROOF, file="import Good\nimport Evil\n" + FILE, others=others))
    assert "Evil is one file to Lean" in next(
        one.evidence for one in verdict.checks if one.verdict == "not_checked"
    )


def in_other_words(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[BuiltModule], Iterable[BuiltModule]]
) -> None:
    def asked(*given: Any, **named: Any) -> Answer | str:
        found = ask_exactly(*given, **named)
        if isinstance(found, str):
            return found
        return replace(found, modules=tuple(one for each in found.modules for one in write(each)))

    monkeypatch.setattr(lake_checks, "ask_exactly", asked)


def test_a_module_whose_name_passes_for_an_option_is_not_taken_for_replayed(
    court: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lean writes a name that ends as macros end theirs without the quotes that it needs."""
    others = {"--evil_hyg.lean": UNCHECKED}
    in_other_words(monkeypatch, lambda one: [replace(one, name=one.name.strip("«»"))])
    verdict = court.verified(Case(PROOF, file="import «--evil_hyg»\n" + FILE, others=others))
    assert (verdict.grade, verdict.kernel) == ("L0", "")


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (
            lambda one: [one, one] if one.name == "Evil" else [one],
            "two modules that it imports are written alike",
        ),
        (
            lambda one: [replace(one, name="Ev.il") if one.name == "Evil" else one],
            "which is not where a module of that name lies",
        ),
    ],
)
def test_a_module_whose_name_could_be_another_s_verifies_nothing(
    court: GateProject,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[BuiltModule], Iterable[BuiltModule]],
    why: str,
) -> None:
    """`«Ev.il_hyg»` is written as `Ev.il_hyg`, by which the checker replays what that one is."""
    in_other_words(monkeypatch, write)
    verdict = court.candidate(WITH_IMPORT)
    assert why in next(one.evidence for one in verdict.checks if one.verdict == "not_checked")


def test_a_checker_that_the_project_built_is_not_run(court: GateProject) -> None:
    """It may be any program."""
    without_checker(court)
    own = court.project / ".lake" / "packages" / "lean4checker" / ".lake" / "build" / "bin" / "lean4checker"
    own.parent.mkdir(parents=True)
    own.write_text(f"#!/bin/sh\ntouch {court.folder / 'ran'}\n")
    own.chmod(0o755)
    verdict = court.verified(Case(PROOF))
    assert (verdict.grade, verdict.not_checked) == ("L0", ("kernel",))
    assert not (court.folder / "ran").exists()


def test_a_build_of_the_proof_that_changes_what_it_imports_verifies_nothing(court: GateProject) -> None:
    """The statement would mean another thing with the proof than without it."""
    other = Rule(r"theorem mine .*\n  exact", writes=".lake/build/lib/lean/Evil.olean")
    case = Case(PROOF, file=WITH_IMPORT.file, others=WITH_IMPORT.others, rules=(other,))
    verdict = court.candidate(case)
    assert "not the same before and after" in next(
        one.evidence for one in verdict.checks if one.verdict == "not_checked"
    )


# --- packages -------------------------------------------------------------------------------------------------


MANIFEST = json.dumps({
    "version": "1.1.0", "packagesDir": ".lake/packages", "name": "x", "packages": [{
        "type": "git", "name": "lib", "url": "https://github.com/leanprover-community/lib", "rev": "c" * 40,
        "subDir": None, "scope": "", "manifestFile": "lake-manifest.json", "inputRev": "main", "inherited": False,
        "configFile": "lakefile.toml",
    }],
}).encode()  # fmt: skip


def with_package(court: GateProject, *, trusted: bool, key: str = "") -> Case:
    """Put a package into our cache as the build job leaves it, with a module that the kernel refuses."""
    key = key or key_of(TOOLCHAIN, MANIFEST)
    folder = dependencies.folder_of(court.folder / "cache", key)
    oleans = folder / "packages" / "lib" / ".lake" / "build" / "lib" / "lean"
    oleans.mkdir(parents=True)
    (oleans / "Lib.olean").write_text(json.dumps({"text": UNCHECKED, "statements": {}, "imports": []}))
    (folder / dependencies.LOCK).touch()
    made = Dependencies(key, TOOLCHAIN, ("lib",), "", "", (), 1, 0.1, trusted)
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
    (folder / dependencies.DESCRIPTION).write_text(json.dumps({"schema": 1, **fields}))
    (court.project / ".lake").mkdir()
    (court.project / ".lake" / "packages").symlink_to(folder / "packages")
    (court.project / "lake-manifest.json").write_bytes(MANIFEST)
    return Case(PROOF, file="import Lib\n" + FILE, rules=(REFUSED,))


def test_published_packages_of_lean_s_own_organisations_are_not_replayed(court: GateProject) -> None:
    assert court.verified(with_package(court, trusted=True)).grade == "L1"


def test_any_other_package_is_replayed_like_the_project(court: GateProject) -> None:
    verdict = court.candidate(with_package(court, trusted=False))
    assert "refuses what A imports, one of Lib" in evidence(verdict)


@pytest.mark.parametrize("link", [False, True], ids=["beside it", "with links in its place"])
def test_a_module_below_a_package_that_is_not_replayed_is_the_package_s_own(
    court: GateProject, link: bool
) -> None:
    """Another `Lib.Base` could make false what `Lib` has proved of the package's, and nobody would replay `Lib`."""
    case = with_package(court, trusted=True)
    packages = court.project / ".lake" / "packages"
    lib = packages.resolve() / "lib" / LIBRARY
    (lib / "Lib.olean").write_text(json.dumps({"text": "", "statements": {}, "imports": ["Lib.Base"]}))
    base = json.dumps({"text": "", "statements": {}, "imports": []})
    own = court.project / LIBRARY
    for folder in (lib, own):
        (folder / "Lib").mkdir(parents=True)
        (folder / "Lib" / "Base.olean").write_text(base)
    if link:
        (own / "Lib.olean").symlink_to(lib / "Lib.olean")
    told = next(one.evidence for one in court.candidate(case).checks if one.verdict == "not_checked")
    assert "Lib.Base" in told
    assert "hides a module of a package" in told


def test_a_link_to_a_package_s_module_vouches_for_nothing_beside_it(court: GateProject) -> None:
    """Of a module in several files Lean takes the others from where the link stands."""
    case = with_package(court, trusted=True)
    own = court.project / LIBRARY
    own.mkdir(parents=True)
    (own / "Lib.olean").symlink_to(court.project / ".lake" / "packages" / "lib" / LIBRARY / "Lib.olean")
    court.verified(case)
    (own / "Lib.olean.private").touch()
    assert court.candidate(case).not_checked[0] == "axioms"


def test_packages_that_a_build_links_to_are_not_trusted(court: GateProject) -> None:
    """It can name a folder that another build of the project's has filled."""
    case = with_package(court, trusted=True)
    link = court.project / ".lake" / "packages"
    packages = link.readlink()
    link.unlink()
    lake = court.tools.sysroot / "bin" / "lake"
    real = lake.rename(lake.with_name("real-lake"))
    lake.write_text(f'#!/bin/sh\n[ -e {link} ] || ln -s {packages} {link}\nexec "{real}" "$@"\n', "utf-8")
    lake.chmod(0o755)
    assert court.candidate(case).not_checked == ("kernel",)


def test_packages_of_another_manifest_are_not_trusted(court: GateProject) -> None:
    assert court.candidate(with_package(court, trusted=True, key="0" * 64)).not_checked == ("kernel",)


def test_packages_that_the_project_brings_along_are_not_trusted(court: GateProject) -> None:
    """With a description beside them that says they are."""
    case = with_package(court, trusted=True)
    (court.project / ".lake" / "packages").unlink()
    real = dependencies.folder_of(court.folder / "cache", key_of(TOOLCHAIN, MANIFEST))
    own = court.project / "dependencies" / real.name
    own.parent.mkdir()
    real.rename(own)
    (court.project / ".lake" / "packages").symlink_to(Path("..", "dependencies", real.name, "packages"))
    assert court.candidate(case).not_checked == ("kernel",)
