"""What an author wrote is on disk as it comes, and nothing of it is asked for again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pipeline.prove.whole_declaration import AnswerJournal, JournaledAuthor
from pipeline.prove.whole_proof import AuthorAnswers, AuthorError, FailedProof, WholeAsk

ASK = WholeAsk("import A\n", "theorem t : True := sorry", "⊢ True", count=3, seed=7)


class Killed(BaseException):
    """The process ends here."""


class Piecewise:
    """An author that gets its answers one by one, and is killed, or refused, before the one with a number."""

    name, model = "external", "m"

    def __init__(self, *, killed_at: int | None = None, refused_at: int | None = None) -> None:
        self.killed_at, self.refused_at = killed_at, refused_at
        self.asked: list[WholeAsk] = []

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        self.asked.append(ask)
        texts = []
        for number in range(ask.seed, ask.seed + ask.count):
            if number == self.killed_at:
                raise Killed
            if number == self.refused_at:
                raise AuthorError("it answered 500", reason="overloaded")
            texts.append(f"by {number}")
            if ask.heard is not None:
                ask.heard(AuthorAnswers((texts[-1],), 10, 2, 0.5, "one piece"), 1)
        return AuthorAnswers(tuple(texts), 10 * len(texts), 2 * len(texts), 0.5 * len(texts), "one of no use")


class AtOnce(Piecewise):
    """An author that has all answers at once."""

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        self.asked.append(ask)
        return AuthorAnswers(("by a", "by b"), 30, 6, None)


def write(path: Path, author: Piecewise, *asks: WholeAsk) -> list[AuthorAnswers]:
    with AnswerJournal(path) as journal:
        kept = JournaledAuthor(author, journal)
        return [asyncio.run(kept.write(ask)) for ask in asks]


def second(ask: WholeAsk = ASK) -> WholeAsk:
    return WholeAsk(ask.context, ask.declaration, ask.goal, (FailedProof("by 7", ("no",)),), 3, 17)


def test_answers_from_before_a_kill_are_not_requested_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with pytest.raises(Killed):
        write(path, Piecewise(killed_at=9), ASK)
    after = Piecewise()
    (written,) = write(path, after, ASK)
    assert written.texts == ("by 7", "by 8", "by 9")
    assert (written.prompt_tokens, written.completion_tokens, written.usd) == (30, 6, 1.5), "paid once"
    assert [(ask.count, ask.seed) for ask in after.asked] == [(1, 9)]
    assert written.missing == "one of no use"


def test_a_finished_turn_comes_from_the_journal_whatever_lean_s_errors_were(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first = write(path, Piecewise(), ASK, second())
    again = Piecewise(killed_at=0)
    assert write(path, again, ASK, WholeAsk(*_of(second()), earlier=(), count=3, seed=17)) == first
    assert again.asked == []


def _of(ask: WholeAsk) -> tuple[str, str, str]:
    return ask.context, ask.declaration, ask.goal


def test_an_author_that_answers_at_once_is_kept_too_and_may_bring_fewer_than_wanted(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    (one,) = write(path, AtOnce(), ASK)
    after = AtOnce()
    assert write(path, after, ASK) == [one]
    assert (after.asked, one.texts, one.usd) == ([], ("by a", "by b"), None)


def test_paid_answers_are_judged_though_the_rest_of_the_turn_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    (written,) = write(path, Piecewise(refused_at=8), ASK)
    assert (written.texts, written.prompt_tokens, written.usd) == (("by 7",), 10, 0.5)
    assert "it answered 500" in written.missing
    with pytest.raises(AuthorError, match="500"):
        write(tmp_path / "other.jsonl", Piecewise(refused_at=7), ASK)
    # Only the missing answers are requested after the restart.
    after = Piecewise()
    (whole,) = write(path, after, ASK)
    assert [(ask.seed, ask.count) for ask in after.asked] == [(8, 2)]
    assert whole.texts == ("by 7", "by 8", "by 9")


@pytest.mark.parametrize(
    "other",
    [
        WholeAsk("import B\n", ASK.declaration, ASK.goal, count=3, seed=7),
        WholeAsk(ASK.context, ASK.declaration, ASK.goal, count=2, seed=7),
        WholeAsk(ASK.context, ASK.declaration, ASK.goal, count=3, seed=8),
    ],
    ids=["another file", "another count", "another seed"],
)
def test_answers_for_other_work_are_set_aside(tmp_path: Path, other: WholeAsk) -> None:
    path = tmp_path / "j.jsonl"
    write(path, Piecewise(), ASK)
    after = Piecewise()
    write(path, after, other)
    assert len(after.asked) == 1
    assert (tmp_path / "j.jsonl.aside").exists()


def test_a_damaged_journal_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    write(path, Piecewise(), ASK)
    head, *_ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + b'{"turn":7,"texts":[]}\n')
    after = Piecewise()
    write(path, after, ASK)
    assert len(after.asked) == 1
