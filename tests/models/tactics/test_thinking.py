"""A model that can think before it answers is asked for tactics without, for whole proofs with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.models.tactics.models import read_model
from pipeline.models.tactics.prompt import Prompts, WholeProof
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
    tokenizer = read_model(folder).tokenizer
    tokenizer.chat_template = template
    made = Prompts(tokenizer, "causal", max_length=700)

    def proof(*, thinks: bool) -> str:
        ids = made.whole_proof_ids(
            WholeProof("theorem t : p := sorry"), max_length=700, enable_thinking=thinks
        )
        return str(made.tokenizer.decode(ids))

    assert str(made.tokenizer.decode(made.ids("⊢ p"))).endswith(off), "a tactic needs no thought"
    assert proof(thinks=False).endswith(off)
    assert proof(thinks=True).endswith(on)
