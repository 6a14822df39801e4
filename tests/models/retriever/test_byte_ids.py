from __future__ import annotations

import pytest
from transformers import ByT5Tokenizer

from pipeline.models.retriever.encoder import byte_ids


@pytest.mark.parametrize("text", ["", "⊢ a", "x" * 40, "ℕ" * 20])
@pytest.mark.parametrize("length", [1, 2, 8, 1024])
def test_bytes_are_the_ids_of_byt5s_own_tokenizer(text: str, length: int) -> None:
    theirs = ByT5Tokenizer()(text, truncation=True, max_length=length)["input_ids"]
    assert byte_ids(text, length).tolist() == theirs
