from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.models.errors import DatasetError
from pipeline.models.retriever.batches import read_examples
from pipeline.models.retriever.corpus import Corpus
from tests.support.retrieval import step, theorem, use


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    lines = [
        {
            "path": f"{name}.lean",
            "imports": [],
            "premises": [
                {"full_name": f"{name}.p{i}", "code": "x", "start": [i, 1], "end": [i, 9]} for i in (1, 2, 3)
            ],
        }
        for name in "AB"
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return Corpus(path)


def write(folder: Path, content: object) -> Path:
    path = folder / "train.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_step_has_its_own_premises_and_those_of_the_whole_proof_and_one_without_is_left_out(
    tmp_path: Path, corpus: Corpus
) -> None:
    proof = theorem(
        "t",
        7,
        step("t", "2 goals\n⊢ a", use("n", "B.lean", 2), use("n", "A.lean", 1), use("n", "B.lean", 2)),
        step("t", "| conv", use("n", "A.lean", 9), use("n", "C.lean", 1)),
        step("t", "", use("n", "A.lean", 3)),
    )
    read = read_examples(write(tmp_path, [proof]), corpus)
    assert [(one.query, one.positives) for one in read] == [("⊢ a", (0, 4)), ("", (2,))]
    assert {one.proof for one in read} == {(0, 2, 4)}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}", r"train\.json: theorem 0: a list .*\. Export the dataset again$"),
        ("[", r"train\.json: theorem 0: Expecting value\. Export the dataset again$"),
        (
            '[{"file_path": "A.lean", "full_name": 3, "start": [1, 1]}]',
            r"train\.json: theorem 0\.full_name: input should be a valid string\. Export",
        ),
        (
            [theorem("t", 7), theorem("t", 7, step("t", "⊢ a", {**use("n", "A.lean", 1), "def_pos": [1]}))],
            r"theorem 1\.traced_tactics\[0\]\.annotated_tactic\[1\]\[0\]\.def_pos\[1\]: field required\. Export",
        ),
        (
            [theorem("t", 7, file_path="Gone.lean")],
            r"theorem 0 \(t\) is of Gone\.lean, which has no line in .*corpus\.jsonl\. Export the dataset again",
        ),
    ],
)
def test_a_split_file_that_is_none_is_refused_with_its_place(
    tmp_path: Path, corpus: Corpus, content: object, complaint: str
) -> None:
    with pytest.raises(DatasetError, match=complaint):
        read_examples(write(tmp_path, content), corpus)


def test_an_empty_split_and_one_that_is_not_there_are_told_apart(tmp_path: Path, corpus: Corpus) -> None:
    assert read_examples(write(tmp_path, []), corpus) == ()
    with pytest.raises(DatasetError, match=r"val\.json: No such file"):
        read_examples(tmp_path / "val.json", corpus)
