"""LoRA by repository: each repository's adapter is trained, measured, indexed and asked for that repository alone."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import TrainRetrieverSpec
from pipeline.models.adapters import adapters_of, base_of, model_for
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.errors import ConfigError, ModelError
from pipeline.models.libraries import tensors_digest
from pipeline.models.model_files import Checkpoint, file_digest, files_in
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import load_encoder, load_tokens, train_adapter
from pipeline.models.retriever.finder import Finder
from pipeline.models.retriever.index import embed_texts, load_retriever
from pipeline.models.retriever.job import RetrieverJob
from pipeline.models.retriever.learning import learn, measure, plan
from pipeline.serve.engines import LoadedRetriever, Terms
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, Provenance
from tests.support.retrieval import embedded, small_config, write_dataset

pytestmark = pytest.mark.timeout(300)

ONE, TWO, NEW = "example.org/one", "example.org/two", "example.org/new"
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Learned:
    """A chain of two repositories, with their indices; not to be changed."""

    chain: Chain
    indices: Path
    config: RetrieverConfig
    tasks: tuple[TaskData, TaskData]
    first: Checkpoint
    second: Checkpoint

    def adapter(self, checkpoint: Checkpoint, repository: str) -> Path:
        return adapters_of(self.chain.path(checkpoint.checkpoint))[repository]

    def vectors(self, checkpoint: Checkpoint, repository: str) -> Tensor:
        """Return those of the first repository's premises."""
        retriever = load_retriever(self.chain.path(checkpoint.checkpoint), device="cpu")
        return retriever.of(repository).premises(Corpus(self.tasks[0].dataset / "corpus.jsonl"))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Learned:
    root = tmp_path_factory.mktemp("by-repository")
    one, two = (
        TaskData(name, write_dataset(root / str(number), seed=number, alphabet=number, files=3))
        for number, name in enumerate((ONE, TWO))
    )
    chain, indices = Chain(root / "retriever"), root / "indices"
    config = small_config(
        model, lora_by_repository=True, lora_rank=4, lr=2e-2, against_forgetting="ewc+replay+average"
    )
    first = learn(one, chain, config, parent=None)
    measure(model_for(chain.path(first.checkpoint), ONE), one, config, indices=indices)
    second = learn(two, chain, config, parent=first.checkpoint, earlier=[one])
    return Learned(chain, indices, config, (one, two), first, second)


def test_another_repository_s_training_changes_no_bit_of_an_adapter_nor_of_its_vectors_and_answers(
    learned: Learned,
) -> None:
    before, after = learned.adapter(learned.first, ONE), learned.adapter(learned.second, ONE)
    assert files_in(before) == files_in(after)
    assert all(file_digest(before / name) == file_digest(after / name) for name in files_in(before))
    assert torch.equal(learned.vectors(learned.first, ONE), learned.vectors(learned.second, ONE))
    metrics = [measure(folder, learned.tasks[0], learned.config).metrics for folder in (before, after)]
    assert metrics[0] == metrics[1]
    own = learned.adapter(learned.second, TWO)
    assert file_digest(own / WEIGHTS) != file_digest(before / WEIGHTS)
    read = learned.chain.read(learned.second.checkpoint, verify=True)
    assert read.about["adapters"] == {ONE: before.name, TWO: own.name}


def test_each_repository_s_goals_are_asked_of_its_own_adapter_and_a_new_one_s_of_the_base(
    learned: Learned, model: Path
) -> None:
    folder = learned.chain.path(learned.second.checkpoint)
    base = load_retriever(model, device="cpu")
    vectors = base.premises(Corpus(learned.tasks[0].dataset / "corpus.jsonl"))
    assert torch.equal(learned.vectors(learned.second, NEW), vectors)
    kinds = [vectors, *(learned.vectors(learned.second, name) for name in (ONE, TWO))]
    assert not any(torch.equal(kinds[left], kinds[right]) for left, right in ((0, 1), (0, 2), (1, 2)))
    with pytest.raises(ModelError, match=r"an adapter for each of .*, and nothing says which"):
        model_for(folder, None)
    corpus = Corpus(learned.tasks[0].dataset / "corpus.jsonl")
    finder = Finder(corpus, retriever=load_retriever(folder).of(ONE), words=False)
    assert torch.equal(finder._vectors, kinds[1])


def test_an_index_is_of_one_repository_s_adapter_and_stays_when_another_is_trained(
    tmp_path: Path, learned: Learned
) -> None:
    indices = shutil.copytree(learned.indices, tmp_path / "indices")
    before = embedded(indices)
    measure(learned.adapter(learned.second, ONE), learned.tasks[0], learned.config, indices=indices)
    assert embedded(indices) == before, "they were embedded before the other was trained"
    measure(learned.adapter(learned.second, TWO), learned.tasks[1], learned.config, indices=indices)
    assert embedded(indices) > before


def test_an_index_goes_with_the_last_checkpoint_that_can_use_it(tmp_path: Path, learned: Learned) -> None:
    chain = Chain(shutil.copytree(learned.chain.folder, tmp_path / "retriever"))
    indices = shutil.copytree(learned.indices, tmp_path / "indices")
    before = embedded(indices)
    chain.remove(learned.first.checkpoint, indices)
    assert embedded(indices) == before, "the second checkpoint has that adapter too"
    chain.remove(learned.second.checkpoint, indices)
    assert embedded(indices) == 0


def test_a_first_training_protects_nothing_and_a_later_one_its_own_repository(
    tmp_path: Path, learned: Learned
) -> None:
    one, two = learned.tasks
    free = replace(learned.config, against_forgetting="none")
    alone = learn(one, Chain(tmp_path / "chain"), free, parent=None)
    assert alone.about["digest"] == learned.first.about["digest"]
    assert learned.first.config["against_forgetting"] == "ewc+replay+average"

    def planned(*earlier: TaskData) -> str:
        parent = learned.second.checkpoint
        return plan(one, learned.chain, learned.config, parent=parent, earlier=earlier)[0].data

    before = TaskData(ONE, learned.tasks[1].dataset)
    assert planned(two) == planned()
    assert planned(before, two) == planned(before) != planned()


def test_a_task_goes_on_from_its_own_adapter(tmp_path: Path, learned: Learned) -> None:
    chain = Chain(shutil.copytree(learned.chain.folder, tmp_path / "retriever"))
    grown = TaskData(ONE, write_dataset(tmp_path / "grown", theorems=70, files=3))
    gentle = replace(learned.config, lr=1e-7)
    made = learn(grown, chain, gentle, parent=learned.second.checkpoint, earlier=learned.tasks)
    adapters = adapters_of(chain.path(made.checkpoint))
    assert file_digest(adapters[TWO] / WEIGHTS) == file_digest(learned.adapter(learned.second, TWO) / WEIGHTS)
    vectors = replace(learned, chain=chain).vectors(made, ONE)
    moved = [
        float((learned.vectors(learned.second, repository) - vectors).abs().max())
        for repository in (ONE, NEW)
    ]
    assert moved[0] < 1e-3 < moved[1], "such a rate would teach nothing anew"


def test_a_checkpoint_is_measured_on_each_task_with_that_task_s_adapter(learned: Learned) -> None:
    no_reporter: Any = None
    order = TrainRetrieverSpec(
        repository=ONE, chain=learned.chain.folder, parent=None, indices=learned.indices
    )
    spec = JobSpec("job", "train", 1, learned.chain.folder, order)
    measuring = RetrieverJob(learned.config, spec, no_reporter)
    for one in learned.tasks:
        found = measuring.measure(learned.second.checkpoint, one, "test", lambda _done, _total: None)
        own = measure(learned.adapter(learned.second, one.name), one, learned.config)
        assert {name: found.metrics[name] for name in own.metrics} == own.metrics, one.name


def test_an_adapter_names_its_base_by_a_place_that_stays(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to(model)
    encoder = load_encoder("link")
    train_adapter(encoder, rank=2, seed=7)
    encoder.save_pretrained("adapter")
    assert base_of("adapter") == str(model)


def test_an_adapter_alone_is_trained_and_a_new_one_changes_no_vector(model: Path) -> None:
    encoder, tokens = load_encoder(model), load_tokens(model)
    before = embed_texts(encoder, tokens, ["⊢ p"], 64)
    train_adapter(encoder, rank=4, seed=7)
    trained = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    assert torch.equal(embed_texts(encoder, tokens, ["⊢ p"], 64), before)
    same, other = load_encoder(model), load_encoder(model)
    train_adapter(same, rank=4, seed=7)
    train_adapter(other, rank=4, seed=8)
    digests = [tensors_digest(one.state_dict()) for one in (encoder, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_a_server_has_each_repository_s_retriever_on_one_base(learned: Learned, model: Path) -> None:
    folder, text = learned.chain.path(learned.second.checkpoint), "⊢ p"
    base = load_retriever(folder, device="cpu")
    terms = Terms(Provenance(folder.name), Limits(), Measures())
    served, named = (LoadedRetriever("m", base, terms, repository=repository) for repository in ("", TWO))

    async def work() -> None:
        await served.start()
        await named.start()
        try:
            for repository, source in ((ONE, folder), (TWO, folder), (NEW, model)):
                own, alone = (
                    await served.of(repository),
                    load_retriever(source, device="cpu").of(repository),
                )
                assert await own.vectors([text]) == alone.embed([text]).tolist(), repository
                weights = {weight.data_ptr() for weight in own.retriever.encoder.parameters()}
                assert weights >= {weight.data_ptr() for weight in served.retriever.encoder.parameters()}, (
                    "they share them"
                )
                assert own is await served.of(repository)
            assert await named.encode(text) == (await (await served.of(TWO)).vectors([text]))[0]
            with pytest.raises(Problem, match="an adapter for each repository, and this is for none"):
                await served.encode(text)
        finally:
            await named.close()
            await served.close()

    asyncio.run(work())


def test_a_chain_stays_of_its_kind(learned: Learned) -> None:
    shared = replace(learned.config, lora_by_repository=False)
    with pytest.raises(ConfigError, match=r"holds an adapter for each repository\. Set it to true"):
        plan(learned.tasks[0], learned.chain, shared, parent=learned.second.checkpoint)


def test_a_chain_of_adapters_does_not_begin_with_a_file_that_no_adapter_can_name(
    learned: Learned, tmp_path: Path
) -> None:
    file = tmp_path / "leandojo.ckpt"
    file.write_bytes(b"")
    config = replace(learned.config, model_name=str(file))
    with pytest.raises(ConfigError, match=rf"model_name is {file}, a file: .* name its checkpoint"):
        plan(learned.tasks[0], Chain(tmp_path / "chain"), config, parent=None)
