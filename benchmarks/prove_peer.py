"""LeanDojo-v2's search, stated again from its documented behaviour, as the measure of `benchmarks/prove.py`.

One theorem after the other, each with a process of Lean of its own. A stack of states, depth first: the goal
with the fewest hypotheses gets one tactic, picked at random from five samples (temperature 0.7, top_p 0.9, at
most 64 tokens, first line, up to `<;>`); the other four are thrown away. It succeeds and is pushed, or the
goal has one trial less. After six trials on a goal the state is popped. 100 steps end it. There is no
batching and no time limit.

Any difference from LeanDojo-v2 is in its favour: the prompt is the model's own of training (its HFProver asks
with another), the goal is stated in its file's context, the process is ended afterwards, and samples are
drawn from a seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.prove_family import Theorem, lean
from pipeline.lean.client.messages import Goal
from pipeline.lean.goal_text import state_of
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplPool
from pipeline.lean.pool.session import Session, State, Stepped
from pipeline.models.tactics.models import TacticModel

MAX_STEPS = 100
MAX_TRIALS = 5
SAMPLES = 5
TEMPERATURE = 0.7
TOP_P = 0.9
NEW_TOKENS = 64


@dataclass(slots=True)
class _Standing:
    """A state on the stack, and the trials of each of its goals."""

    state: State
    trials: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trials = [0] * len(self.state.goals)


async def search(theorem: Theorem, model: TacticModel, project: Path, *, seed: int) -> list[str] | None:
    """Search for a proof; return its tactics, None if none is found."""
    rng = random.Random(f"{seed}/{theorem.name}")
    torch.manual_seed(rng.randrange(1 << 32))
    async with ReplPool(PoolLimits(processes=1)) as pool, Session(pool, lean(project)) as session:
        (root,) = await session.distil(theorem.text())
        stack, tactics = [_Standing(root)], list[str]()
        for _ in range(MAX_STEPS):
            top = stack[-1]
            if not top.state.goals:
                return tactics
            # The priority is 1 / (hypotheses + 1); of equal ones the first.
            goal = min(range(len(top.trials)), key=lambda at: len(top.state.goals[at].vars))
            tactic = None if top.trials[goal] > MAX_TRIALS else next_tactic(model, top.state.goals, rng)
            if tactic is None:
                stack.pop()
                if not stack:
                    return None
                tactics = tactics[: len(stack) - 1]
                continue
            top.trials[goal] += 1
            answer = await session.tactic(top.state, tactic, goal=goal or None)
            if isinstance(answer, Stepped) and not answer.has_sorry:
                stack.append(_Standing(answer.state))
                tactics.append(tactic)
    return None


def next_tactic(model: TacticModel, goals: tuple[Goal, ...], rng: random.Random) -> str | None:
    """Sample five answers and return one of them; None if none is a tactic."""
    ids = torch.tensor([model.prompts.ids(state_of(goals))])
    generator: Any = model.model
    with torch.no_grad():
        tokens = generator.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=TEMPERATURE,
            top_p=TOP_P,
            num_return_sequences=SAMPLES,
            max_new_tokens=NEW_TOKENS,
            pad_token_id=model.tokenizer.pad_token_id,
            eos_token_id=model.prompts.end,
        )
    texts = model.tokenizer.batch_decode(tokens[:, ids.shape[1] :], skip_special_tokens=True)
    result = [tactic for text in texts if (tactic := _first_line(text)) and tactic != "sorry"]
    return rng.choice(result) if result else None


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0].split("<;>")[0].strip()
