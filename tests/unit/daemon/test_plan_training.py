"""When a repository is learned from, on top of which checkpoint, and what keeps training from starting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.health.requirements import why_not_trainable
from daemon.jobs.due import DueJob
from daemon.jobs.gpus import Gpu
from daemon.planning.admission import admit
from daemon.planning.plan import Plan
from daemon.planning.training import datasets_needed
from daemon.scheduling.scheduler import Operator, WorkStateError
from daemon.settings import Settings
from daemon.state.context import Context
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.spec import HUB_KEY, Spec, hub_key
from pipeline.jobs.specs import LearnedTask, TrainGrpoSpec, TrainSpec, TrainTacticsSpec
from pipeline.lean.backend import Leans
from pipeline.lean.build.build_cache import BuildKey
from pipeline.models.config import ProgressConfig, TacticsConfig
from store.events.jobs import JobReleased, WorkTriggered
from tests.support import planning
from tests.support.events import PATCH, declaration, place, proof_found, proof_verified, scanned
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_removed,
    checkpoint_saved,
    evaluation_finished,
    model_offered,
)
from tests.support.planning import (
    LEAN,
    NO_LEAN,
    Told,
    commit_scanned,
    created,
    failed,
    interrupted,
    sha,
    succeeded,
)
from tests.support.specs import asked
from tests.support.traced_repository import record_made_up

ONE, TWO = "local/remotes/one", "local/remotes/two"
BUILT = tuple(BuildKey(one, sha(number)) for one in (ONE, TWO) for number in range(1, 10))
QUIET = "[trace]\nenabled = false\n[prove]\nenabled = false\n"


class World(planning.World):
    """Two repositories that can be learned from."""

    def configure(
        self, *, train: str = "new_theorems = 10", entry: str = "", device: str = "cpu"
    ) -> Settings:
        self.settings = self.deployment.write(
            repos=[self.deployment.folder / "remotes" / name for name in ("one", "two")],
            entry=entry,
            extra=f'{QUIET}[train]\ndevice = "{device}"\n{train}\n',
        )
        return self.settings

    def trace(self, repository: str, *, number: int = 1, n_files: int = 6, seed: int = 0) -> int:
        """Have a scanned branch whose commit of this number is traced; return the log's position then."""
        self.tell(created(repository=repository, tip=number), commit_scanned(number, repository=repository))
        folder = self.deployment.folder / "stage"
        record_made_up(self.log, folder, sha=sha(number), repository=repository, n_files=n_files, seed=seed)
        return self.tell()

    def prove(self, number: int, *, accepted: bool = True) -> None:
        """Find a proof of the first repository, and have the gate take it or not look at it yet."""
        scan = scanned("A.lean", [declaration("t")], with_sorry=["t"])
        where = place(scan, scan.sorries[0], blob=sha(number))
        result = proof_found(f"{number:016x}", where, commit=sha(1))
        result = result.model_copy(update={"repository": ONE, "branch": "main"})
        self.stage(PATCH)
        self.tell(result, [proof_verified(result)] if accepted else [])

    def learn(
        self,
        job: DueJob,
        name: str,
        *,
        at: int,
        promote: bool = True,
    ) -> None:
        """Have a job of training end well with this checkpoint, and have that promoted or refused."""
        model = KINDS[job.kind].model
        assert model is not None
        saved = checkpoint_saved(
            name,
            parent=asked(job, TrainSpec).parent,
            model=model,
            data_seq=at,
            job=job.job,
        )
        measured = evaluation_finished(name, model=model).model_copy(
            update={"repository": job.repository, "split": "test", "job": job.job}
        )
        verdict = checkpoint_promoted if promote else checkpoint_refused
        began, ended = succeeded(job)
        self.tell(began, saved, measured, ended, verdict(name, model=model))

    def plan(self, *groups: Told, **about: Any) -> Plan:
        return super().plan(*groups, **{"trainable": True, "builds": BUILT, **about})

    def one(self) -> DueJob:
        (job,) = self.plan().due
        return job


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_traced_repository_with_enough_theorems_is_a_task_from_the_base_model(world: World) -> None:
    world.trace(ONE)
    job = world.one()
    assert (job.kind, job.repository, job.branch, job.sha) == ("train", ONE, "main", sha(1))
    assert (job.gpus, job.needs_worktree) == ((), False)
    assert (asked(job, TrainSpec).parent, asked(job, TrainSpec).tasks) == (None, ())
    assert asked(job, TrainSpec).chain == (world.settings.paths.models / "retriever")


def test_too_few_theorems_are_not_learned_from(world: World) -> None:
    world.configure(train="new_theorems = 1000")
    world.trace(ONE)
    assert world.plan().due == ()


@pytest.mark.parametrize("why", ["switched off", "not trainable", "opted out", "no Lean"])
def test_nothing_is_trained_where_it_must_not_be(world: World, why: str) -> None:
    world.trace(ONE)
    if why == "switched off":
        world.configure(train="new_theorems = 10\nenabled = false")
    if why == "opted out":
        world.configure(entry="opt_out = true")
    plan = world.plan(trainable=why != "not trainable", leans=NO_LEAN if why == "no Lean" else LEAN)
    assert plan.due == ()


def test_each_task_starts_from_the_checkpoint_in_use_and_is_measured_on_the_tasks_before(
    world: World,
) -> None:
    at = world.trace(ONE)
    first = world.one()
    world.learn(first, "a", at=at)
    assert world.plan().due == (), "what is learned is not learned again"
    world.trace(TWO, seed=1)
    second = world.one()
    assert (second.repository, asked(second, TrainSpec).parent) == (TWO, "a")
    dataset = world.settings.paths.models / "retriever" / ".datasets" / first.job
    assert asked(second, TrainSpec).tasks == (LearnedTask(name=ONE, dataset=dataset),)


@pytest.mark.parametrize("opted_out", [True, False])
def test_a_task_whose_repository_may_not_be_learned_from_is_measured_and_not_replayed(
    world: World, opted_out: bool
) -> None:
    at = world.trace(ONE)
    first = world.one()
    world.learn(first, "a", at=at)
    world.trace(TWO, seed=1)
    (before,) = asked(world.one(), TrainSpec).tasks
    assert before.replayed
    left = world.settings.repos[1:]
    if opted_out:
        left = (world.settings.repos[0].model_copy(update={"opt_out": True}), *left)
    world.settings = world.settings.model_copy(update={"repos": left})
    (after,) = asked(world.one(), TrainSpec).tasks
    assert after == before.model_copy(update={"replayed": False})


def test_only_theorems_that_the_chain_has_not_seen_count_as_new(world: World) -> None:
    first = world.trace(ONE, n_files=20)
    world.learn(world.one(), "a", at=first)
    world.trace(ONE, number=2, n_files=20)
    assert world.plan().due == (), "the same theorems at another commit"
    world.trace(ONE, number=3, n_files=30)
    job = world.one()
    assert (asked(job, TrainSpec).parent, job.sha) == ("a", sha(3))


def test_what_was_refused_is_tried_again_with_another_seed_with_more_theorems_or_on_another_parent(
    world: World,
) -> None:
    def due() -> DueJob:
        (job,) = [job for job in world.plan().due if job.kind == "train"]
        return job

    at = world.trace(ONE)
    world.learn(world.one(), "a", at=at)
    traced = world.trace(TWO, seed=1)
    refused = world.one()
    world.learn(refused, "b", at=traced, promote=False)
    again = due()
    assert asked(again, TrainSpec) == asked(refused, TrainSpec).model_copy(update={"refused": 1})
    assert again.describes.endswith("again, with another seed: what came of it was refused")
    world.learn(again, "c", at=traced, promote=False)
    assert world.plan().due == (), "[train] tries is 2"
    newer = world.trace(TWO, number=2, n_files=16, seed=1)
    with_more = due()
    assert asked(with_more, TrainSpec).refused == 0
    world.learn(with_more, "d", at=newer, promote=False)
    assert asked(due(), TrainSpec).refused == 1
    third = world.trace(ONE, number=2, n_files=16)
    other = next(job for job in world.plan().due if job.kind == "train" and job.repository == ONE)
    world.learn(other, "e", at=third)
    on_the_new_parent = due()
    assert (on_the_new_parent.repository, asked(on_the_new_parent, TrainSpec).parent) == (TWO, "e")
    assert asked(on_the_new_parent, TrainSpec).refused == 0


def test_after_a_rollback_the_repository_waits_for_new_theorems_and_no_longer(world: World) -> None:
    at = world.trace(ONE)
    world.learn(world.one(), "a", at=at)
    second = world.trace(ONE, number=2, n_files=16)
    world.learn(world.one(), "b", at=second)
    world.tell(checkpoint_promoted("a"))
    assert world.plan().due == (), "what was taken back is not made again by itself"
    world.trace(ONE, number=3, n_files=30)
    job = world.one()
    assert (job.sha, asked(job, TrainSpec).parent, asked(job, TrainSpec).refused) == (sha(3), "a", 0)


def test_a_failure_that_would_repeat_is_not_tried_again_until_the_data_or_the_settings_change(
    world: World,
) -> None:
    world.trace(ONE)
    job = world.one()
    world.tell(failed(job, reason="diverged", deterministic=True))
    assert world.plan().due == ()
    world.configure(train="new_theorems = 10\n[train.retriever]\nlr = 1.0e-5")
    assert world.one().job != job.job


TACTICS, PROGRESS = "[train.tactics]\nenabled = true\n", "[train.progress]\nenabled = true\n"


def kinds(plan: Plan) -> list[Kind]:
    return [job.kind for job in plan.due]


def test_the_other_models_learn_where_they_are_asked_to_one_at_a_time_or_each_on_a_gpu_of_its_own(
    world: World,
) -> None:
    world.trace(ONE)
    assert kinds(world.plan()) == ["train"]
    world.configure(train=f"new_theorems = 10\n{TACTICS}lr = 3e-5\n{PROGRESS}epochs = 2\n")
    plan = world.plan()
    assert kinds(plan) == ["train", "train_tactics", "train_progress"]
    _, tactics, progress = plan.due
    models = world.settings.paths.models
    assert asked(tactics, TrainSpec).chain == (models / "tactics")
    assert (asked(tactics, TrainSpec).config["lr"], asked(tactics, TrainSpec).config["device"]) == (
        3e-5,
        "cpu",
    )
    assert asked(progress, TrainSpec).chain == (models / "progress")
    assert asked(progress, TrainSpec).config["epochs"] == 2
    assert "enabled" not in asked(progress, TrainSpec).config
    assert len(admit(plan, running=(), max_running=8).start) == 1
    world.configure(train=f"new_theorems = 10\n{TACTICS}{PROGRESS}", device="cuda")
    two = [FREE, replace(FREE, uuid="GPU-b", index=1)]
    begun = admit(world.plan(), running=(), max_running=8, gpus=two)
    assert [(one.kind, one.leases) for one in begun.start] == [
        ("train", (two[0],)),
        ("train_tactics", (two[1],)),
    ]
    assert "a GPU" in begun.waits[world.plan().due[2].job], "each has a GPU of its own"
    world.configure(train=f"new_theorems = 10\nenabled = false\n{TACTICS}")
    assert world.plan().due == ()


def test_the_rows_of_a_tactic_model_are_shown_what_provers_are_shown(world: World) -> None:
    at = world.trace(ONE)
    world.configure(train=f"new_theorems = 10\n{TACTICS}")
    retriever, tactics = world.plan().due
    words = asked(tactics, TrainTacticsSpec).retriever
    assert words is not None
    assert words.checkpoint == "bm25"
    world.learn(retriever, "r-1", at=at)
    result = asked(world.one(), TrainTacticsSpec).retriever
    assert result is not None
    assert (result.checkpoint, result.premises, result.device) == ("r-1", 10, "cpu")
    world.configure(train=f"new_theorems = 10\n{TACTICS}[prove.generator]\npremises = 0\n")
    assert asked(world.one(), TrainTacticsSpec).retriever is None


def test_a_tactic_model_learns_a_repository_again_when_enough_of_our_proofs_were_accepted(
    world: World,
) -> None:
    at = world.trace(ONE)
    world.learn(world.one(), "r-1", at=at)
    world.configure(train=f"new_theorems = 10\nnew_proofs = 2\n{TACTICS}")
    first = world.one()
    assert asked(first, TrainTacticsSpec).proofs_of == (ONE, TWO)
    world.prove(1)
    world.learn(first, "t-1", at=at)
    world.prove(2)
    assert world.plan().due == (), "the first was there when it was learned"
    world.prove(3, accepted=False)
    assert kinds(world.plan()) == ["check"], "the gate has not looked at it"
    world.prove(4)
    again, _ = sorted(world.plan().due, key=lambda job: job.kind == "check")
    assert (again.kind, asked(again, TrainSpec).parent) == ("train_tactics", "t-1")
    world.learn(again, "t-2", at=at, promote=False)
    assert kinds(world.plan()) == ["check"], "what was refused is not repeated with the same proofs"
    world.prove(5)
    assert kinds(world.plan()) == ["check"]
    world.prove(6)
    (later,) = [job for job in world.plan().due if job.kind != "check"]
    assert later.job != again.job
    world.configure(train=f"new_theorems = 10\nnew_proofs = 9\n{TACTICS}")
    assert kinds(world.plan()) == ["check"]
    split = 'split = "novel_premises"\n'
    world.configure(train=f"new_theorems = 10\nnew_proofs = 2\n{TACTICS}{split}")
    assert kinds(world.plan()) == ["check"], "on that split they are not learned"


GRPO = f"{TACTICS}[train.tactics.grpo]\nenabled = true\ngoals = 10\nmax_steps = 7\n"


def test_a_tactic_model_is_trained_with_rewards_on_what_it_has_learned_once_for_each_trace(
    world: World,
) -> None:
    at = world.trace(ONE)
    world.learn(world.one(), "r-1", at=at)
    world.configure(train=f"new_theorems = 10\n{GRPO}trl = {{ loss_type = 'dapo' }}\n")
    first = world.one()
    assert first.kind == "train_tactics", "people's tactics come first"
    assert first.key == hub_key(str(asked(first, TrainSpec).config["model_name"]))
    world.learn(first, "t-1", at=at)
    rewarded = world.one()
    order = asked(rewarded, TrainGrpoSpec)
    assert (rewarded.kind, rewarded.sha, rewarded.needs_worktree) == ("train_grpo", sha(1), True)
    assert (order.parent, order.grpo.max_steps) == ("t-1", 7)
    assert order.grpo.trl == {"loss_type": "dapo"}
    assert [task.name for task in order.tasks] == [ONE]
    assert "grpo" not in order.config
    assert TacticsConfig.from_dict(order.config).device == "cpu"
    world.learn(rewarded, "t-2", at=at)
    assert world.plan().due == (), "one trace is rewarded once"
    world.trace(TWO, seed=1)
    _, second = world.plan().due
    assert (second.kind, second.repository, asked(second, TrainSpec).parent) == ("train_tactics", TWO, "t-2")


def test_lean_rewards_in_a_commit_that_is_built_and_the_build_comes_first(world: World) -> None:
    at = world.trace(ONE)
    world.configure(train=f"new_theorems = 10\n{GRPO}")
    for kind, name in (("train", "r-1"), ("train_tactics", "t-1")):
        (job,) = [one for one in world.plan(builds=()).due if one.kind == kind]
        world.learn(job, name, at=at)
    (build,) = world.plan(builds=()).due
    assert (build.kind, build.sha) == ("build", sha(1))
    (rewarded,) = world.plan().due
    assert (rewarded.kind, rewarded.built) == ("train_grpo", True)


def test_what_rewards_made_is_tried_again_when_it_is_refused_and_counts_as_no_learning_of_the_trace(
    world: World,
) -> None:
    at = world.trace(ONE)
    world.learn(world.one(), "r-1", at=at)
    world.configure(train=f"new_theorems = 10\n{GRPO}")
    world.learn(world.one(), "t-1", at=at)
    first = world.one()
    world.learn(first, "t-2", at=at, promote=False)
    again = world.one()
    assert (again.kind, asked(again, TrainSpec).refused) == ("train_grpo", 1)
    assert again.job != first.job
    world.learn(again, "t-3", at=at, promote=False)
    assert world.plan().due == ()


@pytest.mark.parametrize("changes", ["enabled = false\ngoals = 10", "enabled = true\ngoals = 1000"])
def test_no_rewards_without_enough_goals_or_where_they_are_switched_off(world: World, changes: str) -> None:
    at = world.trace(ONE)
    world.learn(world.one(), "r-1", at=at)
    world.configure(train=f"new_theorems = 10\n{TACTICS}[train.tactics.grpo]\n{changes}\n")
    world.learn(world.one(), "t-1", at=at)
    assert world.plan().due == ()


@pytest.mark.parametrize(("table", "kind"), [(TACTICS, "train_tactics"), (PROGRESS, "train_progress")])
def test_each_model_has_a_chain_of_its_own(world: World, table: str, kind: Kind) -> None:
    at = world.trace(ONE)
    world.learn(world.one(), "a", at=at)
    world.configure(train=f"new_theorems = 10\n{table}")
    first = world.one()
    assert (first.kind, asked(first, TrainSpec).parent, asked(first, TrainSpec).tasks) == (kind, None, ())
    world.learn(first, "t-1", at=at)
    assert world.plan().due == ()
    world.trace(TWO, seed=1)
    retriever, second = world.plan().due
    assert (asked(retriever, TrainSpec).parent, asked(second, TrainSpec).parent) == ("a", "t-1")
    (task,) = asked(second, TrainSpec).tasks
    assert task.name == ONE
    assert task.dataset.parts[-3:] == (KINDS[kind].model, ".datasets", first.job)


def test_a_model_that_is_given_is_measured_once_on_all_tasks_whether_its_kind_is_trained_or_not(
    world: World,
) -> None:
    at = world.trace(ONE)
    world.configure(train=f"new_theorems = 10\n{TACTICS}")
    retriever, tactics = world.plan().due
    world.learn(retriever, "r-1", at=at)
    world.learn(tactics, "t-1", at=at)
    world.trace(TWO, seed=1)
    world.configure(train="new_theorems = 1000")
    world.tell(model_offered(repository=TWO), model_offered(repository=TWO, learned=False))
    job = world.one()
    order = asked(job, TrainSpec)
    assert (job.kind, job.repository) == ("train_tactics", TWO)
    assert (order.taken, order.learned) == (Path("/srv/outputs"), False)
    assert job.key == HUB_KEY, "it may be an adapter of a gated model"
    assert (order.parent, [task.name for task in order.tasks]) == ("t-1", [ONE])
    world.learn(job, "t-2", at=0, promote=False)
    assert world.plan().due == ()
    world.configure(train=f"new_theorems = 10\n{TACTICS}")
    assert "train_tactics" in kinds(world.plan()), "what was given did not learn the repository"


def test_the_jobs_can_read_their_specs(world: World) -> None:
    world.trace(ONE)
    world.configure(train=f"new_theorems = 10\nenabled = true\n{TACTICS}{PROGRESS}")
    _, tactics, progress = world.plan().due
    for job in (tactics, progress):
        order = asked(job, TrainSpec)
        assert (order.repository, order.chain.name, order.parent) == (ONE, KINDS[job.kind].model, None)
    assert TacticsConfig.from_dict(asked(tactics, TrainSpec).config).device == "cpu"
    assert ProgressConfig.from_dict(asked(progress, TrainSpec).config).device == "cpu"


def test_a_branch_that_is_no_longer_configured_is_not_learned_from(world: World) -> None:
    world.trace(ONE)
    world.configure(entry='branches = ["release/*"]')
    assert world.plan().due == ()
    world.configure(entry='branches = ["ma*"]')
    assert kinds(world.plan()) == ["train"]


def test_one_model_is_trained_at_a_time(world: World) -> None:
    world.trace(ONE)
    world.trace(TWO, seed=1)
    plan = world.plan()
    assert {job.repository for job in plan.due} == {ONE, TWO}
    assert len(admit(plan, running=(), max_running=8).start) == 1
    assert world.plan(running=[plan.due[0].lane]).due == ()


def due(kind: Kind, *, gpus: tuple[int, ...] = ()) -> DueJob:
    return DueJob(
        job=f"{kind}-1",
        kind=kind,
        attempt=1,
        lane=kind,
        repository=ONE,
        branch="main",
        sha=sha(1),
        describes=kind,
        spec=Spec(),
        gpus=gpus,
    )


FREE = Gpu("GPU-a", 0, "Test GPU")
LENT = replace(FREE, state="lent", detail="prove Demo.alpha")


def kinds_begun(plan: Plan, gpus: Sequence[Gpu], running: Sequence[Kind] = (), slots: int = 4) -> list[str]:
    return [one.kind for one in admit(plan, running=running, max_running=slots, gpus=gpus).start]


def test_training_never_starts_while_another_job_has_the_gpu() -> None:
    plan = Plan.of([due("train", gpus=(1,))])
    waits = admit(plan, running=("prove",), max_running=4, gpus=[LENT])
    assert waits.start == ()
    assert waits.waits == {"train-1": "a GPU; GPU 0 (Test GPU) is leased by: prove Demo.alpha"}
    assert kinds_begun(plan, [FREE], ["prove"]) == ["train"]
    on_the_processor = Plan.of([due("train")])
    assert kinds_begun(on_the_processor, [LENT], ["prove"]) == ["train"]


def test_training_takes_no_slot_from_the_others_and_waits_for_none_of_theirs() -> None:
    plan = Plan.of([due("scan"), due("prove"), due("train", gpus=(1,))])
    assert kinds_begun(plan, [FREE], slots=2) == ["scan", "prove", "train"]
    assert kinds_begun(plan, [FREE], ["scan", "trace"], slots=2) == ["train"]
    assert kinds_begun(plan, [LENT], ["train"], slots=2) == ["scan", "prove"]


def test_what_is_more_urgent_gets_the_gpu_first() -> None:
    plan = Plan.of([due("prove", gpus=(1,)), due("train", gpus=(1,))])
    assert kinds_begun(plan, [FREE], slots=8) == ["prove"]


def test_what_training_lacks_is_named_with_its_remedy(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.health.requirements.find_spec", lambda name: name)  # the libraries are there
    on_a_gpu = world.configure(train="new_theorems = 10").train.model_copy(update={"device": "cuda"})
    assert "no GPU was found" in why_not_trainable(on_a_gpu, devices=tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert why_not_trainable(on_a_gpu, devices=tmp_path) == ""
    assert why_not_trainable(world.settings.train, devices=tmp_path / "none") == ""
    monkeypatch.setattr("daemon.health.requirements.find_spec", lambda name: name != "tensorboard" or None)
    train = world.configure(train='report_to = "tensorboard"').train
    assert why_not_trainable(train) == (
        "tensorboard not installed: install everlean with its extra `tensorboard` (docs/install.md)"
    )


def test_a_trigger_has_a_repository_learned_once_whatever_its_size_and_whatever_was_learned(
    world: World,
) -> None:
    at = world.trace(ONE)
    world.learn(world.one(), "a", at=at)
    world.configure(train="new_theorems = 100000")
    assert world.plan().due == ()
    wish = WorkTriggered(work="train", repository=ONE, by="ada")
    world.tell(wish)
    job = world.one()
    assert (job.kind, job.repository, asked(job, TrainSpec).parent) == ("train", ONE, "a")
    world.tell(interrupted(job))
    again = world.one()
    assert (again.job, again.attempt) == (job.job, 2), "it is one job, and stays so"
    world.learn(again, "b", at=at)
    assert world.plan().due == (), "though the checkpoint in use is another one now"
    world.tell(wish)
    assert asked(world.one(), TrainSpec).parent == "b"


@pytest.mark.parametrize(
    ("device", "gpus", "cpu_too"),
    [("cuda", (1, 2, 4, 8), False), ("auto", (1, 2, 4, 8), True), ("cpu", (), False)],
)
def test_where_a_model_is_trained_is_the_settings_to_say(
    world: World, device: str, gpus: tuple[int, ...], cpu_too: bool
) -> None:
    world.trace(ONE)
    world.settings = world.settings.model_copy(
        update={"train": world.settings.train.model_copy(update={"device": device, "gpus": 9})}
    )
    job = world.one()
    assert (job.gpus, job.cpu_too, asked(job, TrainSpec).config["device"]) == (gpus, cpu_too, device)


@pytest.mark.parametrize(("leans", "refused"), [(LEAN, False), (NO_LEAN, True)])
def test_a_trigger_is_refused_where_the_newest_trace_is_not_by_the_lean_that_works_there(
    world: World, leans: Leans, refused: bool
) -> None:
    world.trace(ONE)
    stub: Any = SimpleNamespace(plan=Plan(), leans=leans, untrainable="")
    store: Any = world
    runner: Any = None
    operator = Operator(store, runner, stub, Context(world.settings))
    with (
        pytest.raises(WorkStateError, match="is not by the Lean that works there now")
        if refused
        else nullcontext()
    ):
        asyncio.run(operator.trigger("train", ONE, by="ada"))


def test_the_datasets_of_unfinished_jobs_stay_until_their_parent_is_no_longer_in_use(world: World) -> None:
    world.trace(ONE)
    at = world.trace(TWO, seed=1, n_files=8)
    begun, other = world.plan().due
    world.tell(interrupted(begun))
    assert datasets_needed(world.view, "retriever") == ({begun.job}, True)
    assert datasets_needed(world.view, "tactics") == (set(), False)
    world.learn(other, "a", at=at)
    assert datasets_needed(world.view, "retriever") == ({other.job}, False)


def test_the_dataset_of_a_job_that_failed_for_good_goes_unless_it_is_released(world: World) -> None:
    world.trace(ONE)
    job = world.one()
    world.tell(failed(job, deterministic=True))
    assert datasets_needed(world.view, "retriever") == (set(), False)
    world.tell(JobReleased(job=job.job))
    assert datasets_needed(world.view, "retriever") == ({job.job}, True)


def test_the_datasets_of_all_tasks_of_a_checkpoint_stay(world: World) -> None:
    at = world.trace(ONE)
    first = world.one()
    world.learn(first, "a", at=at)
    at = world.trace(TWO, seed=1)
    second = world.one()
    world.learn(second, "b", at=at)
    assert datasets_needed(world.view, "retriever") == ({first.job, second.job}, False)
    gone = checkpoint_removed("a"), checkpoint_removed("b")
    world.tell(gone[0])
    assert datasets_needed(world.view, "retriever") == ({first.job, second.job}, False)
    world.tell(gone[1])
    assert datasets_needed(world.view, "retriever") == (set(), False)
