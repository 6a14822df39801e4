"""The failure of one request against the outage of the model."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.jobs.protocol import JobError
from pipeline.prove.rungs import ModelHealth
from pipeline.prove.whole_proof import AuthorAnswers


def asked(*reasons: str, alone: bool = True) -> ModelHealth:
    """Ask a model that answers, or fails for a reason, in turn."""
    answering = ModelHealth(alone=alone)

    async def write(reason: str) -> AuthorAnswers:
        return AuthorAnswers((), error=f"no: {reason}" if reason else "", reason=reason)

    async def go() -> None:
        for reason in reasons:
            await answering.watch(write)(reason)

    asyncio.run(go())
    return answering


def test_an_endpoint_without_any_answer_fails_the_job_with_its_first_failure() -> None:
    given_up = asked("overloaded", "timeout").given_up(1)
    assert given_up is not None
    assert (given_up.reason, given_up.deterministic) == ("unanswered", False)
    assert "at all: no: overloaded" in str(given_up)
    assert given_up.remedy


def test_one_sorry_that_fails_beside_others_that_were_answered_has_failed_itself() -> None:
    assert asked("", "overloaded").given_up(1) is None
    assert asked("overloaded", "").given_up(1) is None
    assert asked("model_failed", alone=False).given_up(1) is None
    given_up = asked("", "timeout", "timeout").given_up(2)
    assert given_up is not None
    assert "since its last answer" in str(given_up)


@pytest.mark.parametrize("reason", ["bad_request", "out_of_memory", "too_long"])
def test_a_failure_of_one_prompt_is_no_outage(reason: str) -> None:
    assert asked(reason, reason).given_up(2) is None


@pytest.mark.parametrize(
    ("reason", "deterministic"),
    [("auth_failed", False), ("spending_cap", True), ("above_cap", True), ("unreachable", False)],
)
def test_an_outage_ends_the_job_at_once(reason: str, deterministic: bool) -> None:
    with pytest.raises(JobError) as caught:
        asked(reason)
    assert (caught.value.reason, caught.value.deterministic) == (reason, deterministic)
