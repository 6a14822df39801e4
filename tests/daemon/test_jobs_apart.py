"""A job needs its specification, its inputs and the folders that these list, and nothing else of the daemon's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.inputs import Inputs, InputStore
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import CORPUS, KNOWN, Budget, CuratedRung, ProveKnown, ProveSpec, ScanLimits
from tests.support.daemon import apart
from tests.support.daemon.at_work import Works
from tests.support.daemon.bench import bench
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.specs import A_LEAN

pytestmark = pytest.mark.usefixtures("bubblewrap")


def ended(deployment: Deployment) -> Counter[str]:
    """Count the jobs that succeeded, by kind; none may fail."""
    failed = deployment.events("job_failed")
    assert not failed, [event.data for event in failed]
    return Counter(event.data["job"].rpartition("-")[0] for event in deployment.events("job_succeeded"))


def test_a_scan_and_a_search_need_nothing_of_the_daemon_s_but_what_they_list(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a (p : Prop) (h : p) : p := by\n  sorry\n"})
    lean = LeanOfTests.scripted(tmp_path)
    settings = deployment.write(repos=[remote.path], extra=f"{lean.settings}[train]\nenabled = false\n")
    hidden = apart.prelude(settings.paths.state, settings.paths.cache, deployment.folder)
    with deployment.daemon(environment=lean.environment, prelude=hidden, forked_jobs=False):
        deployment.wait_for(lambda: {"scan", "prove"} <= set(ended(deployment)), what="the jobs")


class Searching(ProveSpec):
    """A prove job that behaves as told (`tests.support.daemon.job`)."""

    behave: str
    limits: Any = ScanLimits()
    base: None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


async def test_each_attempt_has_the_inputs_of_the_first_one_until_the_job_has_ended(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    settings = deployment.write(repos=[remote.path])
    place, store = settings.paths.jobs / "prove-1" / "inputs", InputStore(settings.paths.inputs)
    async with bench(deployment, max_attempts=5) as b:

        async def attempt(number: int, behave: str) -> Inputs:
            spec = Searching(
                behave=behave,
                repository=b.parts.repo.key,
                branch="main",
                sha=b.sha,
                lean=A_LEAN,
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
        first, second, third = [first, second, await attempt(3, "fail")]
    assert [one.name for one in first.files] == [KNOWN]
    assert second == third != first
    assert not place.exists(), "it is not tried again"
    assert [path for path in store.folder.iterdir() if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("real_lean")
def test_each_kind_of_job_needs_nothing_of_the_daemon_s_but_what_it_lists(tmp_path: Path) -> None:
    works = Works(tmp_path)
    works.write(learn=("retriever", "tactics", "progress"), rewards=True)
    deployment, paths = works.deployment, works.settings.paths

    def wait_for(*kinds: Kind) -> None:
        deployment.wait_for(lambda: set(kinds) <= set(ended(deployment)), what=", ".join(kinds), seconds=200)

    def premises_are_searched() -> bool:
        done = {event.data["job"] for event in deployment.events("job_succeeded")}
        specs = [JobSpec.read(path) for path in paths.jobs.glob("prove-*/*/spec.json")]
        return any(spec.job in done and CORPUS in spec.inputs for spec in specs)

    hidden = apart.prelude(paths.state, paths.cache, deployment.folder)
    environment = {**works.lean.environment, "OMP_NUM_THREADS": "1"}
    with deployment.daemon(environment=environment, prelude=hidden, forked_jobs=False):
        wait_for("scan", "build", "trace", "prove", "check")
        works.train()
        wait_for("train", "train_tactics", "train_grpo", "train_progress")
        works.bump()
        wait_for("bump")
        # Before its one commit there is no past to count.
        assert set(ended(deployment)) == set(KINDS) - {"count"}
        works.push()
        deployment.wait_for(premises_are_searched, what="a search with premises", seconds=100)
    assert list(paths.inputs.glob("kept/*/*")), "the corpus is there for the next job"
