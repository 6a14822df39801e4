"""What a training child may make the daemon record, and what it may not, whatever it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from daemon.jobs.due import DueJob
from pipeline.jobs.kinds import Kind
from pipeline.jobs.lines import BadLineError, Batch, parse_line
from pipeline.jobs.specs import LearnedTask, TrainSpec
from store.events.base import EventBody
from store.events.models import ModelKind
from tests.support.models import checkpoint_promoted, checkpoint_saved, evaluation_finished

OWN, EARLIER, OTHER = "host/a/own", "host/a/earlier", "host/a/other"
JOB = "train-0000000000000000"


def due(kind: Kind) -> DueJob:
    here = Path("/somewhere")
    earlier = LearnedTask(name=EARLIER, dataset=here)
    return DueJob(
        job=JOB,
        kind=kind,
        attempt=1,
        lane=kind,
        repository=OWN,
        branch="main",
        sha="1" * 40,
        describes=kind,
        spec=TrainSpec(repository=OWN, chain=here, parent="a", tasks=(earlier,)),
    )


def saved(**changes: Any) -> EventBody:
    return checkpoint_saved("b", parent="a", job=JOB).model_copy(update=changes)


def measured(**changes: Any) -> EventBody:
    return evaluation_finished("b").model_copy(
        update={"repository": OWN, "split": "test", "job": JOB, **changes}
    )


def say(kind: Kind, body: EventBody, *, stream: str = "model:retriever") -> Batch:
    event = {
        "stream": stream,
        "event_id": str(uuid4()),
        "type": body.type,
        "schema_version": body.schema_version,
        "data": body.model_dump(mode="json"),
    }
    line = parse_line(json.dumps({"line": "events", "events": [event]}).encode(), job=due(kind))
    assert isinstance(line, Batch)
    return line


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("train", saved()),
        ("train", measured()),
        ("train", measured(repository=EARLIER)),
    ],
)
def test_what_the_jobs_are_for_is_taken(kind: Kind, body: EventBody) -> None:
    (event,) = say(kind, body).events
    assert (event.stream, event.body, event.actor) == ("model:retriever", body, f"job:{JOB}")


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("train", checkpoint_promoted("b"), "may not record"),
        ("train", saved(parent="z"), "parent is 'z' and not 'a'"),
        ("train", saved(job="train-1111111111111111"), "job is"),
        ("train", measured(repository=OTHER), "repository is 'host/a/other' and not 'host/a/own'"),
        ("train", measured(repository=None), "repository is None"),
        ("train", saved(model="tactics"), "model is 'tactics' and not 'retriever'"),
    ],
)
def test_a_child_speaks_of_its_own_job_data_and_model_only(kind: Kind, body: EventBody, why: str) -> None:
    with pytest.raises(BadLineError, match=why):
        say(kind, body, stream=f"model:{getattr(body, 'model', '')}")


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("train", "retriever"),
        ("train_tactics", "tactics"),
        ("train_grpo", "tactics"),
        ("train_progress", "progress"),
    ],
)
def test_each_kind_of_training_speaks_of_the_model_that_it_trains(kind: Kind, model: ModelKind) -> None:
    for body in (saved(model=model), measured(model=model)):
        assert say(kind, body, stream=f"model:{model}").events
    for other in {"retriever", "tactics", "progress"} - {model}:
        for body in (saved(model=other), measured(model=other)):
            with pytest.raises(BadLineError, match=f"model is '{other}' and not '{model}'"):
                say(kind, body, stream=f"model:{other}")


def test_a_model_s_events_are_in_the_model_s_stream_and_nowhere_else() -> None:
    for stream in (f"repository:{OWN}", "model:tactics", "daemon"):
        with pytest.raises(BadLineError, match="stream"):
            say("train", saved(), stream=stream)
