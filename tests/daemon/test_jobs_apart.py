"""A job needs its specification, its inputs and the folders that these list, and nothing else of the daemon's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from daemon.settings import Settings
from examples.demo_library import files
from tests.support.daemon import apart
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
model_name = "./causal"
max_seq_len = 64
epochs = 1
[train.progress]
model_name = "./classifier"
max_seq_len = 64
epochs = 1
"""


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


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_trainings_need_nothing_of_the_daemon_s_but_what_they_list(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    make_tiny_retriever(tmp_path / "tiny", d_model=32, layers=1)
    make_tiny_causal(tmp_path / "causal", hidden=32, layers=1)
    make_tiny_classifier(tmp_path / "classifier", hidden=32, layers=1)
    remote = deployment.remote("atlas")
    remote.commit("revision 1", files(1))
    settings = deployment.write(repos=[remote.path], extra=SIMULATOR + TRAIN)
    begun(deployment, settings, {"train", "train_tactics", "train_progress", "prove"}, seconds=300)
