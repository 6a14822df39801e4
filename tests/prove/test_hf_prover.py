from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.specs import Budget
from pipeline.models.errors import ModelError
from pipeline.models.tactics.requests import Decoding
from pipeline.prove.provers import HFProver
from pipeline.prove.server import Server, ServerError
from store.leandojo.database import Pos, Theorem
from tests.support.lean.scripted import NOWHERE
from tests.support.tiny_models import make_tiny_causal
from tests.support.trace import lean_itself

PROVABLE = "∀ (p : Prop), p → p"
FEW = Decoding(candidates=3, max_tokens=24)
SMALL = Budget(nodes=4, seconds=20.0, tactic_timeout_s=5.0)

FILE = """\
namespace Demo

variable (p q : Prop)

theorem earlier (p : Prop) (h : p) : p := h

  theorem both (hp : p) (hq : q) : p ∧ q := by
    have h := both_by_magic
    sorry

end Demo
"""


@pytest.fixture(scope="module")
def prover(learned: Path) -> Iterator[HFProver]:
    with HFProver(learned, decoding=FEW, budget=SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "Demo.lean").write_text(FILE, encoding="utf-8")
    return folder


def theorem(name: str = "Demo.both", path: str = "Demo.lean", statement: str | None = None) -> Theorem:
    return Theorem(name, Path(path), Pos(7, 3), Pos(9, 10), "https://example.org/demo", "0" * 40, statement)


def test_a_bare_proposition_is_proved_with_the_trained_tactics(
    prover: HFProver, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    result, tactics = prover.search(server=server, goal=PROVABLE, verbose=True)
    assert tactics == ["intro p h", "exact h"]
    assert (result.success, result.n_goals_root, result.steps, result.outcome) == (True, 1, 2, "found")
    assert result.proof == "by\n  intro p h\n  exact h"
    assert result.duration > 0
    assert result.tree is not None
    said = capsys.readouterr().out
    assert "candidate until the gate has checked it" in said
    assert "This is a candidate until the gate has checked it" in said


def test_a_goal_as_lean_prints_it_is_proved_too(prover: HFProver, server: Server) -> None:
    result, tactics = prover.search(server, "p : Prop\nh : p\n⊢ p")
    assert (result.success, tactics, result.proof) == (True, ["exact h"], "by\n  exact h")


def test_a_theorem_is_proved_from_its_statement_in_the_context_of_its_file(
    prover: HFProver, project: Path, real_lean: Path
) -> None:
    with Server(project, lean=lean_itself(real_lean)) as server:
        result, tactics = prover.search(server, theorem=theorem())
    assert result.success, result.detail
    assert tactics == ["exact ⟨hp, hq⟩"]
    assert result.whole_file
    assert result.proof == "by\n    exact ⟨hp, hq⟩"


def test_without_its_file_a_theorem_is_proved_from_its_record_alone(prover: HFProver, server: Server) -> None:
    said = "theorem both (p q : Prop) (hp : p) (hq : q) : p ∧ q"
    for one in (theorem(statement=said), said, f"{said} := by\n  sorry"):
        result, tactics = prover.search(server, theorem=one)
        assert (result.success, tactics, result.whole_file) == (True, ["exact ⟨hp, hq⟩"], False), result

    @dataclass
    class Record:
        theorem_statement: str

    result, tactics = prover.search(server, theorem=Record(PROVABLE))
    assert tactics == ["intro p h", "exact h"]


def test_an_unusable_goal_gives_its_reason_and_the_next_search_works(
    prover: HFProver, server: Server
) -> None:
    for goal, why in (
        ("  ", "the goal is empty"),
        ("x✝ : Nat\nh : P x✝\n⊢ P x✝", "hypotheses without a name"),
        ("∀ (p : Prop, p", "Lean makes no goal of the declaration"),
    ):
        result, tactics = prover.search(server, goal)
        assert (result.success, result.outcome, tactics) == (False, "error", None)
        assert why in result.detail
    result, tactics = prover.search(server, theorem=theorem())
    assert "Make the server with the folder of its repository" in result.detail
    assert prover.search(server, PROVABLE)[0].success


def test_a_model_that_has_no_tactic_ends_its_own_search_and_says_so(
    prover: HFProver, server: Server, tmp_path: Path
) -> None:
    few = Decoding(candidates=2, max_tokens=3)
    with HFProver(make_tiny_causal(tmp_path, hidden=32, layers=1), decoding=few) as random:
        result, tactics = random.search(server, PROVABLE)
    assert (result.success, result.outcome, tactics) == (False, "exhausted", None)
    assert result.detail == "the model gave no tactic for 1 of 1 states (answers left out: unended 2)"


def test_next_tactic_takes_a_statement_or_a_printed_goal(prover: HFProver) -> None:
    prover.reset()
    assert prover.next_tactic(PROVABLE) == "intro p h"
    assert prover.next_tactic("p : Prop\nh : p\n⊢ p", 0) == "exact h"
    two = "⊢ ∀ (p : Prop), p → p\n\np : Prop\nh : p\n⊢ p"
    with pytest.raises(ValueError, match="goal_id is 2, and the state has 2 goals"):
        prover.next_tactic(two, 2)


def test_next_tactic_ends_after_the_model_s_last_tactic(prover: HFProver) -> None:
    prover.reset()
    said = []
    while (tactic := prover.next_tactic(PROVABLE)) is not None:
        said.append(tactic)
    assert said[0] == "intro p h"
    assert 1 <= len(said) == len(set(said)) <= 3
    prover.reset()
    assert prover.next_tactic(PROVABLE) == said[0]


def test_next_tactic_takes_a_state_object_as_pantograph_has_it(prover: HFProver) -> None:
    class State:
        goals = ("⊢ ∀ (p : Prop), p → p", "p : Prop\nh : p\n⊢ p")

    prover.reset()
    seen: list[Any] = []
    known = prover.generator.suggest

    def noted(requests: Any) -> Any:
        seen.extend(requests)
        return known(requests)

    # A service is made from it when it is first asked.
    prover.close()
    prover.generator.suggest = noted  # type: ignore[method-assign]
    try:
        prover.next_tactic(State(), 1)
        prover.close()
    finally:
        prover.generator.suggest = known  # type: ignore[method-assign]
    assert [one.state for one in seen] == ["p : Prop\nh : p\n⊢ p\n\n⊢ ∀ (p : Prop), p → p"]


def test_a_whole_proof_is_read_from_the_answer_and_an_answer_without_one_says_why(
    prover: HFProver, project: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = prover.generator
    asked: list[str] = []
    answers = ["```lean4\ntheorem both : p ∧ q := by\n  exact ⟨hp, hq⟩\n```", "-- I cannot"]

    def complete(prompts: Any) -> Any:
        from pipeline.models.tactics.requests import Completion

        asked.append(str(generator._tokenizer.decode(prompts[0].ids)))
        ids = generator._tokenizer(answers[len(asked) - 1], add_special_tokens=False)["input_ids"]
        return [[Completion(tuple(ids), -1.0, True)]]

    monkeypatch.setattr(generator, "complete", complete)
    with Server(project, lean=NOWHERE) as server:
        assert prover.generate_whole_proof(theorem(), server) == "by\n  exact ⟨hp, hq⟩"
    assert "theorem earlier" in asked[0], "the model is shown the file up to the theorem"
    assert "both_by_magic" not in asked[0], "and not the proof that is there"
    with caplog.at_level(logging.WARNING):
        assert prover.generate_whole_proof(f"theorem t : {PROVABLE}") == ""
    assert "the answer has no proof in it" in caplog.text


def test_a_folder_without_a_tokenizer_and_one_that_is_no_adapter_are_refused(tmp_path: Path) -> None:
    folder = make_tiny_causal(tmp_path / "model", hidden=32, layers=1)
    with pytest.raises(ModelError, match=r"no LoRA adapter .* Leave use_lora out"):
        HFProver(folder, use_lora=True)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        HFProver(folder)


def test_a_server_of_pypantograph_is_refused_with_the_remedy(prover: HFProver) -> None:
    theirs = type("Server", (), {"__module__": "pantograph.server"})()
    with pytest.raises(TypeError, match=r"Use pipeline\.prove\.Server instead"):
        prover.search(theirs, PROVABLE)
    with pytest.raises(TypeError, match="server is a NoneType"):
        prover.search(None, PROVABLE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a goal or a theorem"), Server(lean=NOWHERE) as server:
        prover.search(server)


def test_a_closed_server_and_a_missing_project_or_lean_say_so(prover: HFProver, tmp_path: Path) -> None:
    server = Server(lean=NOWHERE)
    folder = server.project
    server.close()
    assert not folder.exists()
    with pytest.raises(ServerError, match="was closed"):
        prover.search(server, PROVABLE)
    with pytest.raises(ServerError, match="there is no such folder"):
        Server(tmp_path / "nowhere")
    with pytest.raises(ServerError, match="no Lean for "):
        Server(tmp_path, lean="none")
    with pytest.raises(ServerError, match="is none of"):
        Server(tmp_path, lean="lean3")
