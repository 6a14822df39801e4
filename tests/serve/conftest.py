"""A server with a model of each kind; the jobs that servers have judge and search are forks, in which nothing is loaded
anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.jobs import child
from pipeline.serve.spec import ModelSpec, RewardSpec
from tests.support import programs
from tests.support.daemon import forks
from tests.support.serve import Promotions, Served, make_saying, spec_of
from tests.support.tiny_models import make_tiny_classifier, make_tiny_retriever


@pytest.fixture(scope="module", autouse=True)
def jobs_that_load_nothing_anew() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", forks.with_forked_jobs(programs.kept()))
        yield


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    progress = make_tiny_classifier(folder / "progress", hidden=16, layers=1)
    spec = spec_of(
        folder,
        ModelSpec(
            "said",
            "tactics",
            str(make_saying(folder / "said", {"simp": 0.6, "rfl": 0.4})),
            candidates=2,
            max_tokens=8,
        ),
        ModelSpec(
            "retriever", "retriever", str(make_tiny_retriever(folder / "retriever", d_model=16, layers=1))
        ),
        progress=RewardSpec(str(progress), device="cpu"),
    )
    # Routes that read the view find one that is empty.
    with Promotions(spec), Served(spec) as it:
        it.wait_ready()
        yield it
