from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.models.datasets import Position
from pipeline.models.errors import DatasetError
from pipeline.models.retriever.corpus import Corpus
from tests.support.retrieval import imports_of


def premise(name: str | None, line: int, *, code: str = "theorem x", lines: int = 0) -> dict[str, Any]:
    return {"full_name": name, "code": code, "start": [line, 1], "end": [line + lines, 9], "kind": "theorem"}


def file(path: str, imports: Sequence[str] = (), *premises: dict[str, Any]) -> dict[str, Any]:
    return {"path": path, "imports": list(imports), "premises": list(premises)}


def corpus_of(folder: Path, *files: dict[str, Any]) -> Corpus:
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in files), encoding="utf-8")
    return Corpus(path)


def test_a_theorem_may_use_what_its_file_imports_and_what_ends_before_it(tmp_path: Path) -> None:
    corpus = corpus_of(
        tmp_path,
        file("A.lean", [], premise("a", 1)),
        file("B.lean", ["A.lean"], premise("b1", 1), premise("b2", 5)),
        file("C.lean", ["B.lean"], premise("c1", 1), premise("c2", 3, lines=2), premise("c3", 7)),
        file("D.lean", [], premise("d", 1)),
    )

    def usable(path: str, position: Position) -> list[str]:
        return [corpus[int(place)].full_name for place in np.flatnonzero(corpus.accessible(path, position))]

    assert usable("C.lean", (5, 9)) == ["a", "b1", "b2", "c1", "c2"]
    assert usable("C.lean", (5, 8)) == ["a", "b1", "b2", "c1"]
    assert usable("Unknown.lean", (9, 9)) == []
    assert imports_of(corpus, "./C.lean") == ["A.lean", "B.lean"]


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_the_bits_say_what_walking_the_imports_says(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    n = data.draw(st.integers(1, 20))
    imports = [
        sorted(data.draw(st.sets(st.integers(0, number - 1), max_size=3))) if number else []
        for number in range(n)
    ]
    order = data.draw(st.permutations(range(n)))
    corpus = corpus_of(
        tmp_path_factory.mktemp("corpus"),
        *(file(f"{i}.lean", [f"{j}.lean" for j in imports[i]], premise(f"p{i}", 1)) for i in order),
    )
    walked: list[set[int]] = []
    for direct in imports:
        walked.append(set(direct).union(*(walked[other] for other in direct)))
    for i in range(n):
        assert set(imports_of(corpus, f"{i}.lean")) == {f"{j}.lean" for j in walked[i]}


places = st.tuples(st.integers(1, 6), st.integers(1, 3))
ranges = st.tuples(places, places).map(lambda ends: tuple(sorted(ends)))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_may_be_used_and_what_stands_where_is_what_a_look_at_every_premise_says(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Ranges lie anyhow: apart, one in another, crossing, twice the same.
    held = data.draw(st.lists(st.lists(ranges, max_size=5), min_size=2, max_size=10))
    imported = data.draw(st.sets(st.integers(0, len(held) - 2)))
    files = [
        file(
            f"{number}.lean",
            [f"{other}.lean" for other in imported] if number == len(held) - 1 else [],
            *(
                {"full_name": f"p{i}", "code": "x", "start": list(start), "end": list(end)}
                for i, (start, end) in enumerate(within)
            ),
        )
        for number, within in enumerate(held)
    ]
    corpus = corpus_of(tmp_path_factory.mktemp("corpus"), *files)
    path, pos = files[-1]["path"], data.draw(places)
    usable = [
        premise.path in files[-1]["imports"] or (premise.path == path and premise.end <= pos)
        for premise in corpus
    ]
    assert corpus.accessible(path, pos).tolist() == usable
    indices = np.array(data.draw(st.lists(st.integers(0, max(0, len(corpus) - 1)))), dtype=np.intp)
    if len(corpus):
        assert corpus.accessible(path, pos, indices).tolist() == [usable[index] for index in indices]
        assert not corpus.accessible("Unknown.lean", pos, indices).any()
    for number, within in enumerate(held):
        at = next((i for i, (start, end) in enumerate(within) if start <= pos <= end), None)
        before = sum(map(len, held[:number]))
        assert corpus.locate(f"{number}.lean", pos) == (None if at is None else before + at)


def test_a_premise_that_stands_twice_is_one_premise(tmp_path: Path) -> None:
    corpus = corpus_of(
        tmp_path,
        file("A.lean", [], premise("a", 1, code="first"), premise("b", 1), premise("a", 1, code="second")),
        file("B.lean", [], premise("a", 1), premise("a", 5)),
    )
    assert [(one.path, one.full_name, one.start[0], one.code) for one in corpus] == [
        ("A.lean", "a", 1, "first"),
        ("A.lean", "b", 1, "theorem x"),
        ("B.lean", "a", 1, "theorem x"),
        ("B.lean", "a", 5, "theorem x"),
    ]


def test_a_premise_is_found_by_where_it_is_defined_also_inside_another(tmp_path: Path) -> None:
    corpus = corpus_of(
        tmp_path,
        file("Apart.lean", [], premise("a", 1), premise("b", 5, lines=2), premise("c", 9)),
        file("Nested.lean", [], premise("outer", 1, lines=8), premise("inner", 3)),
    )
    assert [corpus.locate("Apart.lean", (line, 2)) for line in (1, 4, 5, 6, 7, 8, 9)] == [
        0,
        None,
        1,
        1,
        1,
        None,
        2,
    ]
    nested = corpus.locate("Nested.lean", (3, 2))
    assert nested is not None
    assert corpus[nested].full_name == "outer", "the first whose range contains it, as LeanDojo has it"


def test_what_is_no_document_is_left_out(tmp_path: Path) -> None:
    corpus = corpus_of(
        tmp_path,
        file(
            "A.lean",
            [],
            premise(None, 1),
            premise("[f, g]", 2),
            premise("user__.n1", 3),
            premise("e", 4, code=""),
        ),
    )
    assert len(corpus) == 0


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ([file("A.lean", ["B.lean"]), file("B.lean", ["A.lean"])], "in a circle: A.lean -> B.lean -> A.lean"),
        ([file("A.lean", ["A.lean"])], "in a circle: A.lean -> A.lean"),
        ([file("A.lean", ["B.lean"])], "A.lean imports B.lean, which has no line"),
        ([file("A.lean"), file("A.lean")], "line 2: A.lean has a line already"),
        ([{"path": "A.lean"}], "line 1.imports: field required"),
        (
            [file("A.lean"), {"path": "B.lean", "imports": [3], "premises": []}],
            r"line 2.imports\[0\]: input should be a valid string",
        ),
        (
            [file("A.lean", [], {"full_name": "a", "code": "x"})],
            r"line 1.premises\[0\].start: field required",
        ),
        (
            [file("A.lean", [], premise("a", 1), {**premise("b", 1), "code": 7})],
            r"premises\[1\].code: input should be a valid string",
        ),
        ([file("A.lean", [], {**premise("a", 1), "start": ["x", 1]})], r"start\[0\]: .* integer"),
        ([file("A.lean", [], {**premise("a", 5), "full_name": 9})], "full_name: .* string"),
    ],
)
def test_a_corpus_that_is_none_is_refused_with_its_line(
    tmp_path: Path, files: list[dict[str, Any]], complaint: str
) -> None:
    with pytest.raises(DatasetError, match=rf"corpus\.jsonl: .*{complaint}.*[Ee]xport"):
        corpus_of(tmp_path, *files)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"", "Expecting value"),
        (b'{"path": "B.le', "Unterminated string starting at"),
        (b'{"path": "\xff"}', ".*utf-8"),
        (b"[" * 100_000, ".*recursion"),
    ],
)
def test_a_line_that_is_no_json_is_refused_with_its_number(
    tmp_path: Path, line: bytes, complaint: str
) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(json.dumps(file("A.lean")).encode() + b"\n" + line + b"\n")
    with pytest.raises(DatasetError, match=rf"corpus\.jsonl: line 2: {complaint}.*Is it a corpus\.jsonl"):
        Corpus(path)


def test_a_corpus_that_is_not_there_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"corpus\.jsonl cannot be read \(No such file.*Name the corpus"):
        Corpus(tmp_path / "corpus.jsonl")
    with pytest.raises(DatasetError, match="Is a directory"):
        Corpus(tmp_path)


def test_a_corpus_without_a_file_is_read(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path)
    assert (len(corpus), len(corpus.files)) == (0, 0)
    assert corpus.accessible("A.lean", (9, 9)).shape == (0,)


def test_a_chain_of_imports_longer_than_pythons_stack_is_read(tmp_path: Path) -> None:
    n = 3000
    files = [file(f"{i}.lean", [f"{i + 1}.lean"] if i + 1 < n else []) for i in range(n)]
    assert len(imports_of(corpus_of(tmp_path, *files), "0.lean")) == n - 1
