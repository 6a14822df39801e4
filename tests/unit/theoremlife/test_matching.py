"""Which declaration became which, as people rename, deprecate, move and regenerate them."""

from __future__ import annotations

import time

import pytest

from pipeline.lean.source.scanner import read_file
from store.domain.matching import Decl, declarations_known, declarations_now, match_declarations, same_file

ONE = "theorem one (n : Nat) : n + 0 = n := by simp\n"


def decls(files: dict[str, str], *, before: bool) -> list[Decl]:
    found: list[Decl] = []
    for path, source in files.items():
        read = read_file(source.encode(), path=path)
        known = declarations_known((), read, path=path) if before else None
        found += known if known is not None else declarations_now(read, path=path, blob="0" * 40)
    return found


def became(before: str | dict[str, str], now: str | dict[str, str]) -> dict[str, str]:
    """The new name of every declaration that has one."""
    sides = [{"A.lean": side} if isinstance(side, str) else side for side in (before, now)]
    pairs = match_declarations(decls(sides[0], before=True), decls(sides[1], before=False))
    return {f"{old.kind} {old.name}": f"{new.kind} {new.name}" for old, new in pairs}


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (ONE, "-- moved down\n" + ONE, True),
        (ONE, ONE + "theorem two : True := trivial\n", False),
        (ONE + "theorem two : True := trivial\n", ONE, False),
        (ONE, ONE.replace("simp", "rfl"), False),
        (ONE, ONE.replace("one", "uno"), False),
        (ONE.replace("simp", "sorry"), ONE.replace("simp", "sorry"), False),
    ],
)
def test_a_file_is_left_out_of_a_comparison_if_no_declaration_changed_and_none_has_a_sorry(
    before: str, now: str, same: bool
) -> None:
    assert same_file(decls({"A.lean": before}, before=True), decls({"A.lean": now}, before=False)) is same


@pytest.mark.parametrize(
    "alias",
    [
        '@[deprecated (since := "2026-05-01")] alias one := uno\n',
        '@[deprecated uno (since := "2026-05-01")]\nalias one := uno\n',
    ],
)
def test_a_rename_is_found_behind_the_deprecated_alias_that_it_leaves(alias: str) -> None:
    now = ONE.replace("one", "uno") + alias
    assert became(ONE, now) == {"theorem one": "theorem uno"}


def test_a_theorem_that_only_an_alias_is_left_of_is_nothing_any_more() -> None:
    assert became(ONE, "alias one := Nat.add_zero\n") == {}


def test_a_theorem_is_rather_the_theorem_than_what_else_has_its_name() -> None:
    """A `proof_wanted` stood above the proof that someone had added, and went when it was noticed."""
    wanted = "proof_wanted one (n : Nat) : n + 0 = n\n"
    assert became(wanted + ONE, ONE) == {"theorem one": "theorem one"}
    restated = ONE.replace("n + 0 = n", "n = n + 0")
    assert became(wanted + ONE, restated) == {"theorem one": "theorem one"}
    assert became(wanted, ONE) == {"proof_wanted one": "theorem one"}


def test_a_name_that_another_theorem_took_in_another_file_does_not_hide_the_rename() -> None:
    new = "theorem one : True := trivial\n"
    assert became({"A.lean": ONE}, {"A.lean": ONE.replace("one", "one_map"), "B.lean": new}) == {
        "theorem one": "theorem one_map"
    }


LEMMAS = """
lemma rTensor_id_apply {M : Type*} (x : M ⊗[R] V) : rTensor V (.id R M) x = x := by simp [rTensor]
lemma rTensor_id {M : Type*} : rTensor V (.id R M) = .id R (M ⊗[R] V) := by simp [rTensor]
lemma rTensor_comp {M N P : Type*} (f : M →ₗ N) (g : N →ₗ P) :
    rTensor V (g.comp f) = (rTensor V g).comp (rTensor V f) := by simp [rTensor]
"""


@pytest.mark.parametrize("path", ["A.lean", "B.lean"], ids=["in its file", "and moved"])
def test_lemmas_are_followed_when_the_definition_that_they_are_about_is_renamed(path: str) -> None:
    now = {path: LEMMAS.replace("rTensor", "rTensor'")}
    assert became({"A.lean": LEMMAS}, now) == {
        f"lemma rTensor_{name}": f"lemma rTensor'_{name}" for name in ("id_apply", "id", "comp")
    }


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (
            "theorem lemma_5_4 {x : ℝ} (h : log x ∈ Set.Ioc 2100 200000) : E x ≤ 9.2 * log x ^ (3 / 2) := sorry\n",
            "theorem lemma_5_2 {x : ℝ} (h : log x ∈ Set.Ioc 0 2100) : E x ≤ 2 * log x ^ (3 / 2) := sorry\n",
        ),
        (
            "theorem M_p.le : M_p ≥ -(2 + E₁) / log 2 + 1 - log (log 2) := by simp\n",
            "theorem M.ge : M ≤ (2 + E₁) / log 2 + 1 - log (log 2) := by simp\n",
        ),
        ("theorem one (n : Nat) : n + 0 = n := by simp\n", "theorem two (n : Nat) : 0 + n = n := by simp\n"),
    ],
    ids=["other numbers", "the other bound", "the mirror image"],
)
def test_a_theorem_that_only_looks_alike_under_another_name_is_another_one(before: str, now: str) -> None:
    assert became(before, now) == {}


def test_of_two_that_are_as_much_alike_none_is_taken_for_the_old_one() -> None:
    old = "theorem foo_old (f : X → Y) (x : X) : map f (single x) = single (f x) := by simp\n"
    twins = "".join(
        f"theorem foo_{name} (f : X → Y) (x : X) : map f (single x) = {{f x}} := by simp\n" for name in "ab"
    )
    assert became(old, twins) == {}
    assert became(old, twins.splitlines()[0] + "\n") == {"theorem foo_old": "theorem foo_a"}


def test_a_generated_file_that_is_written_anew_costs_seconds_at_most() -> None:
    def table(mark: str) -> str:
        return "".join(
            f"theorem {mark}{row} (a b c : ℝ) (h : a ≤ b) : f{mark} a (g b c) ≤ h b c * k a ^ x{row} := by simp\n"
            for row in range(3000)
        )

    before, now = decls({"A.lean": table("p")}, before=True), decls({"A.lean": table("q")}, before=False)
    started = time.process_time()
    match_declarations(before, now)
    assert time.process_time() - started < 10


def test_of_two_names_of_one_statement_the_one_that_is_more_like_the_old_name_is_its_new_one() -> None:
    old = "theorem Iter.Valid.rest {it} (h : ValidFor l r it) : it.rest = String.mk r := by simp\n"
    new = "".join(
        f"theorem Legacy.Iter.{name}.rest {{it}} (h : ValidFor l r it) : it.rest = String.ofList r := by simp\n"
        for name in ("ValidFor", "Valid")
    )
    assert became(old, new) == {"theorem Iter.Valid.rest": "theorem Legacy.Iter.Valid.rest"}
