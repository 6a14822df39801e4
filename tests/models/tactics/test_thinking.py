"""A model that can think before it answers is asked for tactics without, for whole proofs with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.models.tactics.models import Lengths, load_model, read_model
from pipeline.models.tactics.prompt import Prompts
from tests.support.tiny_models import CHAT_TEMPLATE, make_tiny_causal

# The end of Qwen3's template.
_OFF = "enable_thinking is defined and enable_thinking is false"
QWEN3 = CHAT_TEMPLATE.replace(
    "{% endif %}",
    "{% if " + _OFF + " %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}",
)
# The end of DeepSeek-V3.1's.
DEEPSEEK = CHAT_TEMPLATE.replace(
    "{% endif %}", "{% if thinking %}{{ '<think>' }}{% else %}{{ '</think>' }}{% endif %}{% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_causal(tmp_path / "model", hidden=16, layers=1)


def prompts(folder: Path, template: str, **settings: bool) -> Prompts:
    tokenizer = read_model(folder).tokenizer
    tokenizer.chat_template = template
    return Prompts(tokenizer, "causal", max_length=700, **settings)


@pytest.mark.parametrize(
    ("template", "off", "on"),
    [
        (QWEN3, "<think>\n\n</think>\n\n", "assistant\n"),
        (DEEPSEEK, "</think>", "<think>"),
        (CHAT_TEMPLATE, "assistant\n", "assistant\n"),
    ],
)
def test_a_template_is_told_whether_to_think_and_one_without_a_switch_is_left_as_it_is(
    folder: Path, template: str, off: str, on: str
) -> None:
    assert prompts(folder, template).text("⊢ p").endswith(off)
    assert prompts(folder, template, enable_thinking=True).text("⊢ p").endswith(on)


def test_a_whole_proof_may_be_thought_about_where_a_tactic_is_not(folder: Path) -> None:
    made = prompts(folder, QWEN3)

    def text(*, enable_thinking: bool) -> str:
        ids = made.whole_proof_ids("theorem t : p := sorry", max_length=700, enable_thinking=enable_thinking)
        return str(made.tokenizer.decode(ids))

    assert text(enable_thinking=False).endswith("<think>\n\n</think>\n\n")
    assert text(enable_thinking=True).endswith("assistant\n")


@pytest.mark.parametrize("thinking", [True, False])
def test_a_checkpoint_is_asked_as_it_was_trained(folder: Path, thinking: bool) -> None:
    Lengths(300, 100, thinking).save(folder)
    found = load_model(folder)
    assert found.lengths == Lengths(300, 100, thinking)
    assert found.prompts.enable_thinking is thinking


def test_a_model_that_was_not_trained_here_does_not_think_unless_it_is_told_to(folder: Path) -> None:
    assert load_model(folder).prompts.enable_thinking is False
    assert load_model(folder, enable_thinking=True).prompts.enable_thinking is True
