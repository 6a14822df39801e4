"""Measure a tactic model on the steps of people's proofs: does it propose the tactic that they ran?

    tactic@1, tactic@8  the share of the steps whose own tactic is the likeliest one, or among the first eight, that
                        beam search finds. Tactics are compared as text, but for spaces within a line: another
                        tactic that would do as well is a miss, so that these are lower bounds of what a search finds
    token_accuracy      the share of a tactic's tokens, its end among them, that the model holds most likely where it
                        is shown those before; the mean over steps

All in 0..1. A tactic that is longer than the model may answer is a miss.
"""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor

from pipeline.retrieval.ranking import Interval, summarise
from pipeline.tactics.decoding import padded
from pipeline.tactics.errors import NothingToLearnError
from pipeline.tactics.generate import Generator
from pipeline.tactics.models import TacticModel
from pipeline.tactics.requests import Decoding, Request
from pipeline.tactics.rows import Row, Rows

METRICS = ("tactic@1", "tactic@8", "token_accuracy")
CANDIDATES = 8

_AT_ONCE = 64
# Logits of a large vocabulary for each token of an answer: some hundred megabytes.
_LOGITS = 1024


@dataclass(frozen=True, slots=True)
class TacticsResult:
    """How a model did on `n` steps of `theorems` theorems. `dataset` is the SHA-256 of the steps."""

    metrics: Mapping[str, Interval]
    n: int
    theorems: int
    dataset: str
    seconds: float


def evaluate(
    model: TacticModel,
    rows: Rows,
    *,
    most: int = 0,
    seed: int = 3407,
    on_batch: Callable[[int, int], object] = lambda _done, _total: None,
) -> TacticsResult:
    """Ask a model for the tactic of every step, and rate what it says.

    Args:
        model: as `models.load_model` gives it; put into evaluation mode.
        rows: the steps.
        most: of more steps than that, so many are asked, drawn by hash and seed; 0: all.
        seed: of the draw and of the intervals.
        on_batch: told (steps done, steps in all).

    Raises:
        NothingToLearnError: there is no step.
    """
    started = time.monotonic()
    asked = sampled(rows.rows, most, seed)
    if not asked:
        raise NothingToLearnError("there is no step to measure with")
    generator = Generator(model)
    decoding = Decoding(candidates=CANDIDATES, mode="beams")
    rated: list[tuple[float, ...]] = []
    for start in range(0, len(asked), _AT_ONCE):
        part = asked[start : start + _AT_ONCE]
        said = generator.suggest([Request(row.state, decoding=decoding) for row in part])
        known = token_accuracies(model, part)
        for row, suggestions, accuracy in zip(part, said, known, strict=True):
            wanted = comparable(row.tactic)
            found = [comparable(one.tactic) == wanted for one in suggestions.tactics[:CANDIDATES]]
            rated.append((float(any(found[:1])), float(any(found)), accuracy))
        on_batch(start + len(part), len(asked))
    theorems = [(row.path, row.theorem, row.start) for row in asked]
    return TacticsResult(
        metrics=summarise(rated, theorems, seed=seed, names=METRICS),
        n=len(asked),
        theorems=len(set(theorems)),
        dataset=Rows(asked, rows.proofs, rows.skipped).digest,
        seconds=time.monotonic() - started,
    )


def sampled(rows: Sequence[Row], most: int, seed: int) -> tuple[Row, ...]:
    """Return at most so many rows (0: all), in their order; which ones the rows themselves and the seed decide."""
    if not most or len(rows) <= most:
        return tuple(rows)

    def drawn(number: int) -> bytes:
        row = rows[number]
        text = "\0".join((str(seed), row.path, row.theorem, str(row.step), row.state))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    return tuple(rows[number] for number in sorted(sorted(range(len(rows)), key=drawn)[:most]))


def comparable(tactic: str) -> str:
    """Return a tactic with one space wherever a line has several, its lines and their indentation as they are."""
    lines = [(line, line.lstrip(" ")) for line in tactic.split("\n")]
    return "\n".join(line[: len(line) - len(rest)] + " ".join(rest.split()) for line, rest in lines)


def token_accuracies(model: TacticModel, rows: Sequence[Row]) -> list[float]:
    """Return for each row the share of its tactic's tokens that the model holds most likely, 0..1."""
    answers = [model.prompts.answer_ids(row.tactic) for row in rows]
    prompts = [model.prompts.ids(row.state) for row in rows]
    found = [0.0] * len(rows)
    for batch in _batches([min(len(answer), model.lengths.answer) for answer in answers]):
        shown = [answers[number][: model.lengths.answer] for number in batch]
        with torch.inference_mode():
            right = _right(model, [prompts[number] for number in batch], shown)
        for number, hits in zip(batch, right, strict=True):
            # What is beyond the model's longest answer counts as wrong.
            found[number] = hits / len(answers[number])
    return found


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of answers that go together, of like length."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if batch and (len(batch) + 1) * (lengths[number] + 1) > _LOGITS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _right(
    model: TacticModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> list[int]:
    """Return how many tokens of each answer are the likeliest, given the prompt and the tokens before."""
    pad = int(model.tokenizer.pad_token_id)
    device = model.model.device
    # A causal model's answers all end together, at the right.
    causal = model.prompts.kind != "seq2seq"
    labels, known = padded(answers, pad, device, left=causal)
    logits = (
        _causal_logits(model, prompts, answers, pad)
        if causal
        else _encoder_decoder_logits(model, prompts, labels, pad)
    )
    hits = (logits.argmax(dim=-1) == labels) & known.bool()
    return [int(one) for one in hits.sum(dim=1).tolist()]


def _causal_logits(
    model: TacticModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], pad: int
) -> Tensor:
    """Return what is said before each of the last tokens, as many as the longest answer has."""
    texts = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]
    ids, mask = padded(texts, pad, model.model.device, left=True)
    whole: Any = model.model.get_base_model() if isinstance(model.model, PeftModel) else model.model
    longest = max(map(len, answers))
    lean = "logits_to_keep" in inspect.signature(whole.forward).parameters
    read = whole(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
        use_cache=False,
        **({"logits_to_keep": longest + 1} if lean else {}),
    )
    logits: Tensor = read.logits[:, -longest - 1 : -1]
    return logits


def _encoder_decoder_logits(
    model: TacticModel, prompts: Sequence[Sequence[int]], labels: Tensor, pad: int
) -> Tensor:
    whole: Any = model.model
    ids, mask = padded(prompts, pad, whole.device, left=False)
    begins = torch.full_like(labels[:, :1], whole.config.decoder_start_token_id)
    read = whole(
        input_ids=ids, attention_mask=mask, decoder_input_ids=torch.cat([begins, labels[:, :-1]], dim=1)
    )
    logits: Tensor = read.logits
    return logits
