from __future__ import annotations

import pytest
from transformers import ByT5Tokenizer

from pipeline.models.retriever.encoder import Ids, byte_ids, query_ids


@pytest.mark.parametrize("text", ["", "⊢ a", "x" * 40, "ℕ" * 20])
@pytest.mark.parametrize("length", [1, 2, 8, 1024])
def test_bytes_are_the_ids_of_byt5s_own_tokenizer(text: str, length: int) -> None:
    theirs = ByT5Tokenizer()(text, truncation=True, max_length=length)["input_ids"]
    assert byte_ids(text, length).tolist() == theirs


def test_a_query_that_is_too_long_keeps_its_goal_and_a_document_its_beginning() -> None:
    state = "".join(f"h{number} : p{number}\n" for number in range(100)) + "⊢ goal"
    cut = bytes(int(one) - 3 for one in query_ids(byte_ids, state, 40)[:-1]).decode()
    assert cut.startswith("…\nh9")
    assert cut.endswith("\n⊢ goal")
    assert query_ids(byte_ids, "⊢ p", 40).tolist() == byte_ids("⊢ p", 40).tolist()
    assert bytes(int(one) - 3 for one in byte_ids(state, 40)[:-1]).decode().startswith("h0 : p0")


def test_a_state_of_thousands_of_goals_is_cut_in_few_tries() -> None:
    tried = []

    def tokens(text: str, max_length: int) -> Ids:
        tried.append(text)
        return byte_ids(text, max_length)

    cut = query_ids(tokens, "\n\n".join(f"⊢ p{number}" for number in range(8192)), 40)
    assert bytes(int(one) - 3 for one in cut[:-1]).decode() == "⊢ p0\n\n⊢ p1\n\n⊢ p2\n\n⊢ p3\n\n…"
    assert len(tried) < 20
