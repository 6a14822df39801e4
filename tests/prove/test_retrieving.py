from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline import freeze
from pipeline.freeze import corpus_of_log
from pipeline.jobs.inputs import InputStore
from pipeline.jobs.protocol import Sources
from pipeline.jobs.specs import Budget
from pipeline.models.errors import DatasetError, ModelError
from pipeline.models.retriever import index as indexing
from pipeline.models.retriever.corpus import Corpus, Premise
from pipeline.models.retriever.encoder import byte_ids, load_encoder
from pipeline.models.retriever.finder import Finder, Place, accessible
from pipeline.models.retriever.index import embed_texts, load_retriever
from pipeline.models.tactics.requests import Completion, Decoding, Prompt
from pipeline.models.text import query_text
from pipeline.prove.premises import Retrieval
from pipeline.prove.provers import RetrievalProver, read_corpus
from pipeline.prove.server import Server
from store.leandojo.choosing import choose
from store.leandojo.database import Pos, Theorem
from store.leandojo.reading import import_leandojo
from store.log.log import EventLog
from store.recording import record_trace
from store.view import queries
from store.view.view import View
from tests.support.retrieval import imports_of, write_dataset
from tests.support.tiny_models import make_tiny_retriever, make_tiny_seq2seq
from tests.support.trace import lean_itself
from tests.support.traced_repository import REPOSITORY, grown, head, make_traced_repository

STATES = ["h : p\n⊢ q r", "⊢ abcd", "2 goals\ncase inl\nn : ℕ\n⊢ n = n\n\n⊢ <a>q</a>"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"), files=3)


@pytest.fixture(scope="module")
def corpus(dataset: Path) -> Corpus:
    return Corpus(dataset / "corpus.jsonl")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_retriever(tmp_path_factory.mktemp("retriever"), d_model=32, layers=1)


@pytest.fixture(scope="module")
def finder(model: Path, corpus: Corpus) -> Finder:
    return Finder(corpus, premises=4, retriever=load_retriever(model), words=False)


def names(codes: Sequence[str]) -> list[str]:
    """Return the marked names of premises."""
    return [code.partition("<a>")[2].partition("</a>")[0] for code in codes]


def test_the_premises_are_those_that_the_trained_retriever_gives(
    finder: Finder, model: Path, corpus: Corpus
) -> None:
    encoder = load_encoder(model)
    vectors = embed_texts(encoder, byte_ids, [premise.serialize() for premise in corpus], 512)
    places = [("Demo/F2.lean", (7, 1)), ("Demo/F0.lean", (99, 1)), ("Demo/F1.lean", (1, 1))]
    expected = []
    for state, (path, position) in zip(STATES, places, strict=True):
        scores = (vectors @ embed_texts(encoder, byte_ids, [query_text(state)], 1024)[0]).tolist()
        allowed = corpus.accessible(path, position).nonzero()[0].tolist()
        nearest = sorted(allowed, key=lambda number: -scores[number])[:4]
        expected.append([corpus[number] for number in nearest])
    found = finder.find([(state, Place(*place)) for state, place in zip(STATES, places, strict=True)])
    assert [list(one) for one in found] == expected
    assert all("<a>Demo.F" in premise.serialize() for one in found for premise in one)


def test_a_theorem_may_use_the_premises_above_its_traced_position(corpus: Corpus) -> None:
    def own(place: Place) -> list[str]:
        chosen = [corpus[int(number)] for number in accessible(corpus, place).nonzero()[0]]
        return [premise.full_name for premise in chosen if premise.path == "Demo/F0.lean"]

    assert own(Place("Demo/F0.lean", (5, 1))) == ["Demo.F0.p0", "Demo.F0.p1"]
    assert own(Place("Demo/F0.lean")) == []
    moved = Place("Demo/F0.lean", (500, 1), "Demo.F0.p1")
    assert own(moved) == ["Demo.F0.p0"], "whatever lines it has now, it is not among its own premises"


def test_a_file_outside_the_trace_has_the_premises_of_its_imports(tmp_path: Path, corpus: Corpus) -> None:
    files = {0: set(), 1: {"Demo/F0.lean"}}
    assert set(imports_of(corpus, "Demo/F1.lean")) == files[1]

    def paths(place: Place, of: Corpus = corpus) -> set[str]:
        return {of[int(number)].path for number in accessible(of, place).nonzero()[0]}

    assert paths(Place("New.lean", (1, 1), "new", ("Init", "Demo.F1"))) == {"Demo/F0.lean", "Demo/F1.lean"}
    assert paths(Place("New.lean", (1, 1), "new", ("Other.F1",))) == set()
    assert paths(Place(imports=("Demo.F0",))) == {"Demo/F0.lean"}
    assert len(paths(Place())) == 3, "a goal without a file may use every premise"
    library = tmp_path / "corpus.jsonl"
    path = ".lake/packages/mathlib/Mathlib/Order/Basic.lean"
    premise = {"full_name": "le", "code": "theorem le : p", "start": [1, 1], "end": [1, 9], "kind": ""}
    library.write_text(json.dumps({"path": path, "imports": [], "premises": [premise]}) + "\n")
    assert paths(Place(imports=("Mathlib.Order.Basic",)), Corpus(library)) == {path}
    assert paths(Place(imports=("Order.Basic", "Mathlib.Basic")), Corpus(library)) == {path}


def test_goals_of_several_searches_are_embedded_together(
    finder: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    def counted(encoder: Any, tokens: Any, texts: Sequence[str], length: int, **given: Any) -> Any:
        batches.append(len(texts))
        return embed_texts(encoder, tokens, texts, length, **given)

    monkeypatch.setattr(indexing, "embed_texts", counted)
    place = Place("Demo/F2.lean", (7, 1))

    async def ask() -> list[tuple[Premise, ...]]:
        async with Retrieval(finder) as retrieval:
            return await asyncio.gather(*(retrieval.ask((state, place)) for state in STATES))

    found = asyncio.run(ask())
    assert batches == [3]
    assert found == finder.find([(state, place) for state in STATES])
    assert finder.find([]) == []


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="0123456789abcdef"):
        load_retriever(tmp_path / "0123456789abcdef")


def test_the_corpus_is_the_repository_s_newest_trace(dataset: Path, corpus: Corpus, tmp_path: Path) -> None:
    (dataset / "metadata.json").write_text(
        json.dumps({"from_repo": {"url": "https://example.org/Demo", "commit": "a" * 40}})
    )
    where: Any = {"events_db": tmp_path / "events.db", "database_db": tmp_path / "database.db"}
    import_leandojo(dataset, stage=tmp_path / "stage", **where)
    sources = Sources(**where, contents=tmp_path / "inputs")
    kept = corpus_of_log(sources, repository="example.org/Demo")
    found = Corpus(InputStore(sources.contents).file(kept))
    assert {premise.serialize() for premise in found} == {premise.serialize() for premise in corpus}
    assert imports_of(found, "Demo/F1.lean") == ["Demo/F0.lean"]
    with pytest.raises(DatasetError):
        corpus_of_log(sources, repository="example.org/Other")


def test_a_trace_s_corpus_is_written_once_and_until_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Sources(tmp_path / "events.db", tmp_path / "database.db", tmp_path / "inputs")
    contents = InputStore(sources.contents)
    files = list(make_traced_repository(0, 3, 4))
    with (
        EventLog.open(tmp_path / "events.db") as log,
        log.reader() as reader,
        View.open(tmp_path / "database.db", reader) as view,
        closing(queries.connect(tmp_path / "database.db")) as questions,
    ):

        def trace(commit: str) -> None:
            record_trace(log, trace=head(commit), files=files, stage=tmp_path / "stage", view=questions)
            view.catch_up()

        def corpus() -> int:
            found = corpus_of_log(sources, repository=REPOSITORY)
            return len(Corpus(contents.file(found)))

        def kept() -> list[Path]:
            return [path for path in contents.folder.glob("kept/*/*") if path.is_file()]

        trace("1" * 40)
        first = corpus()
        (before,) = kept()
        with monkeypatch.context() as frozen:
            frozen.setattr(freeze, "export_chosen", None)
            assert corpus() == first, "nothing is exported again"
        before.chmod(0o644)
        before.write_text("{half a line")
        assert corpus() == first, "a damaged one is made anew"
        files[1] = grown(files[1], name="one_more")
        trace("2" * 40)
        assert corpus() == first + 1
        (newer,) = kept()
        newer.unlink()
        contents.sweep()
        files[1] = grown(files[1], name="meanwhile")

        def chosen(*given: Any, **named: Any) -> Any:
            found = choose(*given, **named)
            trace("3" * 40)
            return found

        with monkeypatch.context() as busy:
            busy.setattr(freeze, "choose", chosen)
            assert corpus() == first + 1, "what is traced while it is written is no part of it"
        assert kept() == [newer], "under the key of what it has"
        assert corpus() == first + 2
        assert len(kept()) == 1, "and the earlier one goes"


def test_a_pickled_index_is_refused_and_a_folder_is_its_corpus(
    dataset: Path, tmp_path: Path, corpus: Corpus
) -> None:
    assert len(read_corpus(dataset)) == len(read_corpus(dataset / "corpus.jsonl")) == len(corpus)
    with pytest.raises(DatasetError, match=r"reading one runs code\. Name the corpus\.jsonl"):
        read_corpus(tmp_path / "indexed_corpus.pickle")


@pytest.fixture(scope="module")
def prover(model: Path, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = make_tiny_seq2seq(tmp_path_factory.mktemp("generator"), d_model=32, layers=1)
    with RetrievalProver(
        model,
        folder,
        dataset,
        premises=3,
        decoding=Decoding(candidates=2, max_tokens=8),
        budget=Budget(nodes=3, seconds=20.0, tactic_timeout_s=5.0),
    ) as made:
        yield made


def test_the_retrieval_prover_gives_the_generator_its_premises(
    prover: RetrievalProver, real_lean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []
    generator = prover.generator
    says = {"⊢ ∀": "intro p h", "h : p": "exact h"}

    def complete(asked: Sequence[Prompt]) -> Any:
        found = []
        for one in asked:
            prompt = str(generator._tokenizer.decode(one.ids))
            prompts.append(prompt)
            tactic = next(tactic for part, tactic in says.items() if part in prompt)
            tokens = generator._tokenizer(tactic, add_special_tokens=False)["input_ids"]
            found.append([Completion(tuple(tokens), -1.0, True)])
        return found

    monkeypatch.setattr(generator, "complete", complete)
    with Server(lean=lean_itself(real_lean)) as server:
        result, tactics = prover.search(server, "∀ (p : Prop), p → p")
        assert (result.success, tactics) == (True, ["intro p h", "exact h"])
        assert prompts[0].startswith("⊢ ∀"), "with nothing but Init imported, nothing of the corpus is there"
        assert prover.generate_whole_proof("theorem t : ∀ (p : Prop), p → p", server) == (
            "by\n  intro p h\n  exact h"
        )
    prompts.clear()
    assert prover.next_tactic("∀ (p : Prop), p → p") == "intro p h"
    assert prompts[0].count("<a>Demo.F") == 3, "a goal without a file may use every premise"
    prompts.clear()
    prover.theorem = Theorem(
        "Demo.F0.t", Path("Demo/F0.lean"), Pos(3, 1), Pos(4, 1), "https://example.org/demo", "0" * 40
    )
    try:
        assert prover.next_tactic("h : p\n⊢ p") == "exact h"
    finally:
        prover.theorem = None
    assert names([prompts[0]]) == ["Demo.F0.p0"]
    assert prompts[0].count("<a>") == 1
