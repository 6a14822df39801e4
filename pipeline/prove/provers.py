"""LeanDojo-v2's provers: `HFProver` asks a causal model or a LoRA adapter, `RetrievalProver` ReProver's generator with
retrieved premises.

    prover = HFProver("outputs/sft")
    with Server(project="/path/to/repository", imports=["Mathlib"]) as server:
        result, tactics = prover.search(server, goal="∀ p : Prop, p → p")

Prompts are those that the trainer used. The search is the prove job's: best first, budgeted, all searches of a prover
batched together. What it finds was tried as a whole text in its place; it is a candidate all the same until the gate
has checked it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pipeline.models.config import Device
from pipeline.models.errors import ModelError
from pipeline.models.libraries import device_of
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import ADAPTER
from pipeline.models.tactics.requests import Decoding
from pipeline.prove.authors import HFAuthor
from pipeline.prove.corpora import read_corpus
from pipeline.prove.restated import of_theorem
from pipeline.prove.retrieving import Place, PremiseFinder
from pipeline.prove.search import Budget
from pipeline.prove.server import Server, checked
from pipeline.prove.tactic_prover import BUDGET, TacticProver, first_proof
from pipeline.prove.whole import WholeAsk

_log = logging.getLogger(__name__)


class HFProver(TacticProver):
    """Proves with a causal model (or an encoder-decoder) alone: a folder, a hub name, or a LoRA adapter's folder."""

    def __init__(
        self,
        ckpt_path: str | Path,
        use_lora: bool = False,
        device: Device = "auto",
        *,
        decoding: Decoding | None = None,
        budget: Budget = BUDGET,
        seed: int = 0,
        whole_tokens: int = 512,
    ) -> None:
        """Load the model.

        Args:
            ckpt_path: as a trainer wrote it, with its tokenizer.
            use_lora: whether it is an adapter. One that is found is used either way.
            device: "auto" is a GPU where there is one.
            decoding: how many tactics for a state, and how; None: 8 beams.
            budget: of one search.
            seed: of what is drawn.
            whole_tokens: of a whole proof, at most.

        Raises:
            ModelError: it cannot be used; or it is no adapter and should be one.
            SettingsError: there is no such device.
        """
        if use_lora and Path(ckpt_path).is_dir() and not (Path(ckpt_path) / ADAPTER).is_file():
            raise ModelError(
                f"{ckpt_path} is no LoRA adapter (it has no {ADAPTER}). Leave use_lora out, or name the folder that a "
                "trainer with lora_config wrote"
            )
        super().__init__(
            Generator.load(ckpt_path, device=device),
            decoding=decoding or Decoding(),
            budget=budget,
            seed=seed,
        )
        self._model = str(ckpt_path)
        self._whole_tokens = whole_tokens

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Return the model's likeliest proof; Lean is not asked about it.

        Args:
            theorem: as `search` takes it.
            server: whose project has the theorem's file, which the model is then shown; None: the statement alone.

        Returns:
            text that may stand behind the theorem's `:=`: a candidate until the gate has checked it. "" where the
            model wrote none; the log says why.

        Raises:
            StatementError: the theorem cannot be stated.
        """
        restated = of_theorem(theorem, None if server is None else checked(server))
        context = restated.context if restated.whole_file else ""
        ask = WholeAsk(context, restated.declaration.text, seed=self._seed)
        return self._open().loop.run(self._written(ask))

    async def _written(self, ask: WholeAsk) -> str:
        async with HFAuthor(self.generator, self._model, max_tokens=self._whole_tokens) as author:
            return await first_proof(author, ask)


class RetrievalProver(TacticProver):
    """Proves with ReProver's generator, which is shown the premises nearest to the goal."""

    def __init__(
        self,
        ret_ckpt_path: str | Path,
        gen_ckpt_path: str | Path,
        indexed_corpus_path: str | Path,
        *,
        device: Device = "auto",
        premises: int = 10,
        indices: str | Path | None = None,
        decoding: Decoding | None = None,
        budget: Budget = BUDGET,
        seed: int = 0,
    ) -> None:
        """Load both models and the corpus; embed what of that is not embedded yet.

        Args:
            ret_ckpt_path: the retriever: a folder (a checkpoint of the chain), a hub name, or LeanDojo's `.ckpt`.
            gen_ckpt_path: the tactic generator.
            indexed_corpus_path: a corpus.jsonl, or the folder of a dataset.
            device: "auto" is a GPU where there is one.
            premises: how many a goal is shown with.
            indices: a folder that keeps embeddings; None: the corpus is embedded anew each time.
            decoding: how many tactics for a state, and how; None: 8 beams.
            budget: of one search.
            seed: of what is drawn.

        Raises:
            ModelError: the generator cannot be used.
            RetrievalError: the retriever or the corpus cannot be used.
            SettingsError: there is no such device.
        """
        super().__init__(
            Generator.load(gen_ckpt_path, device=device),
            decoding=decoding or Decoding(),
            budget=budget,
            seed=seed,
        )
        self._premises = PremiseFinder.load(
            ret_ckpt_path,
            read_corpus(indexed_corpus_path),
            device=device_of(device),
            premises=premises,
            indices=None if indices is None else Path(indices),
        )

    def generate_whole_proof(self, theorem: Any, server: Server | None = None) -> str:
        """Search for a proof and return it as text; LeanDojo's RetrievalProver has no whole proofs.

        Args:
            theorem: as `search` takes it.
            server: runs Lean; None: one is made for the search alone, with nothing but Lean's own modules.

        Returns:
            text that Lean took behind the theorem's `:=`: a candidate until the gate has checked it. "" where none was
            found; the log says why.

        Raises:
            ServerError: no server was given, and there is no Lean here.
        """
        if server is None:
            with Server() as own:
                return self.generate_whole_proof(theorem, own)
        result, _ = self.search(server, theorem=theorem)
        if not result.success:
            _log.warning("no whole proof (%s): %s", result.outcome, result.detail)
        return result.proof

    def _finder(self) -> PremiseFinder:
        return self._premises

    def _place(self) -> Place:
        path, start = getattr(self.theorem, "file_path", None), getattr(self.theorem, "start", None)
        if path is None or start is None:
            return Place()
        line, column = start
        return Place(str(path), (int(line), int(column)), str(getattr(self.theorem, "full_name", "")), ())
