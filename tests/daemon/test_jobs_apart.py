"""A job needs its specification, its inputs and the folders that these list, and nothing else of the daemon's."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemon.settings import Settings
from examples.demo_library import files
from pipeline.jobs.inputs import Inputs, InputStore
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import CORPUS, KNOWN, Budget, CuratedRung, ProveKnown, ProveSpec, ScanLimits
from pipeline.lean.backend import simulator
from tests.support.daemon import apart
from tests.support.daemon.bench import bench
from tests.support.daemon.deployment import Deployment
from tests.support.tiny_models import make_tiny_causal, make_tiny_classifier, make_tiny_retriever

pytestmark = pytest.mark.skipif(not apart.works(), reason="nothing can be hidden from a process here")

SIMULATOR = '[lean]\nbackend = "simulator"\n[jobs]\nretry_base = "0.2s"\n'
TRAIN = """
[train]
device = "cpu"
new_theorems = 30
tolerance = 100
[train.retriever]
model_name = "./tiny"
batch_size = 16
precision = "32-true"
num_workers = 0
max_seq_len = 64
data_max_seq_len = 64
[train.tactics]
enabled = true
model_name = "./causal"
max_seq_len = 400
epochs = 1
[train.progress]
enabled = true
model_name = "./classifier"
max_seq_len = 400
epochs = 1
"""


TRAINED = {"train", "train_tactics", "train_progress"}


def ended(deployment: Deployment) -> Counter[str]:
    """Count the jobs that succeeded, by kind; none may fail."""
    failed = deployment.events("job_failed")
    assert not failed, [event.data for event in failed]
    return Counter(event.data["job"].rpartition("-")[0] for event in deployment.events("job_succeeded"))


def begun(deployment: Deployment, settings: Settings, kinds: set[str], *, seconds: float) -> None:
    hidden = apart.prelude(settings.paths.state, settings.paths.cache, deployment.folder)
    with deployment.daemon(environment={"OMP_NUM_THREADS": "1"}, prelude=hidden):
        deployment.wait_for(lambda: kinds <= set(ended(deployment)), what="the jobs", seconds=seconds)


def test_scans_traces_searches_and_checks_need_nothing_of_the_daemon_s_but_what_they_list(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a (p : Prop) (h : p) : p := by\n  sorry\n"})
    settings = deployment.write(repos=[remote.path], extra=f"{SIMULATOR}[train]\nenabled = false\n")
    begun(deployment, settings, {"scan", "trace", "prove", "check"}, seconds=60)
    assert not list(settings.paths.jobs.glob("*/inputs")), "what no job needs is gone"
    assert not [path for path in settings.paths.inputs.iterdir() if path.is_file()]


class Searching(ProveSpec):
    """A prove job that behaves as told (`tests.support.daemon.job`)."""

    behave: str
    limits: Any = ScanLimits()
    base: None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def test_each_attempt_has_the_inputs_of_the_first_one_until_the_job_has_ended(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    settings = deployment.write(repos=[remote.path])
    place, store = settings.paths.jobs / "prove-1" / "inputs", InputStore(settings.paths.inputs)

    async def go() -> list[Inputs]:
        async with bench(deployment, max_attempts=5) as b:

            async def attempt(number: int, behave: str) -> Inputs:
                spec = Searching(
                    behave=behave,
                    repository=b.parts.repo.key,
                    branch="main",
                    sha=b.sha,
                    lean=simulator(),
                    rung=CuratedRung(),
                    budget=Budget(1, 1.0, 1.0),
                    budget_key="b",
                    parallel=1,
                    sorries=(),
                )
                due = replace(b.due(behave, kind="prove", attempt=number), job="prove-1", spec=spec)
                await b.run(due)
                written = place.parent / str(number) / "spec.json"
                return JobSpec.read(written).inputs

            first = await attempt(1, "fail_for_now")
            # What the view would not say, so that the second attempt can have it from the first alone.
            known = ProveKnown(proofs={"of the first": ()}).model_dump_json().encode()
            before = store.freeze(place, {KNOWN: known})
            second = await attempt(2, "fail_for_now")
            assert store.frozen(place) == second == before, "it is to be tried again"
            return [first, second, await attempt(3, "fail")]

    first, second, third = asyncio.run(go())
    assert [one.name for one in first.files] == [KNOWN]
    assert second == third != first
    assert not place.exists(), "it is not tried again"
    assert [path for path in store.folder.iterdir() if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_trainings_and_searches_with_premises_need_nothing_of_the_daemon_s_but_what_they_list(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    make_tiny_retriever(tmp_path / "tiny", d_model=32, layers=1)
    make_tiny_causal(tmp_path / "causal", hidden=32, layers=1)
    make_tiny_classifier(tmp_path / "classifier", hidden=32, layers=1)
    remote = deployment.remote("atlas")
    remote.commit("revision 1", {**files(1), "Open.lean": "theorem a (p q : Prop) : p ∨ q := by\n  sorry\n"})
    settings = deployment.write(repos=[remote.path], extra=SIMULATOR + TRAIN)

    def premises_are_searched() -> bool:
        done = {event.data["job"] for event in deployment.events("job_succeeded")}
        specs = [JobSpec.read(path) for path in settings.paths.jobs.glob("prove-*/*/spec.json")]
        return any(spec.job in done and CORPUS in spec.inputs for spec in specs)

    hidden = apart.prelude(settings.paths.state, settings.paths.cache, deployment.folder)
    with deployment.daemon(environment={"OMP_NUM_THREADS": "1"}, prelude=hidden):
        deployment.wait_for(
            lambda: {*TRAINED, "prove"} <= set(ended(deployment)) and premises_are_searched(),
            what="the jobs",
            seconds=300,
        )
    assert list(settings.paths.inputs.glob("kept/*/*")), "the corpus is there for the next job"
