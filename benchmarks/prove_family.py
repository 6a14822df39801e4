"""The material of `benchmarks/prove.py`: a generated family of theorems, their steps, a small model.

Each goal is taken apart by its connectives down to hypotheses: a model has to learn the tactic for each goal.
Proofs of larger goals are longer, and no step of them is of another kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.store_bench import BenchmarkError
from pipeline.lean.goal_text import state_of
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool
from pipeline.lean.pool.session import Session, Stepped
from pipeline.models.tactics.prompt import SYSTEM
from pipeline.models.tactics.rows import Row
from tests.support.lean.wheel import backend as wheel
from tests.support.lean.wheel.lean import UnavailableError


@dataclass(frozen=True, slots=True)
class Theorem:
    """A true theorem. `header` is its text up to the proof; `steps` prove it."""

    name: str
    header: str
    steps: tuple[str, ...]
    size: int

    @property
    def stated(self) -> str:
        """Its statement, without its name."""
        return self.header.split(maxsplit=2)[2]

    def text(self, proof: Sequence[str] = ("sorry",)) -> str:
        """Return the whole theorem, proved by lines of tactics."""
        return f"{self.header} := by\n" + "".join(f"  {line}\n" for line in proof)


def shapes(seed: int, size: int, n: int) -> list[Theorem]:
    """Return different theorems whose goals are taken apart by their connectives; `size` counts their atoms.

    Four propositions are given, and the goal is made of those and of its own assumptions. Each goal has one
    right tactic, by its main connective.
    """
    rng, theorems, headers = random.Random(f"shapes/{seed}/{size}"), list[Theorem](), set[str]()
    for _ in range(100 * n):
        atoms = rng.sample("pqrstuvw", 8)
        goal, steps = _shape(rng, size, atoms[:4], atoms[4:])
        hypotheses = " ".join(f"(h{number} : {atom})" for number, atom in enumerate(atoms[:4]))
        header = f"({' '.join(sorted(atoms))} : Prop) {hypotheses} : {goal}"
        if header not in headers:
            headers.add(header)
            theorems.append(
                Theorem(
                    f"shape_{size}_{len(theorems)}",
                    f"theorem shape_{size}_{len(theorems)} {header}",
                    steps,
                    size,
                )
            )
        if len(theorems) == n:
            return theorems
    raise BenchmarkError(f"there are only {len(theorems)} different theorems of {size} atoms, not {n}")


def lean(project: Path) -> ReplKey:
    """Return the key of Lean's processes.

    Raises:
        BenchmarkError: there is no Lean.
    """
    try:
        return ReplKey(wheel.backend(), project, ("Init",))
    except UnavailableError as error:
        raise BenchmarkError(str(error)) from error


async def steps_of(theorems: Sequence[Theorem], project: Path, *, processes: int = 2) -> list[Row]:
    """Run the theorems' own proofs; return their states and tactics.

    Raises:
        BenchmarkError: a proof does not run.
    """
    rows: list[Row] = []
    async with ReplPool(PoolLimits(processes=processes)) as pool, Session(pool, lean(project)) as session:
        for theorem in theorems:
            (root,) = await session.distil(theorem.text())
            state = root
            for number, tactic in enumerate(theorem.steps):
                rows.append(Row(state_of(state.goals), tactic, theorem.name, "Family.lean", number))
                answer = await session.tactic(state, tactic)
                if not isinstance(answer, Stepped):
                    raise BenchmarkError(f"{theorem.name}: {tactic!r} does not run: {answer}")
                state = answer.state
            if state.goals:
                raise BenchmarkError(f"{theorem.name}: its proof leaves goals")
    return rows


def make_model(
    folder: Path, rows: Sequence[Row], *, seed: int, hidden: int, layers: int, max_length: int = 512
) -> Path:
    """Write a causal model of Llama's shape with random weights; its tokens are the words of the rows."""
    marks = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(r" ?\w+| ?[^\s\w]|\s"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[*marks.values()],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*_texts(rows)], trainer)
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side="left",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        **marks,
    )
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=max_length,
        tie_word_embeddings=False,
        initializer_range=0.05,
        pad_token_id=fast.pad_token_id,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def _shape(
    rng: random.Random, size: int, hypotheses: list[str], others: list[str]
) -> tuple[str, tuple[str, ...]]:
    """Return a consequence of the hypotheses, and the tactics to prove it."""
    if size == 1:
        return rng.choice([atom for atom in hypotheses if atom]), ("assumption",)
    connective = rng.choice("∧↔→")
    if connective == "→":
        assumed = rng.choice(others)
        rest, steps = _shape(rng, size - 1, [*hypotheses, assumed], others)
        return f"{assumed} → {_apart(rest)}", (f"intro h{len(hypotheses)}", *steps)
    part = rng.randint(1, min(2, size - 1))
    if connective == "∧":
        left, first = _shape(rng, part, hypotheses, others)
        right, second = _shape(rng, size - part, hypotheses, others)
        return f"{_apart(left)} ∧ {_apart(right)}", ("constructor", *first, *second)
    # Each side follows by itself; the other one is one more hypothesis.
    left, back = _shape(rng, part, [*hypotheses, ""], others)
    right, forth = _shape(rng, size - part, [*hypotheses, ""], others)
    intro = f"intro h{len(hypotheses)}"
    return f"{_apart(left)} ↔ {_apart(right)}", ("constructor", intro, *forth, intro, *back)


def _apart(formula: str) -> str:
    return f"({formula})" if " " in formula else formula


def _texts(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield row.state
        yield row.tactic
    # As often as its words are to be tokens of their own.
    for _ in range(20):
        yield SYSTEM
        yield "### System\n### User\n### Assistant\n"
