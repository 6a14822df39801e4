"""Generate the next tactics for many states at once with a tactic model, each with its log-probability.

Requests with the same settings go to the model together. An answer that is no tactic is counted and left out
(`tactic_text.read_tactic`). The model itself runs in a loop: transformers' (`loop`), or vLLM's on a GPU (`vllm_loop`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pipeline.endpoint.errors import Usage
from pipeline.lean.tactic_text import read_tactic
from pipeline.models.adapters import model_for
from pipeline.models.errors import LearningError
from pipeline.models.libraries import device_of, inference_dtype
from pipeline.models.model_files import read_checkpoint
from pipeline.models.tactics.loop import TransformersLoop
from pipeline.models.tactics.models import TacticModel, UnloadedModel, load_model, read_model
from pipeline.models.tactics.requests import (
    Completion,
    Decoding,
    Prompt,
    Request,
    Suggestion,
    Suggestions,
)
from pipeline.models.tactics.vllm_loop import VllmLoop, vllm_loop
from pipeline.models.text import without_marks


class PrefixTooLongError(LearningError):
    """An answer's prefix leaves no room for the rest of it."""

    reason = "prefix_too_long"


Loop = TransformersLoop | VllmLoop


class Generator:
    """Queries one model; `service.Batching` shares it between searches.

    Attributes:
        positions: the most tokens of prompt and answer together.
    """

    def __init__(self, model: TacticModel | UnloadedModel, loop: Loop | None = None) -> None:
        """Args:
        model: with its weights, if transformers runs it.
        loop: runs it; None: transformers does.
        """
        if loop is None:
            assert isinstance(model, TacticModel)
            loop = TransformersLoop(model)
        self.prompts = model.prompts
        self._answer_length = model.answer_length
        self.positions = loop.positions
        self._loop = loop
        self._tokenizer = model.tokenizer

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in the requests' order; errors as `complete`'s."""
        prompts = [
            Prompt(tuple(self.prompts.ids(one.state, one.premises)), one.decoding, one.seed)
            for one in requests
        ]
        answers = self.complete(prompts)
        return [self._suggestions(prompt, one) for prompt, one in zip(prompts, answers, strict=True)]

    def complete(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        """Return the answers to each prompt, the best first.

        Raises:
            PrefixTooLongError: a prefix leaves no room for the rest.
        """
        groups: dict[Decoding, list[Prompt]] = {}
        for prompt in dict.fromkeys(prompts):
            groups.setdefault(prompt.decoding, []).append(prompt)
        result: dict[Prompt, list[Completion]] = {}
        for decoding, members in groups.items():
            beginning = self._beginning(decoding.prefix)
            whole = self._answer_length if decoding.max_tokens is None else decoding.max_tokens
            if len(beginning) >= whole:
                raise PrefixTooLongError(
                    f"the prefix has {len(beginning)} tokens, and an answer of this model has {whole} at most"
                )
            answers = self._loop.answers(members, whole - len(beginning), beginning)
            result |= zip(members, answers, strict=True)
        return [result[prompt] for prompt in prompts]

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of an answer's tokens."""
        return str(self._tokenizer.decode(list(ids)))

    def _beginning(self, prefix: str) -> tuple[int, ...]:
        return tuple(self.prompts.answer_ids(prefix)[:-1]) if prefix else ()

    def _suggestions(self, prompt: Prompt, answers: Sequence[Completion]) -> Suggestions:
        """Return the tactics in a prompt's answers, the likeliest first."""
        beginning = self._beginning(prompt.decoding.prefix)
        tactics: dict[str, Suggestion] = {}
        left_out: Counter[str] = Counter()
        for one in answers:
            tactic, flaw, text = "", "", self.text((*beginning, *one.ids))
            if math.isnan(one.log_probability):
                flaw = "no_numbers"
            elif not one.ended:
                flaw = "unended"
            elif self.prompts.marks.search(text):
                flaw = "marks"
            else:
                # ReProver's generator marks its premises.
                answer = read_tactic(without_marks(text))
                tactic, flaw = answer.tactic, answer.flaw or ("repeated" if answer.tactic in tactics else "")
            if flaw:
                left_out[flaw] += 1
            else:
                tactics[tactic] = Suggestion(tactic, one.log_probability)
        usage = Usage(len(prompt.ids), sum(len(one.ids) + one.ended for one in answers))
        return Suggestions(tuple(tactics.values()), dict(left_out), usage)


def load_generator(
    model: str | Path,
    *,
    device: str = "auto",
    repository: str | None = None,
) -> Generator:
    """Load a generative model; each file of one that a trainer here wrote is compared with the saved one.

    Args:
        model: a folder, a LoRA adapter's folder, or a name of the hub.
        device: where to compute; "auto" is a GPU if there is one.
        repository: the key of the goals' repository, for a checkpoint with an adapter for each.

    Raises:
        LearningError: it cannot be loaded, or is damaged; or there is no such device.
    """
    read_checkpoint(Path(model), verify=True)
    where = device_of(device)
    dtype = inference_dtype(where)
    own = model_for(model, repository)
    read = read_model(own)
    loop = vllm_loop(read, device=where, dtype=dtype)
    if loop is not None:
        return Generator(read, loop)
    return Generator(load_model(own, device=where, dtype=dtype))
