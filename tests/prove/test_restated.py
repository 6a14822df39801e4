from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.models.retriever.finder import Place
from pipeline.prove.server import Server, StatementError, restate_goal, restate_theorem
from store.leandojo.database import Pos, Theorem
from tests.support.lean.scripted import NOWHERE

FILE = """\
import Init

namespace Demo
variable (p q : Prop)

theorem earlier (h : p) : p := h

  /-- Twice. -/
  @[simp] theorem both {p q : Prop} (hp : p)
      (hq : q) : p ∧ q := ⟨hp, hq⟩

def data : Nat := 3

mutual
theorem one : p := two
theorem two : p := one
end

theorem both' : p := sorry
end Demo
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "Demo.lean").write_text(FILE, encoding="utf-8")
    with Server(folder, ("Init", "Std"), lean=NOWHERE) as made:
        yield made


def record(name: str, *, path: str = "Demo.lean", line: int = 9, statement: str | None = None) -> Theorem:
    return Theorem(
        name, Path(path), Pos(line, 3), Pos(line, 10), "https://example.org/demo", "0" * 40, statement
    )


def test_a_theorem_is_restated_in_its_file_with_a_sorry_for_its_proof(server: Server) -> None:
    found = restate_theorem(record("Demo.both"), server)
    assert found.whole_file
    assert found.declaration.text.endswith("(hq : q) : p ∧ q := by\n    sorry")
    assert found.declaration.preamble == "namespace Demo\nvariable (p q : Prop)"
    before = "".join(found.setup.prefix)
    assert "theorem earlier" in before
    assert "both" not in before
    assert found.key is not None
    assert found.key.imports == ("Init",)
    assert found.place.path == "Demo.lean"
    assert (found.place.name, found.place.imports) == ("Demo.both", ("Init",))
    assert found.place.position is not None
    assert found.place.position[0] in (8, 9)
    assert found.declaration.context.endswith("theorem earlier (h : p) : p := h\n\n  ")


def test_a_theorem_outside_the_project_is_stated_by_its_record(server: Server) -> None:
    said = "theorem gone (p : Prop) : p"
    found = restate_theorem(record("Demo.gone", statement=said), server)
    assert (found.whole_file, found.declaration.text) == (False, f"{said} := by\n  sorry")
    assert found.place == Place("Demo.lean", (9, 3), "Demo.gone", ())
    with pytest.raises(
        StatementError, match=r"has no theorem_statement, and .* has no such theorem in Demo\.lean"
    ):
        restate_theorem(record("Demo.gone"), server)
    with pytest.raises(StatementError, match="no project was named"):
        restate_theorem(record("Demo.both"), None)
    outside = record("Demo.both", path="../Demo.lean", statement=said)
    assert not restate_theorem(outside, server).whole_file, "no file beside the project is read"


def test_definitions_and_mutual_theorems_are_refused(server: Server) -> None:
    with pytest.raises(StatementError, match=r"Demo\.data is a def, and only theorems are proved"):
        restate_theorem(record("Demo.data"), server)
    with pytest.raises(StatementError, match="shares its command with other declarations"):
        restate_theorem(record("Demo.one"), server)
    with pytest.raises(StatementError, match="is a def"):
        restate_theorem("def x : Nat := 3", None)
    with pytest.raises(StatementError, match="is not the statement of one theorem"):
        restate_goal("p\n\ntheorem other : q")


def test_a_goal_becomes_a_theorem_that_states_it() -> None:
    assert restate_goal("∀ p : Prop, p → p").declaration.text == (
        "theorem everlean_goal : ∀ p : Prop, p → p := by\n  sorry"
    )
    printed = restate_goal("case inl\np q : Prop\nh : p\n⊢ p ∨ q", ("Init",))
    assert printed.declaration.text == ("theorem everlean_goal (p q : Prop) (h : p) : p ∨ q := by\n  sorry")
    assert printed.place == Place(imports=("Init",))
