"""LeanDojo-v2's data module making training batches, run by `benchmarks/retrieval.py` as a process.

    python -m benchmarks.retrieval_peer PEER DATASET MODEL BATCH_SIZE NEGATIVES IN_FILE MAX_SEQ_LEN PAIRS

PEER is the folder of lean-dojo-v2 1.0.9, unpacked or installed without its dependencies, DATASET a folder
with corpus.jsonl and random/, MODEL one with a tokenizer. torch, transformers, Lightning and networkx are the
real ones; empty modules stand in for the peer's other imports, not called here. Prints, as JSON, the seconds
of processor time to make the data module ready, those of the batches, and the number of pairs in them.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import pytorch_lightning.strategies.deepspeed  # before deepspeed is stood in for: it looks up the installed one
import torch
import transformers

from benchmarks.store_peer import Empty, StandIns

REAL = (nx, pytorch_lightning, torch, transformers)
"""The modules of the measured code."""
NOT_CALLED = frozenset(
    ("datasets", "deepspeed", "dotenv", "git", "github", "loguru", "lxml", "openai", "peft", "pexpect", "rank_bm25",
     "ray", "toml", "trl")
)  # fmt: skip


def peer_module(peer: Path) -> Any:
    """Import the peer's `lean_agent/retrieval/datamodule.py` with its corpus.

    Its packages with imports of provers, databases and GitHub are entered by their paths alone.
    """
    os.environ["GITHUB_ACCESS_TOKEN"] = "none"
    sys.path.insert(0, str(peer))
    sys.meta_path.insert(0, StandIns(NOT_CALLED))
    for name in ("lean_dojo", "lean_agent", "lean_agent.retrieval", "lean_dojo.data_extraction", "utils"):
        package = Empty(f"lean_dojo_v2.{name}")
        package.__path__ = [str(peer / "lean_dojo_v2" / name.replace(".", "/"))]
        sys.modules[package.__name__] = package
    lean = importlib.import_module("lean_dojo_v2.lean_dojo.data_extraction.lean")
    sys.modules["lean_dojo_v2.lean_dojo"].Pos = lean.Pos  # type: ignore[attr-defined]
    return importlib.import_module("lean_dojo_v2.lean_agent.retrieval.datamodule")


def make_batches(module: Any, dataset: Path, model: str, sizes: list[int], pairs: int) -> dict[str, float]:
    """Make batches of at least `pairs` pairs, or of all there are, after an untimed one."""
    batch_size, negatives, in_file, max_seq_len = sizes
    began = time.process_time()
    data = module.RetrievalDataModule(
        data_path=str(dataset / "random"),
        corpus_path=str(dataset / "corpus.jsonl"),
        num_negatives=negatives,
        num_in_file_negatives=in_file,
        model_name=model,
        batch_size=batch_size,
        eval_batch_size=batch_size,
        max_seq_len=max_seq_len,
        num_workers=0,
    )
    data.setup("train")
    ready = time.process_time() - began
    batches = iter(data.train_dataloader())
    next(batches)
    count = 0
    began = time.process_time()
    for batch in batches:
        count += len(batch["context"])
        if count >= pairs:
            break
    return {"ready": ready, "seconds": time.process_time() - began, "pairs": count}


def main(print_: Callable[[str], None] = print) -> int:
    peer, dataset, model, *numbers = sys.argv[1:]
    *sizes, pairs = map(int, numbers)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print_(json.dumps(make_batches(peer_module(Path(peer)), Path(dataset), model, sizes, pairs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
