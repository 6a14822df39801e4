"""The daemon learns from what people commit and Lean 4.35.0 traces: trained, promoted, killed, started again, rolled
back. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.place.control_client import request
from daemon.settings import Settings
from examples import rows
from store.view import model_queries, queries
from store.view.rows import CheckpointRow
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import real_elan
from tests.support.tiny_models import make_tiny_retriever

TRAIN = """
[lean]
sandbox = "none"
[prove]
enabled = false
[jobs]
retry_base = "0.2s"
[train]
device = "cpu"
new_theorems = 30
tolerance = 100
[train.retriever]
model_name = "./tiny"
loss = "contrastive"
batch_size = 16
accumulate_grad_batches = 1
lr = 2.0e-3
warmup_steps = 0
precision = "32-true"
num_workers = 0
max_seq_len = 64
data_max_seq_len = 64
checkpoint_every_n_steps = 2
fisher_samples = 16
"""


REVISIONS = {1: ("Lists",), 2: ("Lists", "Marks")}
"""The volumes of each: the second adds one."""


def files(revision: int) -> dict[str, str]:
    return rows.files(*REVISIONS[revision], count=80)


@pytest.fixture
def deployment(tmp_path: Path, real_lean: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("ELAN_HOME", str(real_elan(tmp_path)))
    made = Deployment(tmp_path)
    make_tiny_retriever(tmp_path / "tiny", d_model=32, layers=1)
    return made


@contextmanager
def running(deployment: Deployment) -> Iterator[subprocess.Popen[bytes]]:
    with deployment.daemon(
        environment={"OMP_NUM_THREADS": "1", "ELAN_HOME": os.environ["ELAN_HOME"]}
    ) as process:
        yield process


def of_type(deployment: Deployment, *types: str, number: int = 1) -> bool:
    return len(deployment.events(*types)) >= number


def checkpoints(settings: Settings) -> list[CheckpointRow]:
    view = queries.connect(settings.paths.database_db)
    try:
        return model_queries.checkpoints(view, "retriever")
    finally:
        view.close()


def promoted(deployment: Deployment, settings: Settings, *, number: int = 1) -> bool:
    """Whether so many were promoted, by the log and by the view, which is a moment behind it."""
    return (
        of_type(deployment, "checkpoint_promoted", number=number)
        and sum(row.promoted_at is not None for row in checkpoints(settings)) == number
    )


def commit(remote: Remote, settings: Settings, revision: int) -> None:
    remote.commit(f"revision {revision}", files(revision))
    request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})


def diverge(deployment: Deployment, remote: Remote, settings: Settings) -> None:
    """A step so large leads to weights that are no numbers: that says why, and leaves the checkpoint in use."""
    large = TRAIN.replace("lr = 2.0e-3", "lr = 1.0e30\ngradient_clip_val = 0.0")
    deployment.write(repos=[remote.path], extra=large)
    deployment.wait_for(lambda: of_type(deployment, "config_loaded", number=2), what="the settings")
    commit(remote, settings, 2)
    deployment.wait_for(lambda: of_type(deployment, "job_failed"), what="the failure", seconds=240)
    (failed,) = deployment.events("job_failed")
    assert (failed.data["reason"], failed.data["deterministic"]) == ("diverged", True)
    assert "smaller learning rate" in failed.data["message"]
    (kept,) = checkpoints(settings)
    assert kept.promoted


# Of a training that diverges on the way, tests/models/jobs has what the job says, and
# tests/unit/daemon/test_plan_training that it is not tried again before something changes.
@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("diverges", [False, True])
def test_two_revisions_are_two_links_of_one_chain_through_a_kill(
    deployment: Deployment, diverges: bool
) -> None:
    remote = deployment.remote("rows")
    remote.commit("revision 1", files(1))
    settings = deployment.write(repos=[remote.path], extra=TRAIN)
    chain = settings.paths.models / "retriever"
    with running(deployment):
        deployment.wait_for(lambda: promoted(deployment, settings), what="the first checkpoint", seconds=240)
        (first,) = checkpoints(settings)
        assert (first.parent, first.promoted, first.base) == (
            None,
            True,
            str(deployment.folder / "tiny"),
        )
        measured = deployment.events("evaluation_finished")
        assert {event.data["split"] for event in measured} == {"test", "val"}
        if diverges:
            diverge(deployment, remote, settings)
        # The next revision is learned, with the step as it was. Killed with everything, in the middle of it.
        before = set(chain.glob(".runs/*/**/step=*.ckpt"))
        if diverges:
            deployment.write(repos=[remote.path], extra=TRAIN)
        else:
            commit(remote, settings, 2)
        deployment.wait_for(
            lambda: set(chain.glob(".runs/*/**/step=*.ckpt")) - before,
            what="a saved step",
            seconds=240,
        )
        os.kill(int(settings.paths.lock.read_text().split()[0]), signal.SIGKILL)
    with running(deployment):
        deployment.wait_for(
            lambda: promoted(deployment, settings, number=2), what="the second checkpoint", seconds=240
        )
        first, second = checkpoints(settings)
        assert (second.parent, second.promoted, first.promoted) == (first.checkpoint, True, False)
        tests = [
            event.data["dataset"]
            for event in deployment.events("evaluation_finished")
            if event.data["checkpoint"] == second.checkpoint and event.data["split"] == "test"
        ]
        assert len(set(tests)) == 2, "the earlier revision's frozen test set and its own"
        status, rolled_back = request(settings.paths, "POST", "/rollback", {"model": "retriever"})
        assert (status, rolled_back["checkpoint"]) == (200, first.checkpoint)
    view = queries.connect(settings.paths.database_db)
    links = model_queries.learned(view, "retriever")
    view.close()
    assert [link.data_seq for link in links] == sorted({link.data_seq for link in links})
