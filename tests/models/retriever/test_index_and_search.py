from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from collections.abc import Sequence
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
from pipeline.models.retriever.index import Retriever, embed_blocks, embed_texts, stored_vectors, top_k
from pipeline.models.retriever.learning import measure
from tests.support import programs
from tests.support.retrieval import embedded, write_dataset
from tests.support.tiny_models import make_tiny_retriever

Matrix = npt.NDArray[Any]


TEXTS = [f"theorem t{i} : {'x' * (i * 7 % 60)}" for i in range(40)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(make_tiny_retriever(tmp_path_factory.mktemp("tiny")))


def vectors_in(folder: Path, encoder: Encoder, texts: Sequence[str]) -> tuple[Matrix, int]:
    """Return the vectors of texts, and the number of those that were not there."""
    before = embedded(folder)
    return stored_vectors(Retriever(encoder, byte_ids, 64), texts, folder), embedded(folder) - before


def blocks(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npy"))


def test_each_embedding_is_computed_once_in_the_life_of_an_index(tmp_path: Path, encoder: Encoder) -> None:
    first, new = vectors_in(tmp_path, encoder, TEXTS[:30])
    assert new == 30
    again, new = vectors_in(tmp_path, encoder, TEXTS)
    assert new == 10
    assert np.array_equal(again[:30], first)
    shuffled, new = vectors_in(tmp_path, encoder, [*TEXTS[::-1], TEXTS[3]])
    assert new == 0
    assert np.array_equal(shuffled, np.concatenate([again[::-1], again[3:4]]))


def test_stored_vectors_are_those_of_the_encoder(tmp_path: Path, encoder: Encoder) -> None:
    stored, _ = vectors_in(tmp_path, encoder, TEXTS)
    one_by_one = torch.cat([embed_texts(encoder, byte_ids, [text], 64) for text in TEXTS])
    assert torch.allclose(torch.tensor(stored), one_by_one, atol=1e-5)
    assert torch.allclose(torch.tensor(stored).norm(dim=1), torch.ones(len(TEXTS)), atol=1e-5)


def test_another_encoder_has_another_index(tmp_path: Path, encoder: Encoder) -> None:
    other = load_encoder(make_tiny_retriever(tmp_path / "other", seed=1))
    vectors_in(tmp_path / "index", encoder, TEXTS)
    _, new = vectors_in(tmp_path / "index", other, TEXTS)
    assert new == len(TEXTS)


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
    assert embedded(tmp_path / "index") == 180
    assert plain.dataset == again.dataset
    assert 0 < plain.metrics["recall@10"] < 1
    assert plain.n >= len(plain.scores) == 12
    split = dataset / "random" / "test.json"
    split.write_text(json.dumps([{**one, "traced_tactics": []} for one in json.loads(split.read_text())]))
    with pytest.raises(DatasetError, match="nothing to measure"):
        measure(retriever, task, config)


def test_an_index_that_cannot_be_written_says_so_and_goes_on_when_it_can(
    tmp_path: Path, encoder: Encoder
) -> None:
    vectors_in(tmp_path, encoder, TEXTS[:5])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(LearningError, match=r"\.npy \(.* written\)\. Make room"):
            vectors_in(tmp_path, encoder, TEXTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    found, new = vectors_in(tmp_path, encoder, TEXTS)
    assert new == 35
    one_by_one = torch.cat([embed_texts(encoder, byte_ids, [text], 64) for text in TEXTS])
    assert torch.allclose(torch.tensor(found), one_by_one, atol=1e-5)


def test_a_damaged_file_is_named_and_computed_again_once_it_is_removed(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_BLOCK", 16)
    whole, _ = vectors_in(tmp_path, encoder, TEXTS)
    damaged = blocks(tmp_path)[0]
    os.truncate(damaged, damaged.stat().st_size - 5)
    with pytest.raises(LearningError, match=rf"{damaged} is damaged .*: remove it"):
        stored_vectors(Retriever(encoder, byte_ids, 64), TEXTS, tmp_path)
    damaged.unlink()
    again, new = vectors_in(tmp_path, encoder, TEXTS)
    assert 0 < new <= 16
    assert np.allclose(again, whole, atol=1e-5)


def test_embeddings_that_are_no_numbers_are_refused_and_not_kept(tmp_path: Path) -> None:
    damaged = load_encoder(make_tiny_retriever(tmp_path / "model"))
    # Byte 7 alone: the row of its token.
    damaged.state_dict()["shared.weight"][ord("7") + 3] = float("nan")
    index = tmp_path / "index"
    with pytest.raises(DivergedError, match=r"1 of 3 embeddings .* the first that of 'b7': .*Take another"):
        vectors_in(index, damaged, ["a", "b7", "c"])
    assert vectors_in(index, damaged, ["a", "c"])[1] == 2, "none of them was kept"
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
    with pytest.raises(LearningError, match=rf"kept as {tmp_path}/index.*File exists.*Make room"):
        vectors_in(tmp_path / "index", encoder, TEXTS)


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
retriever = index.Retriever(load_encoder(model), byte_ids, 64)
print("ready", flush=True)
sys.stdin.readline()
index.stored_vectors(retriever, [f"theorem t{i}" for i in range(first, last)], folder)
"""


@pytest.mark.timeout(300)
def test_a_process_that_is_killed_while_it_adds_and_two_at_once_leave_each_vector_once(
    tmp_path: Path,
) -> None:
    model = make_tiny_retriever(tmp_path / "model")
    folder = tmp_path / "index"
    encoder = load_encoder(model)
    texts = [f"theorem t{i}" for i in range(200)]
    gates = [tmp_path / name for name in ("killed", "other")]
    for gate in gates:
        os.mkfifo(gate)

    def grow(gate: Path, last: int, killed_at: int) -> Any:
        """Start a process that adds documents by eights, and is killed after it has flushed `killed_at` times."""
        said = gate.with_suffix(".said")
        return programs.start(GROW, folder, model, 0, last, killed_at, folder=said, stdin=gate)

    # The second flush is of the folder with the first eight's file, the third of the next eight's file.
    killed, other = grow(gates[0], 40, 3), grow(gates[1], 120, 0)
    with gates[0].open("w") as first, gates[1].open("w") as second:
        while not all(program.said() for program in (killed, other)):
            time.sleep(0.01)
        first.write("go\n")
        first.flush()
        assert killed.wait().returncode == -signal.SIGKILL
        assert len(blocks(folder)) == 1
        second.write("go\n")
        second.flush()
        vectors_in(folder, encoder, texts[60:])
        done = other.wait()
    assert (done.returncode, done.stderr) == (0, "")
    assert embedded(folder) == 200, "those of the killed one are kept, those of the other not made again"
    found, new = vectors_in(folder, encoder, texts)
    assert new == 0
    assert torch.allclose(torch.tensor(found), embed_texts(encoder, byte_ids, texts, 64), atol=1e-5)


def test_without_documents_nothing_is_found() -> None:
    nothing = top_k(torch.ones(2, 4), torch.empty(0, 4), torch.empty(2, 0, dtype=torch.bool), 5)
    assert [len(indices) for indices, _ in nothing] == [0, 0]
