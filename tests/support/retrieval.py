"""Datasets for tests and measurements, in LeanDojo's format, with something in them to learn.

A premise is a word of its own among random ones; a step that uses it has that word in its state, spelled in the letters
of the dataset's *alphabet*: datasets with different alphabets are different tasks, and what one teaches does not help
with the other. The same arguments make the same files.
"""

from __future__ import annotations

import json
import random
import string
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.models.retriever.batches import Batches, Example, Lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import Encoder
from pipeline.models.retriever.ewc import ElasticWeights, Part, estimated, parameters_of
from pipeline.models.retriever.losses import RowLosses

LETTERS = string.ascii_lowercase


def step(tactic: str, state: str, *uses: Mapping[str, Any], annotated: str | None = None) -> dict[str, Any]:
    """Return a traced step that uses these premises."""
    marked = tactic if annotated is None else annotated
    return {
        "tactic": tactic,
        "annotated_tactic": [marked, list(uses)],
        "state_before": state,
        "state_after": "no goals",
    }


def use(name: str, path: str, line: int, column: int = 9) -> dict[str, Any]:
    """Return a premise that a step uses."""
    end = [line, column + 2]
    return {"full_name": name, "def_path": path, "def_pos": [line, column], "def_end_pos": end}


def theorem(name: str, line: int, *steps: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a traced theorem of A.lean, which begins in this line."""
    return {
        "url": "https://example.org/r",
        "commit": "a" * 40,
        "file_path": "A.lean",
        "full_name": name,
        "theorem_statement": None,
        "start": [line, 1],
        "end": [line, 30],
        "traced_tactics": list(steps),
        **changes,
    }


def write_dataset(
    folder: Path,
    *,
    seed: int = 0,
    files: int = 6,
    premises_per_file: int = 10,
    theorems: int = 60,
    imports: int = 2,
    word: int = 4,
    alphabet: int = 0,
    prefix: str = "Demo",
    code_length: int = 0,
    held_out: float = 0.2,
) -> Path:
    """Write `corpus.jsonl` and `random/{train,val,test}.json` into `folder` and return it.

    Args:
        folder: made if need be.
        seed: decides words, imports and uses.
        files: each imports up to `imports` earlier ones.
        premises_per_file: in each.
        theorems: one step each, with one or two premises, spread over the files.
        imports: see `files`.
        word: letters of a premise's word.
        alphabet: which substitution of letters states are written in (0: none).
        prefix: the first part of paths and names.
        code_length: at least so many characters of code a premise.
        held_out: the share of theorems in val.json, and again in test.json.
    """
    rng = random.Random(f"{seed}/{prefix}")
    spelled = list(LETTERS)
    if alphabet:
        random.Random(f"alphabet {alphabet}").shuffle(spelled)
    spell = str.maketrans(dict(zip(LETTERS, spelled, strict=True)))
    words: list[list[str]] = []
    lines: list[dict[str, Any]] = []
    for number in range(files):
        earlier = sorted(rng.sample(range(number), min(number, imports)))
        own = ["".join(rng.choices(LETTERS, k=word)) for _ in range(premises_per_file)]
        words.append(own)
        lines.append(
            {
                "path": f"{prefix}/F{number}.lean",
                "imports": [f"{prefix}/F{other}.lean" for other in earlier],
                "premises": [
                    {
                        "full_name": f"{prefix}.F{number}.p{index}",
                        "code": f"theorem p{index} : {text}".ljust(code_length, "x"),
                        "start": [2 * index + 1, 1],
                        "end": [2 * index + 1, 20],
                        "kind": "commanddeclaration",
                    }
                    for index, text in enumerate(own)
                ],
            }
        )
    closures: list[set[int]] = []
    for line in lines:
        direct = {int(path.rpartition("F")[2].removesuffix(".lean")) for path in line["imports"]}
        closures.append(direct.union(*(closures[other] for other in direct)))
    records = []
    for number in range(theorems):
        home = number % files
        reachable = [*closures[home], home]
        uses = [
            (rng.choice(reachable), rng.randrange(premises_per_file)) for _ in range(rng.choice((1, 1, 2)))
        ]
        state = " ".join(words[file][index] for file, index in uses).translate(spell)
        used = [
            use(f"{prefix}.F{file}.p{index}", f"{prefix}/F{file}.lean", 2 * index + 1) for file, index in uses
        ]
        marked = " ".join(f"<a>p{index}</a>" for _, index in uses)
        records.append(
            theorem(
                f"{prefix}.F{home}.t{number}",
                2 * premises_per_file + number + 1,
                step(f"rw {number}", f"⊢ {state}", *used, annotated=marked),
                url=f"https://example.org/{prefix}",
                file_path=f"{prefix}/F{home}.lean",
            )
        )
    rng.shuffle(records)
    out = int(len(records) * held_out)
    splits = {"val": records[:out], "test": records[out : 2 * out], "train": records[2 * out :]}
    (folder / "random").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        corpus.writelines(json.dumps(line) + "\n" for line in lines)
    for split, content in splits.items():
        (folder / "random" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def held(
    encoder: Encoder,
    past: Mapping[str, Batches],
    new: Batches,
    config: RetrieverConfig,
    losses: RowLosses,
) -> ElasticWeights:
    """Return the weights that a training holds from its beginning on, as a training does."""
    if "ewc" not in config.ways or config.lambda_value == 0:
        return ElasticWeights({}, {}, share=0.0)
    parts = [*(Part(name, batches) for name, batches in past.items()), Part("base", new, sampled=True)]
    fisher, warnings = estimated(encoder, parts, config, losses)
    assert warnings == ()
    return ElasticWeights(fisher, parameters_of(encoder), share=config.lambda_value)


def embedded(indices: Path) -> int:
    """Return the number of vectors in a folder of embedding indices."""
    return sum(len(np.load(path)) for path in indices.glob("*.npy"))


def imports_of(corpus: Corpus, path: str) -> list[str]:
    """Return the paths of the files that a file imports, directly or not."""
    imported = corpus.imported_files(path)
    return [file.path for file, taken in zip(corpus.files, imported, strict=True) if taken]


def small_config(model: str | Path, **changes: Any) -> RetrieverConfig:
    """Return how a tiny retriever learns a small dataset on a CPU in seconds, with some fields changed."""
    config = RetrieverConfig(
        model_name=str(model),
        device="cpu",
        precision="32-true",
        loss="contrastive",
        lr=2e-3,
        batch_size=8,
        accumulate_grad_batches=1,
        max_seq_len=64,
        data_max_seq_len=64,
        num_workers=0,
        against_forgetting="ewc+replay",  # all that a task has of the ones before it
        fisher_samples=16,
    )
    return replace(config, **changes)


def words_config(model: str | Path, **changes: Any) -> RetrieverConfig:
    """Return how a tiny retriever of words learns a small library, with some fields changed."""
    fixed = {"lr": 3e-3, "num_negatives": 0, "num_in_file_negatives": 0}
    return small_config(model, **fixed, warmup_steps=0, baselines=False, **changes)


def rows_of_texts(tasks: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, Lesson]:
    """Return steps to replay, by the task's name, made of a query and a document that it needs each; a query that
    comes several times needs all of its documents. Every premise may be used."""
    lessons: dict[str, Lesson] = {}
    for name, texts in tasks.items():
        place = {document: number for number, document in enumerate(dict.fromkeys(text for _, text in texts))}
        premises = [
            {"full_name": f"premise {number}", "code": text, "start": [number + 1, 1], "end": [number + 1, 2]}
            for text, number in place.items()
        ]
        lines = [
            {"path": "P.lean", "imports": [], "premises": premises},
            {"path": "T.lean", "imports": ["P.lean"], "premises": []},
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            corpus = Corpus(file.name)
        needed: dict[str, set[int]] = {}
        for query, document in texts:
            needed.setdefault(query, set()).add(place[document])
        steps = tuple(
            Example("T.lean", query, (1, 1), query, tuple(sorted(own)), tuple(sorted(own)))
            for query, own in needed.items()
        )
        lessons[name] = Lesson(corpus, steps, ())
    return lessons
