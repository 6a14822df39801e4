"""POST /retrieve over a real socket: what may be used where the goal stands, of the newest trace, by the retriever."""

from __future__ import annotations

import asyncio
import json
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pipeline.models.retriever.baselines import BM25, fused
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import load_encoder, load_tokens
from pipeline.models.retriever.index import Retriever, embed_texts
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.requests import Request, Suggestions
from pipeline.models.text import query_text
from pipeline.serve.retrieve import Position, Premises, RetrieveRequest, _Indexed
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import PROMOTED, ModelSpec, RepositorySpec, ServeSpec
from store.promotion import WORDS
from tests.support.events import REPOSITORY
from tests.support.models import checkpoint_saved, evaluation_finished
from tests.support.serve import Served, World, make_saying, post, premises, spec_of
from tests.support.tiny_models import make_tiny_retriever

GOAL = "2 goals\np : Prop\n⊢ p"
OLD = "1" * 40
BASE = premises("Base.lean", ["base_one", "base_two"])
TOP = premises("Top.lean", ["top_one", "top_two", "top_three"], imports=["Base.lean"])
APART = premises("Apart.lean", ["apart"])
ALL = {"base_one", "base_two", "top_one", "top_two", "top_three", "apart"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_retriever(tmp_path_factory.mktemp("retriever"), d_model=16, layers=1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world"), {"Top.lean": "theorem t : True := by\n  sorry\n"})
    world.trace([BASE], sha=OLD)
    world.trace([BASE, TOP, APART], sha=world.sha)
    return world


@pytest.fixture(scope="module")
def served(world: World, model: Path) -> Iterator[Served]:
    with Served(world.spec(ModelSpec("retriever", "retriever", str(model)))) as it:
        it.wait_ready()
        yield it


def asked(served: Served, **more: Any) -> tuple[int, Any]:
    body = {"goal": GOAL, "repository": REPOSITORY, "file": "Top.lean", "position": {"line": 2, "column": 1}}
    return post(served.port, "/retrieve", body | more)


def beside(spec: ServeSpec, folder: Path) -> ServeSpec:
    """Return the specification of a second server, with its own scratch folder."""
    return replace(spec, lean=replace(spec.lean, scratch=folder / "scratch"))


def names(answer: Any) -> set[str]:
    return {one["full_name"] for one in answer["premises"]}


def test_only_what_is_imported_or_stands_above_is_returned(served: Served, world: World) -> None:
    status, answer = asked(served)
    assert status == 200, answer
    assert names(answer) == {"base_one", "base_two", "top_one"}
    assert all(one["accessible"] for one in answer["premises"])
    assert (answer["accessible"], answer["known"]) == (3, 6)
    assert (answer["commit"], answer["repository"]) == (world.sha, REPOSITORY)
    top = next(one for one in answer["premises"] if one["full_name"] == "top_one")
    assert (top["file"], top["line"], top["column"], top["end_line"]) == ("Top.lean", 1, 1, 1)
    assert top["code"] == "theorem top_one : True"
    _, below = asked(served, position={"line": 9, "column": 1})
    assert names(below) == ALL - {"apart"}


def test_the_best_come_first_with_the_cosine_for_a_score(served: Served, model: Path) -> None:
    _, answer = asked(served, position={"line": 9}, k=4)
    scores = [one["score"] for one in answer["premises"]]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)
    first = answer["premises"][0]
    encoder, tokens = load_encoder(model), load_tokens(model)
    marked = first["code"].replace(first["full_name"], f"<a>{first['full_name']}</a>")
    goal, document = embed_texts(encoder, tokens, [query_text(GOAL), marked], 1024)
    assert scores[0] == pytest.approx(float(torch.dot(goal, document)), abs=1e-4)


def test_a_theorem_that_moved_since_stands_where_it_was_traced(served: Served) -> None:
    _, answer = asked(served, position={"line": 500}, declaration="top_two")
    assert names(answer) == {"base_one", "base_two", "top_one"}


def test_all_premises_are_marked_where_they_are_asked_for(served: Served) -> None:
    _, answer = asked(served, accessible_only=False, k=100)
    assert names(answer) == ALL
    assert {one["full_name"] for one in answer["premises"] if not one["accessible"]} == {
        "apart",
        "top_two",
        "top_three",
    }


def test_a_newer_trace_is_what_is_answered_from(model: Path, tmp_path: Path) -> None:
    world = World(tmp_path, {"Top.lean": "theorem t : True := trivial\n"})
    spec = world.spec(ModelSpec("retriever", "retriever", str(model)))
    with Served(spec) as it:
        it.wait_ready()
        status, answer = asked(it)
        assert (status, answer["error"]) == (404, "not_traced")
        assert "import" in answer["remedy"]
        world.trace([BASE, TOP], sha=world.sha)
        assert asked(it)[1]["commit"] == world.sha
        world.trace([BASE, premises("Top.lean", ["changed", "top_two"], imports=["Base.lean"])], sha="2" * 40)
        _, answer = asked(it)
        assert (answer["commit"], names(answer)) == ("2" * 40, {"base_one", "base_two", "changed"})


@pytest.mark.parametrize(
    ("more", "status", "error"),
    [
        ({"repository": "example.org/no/such"}, 404, "unknown_repository"),
        ({"file": "None.lean"}, 404, "unknown_file"),
        ({"k": 101}, 422, "invalid_request"),
        ({"k": 0}, 422, "invalid_request"),
        ({"goal": ""}, 422, "invalid_request"),
        ({"position": {"line": 0}}, 422, "invalid_request"),
        ({"position": {"line": 10**12}}, 422, "invalid_request"),
    ],
)
def test_what_cannot_be_answered_is_told_with_a_remedy(
    served: Served, more: dict[str, Any], status: int, error: str
) -> None:
    found, answer = asked(served, **more)
    assert (found, answer["error"]) == (status, error), answer
    assert answer["remedy"]


def test_without_a_retriever_bm25_finds_the_accessible_premises_that_share_words(
    world: World, tmp_path: Path
) -> None:
    with Served(beside(world.spec(ModelSpec("m", "retriever", PROMOTED)), tmp_path)) as it:
        it.wait_ready(but="m is waiting")
        status, answer = asked(it, goal="⊢ base two three")
    assert status == 200, answer
    assert [one["full_name"] for one in answer["premises"]] == ["base_two", "base_one"], (
        "top_three stands below"
    )
    scores = [one["score"] for one in answer["premises"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["checkpoint"] == "bm25"


@pytest.mark.parametrize(
    ("own", "words", "both"), [(0.3, 0.5, 0.4), (0.5, 0.3, 0.4), (0.3, 0.5, 0.6)], ids=["bm25", "own", "both"]
)
def test_what_found_most_on_the_test_sets_finds_the_premises(
    world: World, model: Path, tmp_path: Path, own: float, words: float, both: float
) -> None:
    name = f"r-{own}-{both}"
    metrics = {"recall@10": own, "bm25 recall@10": words, "fused recall@10": both}
    world.record(checkpoint_saved(name), evaluation_finished(name, metrics=metrics))
    retriever = Retriever(load_encoder(model), load_tokens(model))

    async def vectors(texts: Sequence[str]) -> list[list[float]]:
        return cast("list[list[float]]", retriever.embed(texts).tolist())

    def loaded(checkpoint: str) -> Any:
        made = SimpleNamespace(retriever=retriever, checkpoint=checkpoint, vectors=vectors)

        async def of(repository: str) -> Any:
            assert repository == REPOSITORY
            return made

        made.of = of
        return made

    goal = "⊢ base two three"
    request = RetrieveRequest(
        goal=goal, repository=REPOSITORY, file="Top.lean", position=Position(line=9, column=1)
    )

    async def work() -> None:
        found = Premises(beside(world.spec(), tmp_path))
        by_words, alone, answer = [
            await found.retrieve(one, request) for one in (None, loaded(""), loaded(name))
        ]
        (first, *_) = await found.nearest(loaded(name), goal, 1)
        found.close()
        a, b = ([one.full_name for one in by.premises] for by in (by_words, alone))
        names = list(dict.fromkeys([*a, *b]))
        together = fused([[names.index(one) for one in ranking] for ranking in (a, b)], 10)
        expected = {WORDS: a, name: b, f"{name}+{WORDS}": [names[one] for one in together]}
        _, wanted = max([(words, WORDS), (own, name), (both, f"{name}+{WORDS}")])
        assert answer.checkpoint == wanted
        assert [one.full_name for one in answer.premises] == expected[wanted]
        if wanted != name:
            assert f"<a>{expected[wanted][0]}</a>" in first, "so it does for a generator"

    asyncio.run(work())


class Loaded:
    """What a retriever has, and what `Premises` asks of it, where nothing is searched."""

    def __init__(self) -> None:
        nothing: Any = None
        self.retriever = Retriever(nothing, nothing)
        self.checkpoint = ""
        self.own: dict[str, Loaded] = {}

    async def of(self, repository: str) -> Loaded:
        return self.own.get(repository, self)

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]


def loaded() -> Any:
    return Loaded()


class Making:
    """Stands in for the making of an index: notes who has one made of what, and takes until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[Any, str]] = []
        self.go = threading.Event()
        monkeypatch.setattr(Premises, "_newest", lambda _self, _key: SimpleNamespace(seq=1))
        monkeypatch.setattr(Premises, "_index_of", lambda _self, *asked: self._make(*asked))

    def _make(self, retriever: Loaded, repository: str) -> Any:
        self.made.append((retriever, repository))
        assert self.go.wait(30)
        if repository == "damaged":
            raise Problem(500, "disk", "the disk refused", "see the log")
        return _Indexed(
            cast("Any", SimpleNamespace(seq=1)),
            cast("Any", []),
            cast("Any", SimpleNamespace(nbytes=0)),
            torch.zeros(4, 1),
            weakref.ref(retriever.retriever),
        )


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Making:
    return Making(monkeypatch)


def test_who_gives_up_waiting_leaves_one_making_and_no_thread_behind(making: Making, tmp_path: Path) -> None:
    async def work() -> None:
        found, one = Premises(spec_of(tmp_path), patience_s=0.05), loaded()
        request = asyncio.create_task(found._indexed(one, "r", patience_s=30))
        await asyncio.sleep(0.01)
        request.cancel()
        for _ in range(3):
            with pytest.raises(Problem, match="being embedded") as told:
                await found._indexed(one, "r", patience_s=0.05)
            assert (told.value.status, bool(told.value.headers["Retry-After"])) == (503, True)
        making.go.set()
        await found._indexed(one, "r", patience_s=30)
        assert making.made == [(one, "r")]
        found.close()

    asyncio.run(work())


def test_of_many_repositories_indexed_by_words_the_oldest_go_where_they_take_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    premise = {"full_name": "add_comm", "code": "a + b = b + a", "start": [1, 1], "end": [1, 2]}
    (tmp_path / "corpus.jsonl").write_text(
        json.dumps({"path": "A.lean", "imports": [], "premises": [premise]})
    )
    index = BM25(Corpus(tmp_path / "corpus.jsonl"))
    row = cast("Any", SimpleNamespace(seq=1))
    monkeypatch.setattr(Premises, "_newest", lambda _self, _key: row)
    monkeypatch.setattr(
        Premises, "_index_of", lambda _self, *_: _Indexed(row, cast("Any", []), index, None, lambda: WORDS)
    )

    async def work() -> None:
        found = Premises(spec_of(tmp_path), most_bytes=2 * index.nbytes)
        for number in range(4):
            await found._indexed(None, f"r{number}", patience_s=30)
        assert [repository for _, repository in found._kept] == ["r2", "r3"]
        found.close()

    asyncio.run(work())


def test_two_retrievers_and_many_repositories_are_each_embedded_once(making: Making, tmp_path: Path) -> None:
    making.go.set()
    asked = [(retriever, f"r{number}") for retriever in (loaded(), loaded()) for number in range(6)]

    async def work() -> None:
        found = Premises(spec_of(tmp_path))
        for retriever, repository in [*asked, *asked]:
            await found._indexed(retriever, repository, patience_s=30)
        assert making.made == asked
        found.close()
        # What is too much goes, that which was asked for first before the rest.
        small = Premises(spec_of(tmp_path), most_bytes=32)
        for number in (0, 1, 2, 2, 0):
            await small._indexed(*asked[number], patience_s=30)
        assert making.made[len(asked) :] == [asked[number] for number in (0, 1, 2, 0)]
        small.close()

    asyncio.run(work())


def test_each_repository_is_searched_with_its_own_retriever_and_a_newer_one_is_ready_for_the_same(
    making: Making, tmp_path: Path
) -> None:
    making.go.set()
    before, after = loaded(), loaded()
    before.own, after.own = ({"r1": loaded()} for _ in range(2))

    async def work() -> None:
        found = Premises(spec_of(tmp_path))
        for repository in ("r1", "r2"):
            await found._nearest_of(before, "", repository, "⊢ p", 1)
        await found.warm(before, after)
        found.close()

    asyncio.run(work())
    assert making.made == [(before.own["r1"], "r1"), (before, "r2"), (after.own["r1"], "r1"), (after, "r2")]


def test_a_repository_that_cannot_be_searched_keeps_no_other_from_it(
    making: Making, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    making.go.set()

    def newest(_self: Premises, key: str) -> Any:
        if key == "nobody's":
            raise Problem(404, "unknown_repository", "it is not known", "watch it")
        return SimpleNamespace(seq=1)

    monkeypatch.setattr(Premises, "_newest", newest)

    async def nearest(*keys: str) -> tuple[str, ...]:
        spec = world.spec()
        lean = replace(spec.lean, repositories=tuple(RepositorySpec(key, Path("none")) for key in keys))
        found = Premises(replace(spec, lean=lean))
        try:
            return await found.nearest(loaded(), "⊢ p", 3)
        finally:
            found.close()

    assert asyncio.run(nearest("nobody's")) == ()
    assert asyncio.run(nearest("nobody's", "damaged", "sound")) == ()
    assert "no premises of damaged are shown: the disk refused" in caplog.text
    with pytest.raises(Problem, match="the disk refused"):
        asyncio.run(nearest("nobody's", "damaged"))


def test_a_generator_is_shown_the_premises_of_a_traced_repository(
    world: World, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[str, ...]] = []
    real = Generator.suggest

    def suggest(self: Generator, requests: Sequence[Request]) -> list[Suggestions]:
        shown.extend(request.premises for request in requests)
        return real(self, requests)

    monkeypatch.setattr(Generator, "suggest", suggest)
    said = str(make_saying(tmp_path / "said", {"simp": 1.0}))
    retrieving = ModelSpec("m", "retrieval", str(model), generator=said, candidates=1, max_tokens=8)
    with Served(beside(world.spec(retrieving), tmp_path)) as it:
        it.wait_ready()
        status, answer = post(it.port, "/generate", {"name": "m", "input": GOAL})
        assert (status, answer["outputs"][0]["output"]) == (200, "simp"), answer
        _, best = asked(it, accessible_only=False, k=10)
    marked = tuple(
        one["code"].replace(one["full_name"], f"<a>{one['full_name']}</a>") for one in best["premises"]
    )
    assert shown == [marked], "those that /retrieve has first, where nothing is left out"
