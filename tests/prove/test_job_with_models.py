"""The prove job with models that know something; a script answers in Lean's place."""

from __future__ import annotations

import io
import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from pipeline.bump.__main__ import Bump
from pipeline.bump.breaks import RaisedFile
from pipeline.freeze import export, freeze
from pipeline.jobs.inputs import InputStore
from pipeline.jobs.protocol import JobError, Reporter, Sources
from pipeline.jobs.specs import (
    CORPUS,
    NO_CORPUS,
    CuratedRung,
    GeneratorSpec,
    RetrievalRung,
    RetrieverSpec,
    Rung,
)
from pipeline.lean.build.lake import BuildMessage
from pipeline.models.libraries import quiet_libraries
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Completion, Prompt, Request, Suggestions
from store.events.bumps import BumpTried
from store.view.tables import statements
from tests.support.bump import BUDGET, job_spec, recorded
from tests.support.chat_server import ChatServer, Says
from tests.support.lean import scripted
from tests.support.lean.scripted import Script
from tests.support.models import describe
from tests.support.prove import attempts, parameters
from tests.support.prove import run as run_prove
from tests.support.tiny_models import make_tiny_classifier, make_tiny_retriever

SOURCE = "theorem known : ∀ (p : Prop), p → p := sorry\ntheorem again : ∀ (p : Prop), p → p := by\n  sorry\n"
SCRIPT = Script(
    sorries={
        "theorem known": ["∀ (p : Prop), p → p"],
        "theorem again": ["∀ (p : Prop), p → p"],
        "theorem wanted : True": ["True"],
        "theorem wanted": ["Q 3"],
    },
    tactics={
        ("∀ (p : Prop), p → p", "intro p h"): ["p : Prop\nh : p\n⊢ p"],
        ("p : Prop\nh : p\n⊢ p", "exact h"): [],
        ("True", "trivial"): [],
        ("Q 3", "exact q3"): [],
        ("Q 3", "apply q3"): [],
    },
)


def run_job(
    given: dict[str, Any], folder: Path, script: Script = SCRIPT
) -> tuple[list[Any], list[dict[str, Any]]]:
    return run_prove(given, folder, script=script)


def run(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    """Run the job on SOURCE in this process; return the events that it asks for."""
    budget = {"seconds": 20, "nodes": 4, "tactic_timeout_s": 5}
    _, events = run_job(parameters(folder, SOURCE, budget=budget, **changes), folder / "job")
    return [event["data"] for event in events]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[Request]]:
    """The batches that generators are asked for."""
    batches: list[list[Request]] = []
    real = Generator.suggest

    def suggest(self: Generator, requests: Sequence[Request]) -> list[Suggestions]:
        batches.append(list(requests))
        return real(self, requests)

    monkeypatch.setattr(Generator, "suggest", suggest)
    return batches


def test_a_generator_s_tactics_fill_its_sorries(
    tmp_path: Path, learned: Path, asked: list[list[Request]]
) -> None:
    generator = {"path": str(learned), "device": "cpu", "candidates": 2}
    events = run(tmp_path, rung=2, model="tactics-1", generator=generator)
    found = [event for event in events if "replacement" in event]
    assert {event["sorry"] for event in found} == {"known", "again"}
    assert {tuple(event["tactics"]) for event in found} == {("intro p h", "exact h")}
    tried = [event for event in events if "outcome" in event]
    assert [(event["outcome"], event["goals_left"], event["model"]) for event in tried] == [
        ("found", 0, "tactics-1")
    ] * 2
    assert {request.decoding.candidates for batch in asked for request in batch} == {2}


def test_a_sorry_is_searched_with_its_repository_s_own_adapter(tmp_path: Path, learned: Path) -> None:
    """One adapter changes nothing of the base, which knows the proofs; with the other it writes no tactic."""
    adapters, base = tmp_path / "checkpoint" / "adapters", load_model(learned)
    for name, spoiled in (("knows", False), ("knows-nothing", True)):
        lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
        with quiet_libraries():
            adapted: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(learned), lora)
        for weights in adapted.parameters() if spoiled else ():
            if weights.requires_grad:
                weights.data.fill_(0.3)
        adapted.save_pretrained(adapters / name)
        base.tokenizer.save_pretrained(adapters / name)
    describe(adapters.parent, adapters={"host/a/knows": "knows", "host/a/other": "knows-nothing"})
    generator = {"path": str(adapters.parent), "device": "cpu", "candidates": 2}

    def outcomes(repository: str) -> set[str]:
        events = run(tmp_path, rung=2, model="m", generator=generator, repository=repository)
        return {event["outcome"] for event in events if "outcome" in event}

    assert outcomes("host/a/knows") == {"found"}
    assert outcomes("host/a/other") == {"exhausted"}
    assert outcomes("host/a/new") == {"found"}, "what has none is searched with the base"


GARBAGE: dict[str, tuple[list[str | Completion], str]] = {
    "nothing": ([""], "empty 1"),
    "blank": ([" \n\t "], "empty 1"),
    "endless": (["simp " * 10_000], "too_long 1"),
    "control": (["simp\x1b[2J"], "characters 1"),
    "comment": (["simp\n/- and the rest of the file"], "unclosed 1"),
    "cut": ([Completion((5, 6), -1.0, False)], "unended 1"),
    "broken": ([Completion((5, 6), math.nan, False)], "no_numbers 1"),
    "silent": ([], "gave no tactic for 1 of 1 states"),
    "unparsed": (["frobnicate h"], "none of its 1 tactics could be parsed"),
    "forbidden": (["sorry"], "no tactic is left to try"),
}


def test_a_generator_s_garbage_is_each_its_sorry_s_and_the_others_go_on(
    tmp_path: Path, learned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job: a sorry for each, one between two that is answered well."""

    def complete(self: Generator, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        def completion(said: str | Completion) -> Completion:
            if isinstance(said, Completion):
                return said
            ids = self._tokenizer(said, add_special_tokens=False)["input_ids"]
            return Completion(tuple(ids), -1.0, True)

        found = []
        for prompt in prompts:
            state = self._tokenizer.decode(prompt.ids)
            asked = next((name for name in GARBAGE if f"bad_{name}" in state), None)
            said = ["intro h", "assumption"] if asked is None else GARBAGE[asked][0]
            found.append([completion(one) for one in said])
        return found

    monkeypatch.setattr(Generator, "complete", complete)
    names = [name for garbage in GARBAGE for name in (f"bad_{garbage}", f"good_{garbage}")]
    source = "".join(f"theorem t_{name} ({name} : Prop) : {name} → {name} := sorry\n" for name in names)
    generator = {"path": str(learned), "device": "cpu"}
    given = parameters(tmp_path, source, rung=2, model="m", generator=generator)
    script = Script(
        sorries={f"theorem t_{name} ": [f"{name} : Prop\n⊢ {name} → {name}"] for name in names},
        tactics={
            ("", "frobnicate h"): {"parseError": "<input>:1:1: unknown tactic"},
            **{(f"{name} → {name}", "intro h"): [f"{name} : Prop\nh : {name}\n⊢ {name}"] for name in names},
            **{(name, "assumption"): [] for name in names},
        },
    )
    tried = attempts(run_job({**given, "parallel": 4}, tmp_path / "job", script)[0])
    assert {name for name, one in tried.items() if one.outcome == "found"} == {
        f"t_good_{garbage}" for garbage in GARBAGE
    }
    for garbage, (_, reason) in GARBAGE.items():
        one = tried[f"t_bad_{garbage}"]
        assert (one.outcome, reason in one.detail) == ("exhausted", True), (garbage, one.outcome, one.detail)


def test_a_progress_model_rates_the_steps(tmp_path: Path, learned: Path) -> None:
    progress = {"path": str(make_tiny_classifier(tmp_path / "progress")), "weight": 0.3}
    generator = {"path": str(learned), "device": "cpu", "candidates": 2}
    events = run(tmp_path, rung=2, model="t", generator=generator, progress=progress)
    digest = next(event["tree"]["sha256"] for event in events if "outcome" in event)
    tree = json.loads((tmp_path / "job" / "staging" / digest).read_text())
    assert any(node["remaining"] is not None for node in tree["nodes"])


PREMISED = """\
axiom Q : Nat → Prop
axiom q3 : Q 3
theorem wanted : Q 3 := by
  sorry
axiom later : Q 3
"""
"""What only a premise proves: rung 0's own tactics do not find an axiom."""


def premises(folder: Path) -> dict[str, bytes]:
    """The input of a job with `retriever`."""
    return {CORPUS: (folder / CORPUS).read_bytes()}


@pytest.fixture
def retriever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A retriever of the trace of PREMISED, as a rung's specification."""
    lines = PREMISED.splitlines()
    premises = [
        {
            "full_name": line.split()[1],
            "code": line,
            "start": [at, 1],
            "end": [at, len(line) + 1],
            "kind": "",
        }
        for at, line in enumerate(lines, start=1)
        if not line.startswith(" ")
    ]
    path = tmp_path / CORPUS
    path.write_text(json.dumps({"path": "A.lean", "imports": [], "premises": premises}) + "\n")
    make_tiny_retriever(tmp_path / "chain" / "retriever-1", d_model=32, layers=1)

    return {
        "chain": str(tmp_path / "chain"),
        "checkpoint": "retriever-1",
        "device": "cpu",
        "indices": str(tmp_path),
        "premises": 3,
    }


@pytest.mark.parametrize("rung", [1, 2])
def test_the_retriever_s_premises_reach_the_generator(
    tmp_path: Path, learned: Path, asked: list[list[Request]], retriever: dict[str, Any], rung: int
) -> None:
    generator = {"path": str(learned), "device": "cpu", "candidates": 2}
    given = parameters(
        tmp_path,
        PREMISED,
        rung=rung,
        model="m",
        generator=generator,
        retriever=retriever,
        inputs=premises(tmp_path),
    )
    run_job(given, tmp_path / "job")
    wanted = {"axiom <a>Q</a> : Nat → Prop", "axiom <a>q3</a> : Q 3"}
    shown = [set(request.premises) for batch in asked for request in batch if "⊢ Q 3" in request.state]
    assert shown, "those above it, and neither itself nor what comes later"
    assert all(premises == wanted for premises in shown)


@pytest.mark.parametrize("finds", ["retriever-1", "bm25", "retriever-1+bm25"])
def test_rung_0_names_the_premises_in_its_tactics(
    tmp_path: Path, retriever: dict[str, Any], finds: str
) -> None:
    retriever["checkpoint"] = finds
    alone = attempts(run_job(parameters(tmp_path, PREMISED), tmp_path / "alone")[0])
    assert alone["wanted"].outcome == "exhausted"
    bodies, events = run_job(
        parameters(tmp_path, PREMISED, retriever=retriever, inputs=premises(tmp_path)), tmp_path / "job"
    )
    assert attempts(bodies)["wanted"].outcome == "found"
    (tactics,) = (event["data"]["tactics"] for event in events if "tactics" in event["data"])
    assert "q3" in tactics[-1]


def test_a_bump_s_ladder_names_the_premises_in_a_broken_proof(
    tmp_path: Path, retriever: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[tuple[str, str]] = []
    monkeypatch.setattr(Bump, "_judge", lambda *given: judged.append(given[-2:]))
    project = tmp_path / "project"
    project.mkdir()
    of = RetrieverSpec.model_validate_json(json.dumps(retriever))
    damaged = GeneratorSpec(path=str(tmp_path / "nothing"), device="cpu")
    rungs = (
        Rung(spec=RetrievalRung(generator=damaged, retriever=of), model="g", budget=BUDGET, budget_key="b"),
        Rung(spec=CuratedRung(retriever=of), budget=BUDGET, budget_key="b"),
    )
    scripted.in_process(monkeypatch, SCRIPT)
    spec = job_spec(tmp_path, scripted.NOWHERE, rungs=rungs)
    sources = Sources(tmp_path / "events.db", tmp_path / "view.db", tmp_path / "contents")
    with closing(sqlite3.connect(sources.database_db)) as view:
        view.executescript(";".join(statements()))
    assert freeze(spec.parameters, spec.job, tmp_path / "in", sources) is None, "the corpus is exported first"
    assert [one.name for one in export(spec.parameters, tmp_path / "in", sources).files] == [NO_CORPUS]
    inputs = InputStore(tmp_path / "contents").freeze(tmp_path / "inputs", dict(premises(tmp_path)))
    out = io.StringIO()
    bump = Bump(replace(spec, inputs=inputs), Reporter(spec, out), [])
    broken = RaisedFile("A.lean", PREMISED.replace("sorry", "exact gone"))
    broken.take([BuildMessage("error", "A.lean", 4, 8, "Unknown identifier `gone`")])
    (project / "A.lean").write_text(broken.current, "utf-8")
    bump._files["A.lean"] = broken
    bump._climb()
    ((text, how),) = judged
    assert ("q3" in text, how) == (True, "rung 0: tactics")
    (failed,) = (one for one in recorded(out) if isinstance(one, BumpTried))
    assert (failed.how, failed.verdict) == ("rung 1: retrieval", "refused")
    assert "nothing" in failed.reason


def test_a_retriever_that_is_damaged_keeps_no_rung_from_its_work_but_the_one_that_is_made_for_it(
    tmp_path: Path, learned: Path, retriever: dict[str, Any]
) -> None:
    (tmp_path / "chain" / "retriever-1" / "config.json").write_text("{")
    source = PREMISED.replace("Q 3 := by", "True := by")
    tried = attempts(
        run_job(
            parameters(tmp_path, source, retriever=retriever, inputs=premises(tmp_path)), tmp_path / "zero"
        )[0]
    )
    assert tried["wanted"].outcome == "found"
    tried = attempts(
        run_job(
            parameters(tmp_path, PREMISED, retriever=retriever, inputs=premises(tmp_path)), tmp_path / "told"
        )[0]
    )
    assert "no premises were found" in tried["wanted"].detail
    assert "the retriever" in tried["wanted"].detail
    generator = {"path": str(learned), "device": "cpu"}
    with pytest.raises(JobError, match="the retriever"):
        run_job(
            parameters(
                tmp_path, source, rung=1, generator=generator, retriever=retriever, inputs=premises(tmp_path)
            ),
            tmp_path / "one",
        )


def test_the_authors_of_whole_proofs_are_shown_the_premises(
    tmp_path: Path, learned: Path, retriever: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []

    def complete(self: Generator, asked: Sequence[Prompt]) -> list[list[Completion]]:
        prompts.extend(str(self._tokenizer.decode(prompt.ids)) for prompt in asked)
        ids = self._tokenizer("by\n  exact q3", add_special_tokens=False)["input_ids"]
        return [[Completion(tuple(ids), -1.0, True)] for _ in asked]

    monkeypatch.setattr(Generator, "complete", complete)
    rung: dict[str, Any] = {"retriever": retriever, "whole": {"proofs": 1, "repairs": 0, "max_tokens": 20}}
    generator = {"path": str(learned), "device": "cpu"}
    given = parameters(tmp_path, PREMISED, rung=3, model="m", generator=generator, **rung)
    given["inputs"] = premises(tmp_path)
    assert attempts(run_job(given, tmp_path / "three")[0])["wanted"].outcome == "found"
    with ChatServer([Says("by exact q3")]) as server:
        endpoint = {"base_url": server.url, "model": "m", "retries": 0}
        given = parameters(
            tmp_path, PREMISED, rung=4, model="m", endpoint=endpoint, inputs=premises(tmp_path), **rung
        )
        assert attempts(run_job(given, tmp_path / "four")[0])["wanted"].outcome == "found"
        prompts.append(server.requests[0].body["messages"][1]["content"])
    for prompt in prompts:
        listed = prompt.partition("Premises that may help")[2].partition("The declaration:")[0]
        assert "axiom q3 : Q 3" in listed
        assert "wanted" not in listed
        assert "later" not in listed
    assert len(prompts) == 2


def test_an_endpoint_s_tactics_are_asked_for_with_premises(tmp_path: Path, retriever: dict[str, Any]) -> None:
    with ChatServer([Says("exact q3")]) as server:
        endpoint = {"base_url": server.url, "model": "m", "retries": 0}
        given = parameters(
            tmp_path, PREMISED, rung=4, endpoint=endpoint, tactics={"candidates": 1}, retriever=retriever
        )
        given["inputs"] = premises(tmp_path)
        assert attempts(run_job(given, tmp_path / "job")[0])["wanted"].outcome == "found"
        assert "axiom q3 : Q 3" in server.requests[0].body["messages"][1]["content"]
