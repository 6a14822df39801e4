"""A tiny model that has learned a few proofs by heart, and Lean itself, for the tests of the provers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.models.tactics.models import load_model
from pipeline.prove.server import Server
from tests.support.tiny_models import make_tiny_causal
from tests.support.trace import lean_itself

STEPS = [
    ("⊢ ∀ (p : Prop), p → p", "intro p h"),
    ("p : Prop\nh : p\n⊢ p", "exact h"),
    ("p q : Prop\nhp : p\nhq : q\n⊢ p ∧ q", "exact ⟨hp, hq⟩"),
]
"""The states and tactics that the model knows."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a causal model that knows STEPS, taught through the prompts that it is asked with."""
    folder = make_tiny_causal(tmp_path_factory.mktemp("learned"), hidden=64, layers=1)
    made = load_model(folder, max_seq_len=512)
    model: Any = made.model
    rows = [(made.prompts.ids(state), made.prompts.answer_ids(tactic)) for state, tactic in STEPS]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    pad = int(made.tokenizer.pad_token_id)
    ids = torch.tensor([[pad] * (width - len(p) - len(a)) + p + a for p, a in rows])
    labels = torch.tensor([[-100] * (width - len(a)) + a for _, a in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = model(input_ids=ids, attention_mask=(ids != pad).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def server(real_lean: Path) -> Iterator[Server]:
    with Server(lean=lean_itself(real_lean)) as made:
        yield made
