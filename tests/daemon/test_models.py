"""Which checkpoint is in use: what the rule makes of new ones, promotion and rollback by hand, and what is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.place.control_client import request
from daemon.place.paths import paths_from_config
from daemon.results.models import Models, ModelStateError
from daemon.settings import Settings
from daemon.state.store_service import StoreService
from pipeline.models.chain import Chain
from pipeline.models.datasets import dataset_of
from store import promotion
from store.events.base import EventBody
from store.events.jobs import JobStarted, JobSucceeded
from store.events.models import (
    CheckpointPromoted,
    CheckpointRefused,
    CheckpointRemoved,
    CheckpointSaved,
    ModelKind,
)
from store.log.envelope import NewEvent
from store.view import model_queries
from tests.support.daemon.deployment import Deployment
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_removed,
    checkpoint_saved,
    describe,
    evaluation_finished,
    model_offered,
)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = Deployment(tmp_path)
    made.write(repos=[])
    return made


@asynccontextmanager
async def told(deployment: Deployment, *bodies: EventBody) -> AsyncIterator[tuple[StoreService, Models]]:
    async with deployment.opened() as parts:
        if bodies:
            await parts.store.append([NewEvent("model:retriever", body) for body in bodies])
        yield parts.store, models_of(deployment, parts.store)


def models_of(deployment: Deployment, store: StoreService, *, tolerance: float = 2) -> Models:
    return Models(store, chain_root=chain_root(deployment), tolerance=lambda _: tolerance)


def chain_root(deployment: Deployment) -> Path:
    return paths_from_config(deployment.config).models


async def in_use(store: StoreService, model: str = "retriever") -> str | None:
    row = await store.ask(partial(model_queries.checkpoint_in_use, model=model))
    return None if row is None else row.checkpoint


def one(
    deployment: Deployment, name: str, *, model: ModelKind = "retriever", **changes: Any
) -> CheckpointSaved:
    """A checkpoint, with its weights where they belong."""
    weights = chain_root(deployment) / model / name / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    return checkpoint_saved(name, model=model, **{"size_bytes": 7, **changes})


def saved(deployment: Deployment, *checkpoints: str) -> list[EventBody]:
    """Checkpoints that all did as well on one test set."""
    return [
        body
        for name in checkpoints
        for body in (one(deployment, name), evaluation_finished(name, recall=0.4))
    ]


def trained(
    deployment: Deployment, name: str, parent: str | None = None, *, recall: float = 0.4, **changes: Any
) -> list[EventBody]:
    """All that a training job records, from its start to its end."""
    job = f"train-{name}"
    return [
        JobStarted(
            job=job, kind="train", attempt=1, repository="example.org/one", branch=None, sha=None, describes="",
        ),
        one(deployment, name, parent=parent, job=job, **changes),
        evaluation_finished(name, recall=recall),
        JobSucceeded(job=job, attempt=1, seconds=1.0, peak_rss_bytes=None, summary={}),
    ]  # fmt: skip


async def test_a_promotion_is_recorded_with_what_it_replaced_and_why(deployment: Deployment) -> None:
    async with told(deployment, *saved(deployment, "a", "b")) as (store, models):
        first = await models.promote("a")
        assert (first.previous, first.reason.startswith("by hand: it is the first")) == (None, True)
        second = await models.promote("b")
        assert (second.model, second.checkpoint, second.previous) == ("retriever", "b", "a")
        assert second.reason == "by hand: recall@10 falls on none of 1 earlier task"
        assert await in_use(store) == "b"
    (_, event) = deployment.events("checkpoint_promoted")
    assert (event.stream, event.actor, event.data["reason"]) == (
        "model:retriever",
        "control",
        second.reason,
    )


async def test_what_the_rule_forbids_changes_nothing_unless_it_is_forced(deployment: Deployment) -> None:
    worse = [one(deployment, "b"), evaluation_finished("b", recall=0.3), one(deployment, "c")]
    async with told(deployment, *saved(deployment, "a"), checkpoint_promoted("a"), *worse) as (
        store,
        models,
    ):
        with pytest.raises(ModelStateError, match=r"b: not promoted: .*falls by 10.00 points.*--force"):
            await models.promote("b")
        with pytest.raises(ModelStateError, match=r"c: not promoted: .*not known.*not measured"):
            await models.promote("c")
        assert await in_use(store) == "a"
        assert len(deployment.events("checkpoint_promoted")) == 1
        forced = await models.promote("b", force=True)
        assert forced.reason.startswith("by hand: forced, although recall@10 on ")
        assert await in_use(store) == "b"


async def test_neither_an_unknown_checkpoint_nor_the_one_in_use_can_be_promoted(
    deployment: Deployment,
) -> None:
    async with told(deployment, *saved(deployment, "a"), checkpoint_promoted("a")) as (_, models):
        with pytest.raises(KeyError):
            await models.promote("nothing")
        with pytest.raises(ModelStateError, match="a: is in use already, since "):
            await models.promote("a", force=True)
    assert len(deployment.events("checkpoint_promoted")) == 1


async def test_each_rollback_goes_one_further_back_until_there_is_nothing(deployment: Deployment) -> None:
    promoted = [checkpoint_promoted(name) for name in ("a", "b", "never-saved", "c")]
    async with told(deployment, *saved(deployment, "a", "b", "c"), *promoted) as (store, models):
        back = await models.roll_back("retriever")
        assert (back.checkpoint, back.previous, back.reason) == ("b", "c", "by hand: rolled back from c")
        assert (await models.roll_back("retriever")).checkpoint == "a"
        with pytest.raises(ModelStateError, match=r"nothing to roll back to: no other .* before a;"):
            await models.roll_back("retriever")
        assert await in_use(store) == "a"
        # And forward again: what is promoted anew has the one in use behind it.
        await models.promote("c")
        assert (await models.roll_back("retriever")).checkpoint == "a"


async def test_a_rollback_is_of_one_model_alone(deployment: Deployment) -> None:
    tactics = [one(deployment, "t", model="tactics"), checkpoint_promoted("t", model="tactics")]
    async with told(deployment, *saved(deployment, "a"), checkpoint_promoted("a"), *tactics) as (
        _,
        models,
    ):
        with pytest.raises(ModelStateError, match="nothing to roll back to"):
            await models.roll_back("tactics")
        with pytest.raises(ModelStateError, match=r"progress: no checkpoint is in use; .* --model progress`"):
            await models.roll_back("progress")
        with pytest.raises(KeyError):
            await models.roll_back("nothing")


async def test_a_promotion_under_another_models_name_is_no_step_back(deployment: Deployment) -> None:
    tactics: list[EventBody] = []
    for name in ("t", "u"):
        tactics += [one(deployment, name, model="tactics"), checkpoint_promoted(name, model="tactics")]
    async with told(deployment, *tactics, checkpoint_promoted("t", model="retriever")) as (store, models):
        assert await in_use(store, "tactics") == "u"
        assert (await models.roll_back("tactics")).checkpoint == "t"


async def test_of_two_that_promote_at_once_one_is_told_to_look_again(deployment: Deployment) -> None:
    async with told(deployment, *saved(deployment, "a", "b", "c"), checkpoint_promoted("a")) as (
        _,
        models,
    ):
        result = await asyncio.gather(models.promote("b"), models.promote("c"), return_exceptions=True)
    refused = [answer for answer in result if isinstance(answer, ModelStateError)]
    assert len(refused) == 1, result
    assert "changed while this was decided" in str(refused[0])
    assert len(deployment.events("checkpoint_promoted")) == 2


# --- by the rule ------------------------------------------------------------------------------------------


def said(bodies: tuple[EventBody, ...]) -> list[tuple[str, str]]:
    """What was decided on which checkpoint."""
    return [(body.type.removeprefix("checkpoint_"), body.checkpoint) for body in bodies]  # type: ignore[attr-defined]


async def test_new_checkpoints_are_decided_on_by_the_rule_each_on_what_the_one_before_left(
    deployment: Deployment,
) -> None:
    first = [*trained(deployment, "a"), *trained(deployment, "b", "a", recall=0.45)]
    async with told(deployment, *first, *trained(deployment, "c", "b", recall=0.3)) as (store, models):
        result = await models.settle()
        assert said(result) == [("promoted", "a"), ("promoted", "b"), ("refused", "c")]
        a, b, c = result
        assert isinstance(a, CheckpointPromoted)
        assert (a.previous, a.reason.startswith("by the rule: it is the first of its model")) == (
            None,
            True,
        )
        assert isinstance(b, CheckpointPromoted)
        assert (b.previous, b.reason) == ("a", "by the rule: recall@10 falls on none of 1 earlier task")
        assert isinstance(c, CheckpointRefused)
        assert c.in_use == "b"
        assert "falls by 15.00 points, from 45.00 to 30.00, with 2 allowed" in c.reason
        assert await in_use(store) == "b"
    recorded = deployment.events("checkpoint_promoted", "checkpoint_refused")
    assert [event.actor for event in recorded] == ["daemon"] * 3
    assert {event.stream for event in recorded} == {"model:retriever"}


async def test_what_a_refused_candidate_learned_is_nothing_that_the_next_one_loses(
    deployment: Deployment,
) -> None:
    def learned(name: str, repository: str, parent: str | None, **recall: float) -> list[EventBody]:
        started, made, _, ended = trained(deployment, name, parent)
        of = {"a": [name], "b": [name, "a"], "c": [name, "a"]}[name]
        answers = [
            evaluation_finished(who, recall=how).model_copy(
                update={"evaluation": f"{who}-{task}", "repository": task}
            )
            for task, how in recall.items()
            for who in (of if task == repository else [name])
        ]
        return [started.model_copy(update={"repository": repository}), made, *answers, ended]

    new = [
        *learned("a", "one", None, one=0.4),
        *learned("b", "two", "a", one=0.1, two=0.5),
        *learned("c", "three", "a", one=0.4, three=0.5),
    ]
    async with told(deployment, *new) as (_, models):
        assert said(await models.settle()) == [("promoted", "a"), ("refused", "b"), ("promoted", "c")]


async def test_what_is_decided_stays_decided(deployment: Deployment) -> None:
    new = [*trained(deployment, "a"), *trained(deployment, "b", "a", recall=0.1)]
    async with told(deployment, *new, checkpoint_refused("a")) as (store, models):
        await models.promote("a", force=True)
        await models.promote("b", force=True)
        assert await models.settle() == ()
        await models.roll_back("retriever")
        assert await models.settle() == ()
        assert await in_use(store) == "a"


async def test_a_checkpoint_of_a_job_that_goes_on_or_failed_waits(deployment: Deployment) -> None:
    *begun, ended = trained(deployment, "a")
    async with told(deployment, *begun) as (store, models):
        assert await models.settle() == ()
        await store.append([NewEvent("job:train-a", ended)])
        assert said(await models.settle()) == [("promoted", "a")]


async def test_a_checkpoint_that_does_not_follow_the_one_in_use_is_refused_with_how_to_promote_it(
    deployment: Deployment,
) -> None:
    new = [
        *trained(deployment, "a"),
        *trained(deployment, "b", "a"),
        *trained(deployment, "c", "a"),
        *trained(deployment, "d"),
    ]
    async with told(deployment, *new) as (store, models):
        result = await models.settle()
        assert said(result) == [("promoted", "a"), ("promoted", "b"), ("refused", "c"), ("refused", "d")]
        c, d = (body.reason for body in result if isinstance(body, CheckpointRefused))
        assert c.startswith(
            "it was trained from a, and b is in use; `everlean models promote c` puts it in use"
        )
        assert d.startswith(
            "it was trained from kaiyuy/leandojo-lean4-retriever-byt5-small, and b is in use; "
        )
        assert (await models.promote("c")).previous == "b"
        assert await in_use(store) == "c"


async def test_each_model_is_decided_on_by_its_own_metric_and_tolerance(deployment: Deployment) -> None:
    new: list[EventBody] = []
    for model, metric, values in (
        ("tactics", "tactic@8", (0.5, 0.46, 0.49)),
        ("progress", "mae", (1.0, 1.2, 0.9)),
    ):
        for number, value in enumerate(values):
            started, made, measured, ended = trained(
                deployment, f"{model}-{number}", f"{model}-0" if number else None, model=model
            )
            metrics = {"recall@10": 0.9 - value / 2, metric: value}
            new += [
                started,
                made,
                measured.model_copy(update={"model": model, "metrics": metrics}),
                ended,
            ]
    async with told(deployment, *new) as (store, _):
        tolerances = {"retriever": 0.0, "tactics": 2.0, "progress": 0.1}
        models = Models(store, chain_root=chain_root(deployment), tolerance=tolerances.__getitem__)
        decided = {checkpoint: verdict for verdict, checkpoint in said(await models.settle())}
    assert decided == {
        "tactics-0": "promoted",
        "tactics-1": "refused",
        "tactics-2": "promoted",
        "progress-0": "promoted",
        "progress-1": "refused",
        "progress-2": "promoted",
    }


async def test_the_weights_of_an_adapter_are_its_own(deployment: Deployment) -> None:
    adapter = one(deployment, "t", model="tactics")
    folder = chain_root(deployment) / "tactics" / "t"
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    async with told(deployment, adapter) as (_, models):
        assert (await models.promote("t")).checkpoint == "t"


async def test_the_weights_of_adapters_by_repository_are_all_of_them(deployment: Deployment) -> None:
    checkpoint = one(deployment, "t", model="tactics", size_bytes=14)
    adapters = chain_root(deployment) / "tactics" / "t" / "adapters"
    for name in ("of-a", "of-b"):
        (adapters / name).mkdir(parents=True)
        (adapters / name / "adapter_model.safetensors").write_bytes(b"weights")
    (adapters.parent / "model.safetensors").unlink()
    async with told(deployment, checkpoint) as (_, models):
        gone = (adapters / "of-a").rename(deployment.folder / "elsewhere")
        with pytest.raises(ModelStateError, match="have 7 bytes and were saved with 14"):
            await models.promote("t")
        gone.rename(adapters / "of-a")
        assert (await models.promote("t")).checkpoint == "t"


@pytest.mark.parametrize(("by_repository", "decision"), [(True, "promoted"), (False, "refused")])
@pytest.mark.parametrize("own", [0.4, 0.2])
async def test_where_each_repository_has_an_adapter_that_of_the_training_alone_decides(
    deployment: Deployment, by_repository: bool, decision: str, own: float
) -> None:
    def did(name: str, repository: str, recall: float) -> EventBody:
        changes = {"repository": repository, "split": "test", "evaluation": f"{name}-{repository}"}
        return evaluation_finished(name, recall=recall).model_copy(update=changes)

    one, two = "example.org/one", "example.org/two"
    config = {"lora_by_repository": by_repository}
    bodies = [
        *trained(deployment, "a"), did("a", one, 0.4), did("a", two, 0.4), checkpoint_promoted("a"),
        *trained(deployment, "b", "a", config=config), did("b", one, own), did("b", two, 0.1),
    ]  # fmt: skip
    async with told(deployment, *bodies) as (_, models):
        assert said(await models.settle()) == [(decision if own == 0.4 else "refused", "b")]


async def test_where_another_user_was_faster_the_next_call_decides(deployment: Deployment) -> None:
    new = [*trained(deployment, "a"), *trained(deployment, "b", "a"), *trained(deployment, "c", "b")]
    async with told(deployment, *new, *trained(deployment, "t", model="tactics")) as (store, models):
        ask, waiting = store.ask, [checkpoint_promoted("b")]

        async def and_meanwhile(question: Any) -> Any:
            answer = await ask(question)
            if getattr(question, "func", None) is promotion.read_sides and waiting:
                await store.append([NewEvent("model:retriever", waiting.pop())])
            return answer

        store.ask = and_meanwhile  # type: ignore[method-assign]
        assert said(await models.settle()) == [("promoted", "t")]
        assert await in_use(store) == "b"
        left, last = await models.settle()
        assert said((left, last)) == [("refused", "a"), ("promoted", "c")]
        assert "and b is in use" in left.reason  # type: ignore[attr-defined]


async def test_two_that_settle_at_once_decide_once(deployment: Deployment) -> None:
    new = [
        *trained(deployment, "a"),
        *trained(deployment, "b", "a"),
        *trained(deployment, "c", "b", recall=0.1),
    ]
    async with told(deployment, *new) as (_, models):
        await asyncio.gather(*(models.settle() for _ in range(3)))
        await models.settle()
    decided = deployment.events("checkpoint_promoted", "checkpoint_refused")
    assert [event.data["checkpoint"] for event in decided] == ["a", "b", "c"]


async def test_where_all_is_decided_one_question_is_all_that_is_asked(deployment: Deployment) -> None:
    async with told(deployment, *trained(deployment, "a"), checkpoint_promoted("a")) as (store, models):
        ask, asked = store.ask, []

        async def counted(question: Any) -> Any:
            asked.append(question)
            return await ask(question)

        store.ask = counted  # type: ignore[method-assign]
        assert await models.settle() == ()
        assert len(asked) == 1


async def test_nothing_is_put_in_use_whose_weights_are_not_there(deployment: Deployment) -> None:
    new = [*trained(deployment, "a"), *trained(deployment, "b", "a"), *trained(deployment, "c", "a")]
    retriever = chain_root(deployment) / "retriever"
    async with told(deployment, *saved(deployment, "z"), checkpoint_promoted("z"), *new) as (
        store,
        models,
    ):
        shutil.rmtree(retriever / "a")
        (retriever / "b" / "model.safetensors").write_bytes(b"wei")
        (retriever / "c" / "model.safetensors").unlink()
        result = await models.settle()
        assert said(result) == [("refused", "a"), ("refused", "b"), ("refused", "c")]
        a, b, c = (body.reason for body in result if isinstance(body, CheckpointRefused))
        assert f"its weights, {retriever}/a/model.safetensors, cannot be read (No such file" in a
        assert "have 3 bytes and were saved with 7" in b
        assert f"restore {retriever}/c from a backup, then `everlean models promote c` promotes it" in c
        for name in "abc":
            with pytest.raises(ModelStateError, match=f"{name}: not put in use: its weights"):
                await models.promote(name, force=True)
        await store.append([NewEvent("model:retriever", checkpoint_promoted("a", previous="z"))])
        (retriever / "z" / "model.safetensors").unlink()
        with pytest.raises(ModelStateError, match="z: not put in use: its weights"):
            await models.roll_back("retriever")
        assert await in_use(store) == "a"
        (retriever / "b" / "model.safetensors").write_bytes(b"weights")
        assert (await models.promote("b")).checkpoint == "b"


async def test_the_command_line_promotes_and_rolls_back_through_the_daemon(
    deployment: Deployment, socket_ready: Callable[[Deployment, Settings], None]
) -> None:
    async with told(deployment, *saved(deployment, "a-1", "b-1"), one(deployment, "t", model="tactics")):
        pass
    settings = deployment.write(repos=[], extra="[train]\ntolerance = 0\n")
    with deployment.daemon():
        socket_ready(deployment, settings)
        assert everlean(deployment, "promote", "a")["checkpoint"] == "a-1"
        answer = everlean(deployment, "promote", "b")
        assert (answer["checkpoint"], answer["previous"], answer["daemon"]["running"]) == ("b-1", "a-1", True)
        assert everlean(deployment, "rollback")["checkpoint"] == "a-1"
        assert "nothing to roll back to" in everlean(deployment, "rollback", code=1)["error"]
        assert "in use already" in everlean(deployment, "promote", "a", code=1)["error"]
        assert everlean(deployment, "promote", "t", "--model", "tactics")["previous"] is None
        for route, body, status in (
            ("/promote", {"checkpoint": "a"}, 404),
            ("/promote", {"checkpoint": "b-1", "force": "yes"}, 400),
            ("/promote", {}, 400),
            ("/promote", {"checkpoint": 1}, 400),
            ("/promote", None, 400),
            ("/offer", model_offered().model_dump(mode="json"), 404),
            ("/offer", {"model": "x"}, 400),
            ("/rollback", {"model": "x"}, 404),
            ("/rollback", None, 400),
            ("/rollback", {"model": "progress"}, 409),
        ):
            assert request(settings.paths, "POST", route, body)[0] == status, (route, body)
    assert [event.data["checkpoint"] for event in deployment.events("checkpoint_promoted")] == [
        "a-1", "b-1", "a-1", "t",
    ]  # fmt: skip


@pytest.fixture
def socket_ready() -> Callable[[Deployment, Settings], None]:
    def wait(deployment: Deployment, settings: Settings) -> None:
        deployment.wait_for(lambda: '"daemon_ready"' in deployment.log(), what="the daemon to be ready")
        assert request(settings.paths, "GET", "/health")[0] == 200

    return wait


def everlean(deployment: Deployment, *arguments: str, code: int = 0) -> dict[str, Any]:
    result = deployment.everlean("models", *arguments, "--json")
    assert result.returncode == code, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout) if code == 0 else {"error": result.stderr}
    return answer


# --- retention --------------------------------------------------------------------------------------------


def removed(bodies: Sequence[CheckpointRemoved]) -> list[str]:
    return [body.checkpoint for body in bodies]


def there(deployment: Deployment) -> list[str]:
    return sorted(path.name for path in (chain_root(deployment) / "retriever").glob("*"))


async def test_the_last_in_use_the_best_and_what_may_still_be_decided_on_stay(deployment: Deployment) -> None:
    """Of a chain of six with the best in its beginning, two that were refused, and one that is undecided."""
    bodies: list[EventBody] = []
    for name, recall in (("a", 0.3), ("b", 0.9), ("c", 0.4), ("d", 0.5), ("e", 0.5), ("f", 0.5)):
        bodies += [
            one(deployment, name),
            evaluation_finished(name, recall=recall),
            checkpoint_promoted(name),
        ]
    for name, parent in (("old", "e"), ("new", "f")):
        bodies += [one(deployment, name, parent=parent), checkpoint_refused(name)]
    embeddings = deployment.folder / "embeddings"
    async with told(deployment, *bodies, one(deployment, "undecided")) as (store, models):
        result = await models.remove_unneeded(keep=3, embeddings=embeddings)
        assert removed(result) == ["a", "c", "old"]
        assert there(deployment) == ["b", "d", "e", "f", "new", "undecided"]
        assert await models.remove_unneeded(keep=3, embeddings=embeddings) == ()
        assert (await models.roll_back("retriever")).checkpoint == "e"
        with pytest.raises(ModelStateError, match=r"a: not put in use: its files were removed at .* train"):
            await models.promote("a", force=True)
        rows = await store.ask(model_queries.checkpoints)
        assert {row.checkpoint for row in rows if row.removed_at} == {"a", "c", "old"}
    (first, *_) = deployment.events("checkpoint_removed")
    assert (first.stream, first.actor, first.data["size_bytes"]) == ("model:retriever", "daemon", 7)


async def test_what_a_crash_left_of_a_removal_is_removed_by_the_next_and_with_it_what_the_weights_embedded(
    deployment: Deployment,
) -> None:
    a = one(deployment, "a")
    folder = chain_root(deployment) / "retriever" / "a"
    describe(folder, digest="da")
    embeddings = deployment.folder / "embeddings"
    (embeddings / "retriever").mkdir(parents=True)
    for name in ("da-64-1.npy", "db-64-1.npy"):
        (embeddings / "retriever" / name).touch()
    async with told(deployment, a, checkpoint_removed("a")) as (_, models):
        assert await models.remove_unneeded(keep=3, embeddings=embeddings) == ()
    assert not folder.exists()
    assert [path.name for path in (embeddings / "retriever").iterdir()] == ["db-64-1.npy"]


async def test_datasets_and_runs_of_trainings_that_were_given_up_are_removed_once_none_runs(
    deployment: Deployment,
) -> None:
    began, again, measured, ended = trained(deployment, "a")
    chain = Chain(chain_root(deployment) / "retriever")
    datasets = [dataset_of(chain.folder, job) for job in ("train-a", "train-given-up")]
    for folder in (*datasets, chain.run("1" * 16)):
        folder.mkdir(parents=True)

    def those_there() -> list[bool]:
        return [folder.exists() for folder in (*datasets, chain.run("1" * 16))]

    async with told(deployment, began, again, measured) as (store, models):
        await models.remove_unneeded(keep=3, embeddings=deployment.folder)
        assert those_there() == [True, True, True]
        await store.append([NewEvent("model:retriever", ended)])
        await models.remove_unneeded(keep=3, embeddings=deployment.folder)
        assert those_there() == [True, False, False]


async def test_what_is_made_again_is_there_again_and_nothing_is_removed_while_its_model_is_trained(
    deployment: Deployment,
) -> None:
    began, again, measured, ended = trained(deployment, "a")
    async with told(deployment, again, checkpoint_removed("a"), began) as (store, models):
        assert await models.remove_unneeded(keep=3, embeddings=deployment.folder) == ()
        assert there(deployment) == ["a"]
        await store.append([NewEvent("model:retriever", body) for body in (again, measured, ended)])
        assert await models.remove_unneeded(keep=3, embeddings=deployment.folder) == ()
        assert there(deployment) == ["a"]
        (row,) = await store.ask(model_queries.checkpoints)
        assert (row.removed_at, row.removed_reason) == (None, "")
