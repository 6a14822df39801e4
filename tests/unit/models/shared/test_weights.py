"""Which files of a model are its weights: one, an adapter's or each repository's, or every part of a large one."""

from __future__ import annotations

import pytest

from pipeline.models.model_files import weights_digest, weights_of

INDEX, ONE, TWO = (
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
)
A, B = (f"adapters/{name}/adapter_model.safetensors" for name in "ab")
"""Of two repositories."""


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (["config.json", "model.safetensors", "tokenizer.json"], ["model.safetensors"]),
        (["model.safetensors", "adapter_model.safetensors"], ["adapter_model.safetensors"]),
        (["model.safetensors", "fisher.safetensors"], ["model.safetensors"]),
        ([TWO, INDEX, ONE, "config.json", "model-00001-of-00002.safetensors.bak"], [INDEX, ONE, TWO]),
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
        ([ONE, TWO, "config.json"], []),
        ([B, "curve.json", A, "adapters/a/adapter_config.json"], [A, B]),
    ],
)
def test_the_weights_are_found_by_their_names(names: list[str], weights: list[str]) -> None:
    assert [*weights_of(names)] == weights


def test_the_digest_of_one_file_is_its_own_and_of_several_it_is_of_every_part() -> None:
    assert weights_digest({"config.json": "c", "model.safetensors": "m"}) == "m"
    assert weights_digest({"config.json": "c"}) == ""
    parts = {INDEX: "i", ONE: "1", TWO: "2", "config.json": "c"}
    whole = weights_digest(parts)
    assert len(whole) == 64
    assert weights_digest({**parts, "config.json": "another"}) == whole
    for name in (INDEX, ONE, TWO):
        assert weights_digest({**parts, name: "another"}) != whole, name
    assert weights_digest({**parts, ONE: "2", TWO: "1"}) != whole
