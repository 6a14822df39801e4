"""A repository that was set up once, with Lean 4.35.0 itself, and copies of the store that it left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.leandojo import ExternalAgent
from pipeline.jobs import child
from tests.support import programs
from tests.support.daemon import forks
from tests.support.daemon.traced_project import TracedProject
from tests.support.lean.real_gate import real_elan


@pytest.fixture(autouse=True)
def restored(loggers_as_they_were: None) -> None:
    """An agent's session quietens its process's loggers."""


@pytest.fixture(scope="module", autouse=True)
def jobs_that_load_nothing_anew() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", forks.with_forked_jobs(programs.kept()))
        yield


@pytest.fixture(scope="session", autouse=True)
def lean_itself(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELAN_HOME", str(real_elan(tmp_path_factory.mktemp("tools"))))
        yield


@pytest.fixture(scope="session")
def set_up_once(lean_itself: None, tmp_path_factory: pytest.TempPathFactory) -> TracedProject:
    study = TracedProject.begin(tmp_path_factory.mktemp("agents"))
    study.write_config()
    agent = ExternalAgent(base_url="http://127.0.0.1:1/v1", config=study.config, say=lambda _line: None)
    agent.setup_github_repository(study.url, study.sha)
    return study


@pytest.fixture
def study(set_up_once: TracedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TracedProject:
    """A copy that the test may change; `everlean` and the agents find its configuration."""
    result = set_up_once.copied(tmp_path)
    monkeypatch.setenv("EVERLEAN_CONFIG", str(result.config))
    monkeypatch.chdir(tmp_path)
    return result


@pytest.fixture(scope="session")
def says_rfl(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A causal model that generates "rfl" for every prompt: each byte follows from the one before alone."""
    # Here, as the other tests need no torch.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tests.support.tiny_models import make_tiny_causal

    folder = make_tiny_causal(tmp_path_factory.mktemp("causal"), hidden=32, layers=1, max_length=400)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    rfl = [tokenizer.encode(letter, add_special_tokens=False)[0] for letter in "rfl"]
    known = torch.zeros_like(model.model.embed_tokens.weight)
    said = torch.zeros_like(known)
    known[:, 0] = 10.0
    for place, (token, following) in enumerate(itertools.pairwise([None, *rfl, tokenizer.eos_token_id])):
        if token is not None:
            known[token] = torch.nn.functional.one_hot(torch.tensor(place), known.shape[1]) * 10.0
        said[following, place] = 2.0
    # One reads the byte and the other says the next.
    model.config.tie_word_embeddings = False
    model.model.embed_tokens.weight = torch.nn.Parameter(known)
    model.lm_head.weight = torch.nn.Parameter(said)
    for part in (model.model.layers[0].self_attn.o_proj, model.model.layers[0].mlp.down_proj):
        torch.nn.init.zeros_(part.weight)
    model.save_pretrained(folder)
    return str(folder)
