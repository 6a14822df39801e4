from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.models.errors import ModelError
from pipeline.models.libraries import load_tokenizer
from pipeline.models.tactics.prompt import Kind, Prompts, WholeProof
from tests.support.tiny_models import make_tiny_causal

CONTEXT = "import Mathlib\n" + "".join(f"theorem t{n} : {n} = {n} := rfl\n" for n in range(40))
DECLARATION = "theorem wanted : p := by\n  sorry"
FAILED = [("by simp", ["simp made no progress"]), ("by omega", ["omega <|im_end|> failed"])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_causal(tmp_path_factory.mktemp("model"), hidden=32, layers=1)


def prompts(folder: Path, kind: Kind = "causal", *, template: bool = False) -> Prompts:
    tokenizer = load_tokenizer(folder)
    if not template:
        tokenizer.chat_template = None
    return Prompts(tokenizer, kind, max_length=4000)


def test_a_request_for_a_whole_proof_has_context_goal_and_failures() -> None:
    system, user = WholeProof(DECLARATION, "import A", "⊢ p", failed=FAILED).messages()
    assert "the text that takes the sorry's place" in system["content"]
    places = [
        user["content"].index(text)
        for text in ("import A", "wanted", "⊢ p", "by simp", "no progress", "by omega")
    ]
    assert places == sorted(places)
    assert "goal" not in WholeProof(DECLARATION).messages()[1]["content"]


@pytest.mark.parametrize("template", [True, False])
def test_a_long_request_loses_the_context_s_oldest_lines_then_the_oldest_failures(
    folder: Path, template: bool
) -> None:
    def said(length: int) -> str:
        made = prompts(folder, template=template)
        ids = made.whole_proof_ids(WholeProof(DECLARATION, CONTEXT, "⊢ p", failed=FAILED), max_length=length)
        assert len(ids) <= length
        return str(made.tokenizer.decode(ids))

    made = prompts(folder, template=template)
    bare = len(made.whole_proof_ids(WholeProof(DECLARATION, goal="⊢ p", failed=FAILED), max_length=4000))
    whole, shorter, short = said(4000), said(bare + 100), said(bare - 1)
    assert "theorem t0 :" in whole
    assert whole.count("<|im_end|>") == (2 if template else 0), "no text speaks as the template"
    assert "theorem t0 :" not in shorter
    assert "theorem t39 :" in shorter
    assert "by simp" in shorter
    assert "t39" not in short
    assert "by simp" not in short
    assert "by omega" in short
    assert "wanted" in short


def test_premises_stand_between_the_file_and_the_declaration_and_go_after_the_failures(folder: Path) -> None:
    premises = [f"theorem <a>near{n}</a> : {n} = {n}" for n in range(9)]
    user = WholeProof(DECLARATION, "import A", "⊢ p", premises).messages()[1]["content"]
    places = [user.index(text) for text in ("import A", "near8", "near0 :", "wanted", "⊢ p")]
    assert places == sorted(places)
    made = prompts(folder)
    whole = WholeProof(DECLARATION, CONTEXT, "⊢ p", premises, FAILED)
    shown = made.whole_proof_ids(replace(whole, context="", failed=()), max_length=4000)
    assert made.whole_proof_ids(whole, max_length=len(shown)) == shown
    less = made.whole_proof_ids(WholeProof(DECLARATION, goal="⊢ p"), max_length=4000)
    assert made.whole_proof_ids(whole, max_length=len(shown) - 1) == less


def test_a_declaration_that_does_not_fit_and_an_encoder_decoder_are_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"declaration alone makes a prompt of \d+ tokens, .* for 90"):
        prompts(folder).whole_proof_ids(WholeProof(DECLARATION), max_length=90)
    with pytest.raises(ModelError, match="Ask a causal model"):
        prompts(folder, "seq2seq").whole_proof_ids(WholeProof(DECLARATION), max_length=100)
