"""Which due jobs begin now, on which GPU, and what the others are told."""

from __future__ import annotations

from dataclasses import replace

from daemon.jobs.due import DueJob
from daemon.jobs.gpus import Gpu
from daemon.planning.admission import admit
from daemon.planning.plan import Plan
from pipeline.jobs.kinds import Kind
from pipeline.jobs.specs import Spec

ONE, TWO = Gpu("GPU-a", 0, "Test GPU"), Gpu("GPU-b", 1, "Test GPU")
LOST = replace(ONE, state="lost", detail="GPU is lost", remedy="reset it")
BUSY = replace(ONE, state="busy", detail="used by process 7", remedy="end it")


def due(name: str, kind: Kind = "prove", *, gpu: bool = False, cpu_too: bool = False) -> DueJob:
    return DueJob(
        job=name,
        kind=kind,
        attempt=1,
        lane=name,
        repository="r",
        branch="main",
        sha="0" * 40,
        describes=f"{kind} {name}",
        simulated=False,
        spec=Spec(),
        gpu=gpu,
        cpu_too=cpu_too,
    )


def plan(*jobs: DueJob) -> Plan:
    return Plan(jobs, None)


def test_several_gpus_are_lent_to_several_jobs_and_each_to_one() -> None:
    found = admit(plan(*(due(name, gpu=True) for name in "abc")), running=(), max_running=9, gpus=[ONE, TWO])
    assert [(one.due.job, one.gpu) for one in found.start] == [("a", ONE), ("b", TWO)]
    assert found.waits == {
        "c": "a GPU; GPU 0 (Test GPU) goes to a job before it; GPU 1 (Test GPU) goes to a job before it"
    }


def test_a_foreign_process_on_the_gpu_is_named_to_the_job_that_waits() -> None:
    found = admit(plan(due("a", gpu=True, cpu_too=True)), running=(), max_running=9, gpus=[BUSY])
    assert found.start == ()
    assert found.waits == {"a": "a GPU; GPU 0 (Test GPU) is used by process 7: end it"}
    assert found.for_gpu == (), "no training could make way"


def test_a_lost_gpu_parks_its_jobs_with_the_reason_and_the_remedy() -> None:
    found = admit(plan(due("a", gpu=True)), running=(), max_running=9, gpus=[LOST])
    assert found.waits == {"a": "a GPU; GPU 0 (Test GPU) is lost (GPU is lost): reset it"}
    other = admit(plan(due("a", gpu=True)), running=(), max_running=9, gpus=[LOST, TWO])
    assert [one.gpu for one in other.start] == [TWO]


def test_where_no_gpu_works_the_processor_does_if_the_settings_let_it() -> None:
    either = plan(due("a", gpu=True, cpu_too=True))
    assert [one.gpu for one in admit(either, running=(), max_running=9, gpus=[LOST]).start] == [None]
    assert [one.gpu for one in admit(either, running=(), max_running=9).start] == [None]
    only = admit(plan(due("a", gpu=True)), running=(), max_running=9)
    assert only.waits == {"a": "a GPU; none is to be seen here"}


def test_a_proof_that_waits_for_a_training_is_reported() -> None:
    lent = replace(ONE, state="lent", detail="train the retriever")
    found = admit(
        plan(due("a", gpu=True), due("t", "train", gpu=True)), running=(), max_running=9, gpus=[lent]
    )
    assert found.for_gpu == ("prove a",)


def test_so_many_of_a_kind_run_as_the_settings_say() -> None:
    jobs = plan(due("a"), due("b"), due("s", "scan"))
    found = admit(jobs, running=("prove",), max_running=9, most={"prove": 2})
    assert [one.due.job for one in found.start] == ["a", "s"]
    assert found.waits == {"b": "another prove job; 2 run at the same time ([schedule.running])"}


def test_a_job_without_a_slot_says_so() -> None:
    found = admit(plan(due("a")), running=("scan", "prove"), max_running=2)
    assert found.waits["a"].startswith("a slot; the running jobs have them all")
    long = admit(plan(due("a")), running=("prove",), max_running=2)
    assert long.waits["a"].startswith("a slot; the last one is kept free")
