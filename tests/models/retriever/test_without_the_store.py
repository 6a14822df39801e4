"""The retriever as a library: a researcher has a folder in LeanDojo's format, and no log, view or daemon; of the store
only its plain tools, which need nothing but Python."""

from __future__ import annotations

from pathlib import Path

from tests.support import programs
from tests.support.retrieval import write_dataset
from tests.support.tiny_models import make_tiny_retriever

_PROGRAM = """
import pkgutil
import sys
from pathlib import Path

import store

# From here on, importing one of them raises ImportError, and all of ours is imported anew.
parts = {f"store.{part.name}" for part in pkgutil.iter_modules(store.__path__)}
assert len(parts) > 10
missing = {*parts - {"store.files", "store.text"}, "daemon", "sqlmodel", "sqlalchemy"}
for name in [*sys.modules]:
    if name.partition(".")[0] in (*missing, "store", "pipeline", "tests"):
        del sys.modules[name]
sys.modules.update(dict.fromkeys(missing, None))

from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Finder, Place
from pipeline.models.retriever.index import load_retriever
from pipeline.models.retriever.learning import learn, measure

model, folder = Path(sys.argv[1]), Path(sys.argv[2])
tasks = [TaskData(name, folder / name) for name in ("a", "b")]
config = RetrieverConfig(
    model_name=str(model), batch_size=8, accumulate_grad_batches=1, num_workers=0, precision="32-true", device="cpu",
    against_forgetting="ewc+replay+average", fisher_samples=16, max_seq_len=64, data_max_seq_len=64,
)
chain = Chain(folder / "chain")
first = learn(tasks[0], chain, config, parent=None)
last = learn(tasks[1], chain, config, parent=first.checkpoint, earlier=tasks[:1])
measured = [measure(chain.path(last.checkpoint), task, config, indices=folder / "indices") for task in tasks]
corpus = Corpus(tasks[1].dataset / "corpus.jsonl")
retriever = load_retriever(chain.path(last.checkpoint))
finder = Finder(corpus, premises=3, retriever=retriever, indices=folder / "indices")
(found,) = finder.find([("\u22a2 abcd", Place())])
print(len(measured), len(found))
"""


def test_it_learns_a_chain_measures_it_and_finds_premises_where_only_plain_tools_of_the_store_can_be_imported(
    tmp_path: Path,
) -> None:
    for number, name in enumerate("ab"):
        write_dataset(tmp_path / name, seed=number, alphabet=number, files=3, theorems=30)
    model = make_tiny_retriever(tmp_path / "model")
    done = programs.start(_PROGRAM, model, tmp_path, folder=tmp_path / "said").wait()
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 3\n", "")
