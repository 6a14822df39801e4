from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from pipeline.models.datasets import TaskData
from pipeline.models.errors import DatasetError, DivergedError, LearningError
from pipeline.models.retriever import index as index_module
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, Ids, byte_ids, embed, load_encoder
from pipeline.models.retriever.index import EmbeddingIndex, Retriever, embed_blocks, embed_texts, top_k
from pipeline.models.retriever.learning import measure
from tests.support import programs
from tests.support.retrieval import write_dataset
from tests.support.tiny_models import make_tiny_retriever

Matrix = npt.NDArray[Any]


RECORD = 32 + 4 * 64
"""Bytes of a document's hash and its vector."""
TEXTS = [f"theorem t{i} : {'x' * (i * 7 % 60)}" for i in range(40)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(make_tiny_retriever(tmp_path_factory.mktemp("tiny")))


def index_in(folder: Path, encoder: Encoder) -> EmbeddingIndex:
    return EmbeddingIndex(folder, Retriever(encoder, byte_ids, 64))


def test_each_embedding_is_computed_once_in_the_life_of_an_index(tmp_path: Path, encoder: Encoder) -> None:
    first, new = index_in(tmp_path, encoder).vectors(TEXTS[:30])
    assert new == 30
    again, new = index_in(tmp_path, encoder).vectors(TEXTS)
    assert new == 10
    assert np.array_equal(again[:30], first)
    shuffled, new = index_in(tmp_path, encoder).vectors([*TEXTS[::-1], TEXTS[3]])
    assert new == 0
    assert np.array_equal(shuffled, np.concatenate([again[::-1], again[3:4]]))


def test_stored_vectors_are_those_of_the_encoder(tmp_path: Path, encoder: Encoder) -> None:
    stored, _ = index_in(tmp_path, encoder).vectors(TEXTS)
    one_by_one = torch.cat([embed_texts(encoder, byte_ids, [text], 64) for text in TEXTS])
    assert torch.allclose(torch.tensor(stored), one_by_one, atol=1e-5)
    assert torch.allclose(torch.tensor(stored).norm(dim=1), torch.ones(len(TEXTS)), atol=1e-5)


def test_another_encoder_has_another_index(tmp_path: Path, encoder: Encoder) -> None:
    other = load_encoder(make_tiny_retriever(tmp_path / "other", seed=1))
    index_in(tmp_path / "index", encoder).vectors(TEXTS)
    _, new = index_in(tmp_path / "index", other).vectors(TEXTS)
    assert new == len(TEXTS)


def test_an_index_that_was_cut_off_while_growing_goes_on_from_its_last_whole_record(
    tmp_path: Path, encoder: Encoder
) -> None:
    whole, _ = index_in(tmp_path, encoder).vectors(TEXTS)
    whole = whole.copy()
    path = next(tmp_path.glob("*.f32"))
    path.write_bytes(path.read_bytes()[:-5])
    mended, new = index_in(tmp_path, encoder).vectors(TEXTS)
    assert new == 1
    assert np.allclose(mended, whole, atol=1e-5)
    again, new = index_in(tmp_path, encoder).vectors(TEXTS)
    assert new == 0
    assert np.array_equal(again, mended)


def test_a_vector_is_on_the_disk_before_its_key_is_written(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: dict[int, bytes] = {}
    seen: list[int] = []

    def flushed(descriptor: int) -> None:
        os.fsync(descriptor)
        content = next(tmp_path.glob("*.f32")).read_bytes()
        keyed = 0
        for at in range(0, len(content), RECORD):
            key, vector = content[at : at + 32], content[at + 32 : at + RECORD]
            if any(key):
                keyed += 1
                assert durable[at] == vector
        seen.append(keyed)
        durable.update({at: content[at + 32 : at + RECORD] for at in range(0, len(content), RECORD)})

    monkeypatch.setattr(index_module, "_BLOCK", 16)
    monkeypatch.setattr(index_module, "sync", flushed)
    index_in(tmp_path, encoder).vectors(TEXTS)
    assert seen == [0, 16, 16, 32, 32, 40]


def brute_force(queries: Matrix, documents: Matrix, allowed: Matrix, k: int) -> list[list[int]]:
    found = []
    for row, mask in zip((queries @ documents.T).tolist(), allowed.tolist(), strict=True):
        ranked = sorted((-score, index) for index, score in enumerate(row) if mask[index])
        found.append([index for _, index in ranked[:k]])
    return found


@pytest.mark.parametrize("k", [1, 5, 50, 200])
def test_the_best_k_are_those_of_brute_force_also_where_scores_tie(k: int) -> None:
    rng = np.random.default_rng(k)
    # Small integers: products are exact, so ties are ties in both ways, and there are many.
    queries = rng.integers(-2, 3, size=(7, 4)).astype(np.float32)
    documents = rng.integers(-2, 3, size=(150, 4)).astype(np.float32)
    allowed = rng.random((7, 150)) < 0.6
    allowed[0] = False
    found = top_k(torch.tensor(queries), torch.tensor(documents), torch.tensor(allowed), k)
    assert [indices.tolist() for indices, _ in found] == brute_force(queries, documents, allowed, k)
    for row, (indices, scores) in enumerate(found):
        assert scores.tolist() == (queries @ documents.T)[row, indices].tolist()


def test_an_evaluation_rates_rankings_among_accessible_premises(tmp_path: Path, encoder: Encoder) -> None:
    dataset = write_dataset(tmp_path / "data", alphabet=3, premises_per_file=30)
    task, config = TaskData("t", dataset), RetrieverConfig(baselines=False)
    retriever = Retriever(encoder, byte_ids, 64)
    plain = measure(retriever, task, config)
    indexed, again = (measure(retriever, task, config, indices=tmp_path / "index") for _ in range(2))
    assert plain.metrics == indexed.metrics == again.metrics
    assert (plain.new_embeddings, indexed.new_embeddings, again.new_embeddings) == (180, 180, 0)
    assert plain.dataset == again.dataset
    assert 0 < plain.metrics["recall@10"] < 1
    assert plain.n >= len(plain.scores) == 12
    split = dataset / "random" / "test.json"
    split.write_text(json.dumps([{**one, "traced_tactics": []} for one in json.loads(split.read_text())]))
    with pytest.raises(DatasetError, match="nothing to measure"):
        measure(retriever, task, config)


def test_a_reader_is_not_disturbed_by_what_another_process_is_just_writing(
    tmp_path: Path, encoder: Encoder
) -> None:
    index = index_in(tmp_path, encoder)
    whole, _ = index.vectors(TEXTS)
    whole = whole.copy()
    with next(tmp_path.glob("*.f32")).open("ab") as growing:
        growing.write(b"\x01" * 10)
    for reader in (index, index_in(tmp_path, encoder)):
        again, new = reader.vectors(TEXTS)
        assert new == 0
        assert np.array_equal(again, whole)


def test_an_index_that_cannot_be_written_says_so_and_goes_on_when_it_can(
    tmp_path: Path, encoder: Encoder
) -> None:
    index = index_in(tmp_path, encoder)
    index.vectors(TEXTS[:5])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * RECORD + 100, limits[1]))
    try:
        with pytest.raises(LearningError, match=r"\.f32 \(File too large\)\. Make room"):
            index.vectors(TEXTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    found, new = index.vectors(TEXTS)
    assert new == 35
    one_by_one = torch.cat([embed_texts(encoder, byte_ids, [text], 64) for text in TEXTS])
    assert torch.allclose(torch.tensor(found), one_by_one, atol=1e-5)


def test_an_index_whose_file_is_cut_while_it_is_open_computes_again_what_is_gone(
    tmp_path: Path, encoder: Encoder
) -> None:
    index = index_in(tmp_path, encoder)
    whole = np.array(index.vectors(TEXTS)[0])
    os.truncate(next(tmp_path.glob("*.f32")), 7 * RECORD + 3)
    again, new = index.vectors(TEXTS)
    assert new == len(TEXTS) - 7
    assert np.allclose(again, whole, atol=1e-5)


def test_vectors_that_lie_in_order_are_a_map_of_the_file_and_nothing_changes_it(
    tmp_path: Path, encoder: Encoder
) -> None:
    index = index_in(tmp_path, encoder)
    index.vectors(TEXTS)
    stored, _ = index.vectors(TEXTS[5:20])
    assert isinstance(stored.base, np.memmap)
    kept = stored.copy()
    torch.from_numpy(stored).zero_()
    assert np.array_equal(index.vectors(TEXTS[5:20])[0], kept)


def test_embeddings_that_are_no_numbers_are_refused_and_not_kept(tmp_path: Path) -> None:
    damaged = load_encoder(make_tiny_retriever(tmp_path / "model"))
    # Byte 7 alone: the row of its token.
    damaged.state_dict()["shared.weight"][ord("7") + 3] = float("nan")
    index = index_in(tmp_path / "index", damaged)
    with pytest.raises(DivergedError, match=r"1 of 3 embeddings .* the first that of 'b7': .*Take another"):
        index.vectors(["a", "b7", "c"])
    assert index.vectors(["a", "c"])[1] == 2, "none of them was kept"
    dataset = write_dataset(tmp_path / "data", files=8)
    with pytest.raises(DivergedError, match=r"p7</a>"):
        measure(Retriever(damaged, byte_ids, 64), TaskData("t", dataset), RetrieverConfig())


def test_the_next_texts_become_tokens_while_the_encoder_embeds_those_before(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = embed_texts(encoder, byte_ids, TEXTS, 64)
    begun = {text: threading.Event() for text in TEXTS}

    def tokens(text: str, max_length: int) -> Ids:
        begun[text].set()
        return byte_ids(text, max_length)

    def embed_later(*given: Any, **settings: Any) -> torch.Tensor:
        assert begun[TEXTS[15]].wait(60)
        return embed(*given, **settings)

    monkeypatch.setattr(index_module, "_BLOCK", 8)
    monkeypatch.setattr(index_module, "embed", embed_later)
    first, *others = embed_blocks(encoder, tokens, TEXTS, 64)
    assert len(first) == 8
    assert torch.allclose(torch.cat([first, *others]), whole, atol=1e-5)


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path, encoder: Encoder) -> None:
    (tmp_path / "index").write_text("")
    with pytest.raises(LearningError, match=rf"kept at {tmp_path}/index.*\(File exists\)\. Make room"):
        index_in(tmp_path / "index", encoder).vectors(TEXTS)


GROW = """
import os, signal, sys
from pathlib import Path
from pipeline.models.retriever import index
from pipeline.models.retriever.encoder import byte_ids, load_encoder

folder, model, first, last, killed_at = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
index._BLOCK = 8
written = 0

def counted(descriptor, fsync=os.fsync):
    global written
    written += 1
    fsync(descriptor)
    if written == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)

os.fsync = counted
opened = index.EmbeddingIndex(folder, index.Retriever(load_encoder(model), byte_ids, 64))
print("ready", flush=True)
sys.stdin.readline()
print(opened.vectors([f"theorem t{i}" for i in range(first, last)])[1])
"""


@pytest.mark.timeout(300)
def test_a_process_that_is_killed_while_it_adds_and_two_at_once_leave_each_vector_once(
    tmp_path: Path,
) -> None:
    model = make_tiny_retriever(tmp_path / "model")
    folder = tmp_path / "index"
    encoder = load_encoder(model)
    index = index_in(folder, encoder)
    texts = [f"theorem t{i}" for i in range(200)]
    gates = [tmp_path / name for name in ("killed", "other")]
    for gate in gates:
        os.mkfifo(gate)

    def grow(gate: Path, last: int, killed_at: int) -> Any:
        """Start a process that adds documents by eights, and is killed after it has flushed `killed_at` times."""
        said = gate.with_suffix(".said")
        return programs.start(GROW, folder, model, 0, last, killed_at, folder=said, stdin=gate)

    # The second flush is of the first eight's keys, the third of the next eight's vectors.
    killed, other = grow(gates[0], 40, 3), grow(gates[1], 120, 0)
    with gates[0].open("w") as first, gates[1].open("w") as second:
        while not all(program.said() for program in (killed, other)):
            time.sleep(0.01)
        first.write("go\n")
        first.flush()
        assert killed.wait().returncode == -signal.SIGKILL
        assert next(folder.glob("*.f32")).stat().st_size == 16 * RECORD
        second.write("go\n")
        second.flush()
        _, here = index.vectors(texts[60:])
        done = other.wait()
    assert (done.returncode, done.stderr) == (0, "")
    there = int(done.stdout.split()[1])
    assert here + there == 200 - 8, "those of the killed one are kept, those of the other not made again"
    found, new = index.vectors(texts)
    assert new == 0
    assert next(folder.glob("*.f32")).stat().st_size == 200 * RECORD
    assert torch.allclose(torch.tensor(found), embed_texts(encoder, byte_ids, texts, 64), atol=1e-5)


def test_the_search_is_brute_force_also_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    queries = rng.integers(-2, 3, size=(9, 4)).astype(np.float32)
    documents = rng.integers(-2, 3, size=(50, 4)).astype(np.float32)
    allowed = rng.random((9, 50)) < 0.3
    monkeypatch.setattr("pipeline.models.retriever.index._SCORES_AT_ONCE", 120)
    found = top_k(torch.tensor(queries), torch.tensor(documents), torch.tensor(allowed), 20)
    assert [indices.tolist() for indices, _ in found] == brute_force(queries, documents, allowed, 20)
    nothing = top_k(torch.tensor(queries), torch.empty(0, 4), torch.empty(9, 0, dtype=torch.bool), 5)
    assert [len(indices) for indices, _ in nothing] == [0] * 9
