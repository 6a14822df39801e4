"""Which sorry is tried at which rung of the ladder, with which model, and what comes first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daemon.health.requirements import why_no_models
from daemon.jobs.due import DueJob
from daemon.planning.ladder import ladder_of
from daemon.planning.plan import Plan, Planner
from daemon.settings import Settings, parse
from daemon.settings.models import Prove
from pipeline.jobs.blueprint import Blueprints
from pipeline.jobs.spec import HUB_KEY, KeyPlace, Spec
from pipeline.jobs.specs import CheckSpec, CuratedRung, ProveSpec, Rung
from store import promotion
from store.domain.blueprint import Statement
from store.domain.records import ConstantUse, ScannedFile, Sorry, TracedFile, TracedTheorem
from store.events.base import EventBody
from store.events.models import ModelKind
from store.events.places import SorryPlace
from store.events.proofs import AttemptFinished, ClaimReleased, SorryClaimed
from store.events.repositories import BranchCreated, RepositoryIdentified
from store.events.scans import SorryOpened
from store.events.traces import FileTraced
from store.view import queries, transfers
from store.view.impact import Counting
from store.view.rows import SorryRow
from store.view.trace_queries import branch_line
from tests.support import planning
from tests.support.events import (
    BRANCH,
    REPOSITORY,
    attempt,
    commit_scanned,
    declaration,
    file_scanned,
    observed,
    place,
    proof_found,
    proof_rejected,
    scanned,
    sha,
    watched,
)
from tests.support.models import checkpoint_promoted, checkpoint_saved, evaluation_finished
from tests.support.planning import LEAN, Told, failed, interrupted
from tests.support.specs import asked
from tests.support.traced_repository import closing, head

NO_TACTICS = "no tactics model is in use yet, and [train.tactics] names no model_name to begin with"
GENERATOR = '[prove.generator]\nmodel = "the/generator"\n'
NAMED = '[train.tactics]\nmodel_name = "the/base"\n'


class World(planning.World):
    """A scanned repository whose sorries the tests name."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime.now(UTC)
        self._scans: dict[str, tuple[ScannedFile, Sorry]] = {}
        super().__init__(folder)

    def configure(self, prove: str = "", *, more: str = "", entry: str = "") -> Settings:
        self.settings = self.deployment.write(
            repos=["https://example.org/demo/logic"],
            entry=entry,
            extra=f"[trace]\nenabled = false\n[build]\nenabled = false\n[prove]\n{prove}\n{more}",
        )
        return self.settings

    def open(
        self, *names: str, path: str = "A.lean", exercise_words: int = 0, marked: Sequence[str] = ()
    ) -> list[EventBody]:
        """Return what a scan of the first commit says of a file with these sorries."""
        scan = scanned(
            path, [declaration(name, line=3 * at) for at, name in enumerate(names)], with_sorry=names
        )
        blob = sha("blob", path)
        body, payload = file_scanned(
            scan, commit=sha(1), blob=blob, exercise_words=exercise_words, marked=marked
        )
        self.stage(payload)
        self._scans |= {name: (scan, item) for name, item in zip(names, scan.sorries, strict=True)}
        life: dict[str, Any] = {"repository": REPOSITORY, "branch": BRANCH, "sha": sha(1), "reopened": False}
        opened = [SorryOpened(**life, sorry=name, place=self.at(name)) for name in names]
        first = [
            BranchCreated(repository=REPOSITORY, branch=BRANCH, tip=sha(1), is_default=True),
            observed(sha(1)),
        ]
        return [*first, body, *opened, commit_scanned(sha(1))]

    def cite(self, file: TracedFile, repository: str = REPOSITORY) -> EventBody:
        """Return what a trace says of a file."""
        trace = self.stage(json.dumps(file.as_json()).encode())
        return FileTraced(
            repository=repository, line=branch_line(BRANCH), sha=sha(1), path=file.path, error=None,
            n_theorems=len(file.theorems), n_premises=0, n_tactics=0, trace=trace, key="",
        )  # fmt: skip

    def at(self, name: str) -> SorryPlace:
        scan, item = self._scans[name]
        return place(scan, item, blob=sha("blob", scan.path))

    def tried(self, name: str, job: DueJob, **changes: Any) -> AttemptFinished:
        """Return the end of an attempt of this job without a proof."""
        spec = asked(job, ProveSpec)
        result = attempt(name, self.at(name), commit=sha(1), outcome="exhausted")
        return result.model_copy(
            update={
                "prover": spec.prover,
                "rung": spec.rung.number,
                "model": spec.model,
                "seed": spec.seed,
                "budget": spec.budget_key,
                **changes,
            }
        )

    def plan(self, *groups: Told, now: datetime | None = None, **about: Any) -> Plan:
        return super().plan(*groups, now=now or self.now, **about)


def promoted(name: str, *, model: ModelKind = "tactics") -> list[EventBody]:
    return [
        checkpoint_saved(name, model=model),
        checkpoint_promoted(name, model=model),
    ]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def traced() -> EventBody:
    """A trace of the first commit."""
    return closing(head(sha(1), repository=REPOSITORY, branch=BRANCH), ())


def traced_uses(
    world: World, uses: Mapping[str, Sequence[str]], *, commit: str, path: str = "A.lean"
) -> list[EventBody]:
    """A trace of theorems of one file and what each uses."""
    theorems = tuple(
        TracedTheorem(name, "", (line, 1), (line, 9), (), premises=tuple(map(ConstantUse, used)))
        for line, (name, used) in enumerate(uses.items(), 1)
    )
    file = TracedFile(path, (), (), theorems)
    return [
        world.cite(file),
        closing(head(commit, repository=REPOSITORY, branch=BRANCH), [file]),
    ]


def unanswered(job: DueJob, numbers: range) -> list[EventBody]:
    """These attempts of a job, which failed since no one answered."""
    return [body for number in numbers for body in failed(replace(job, attempt=number), reason="unanswered")]


def part(rung: Spec, name: str) -> Any:
    """Return a part of a rung as its job reads it; None where it has none."""
    return rung.model_dump(mode="json").get(name)


def shown(plan: Plan) -> list[tuple[int, list[str]]]:
    """The rung and the sorries of each due job."""
    return [
        (spec.rung.number, [item.sorry for item in spec.sorries])
        for spec in (asked(job, ProveSpec) for job in plan.due)
    ]


def test_what_a_rung_left_without_a_proof_is_due_at_the_next_one(world: World) -> None:
    world.configure("rungs = [0, 2]", more=NAMED)
    (first,) = world.plan(world.open("a", "b")).due
    assert (asked(first, ProveSpec).prover, asked(first, ProveSpec).model, first.gpus) == (
        "tactics",
        "",
        (),
    )
    (rest, second) = world.plan(world.tried("a", first, outcome="budget")).due
    assert shown(Plan.of([rest, second])) == [(0, ["b"]), (2, ["a"])]
    assert (asked(second, ProveSpec).prover, asked(second, ProveSpec).model) == ("generator", "the/base")
    assert part(asked(second, ProveSpec).rung, "generator")["path"] == "the/base"
    assert (second.key, second.paid) == (HUB_KEY, False), "a hub's model is gated perhaps"
    assert second.lane == first.lane
    assert shown(world.plan(world.tried("a", second))) == [(0, ["b"])], "and when all were tried nothing is"


def stating(world: World, types: Mapping[str, str], *, repository: str, sorry: bool) -> list[EventBody]:
    """A trace of theorems with these types."""
    theorems = tuple(
        TracedTheorem(name, "", (line, 1), (line, 9), (), sorry=sorry, type=one, proof="" if sorry else "rfl")
        for line, (name, one) in enumerate(types.items(), 1)
    )
    file = TracedFile("A.lean", (), (), theorems)
    return [
        world.cite(file, repository),
        closing(head(sha(1), repository=repository, branch=BRANCH), [file]),
    ]


def test_what_is_proved_in_another_repository_is_tried_again_each_time_that_more_states_the_same(
    world: World,
) -> None:
    world.configure("rungs = [0]")
    (first,) = world.plan(
        world.open("a", "b"), stating(world, {"a": "t", "b": "u"}, repository=REPOSITORY, sorry=True)
    ).due
    assert world.plan(world.tried("a", first), world.tried("b", first)).due == ()
    for known in ({"there": "t"}, {"there": "t", "too": "t"}):
        (again,) = world.plan(stating(world, known, repository="x/y/z", sorry=False)).due
        assert shown(Plan.of([again])) == [(0, ["a"])]
        assert asked(again, ProveSpec).budget == asked(first, ProveSpec).budget
        assert world.plan(world.tried("a", again)).due == ()
    assert world.plan(stating(world, {"a": "t", "b": "u"}, repository="u/v/w", sorry=True)).due == ()
    quiet = watched(repository="u/v/w", opt_out=True)
    assert world.plan(quiet, stating(world, {"mine": "u"}, repository="u/v/w", sorry=False)).due == ()
    hidden = [
        watched(repository="s/t/u"),
        RepositoryIdentified(repository="s/t/u", forge_id=1, private=True, by=""),
    ]
    theirs = stating(world, {"theirs": "u"}, repository="s/t/u", sorry=False)
    assert world.plan(hidden, theirs).due == (), "what is private stays in its repository"


def test_a_statement_that_many_ask_and_many_prove_is_looked_for_once(world: World) -> None:
    n, steps = 200, 0
    asks = {f"a{k:03}": "t" for k in range(n)}
    world.tell(world.open(*asks), stating(world, asks, repository=REPOSITORY, sorry=True))
    proves = {f"b{k:03}": "t" for k in range(n)}
    world.tell(stating(world, proves, repository="x/y/z", sorry=False))

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    world.view.set_progress_handler(count, 1000)
    found = transfers.transfers(world.view, repository=REPOSITORY, branch=BRANCH)
    asking = transfers.asking(world.view)
    world.view.set_progress_handler(None, 0)
    assert [[one.full_name for one in ones] for ones in found.values()] == [["b000", "b001", "b002"]] * n
    assert (asking, steps < 1000) == ({REPOSITORY}, True), f"{steps} thousand steps of SQLite"


def test_who_has_a_proof_goes_no_further_unless_it_was_rejected(world: World) -> None:
    world.configure("rungs = [0, 2]", more=NAMED)
    (job,) = world.plan(world.open("a")).due
    result = proof_found("a", world.at("a"), commit=sha(1))
    plan = world.plan(world.tried("a", job, outcome="found"), result)
    assert [due.kind for due in plan.due] == ["check"]
    (again,) = world.plan(proof_rejected(result)).due
    assert (again.kind, asked(again, ProveSpec).rung.number) == ("prove", 2)


def test_what_an_agent_has_claimed_is_left_alone_until_its_lease_ends_or_it_is_given_back(
    world: World,
) -> None:
    until = world.now + timedelta(minutes=30)
    claimed = SorryClaimed(
        repository=REPOSITORY, sorry="a", claim="c1" * 8, agent="a prover", by="ada", until=until
    )
    plan = world.plan(world.open("a", "b"), claimed)
    assert shown(plan) == [(0, ["b"])]
    assert plan.next_retry_at == until
    other = ClaimReleased(repository=REPOSITORY, sorry="a", claim="c2" * 8, by="ada")
    assert shown(world.plan(other)) == [(0, ["b"])], "another claim was given back"
    assert shown(world.plan(other.model_copy(update={"claim": claimed.claim}))) == [(0, ["a", "b"])]
    assert shown(world.plan(claimed)) == [(0, ["b"])]
    assert shown(world.plan(now=until)) == [(0, ["a", "b"])], "its lease has ended"


def test_another_model_in_use_makes_its_rung_due_again_and_no_other(world: World) -> None:
    world.configure("rungs = [0, 2]")
    (zero,) = world.plan(world.open("a"), promoted("t-1")).due
    (two,) = world.plan(world.tried("a", zero)).due
    assert asked(two, ProveSpec).model == "t-1"
    assert two.key is None
    assert part(asked(two, ProveSpec).rung, "generator")["path"] == str(
        world.settings.paths.models / "tactics" / "t-1"
    )
    assert world.plan(world.tried("a", two)).due == ()
    (again,) = world.plan(promoted("t-2")).due
    assert (asked(again, ProveSpec).rung.number, asked(again, ProveSpec).model) == (2, "t-2")
    assert again.rank > two.rank > zero.rank


def test_a_rung_without_its_model_is_passed_over_and_says_what_it_waits_for(world: World) -> None:
    world.configure("rungs = [2, 3]", more='[prove.whole]\nmodel = "the/author"\n')
    plan = world.plan(world.open("a"))
    assert shown(plan) == [(3, ["a"])]
    assert (
        part(asked(plan.due[0], ProveSpec).rung, "generator")["path"]
        == asked(plan.due[0], ProveSpec).model
        == "the/author"
    )
    assert [str(one) for one in plan.ladder] == [
        f"rung 2 (generator) waits: {NO_TACTICS}",
        "rung 3 (whole), 60 s of GPU time, or more processor time",
    ]


def test_where_no_model_can_run_the_rungs_with_one_wait_for_that(world: World) -> None:
    world.configure("rungs = [0, 2]", more=NAMED)
    (zero,) = world.plan(world.open("a")).due
    plan = world.plan(world.tried("a", zero), no_models="no torch")
    assert (plan.due, [one.waits for one in plan.ladder]) == ((), ["", "no torch"])


def test_what_models_lack_is_named_with_its_remedy(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.health.requirements.find_spec", lambda name: name)  # the libraries are there
    on_a_gpu = world.configure("rungs = [0, 2]", more='[prove.generator]\ndevice = "cuda"').prove
    assert 'device = "cpu" under [prove.generator]' in why_no_models(on_a_gpu, devices=tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert why_no_models(on_a_gpu, devices=tmp_path) == ""


def test_the_job_can_read_what_every_rung_tells_it(world: World) -> None:
    endpoint = '[prove.external]\nbase_url = "https://api.example.org/v1"\nmodel = "m"\nusd_per_day = 5\n'
    prices = "usd_per_million_prompt = 1\nusd_per_million_completion = 2\n"
    whole = '[prove.whole]\nmodel = "the/author"\n'
    world.configure("rungs = [0, 1, 2, 3, 4]", more=f"{GENERATOR}{whole}{NAMED}{endpoint}{prices}")
    models = [*promoted("r-1", model="retriever"), *promoted("p-1", model="progress")]
    plan = world.plan(world.open("a"), traced(), models)
    parts, devices = {}, {}
    while plan.due:
        (job,) = plan.due
        order = asked(job, ProveSpec)
        assert ProveSpec.model_validate_json(order.model_dump_json()) == order
        assert order.budget.seconds == 60
        parts[order.rung.number] = order.rung.model_dump(exclude_none=True).keys() - {"number"}
        assert order.rung.retriever is not None
        devices[order.rung.number] = order.rung.retriever.device
        plan = world.plan(world.tried("a", job))
    assert parts == {
        0: {"retriever"},
        1: {"generator", "retriever", "progress"},
        2: {"generator", "retriever", "progress"},
        3: {"generator", "retriever", "whole"},
        4: {"endpoint", "retriever", "whole"},
    }
    assert devices == {0: "cpu", 1: "auto", 2: "auto", 3: "auto", 4: "cpu"}, (
        "a GPU is the generator's to wait for"
    )


def climbed(world: World, *bodies: EventBody) -> dict[int, Rung]:
    """The rungs that can be climbed, by number."""
    world.tell(bodies)
    rungs, _ = ladder_of(world.settings).climb(promotion.ladder_models(world.view))
    return {rung.number: rung for rung in rungs}


def test_the_retriever_and_the_progress_model_in_use_are_named_to_the_job(world: World) -> None:
    world.configure("rungs = [1, 2]", more=f"{GENERATOR}premises = 3\n{NAMED}")
    paths = world.settings.paths
    before = climbed(world, *promoted("r-1", model="retriever"))
    assert part(before[1].spec, "progress") is None
    assert part(before[1].spec, "retriever") == {
        "chain": str(paths.models / "retriever"),
        "checkpoint": "r-1",
        "indices": str(paths.embeddings / "retriever"),
        "device": "auto",
        "premises": 3,
    }
    after = climbed(world, *promoted("p-1", model="progress"))
    for number in (1, 2):
        assert part(after[number].spec, "progress") == {
            "path": str(paths.models / "progress" / "p-1"),
            "weight": 0.5,
        }
        assert after[number].model == before[number].model, "it makes nothing due again"


def test_a_job_with_a_model_has_the_gpu_the_memory_and_the_secrets_that_it_needs_and_no_more(
    world: World,
) -> None:
    endpoint = '[prove.external]\nbase_url = "https://api.example.org/v1"\nmodel = "m"\nusd_per_day = 5\n'
    prices = "usd_per_million_prompt = 1\nusd_per_million_completion = 2\n"
    settings = world.configure('rungs = [0, 2, 4]\nmemory = "9G"', more=f"{NAMED}{endpoint}{prices}")
    (zero,) = world.plan(world.open("a")).due
    (two,) = world.plan(world.tried("a", zero)).due
    (four,) = world.plan(world.tried("a", two)).due
    assert [job.memory_bytes for job in (zero, two, four)] == [2**32, 9 * 2**30, 2**32]
    assert [job.gpus for job in (zero, two, four)] == [(), (1,), ()]
    assert [job.key for job in (zero, two)] == [None, HUB_KEY]
    assert four.key == KeyPlace("everlean-model-key", "EVERLEAN_MODEL_KEY")
    assert part(asked(four, ProveSpec).rung, "endpoint")["ledger"] == str(
        settings.paths.state / "spending.jsonl"
    )
    assert (asked(four, ProveSpec).model, part(asked(four, ProveSpec).rung, "endpoint")["cap_usd"]) == (
        "m",
        5,
    )
    world.configure("rungs = [2]", more=f'{NAMED}[prove.generator]\ndevice = "cpu"\n')
    assert not climbed(world)[2].gpu


def test_each_program_is_a_rung_of_its_own_with_its_time_its_key_and_its_share_of_the_day_s_money(
    world: World,
) -> None:
    key = "credential = 'agent-key'\nvariable = 'KEY'\n"
    money = "usd_per_run = 1\nusd_per_day = 5\nseconds = '12m'\n"
    one, other = (f"[[prove.programs]]\nname = '{name}'\nrun = ['./{name}']\n" for name in ("one", "other"))
    world.configure("rungs = [5, 0]", more=one + money + key + other)
    (first,) = world.plan(world.open("a") + world.open("b")).due
    given = asked(first, ProveSpec)
    program = part(given.rung, "program")
    assert (given.prover, given.model, given.budget.seconds, given.parallel) == ("program", "one", 720, 1)
    assert len(given.sorries) == 2, "as many as end within the time of a job"
    assert Path(program["run"][0]).is_absolute(), "it is named from the file of the settings"
    assert first.key == KeyPlace("agent-key", "AGENT_KEY")
    (tomorrow,) = world.plan(now=world.now + timedelta(days=1)).due
    assert tomorrow.job != first.job, "what the day's cap kept it from is another job"
    (second,) = world.plan(world.tried("a", first), world.tried("b", first)).due
    assert (asked(second, ProveSpec).model, second.key, second.paid) == ("other", None, False)
    world.configure("rungs = [5]", more=other + money)
    (without_key,) = world.plan().due
    assert without_key.paid, "where no money is left it waits, whether or not it is handed a key"


def test_what_the_day_s_cap_kept_a_job_from_is_due_again_the_next_day(world: World) -> None:
    endpoint = '[prove.external]\nbase_url = "https://api.example.org/v1"\nmodel = "m"\nusd_per_day = 5\n'
    for prices, another in (("1", True), ("0", False)):
        price = f"usd_per_million_prompt = {prices}\nusd_per_million_completion = {prices}\n"
        world.configure("rungs = [4]", more=endpoint + price)
        (today,) = world.plan(world.open("a") if another else []).due
        (tomorrow,) = world.plan(now=world.now + timedelta(days=1)).due
        assert (today.job != tomorrow.job) is another


@pytest.mark.parametrize(
    ("reason", "deterministic"), [("bad_model", True), ("unreachable", False), ("worktree", False)]
)
def test_a_rung_whose_model_cannot_be_asked_is_not_tried_in_halves_and_holds_nothing_up(
    world: World, reason: str, deterministic: bool
) -> None:
    world.configure("rungs = [2, 0]", more=NAMED)
    (two,) = world.plan(world.open("a", "b")).due
    assert shown(world.plan(failed(two, reason=reason, deterministic=deterministic))) == [(0, ["a", "b"])]


def test_what_may_be_over_in_hours_is_tried_again_after_a_while_that_doubles(world: World) -> None:
    world.configure("rungs = [2, 0]", more=NAMED)
    (two,) = world.plan(world.open("a", "b")).due
    most = world.settings.jobs.max_attempts
    job = replace(two, attempt=most)
    failed_for_now = world.plan(unanswered(two, range(1, most + 1)))
    now = datetime.now(UTC)
    assert shown(failed_for_now) == [(0, ["a", "b"])], "it holds nothing up"
    waits_for = failed_for_now.next_retry_at
    assert waits_for is not None
    assert abs(waits_for - now - timedelta(hours=1)) < timedelta(minutes=1), "the daemon wakes up for it"
    (again,) = world.plan(now=now + timedelta(hours=1, minutes=1)).due
    assert (again.job, again.attempt) == (two.job, job.attempt + 1)
    world.plan(failed(again, reason="unanswered"))
    assert shown(world.plan(now=now + timedelta(hours=1, minutes=1))) == [(0, ["a", "b"])]
    assert shown(world.plan(now=now + timedelta(hours=2, minutes=2))) == [(2, ["a", "b"])]
    world.plan(unanswered(two, range(again.attempt + 1, again.attempt + 7)))
    assert shown(world.plan(now=now + timedelta(hours=23))) == [(0, ["a", "b"])]
    assert shown(world.plan(now=now + timedelta(hours=25))) == [(2, ["a", "b"])], "a day at most"


def test_what_was_preempted_did_not_fail_and_makes_no_rest_longer(world: World) -> None:
    world.configure("rungs = [2, 0]", more=NAMED)
    (two,) = world.plan(world.open("a", "b")).due
    for number in range(1, 10):
        world.plan(interrupted(replace(two, attempt=number), "preempted: paused by ada"))
    assert shown(world.plan(failed(replace(two, attempt=10), reason="unanswered"))) == [(0, ["a", "b"])]
    assert shown(world.plan(now=datetime.now(UTC) + timedelta(hours=1, minutes=1))) == [(2, ["a", "b"])]


@pytest.mark.parametrize(("reason", "deterministic"), [("bad_model", True), ("crashed", False)])
def test_what_no_while_mends_is_not_tried_again(world: World, reason: str, deterministic: bool) -> None:
    world.configure("rungs = [2, 0]", more=NAMED)
    (two,) = world.plan(world.open("a")).due
    world.plan(failed(two, reason=reason, deterministic=deterministic))
    assert shown(world.plan(now=datetime.now(UTC) + timedelta(days=30))) == [(0, ["a"])]


def test_a_sorry_that_kills_its_jobs_at_one_rung_climbs_on_alone(world: World) -> None:
    world.configure("rungs = [0, 2]", more=NAMED)
    (both,) = world.plan(world.open("a", "b")).due
    (one,) = world.plan(failed(both, reason="crashed")).due
    assert shown(world.plan(failed(one, reason="crashed"))) == [(0, ["b"]), (2, ["a"])]


def test_a_job_that_waits_for_its_next_try_keeps_its_sorries_at_their_rung(world: World) -> None:
    world.configure("rungs = [2, 0]", more=NAMED)
    (two,) = world.plan(world.open("a")).due
    later = failed(two, reason="unreachable", retry_at=world.now + timedelta(hours=1))
    assert world.plan(later).due == ()


def test_a_sorry_that_closes_while_a_plan_is_made_is_left_to_the_next_plan(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of = queries.sorries_to_prove

    def later(*about: Any, **more: Any) -> list[SorryRow]:
        return [row for row in rows_of(*about, **more) if row.declaration != "a"]

    monkeypatch.setattr(queries, "sorries_to_prove", later)
    (job,) = world.plan(world.open("a", "b")).due
    assert [one.declaration for one in asked(job, ProveSpec).sorries] == ["b"]


def test_a_search_over_the_daily_cap_is_not_due_again_until_tomorrow_or_another_cap(
    world: World,
) -> None:
    endpoint = '[prove.external]\nbase_url = "https://api.example.org/v1"\nmodel = "m"\nusd_per_day = {}\n'
    endpoint += "usd_per_million_prompt = 1\nusd_per_million_completion = 1\n"
    world.configure("rungs = [4]", more=endpoint.format(5))
    (job,) = world.plan(world.open("a", "b")).due
    assert world.plan(failed(job, reason="spending_cap", deterministic=True)).due == ()
    assert len(world.plan(now=world.now + timedelta(days=1)).due) == 1
    world.configure("rungs = [4]", more=endpoint.format(6))
    assert len(world.plan().due) == 1


def test_new_sorries_come_first_then_the_nearest_to_a_proof_then_what_is_tried_again(world: World) -> None:
    world.configure("rungs = [0, 2]\nsorries_per_job = 1")
    (zero, *_) = world.plan(world.open("far", "near", "new", "old", "unknown"), promoted("t-1")).due
    left = {"far": 3, "near": 1, "old": 1, "unknown": None}
    plan = world.plan([world.tried(name, zero, goals_left=goals) for name, goals in left.items()])
    two = next(job for job in plan.due if asked(job, ProveSpec).rung.number == 2)
    plan = world.plan(world.tried("old", two, goals_left=1), promoted("t-2"))
    assert shown(plan) == [(0, ["new"]), (2, ["near"]), (2, ["far"]), (2, ["unknown"]), (2, ["old"])]


def test_search_above_rung_0_ends_with_the_day_s_hours_and_begins_anew_the_next_day(world: World) -> None:
    world.configure("rungs = [0, 2]\nhours_per_day = 0.1", more=NAMED)  # 360 s: six sorries
    (zero,) = world.plan(world.open(*"abcdefgh")).due
    plan = world.plan([world.tried(name, zero, seconds=1000.0) for name in "abcdefgh"])
    assert shown(plan) == [(2, list("abcdef"))], "rung 0 costs nothing of it"
    (two,) = plan.due
    assert shown(world.plan(world.tried("a", two, seconds=100.0))) == [(2, list("bcde"))]
    assert shown(world.plan(reserved_s=two.cost_s)) == [], "running jobs may take what they were given"
    assert shown(world.plan(world.tried("b", two, seconds=250.0))) == []
    # A day from this moment, and not from when this file was read: midnight may have passed in between.
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert shown(world.plan(now=tomorrow)) == [(2, list("cdefgh"))]


@pytest.mark.parametrize("path", ["Exercises/A.lean", "Book/exercises/One/A.lean", "MyExercise.lean"])
def test_exercises_are_left_for_people_to_solve(world: World, path: str) -> None:
    assert shown(world.plan(world.open("a", path=path))) == []
    world.configure(entry="exercises = []")
    assert shown(world.plan()) == [(0, ["a"])]
    world.configure(entry='exercises = ["Other/**"]')
    assert shown(world.plan()) == [(0, ["a"])]


def test_the_challenge_of_a_comparator_json_is_never_offered_for_filling(world: World) -> None:
    opened = [*world.open("a", path="lib/Demo/Challenge.lean"), *world.open("b", path="Challenge.lean")]
    closed = commit_scanned(sha(1)).model_copy(update={"challenges": ("Demo.Challenge",)})
    assert shown(world.plan([*opened, closed])) == [(0, ["b"])], "another file of that name is none"
    world.configure(entry="exercises = []")
    assert shown(world.plan()) == [(0, ["b"])], "no setting offers it"


def test_what_an_attribute_marks_as_an_exercise_is_never_offered_for_filling(world: World) -> None:
    opened = [*world.open("a", "b", marked=["a"]), *world.open("c", path="B.lean", marked=["b"])]
    assert shown(world.plan(opened)) == [(0, ["b", "c"])], "a mark counts for its own file"
    world.configure(entry="exercises = []")
    assert shown(world.plan()) == [(0, ["b", "c"])], "no setting offers it"


@pytest.mark.parametrize(
    ("statement", "due"),
    [(": answer(sorry) ↔ 1 = 2", 0), (": answer (sorry) = n", 0), (": answer(True) ↔ 1 = 1", 1)],
)
def test_what_leaves_its_answer_open_is_never_offered_for_filling(
    world: World, statement: str, due: int
) -> None:
    opened = [
        body.model_copy(update={"place": replace(body.place, statement=statement)})
        if isinstance(body, SorryOpened)
        else body
        for body in world.open("a")
    ]
    assert len(shown(world.plan(opened))) == due


def test_a_file_of_many_sorries_whose_text_says_exercise_is_one_whatever_they_are_called(
    world: World,
) -> None:
    assert len(world.plan(world.open("a", "b", exercise_words=1)).due) == 1, "two are not many"
    world.plan(world.open("c", "d", "e", path="B.lean", exercise_words=1))
    world.plan(world.open("f", "g", "h", path="C.lean"))
    assert shown(world.plan()) == [(0, ["a", "b", "f", "g", "h"])]
    world.configure(entry="exercises = []")
    assert len(shown(world.plan())[0][1]) == 8


def test_the_sorries_of_a_declaration_go_into_one_job_where_there_is_room(world: World) -> None:
    world.configure("sorries_per_job = 3")
    names = [f"{at}{of}" for at in "12" for of in ("a", "b", "c")]

    def of_a_declaration(event: EventBody) -> EventBody:
        if not isinstance(event, SorryOpened):
            return event
        place = replace(event.place, declaration=event.sorry[1:])
        return event.model_copy(update={"place": place})

    plan = world.plan([of_a_declaration(event) for event in world.open(*names)])
    assert shown(plan) == [(0, ["1a", "2a"]), (0, ["1b", "2b"]), (0, ["1c", "2c"])]


def test_a_job_takes_what_ends_within_its_time(world: World) -> None:
    world.configure('seconds_per_sorry = "20m"')
    assert shown(world.plan(world.open(*"abcde"))) == [(0, ["a", "b"]), (0, ["c", "d"]), (0, ["e"])]


def test_another_way_to_ask_a_model_is_another_budget(world: World) -> None:
    world.configure("rungs = [2]", more=NAMED)
    (job,) = world.plan(world.open("a")).due
    assert world.plan(world.tried("a", job)).due == ()
    world.configure("rungs = [2]", more=f"{NAMED}[prove.generator]\ncandidates = 9\n")
    (again,) = world.plan().due
    assert asked(again, ProveSpec).budget_key != asked(job, ProveSpec).budget_key


@pytest.mark.parametrize(
    ("rung", "given", "changed", "counts"),
    [
        (2, {}, {"generator": {"temperature": 0.1}}, False),
        (3, {}, {"generator": {"temperature": 0.1}}, True),
        (3, {"whole": {"proofs": 1}}, {"generator": {"temperature": 0.1}}, False),
        (4, {}, {"generator": {"temperature": 0.1}}, False),
        (4, {}, {"external": {"base_url": "https://other.example.org/v1"}}, True),
        (4, {}, {"external": {"mode": "tactics"}}, True),
        (4, {"external": {"mode": "tactics"}}, {"generator": {"temperature": 0.1}}, True),
        (
            4,
            {"external": {"mode": "tactics"}},
            {"external": {"base_url": "https://other.example.org/v1"}},
            True,
        ),
        *((rung, {}, {"nodes_per_sorry": 7}, rung < 3) for rung in range(5)),
        *((rung, {}, {"seconds_per_sorry": "7s"}, True) for rung in range(5)),
    ],
)
def test_what_decides_a_rung_s_answers_is_a_part_of_its_budget_and_nothing_else_is(
    rung: int, given: dict[str, Any], changed: dict[str, Any], counts: bool
) -> None:
    """Else other answers would be taken for known, or the same ones be paid for again."""
    tables: dict[str, Any] = {"external": {}, **given}
    tables["external"] = {"base_url": "https://api.example.org/v1", **tables["external"]}
    after = {
        name: {**tables.get(name, {}), **to} if isinstance(to, dict) else to for name, to in changed.items()
    }
    keys = [climbed_with(given, rung).budget_key for given in (tables, {**tables, **after})]
    assert (keys[0] != keys[1]) == counts, keys


@pytest.mark.parametrize(
    ("rung", "tables", "key"),
    [
        (0, {}, "60s/400n/5s"),
        (1, {}, "60s/400n/5s/8xbeam/10p"),
        (2, {}, "60s/400n/5s/8xbeam"),
        (3, {}, "60s/4x3@0.7/8192t"),
        (3, {"whole": {"max_tokens": 2048}}, "60s/4x3@0.7/2048t"),
        (3, {"whole": {"proofs": 1, "enable_thinking": False}}, "60s/1x3/8192t/unthinking"),
        (4, {"whole": {"enable_thinking": False}}, "60s/4x3/2048t/https://api.example.org/v1"),
        (
            4,
            {"external": {"mode": "tactics"}},
            "60s/400n/5s/8xendpoint@0.7/2048t/https://api.example.org/v1",
        ),
    ],
)
def test_a_budget_is_called_as_attempts_of_earlier_versions_have_it(
    rung: int, tables: dict[str, Any], key: str
) -> None:
    external = {"base_url": "https://api.example.org/v1", **tables.get("external", {})}
    result = climbed_with({**tables, "external": external}, rung, traced=rung == 1)
    assert result.budget_key == key


@pytest.mark.parametrize(
    ("rung", "key"),
    [
        (0, "60s/400n/5s/10p@r-1"),
        (2, "60s/400n/5s/8xbeam/10p@r-1"),
        (3, "60s/4x3@0.7/8192t/10p@r-1"),
        (4, "60s/4x3/2048t/https://api.example.org/v1/10p"),
    ],
)
def test_who_found_the_premises_is_a_part_of_the_budget_but_where_trying_again_costs_money(
    rung: int, key: str
) -> None:
    result = climbed_with({"external": {"base_url": "https://api.example.org/v1"}}, rung)
    assert result.budget_key == key


def climbed_with(prove: dict[str, Any], rung: int, *, traced: bool = True) -> Rung:
    """Return one rung of a ladder that such a [prove] says, with a retriever and a tactic model in use."""
    settings = parse(b"", path=Path("/etc/everlean.toml"))
    said = Prove.model_validate({**prove, "rungs": (rung,)})
    ladder = ladder_of(settings.model_copy(update={"prove": said}))
    ((result,), _) = ladder.climb({"retriever": "r-1", "tactics": "t-1"}, traced=traced)
    return result


def test_a_repository_without_a_trace_is_searched_without_premises(world: World) -> None:
    world.configure("rungs = [0]")
    (job,) = world.plan(world.open("a"), promoted("r-1", model="retriever")).due
    assert asked(job, ProveSpec).rung == CuratedRung()
    assert "r-1" not in asked(job, ProveSpec).budget_key, "so that the sorry is due again once there is one"
    (again,) = world.plan(traced(), world.tried("a", job)).due
    assert asked(again, ProveSpec).budget_key.endswith("/10p@r-1/server")
    assert world.plan(world.tried("a", again)).due == ()


def test_rung_1_shows_its_generator_the_premises_of_bm25_once_there_is_a_trace(world: World) -> None:
    world.configure("rungs = [1]", more=GENERATOR)
    assert world.plan(world.open("a")).due == ()
    (job,) = world.plan(traced()).due
    assert asked(job, ProveSpec).model == "bm25+the/generator"
    assert part(asked(job, ProveSpec).rung, "retriever")["checkpoint"] == "bm25"


def test_a_rung_is_shown_the_premises_of_the_retriever_in_use_or_of_bm25_if_its_setting_wants_some(
    world: World,
) -> None:
    world.configure("rungs = [0, 2]", more=NAMED)
    words = climbed(world)
    assert {part(rung.spec, "retriever")["checkpoint"] for rung in words.values()} == {"bm25"}
    assert words[0].memory_bytes == world.settings.jobs.memory_bytes, "no model is loaded"
    result = climbed(world, *promoted("r-1", model="retriever"))
    assert {part(rung.spec, "retriever")["checkpoint"] for rung in result.values()} == {"r-1"}
    memory_bytes = world.settings.prove.memory_bytes
    assert {rung.memory_bytes for rung in result.values()} == {memory_bytes}, "it needs the memory of a model"
    assert not result[0].gpu
    world.configure("rungs = [0, 2]", more=f"{NAMED}[prove.generator]\npremises = 0\n")
    assert {part(rung.spec, "retriever") for rung in climbed(world).values()} == {None}


@pytest.mark.parametrize(
    ("own", "words", "fused", "finds"),
    [
        (0.3, 0.5, 0.4, "bm25"),
        (0.5, 0.3, 0.4, "r-1"),
        (0.5, 0.3, 0.6, "r-1+bm25"),
        (0.3, 0.5, 0.6, "r-1+bm25"),
    ],
)
def test_what_finds_premises_is_what_found_most_on_the_retriever_s_test_sets(
    world: World, own: float, words: float, fused: float, finds: str
) -> None:
    metrics = {"recall@10": own, "bm25 recall@10": words, "fused recall@10": fused}
    world.configure("rungs = [0]")
    measured = evaluation_finished("r-1", metrics=metrics)
    (rung,) = climbed(world, *promoted("r-1", model="retriever"), measured).values()
    assert part(rung.spec, "retriever")["checkpoint"] == finds
    assert rung.budget_key.endswith(f"p@{finds}")


@pytest.mark.parametrize("model", ["t-1", "t-1+the/generator", "somebody/s-model"])
def test_the_check_of_a_proof_receives_the_weights_behind_it_if_any(world: World, model: str) -> None:
    (job,) = world.plan(world.open("a"), promoted("t-1")).due
    result = proof_found("a", world.at("a"), commit=sha(1))
    (check,) = world.plan(result, world.tried("a", job, outcome="found", model=model)).due
    weights = checkpoint_saved("t-1", model="tactics").weights
    search = asked(check, CheckSpec).search
    assert search is not None
    assert (check.kind, search.model) == ("check", model)
    assert search.weights == (weights if model.startswith("t-1") else "")


def test_of_sorries_that_were_tried_alike_those_on_which_most_rests_come_first(world: World) -> None:
    world.configure("rungs = [0]\nsorries_per_job = 1")
    opened = world.open("a", "b", "c", "new")
    assert shown(world.plan(opened)) == [(0, ["a"]), (0, ["b"]), (0, ["c"]), (0, ["new"])], "nothing is known"
    uses: dict[str, list[str]] = {
        "a": [],
        "b": ["a"],
        "c": [],
        "one": ["c"],
        "two": ["one"],
        "three": ["two", "c"],
    }
    assert shown(world.plan(traced_uses(world, uses, commit=sha(1)))) == [
        (0, ["c"]),
        (0, ["a"]),
        (0, ["b"]),
        (0, ["new"]),
    ]
    more = uses | {name: ["b"] for name in ("four", "five", "six", "seven")}
    later = world.plan(traced_uses(world, more, commit=sha(2)))
    assert shown(later)[:3] == [(0, ["a"]), (0, ["b"]), (0, ["c"])], "another trace, another order"
    tried = world.plan(world.tried("a", later.due[0], outcome="error"))
    assert [sorries for _, sorries in shown(tried)] == [["b"], ["c"], ["new"]]


def test_a_trace_is_counted_once_for_all_plans(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(*given: Any, **named: Any) -> Counting:
        counted.append("once")
        return Counting(*given, **named)

    world.configure("rungs = [0]\nsorries_per_job = 1")
    world.plan(world.open("a", "b"), traced_uses(world, {"a": [], "b": ["a"]}, commit=sha(1)))
    monkeypatch.setattr("daemon.planning.proving.Counting", counting)
    planner = Planner()

    for _ in range(3):
        planner.changed([commit_scanned(sha(1))])
        planner.plan(world.view, settings=world.settings, leans=LEAN, now=world.now)
    assert counted == ["once"]


def test_a_count_that_takes_long_is_made_in_parts_and_then_puts_the_jobs_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn takes longer than one part of it, and there are jobs meanwhile."""
    monkeypatch.setattr("daemon.planning.proving._QUICKLY_S", 0)
    world.configure("rungs = [0]\nsorries_per_job = 1")
    uses: dict[str, list[str]] = {"a": [], "b": [], "one": ["b"]}
    world.plan(world.open("a", "b"), traced_uses(world, uses, commit=sha(1)))
    planner = Planner(patience_s=0, whole=True)
    result: list[Plan] = []
    while not result or not result[-1].complete:
        result.append(planner.plan(world.view, settings=world.settings, leans=LEAN, now=world.now))
    assert [sorries for _, sorries in shown(result[0])] == [["a"], ["b"]]
    assert [sorries for _, sorries in shown(result[-1])] == [["b"], ["a"]]
    assert len(result) > 4
    assert len({plan.version for plan in result}) < len(result), "a turn that only counts changes no plan"


def test_statements_of_the_blueprint_count_beside_the_theorems_those_of_the_tip_where_it_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[tuple[str, str | None]] = []

    def blueprint(_self: Blueprints, repository: str, commit: str | None) -> list[Statement]:
        asked_for.append((repository, commit))
        return [Statement(["b"], ["b"], []), *(Statement([], [], ["b"]) for _ in range(2))]

    monkeypatch.setattr(Blueprints, "__call__", blueprint)
    world.configure("rungs = [0]\nsorries_per_job = 1")
    uses: dict[str, list[str]] = {"a": [], "b": [], "one": ["a"]}
    plan = world.plan(world.open("a", "b"), traced_uses(world, uses, commit=sha(1)))
    assert [sorries for _, sorries in shown(plan)] == [["b"], ["a"]]
    assert set(asked_for) == {(world.settings.repos[0].key, sha(1))}
    monkeypatch.setattr(Blueprints, "newer", lambda _self, _repository, _known, tip: tip)
    world.plan(observed(sha(2)), commit_scanned(sha(2)))
    assert asked_for[-1] == (world.settings.repos[0].key, sha(2))
    read = len(asked_for)
    monkeypatch.setattr(Blueprints, "newer", lambda _self, _repository, known, _tip: known)
    world.plan(observed(sha(3)), commit_scanned(sha(3)))
    assert set(asked_for[read:]) <= {(world.settings.repos[0].key, sha(1))}


def test_a_trace_too_large_to_be_counted_leaves_the_order_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.planning.proving.MOST_COUNTED", 1)
    world.configure("rungs = [0]\nsorries_per_job = 1")
    uses: dict[str, list[str]] = {"a": [], "b": [], "one": ["b"]}
    plan = world.plan(world.open("a", "b"), traced_uses(world, uses, commit=sha(1)))
    assert shown(plan) == [(0, ["a"]), (0, ["b"])]
