"""Families of made-up theorems that provers are tried on, and what their models learn from.

`Rules`: atoms and rules (`rule_7 : mora → kilo`), which are axioms above the theorems: a goal follows from its
hypotheses by one rule, by two in a row, or by one for each side of a conjunction, and other hypotheses stand beside
them. No rule's name says what it is about: nothing but its rules proves a goal, so premises decide. `Shapes`
(`benchmarks.prove_family`): goals that are taken apart by their connectives; those to learn from have fewer atoms than
those that are proved.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.prove_family import Theorem, shapes, steps_of
from experiments.file import RulesFamily, ShapesFamily
from pipeline.models.tactics.rows import Row, Rows

PATH = "Family.lean"


@dataclass(frozen=True, slots=True)
class Problem:
    """A theorem to prove: its name, its text up to `:=`, and its first goal as a model reads it; "" where unused."""

    name: str
    header: str
    state: str = ""

    def text(self, proof: Sequence[str] = ("sorry",)) -> str:
        """Return the whole theorem, proved by lines of tactics."""
        return f"{self.header} := by\n" + "".join(f"  {line}\n" for line in proof)


class Family(Protocol):
    """What is to be proved, below which lines, and which steps of other theorems a tactic model learns."""

    @property
    def above(self) -> tuple[str, ...]: ...

    @property
    def problems(self) -> tuple[Problem, ...]: ...

    def rows(self, project: Path) -> Rows: ...


class Shapes:
    """See `benchmarks.prove_family.shapes`."""

    above: tuple[str, ...] = ()

    def __init__(self, seed: int, sizes: ShapesFamily) -> None:
        self._easy: list[Theorem] = [
            one for size in sizes.learned for one in shapes(seed, size, sizes.learned_each)
        ]
        held_out = shapes(seed + 1000, sizes.proved, sizes.held_out)
        self.problems = tuple(Problem(one.name, one.header) for one in held_out)

    def rows(self, project: Path) -> Rows:
        """Return the steps of the easy theorems' proofs, as the simulator ran them."""
        return asyncio.run(steps_of(self._easy, project))


@dataclass(frozen=True, slots=True)
class _Goal:
    """A theorem: its hypotheses in order, what follows, the rules that it follows by, and the atoms they begin with."""

    hypotheses: tuple[str, ...]
    target: str
    rules: tuple[int, ...]
    needed: tuple[str, ...]

    @property
    def state(self) -> str:
        lines = [f"h{number} : {atom}" for number, atom in enumerate(self.hypotheses)]
        return "\n".join([*lines, f"⊢ {self.target}"])

    @property
    def proof(self) -> str:
        """A term by the rules."""
        where = {atom: f"h{at}" for at, atom in enumerate(self.hypotheses)}
        terms = [f"rule_{rule} {where[given]}" for rule, given in zip(self.rules, self.needed, strict=False)]
        if "∧" in self.target:
            return f"exact ⟨{terms[0]}, {terms[1]}⟩"
        return f"exact rule_{self.rules[1]} ({terms[0]})" if len(self.rules) == 2 else f"exact {terms[0]}"

    def problem(self, number: int) -> Problem:
        binders = " ".join(f"(h{at} : {atom})" for at, atom in enumerate(self.hypotheses))
        return Problem(f"held_{number}", f"theorem held_{number} {binders} : {self.target}", self.state)


class Rules:
    """Atoms and rules of a seed, and theorems that follow by them."""

    def __init__(self, seed: int, sizes: RulesFamily) -> None:
        self._rng = random.Random(f"premises/{seed}")
        letters = ["bdfgklmnprst", "aeiou"]
        words: dict[str, None] = {}
        while len(words) < sizes.atoms:
            words["".join(self._rng.choice(letters[at % 2]) for at in range(4))] = None
        self.atoms = tuple(words)
        pairs = [(one, other) for one in words for other in words if one != other]
        self.rules = tuple(self._rng.sample(pairs, sizes.rules))
        self.above = (
            *(f"axiom {atom} : Prop" for atom in words),
            *(f"axiom rule_{at} : {one} → {other}" for at, (one, other) in enumerate(self.rules)),
        )

        held_out = self._theorems(sizes.held_out)
        self.problems = tuple(goal.problem(number) for number, goal in enumerate(held_out))
        self.uses = tuple(goal.rules for goal in held_out)
        """The rules that each problem follows by."""
        self._learned = self._theorems(sizes.learned_from, but_not=held_out)

    def _theorems(self, n: int, but_not: Sequence[_Goal] = ()) -> list[_Goal]:
        """Return different theorems, none of which says the same as one of `but_not`."""
        seen = {(frozenset(one.hypotheses), one.target) for one in but_not}
        made: list[_Goal] = []
        while len(made) < n:
            goal = self._one()
            key = frozenset(goal.hypotheses), goal.target
            if key not in seen:
                seen.add(key)
                made.append(goal)
        return made

    def _one(self) -> _Goal:
        rng = self._rng
        first, second = rng.sample(range(len(self.rules)), 2)
        given, target = self.rules[first]
        match rng.randrange(3):
            case 0:
                needed, goal, rules = [given], target, [first]
            case 1:
                then = [at for at, (one, other) in enumerate(self.rules) if one == target and other != given]
                second = rng.choice(then) if then else first
                needed, goal = [given], self.rules[second][1] if then else target
                rules = [first, second] if then else [first]
            case _:
                needed, rules = [given, self.rules[second][0]], [first, second]
                goal = f"{target} ∧ {self.rules[second][1]}"
        others = [atom for atom in self.atoms if atom not in {*needed, *goal.split(" ∧ ")}]
        hypotheses = list(dict.fromkeys([*needed, *rng.sample(others, 2)]))
        rng.shuffle(hypotheses)
        return _Goal(tuple(hypotheses), goal, tuple(rules), tuple(needed))

    def rows(self, project: Path) -> Rows:  # noqa: ARG002 - no Lean has to run them
        """Return one step for each theorem to learn from: the term by its rules."""
        made = [
            Row(goal.state, goal.proof, f"t{number}", PATH, 0) for number, goal in enumerate(self._learned)
        ]
        return Rows(tuple(made), len(made), {})

    def write(self, folder: Path) -> None:
        """Write the dataset that the retriever learns from."""
        (folder / "random").mkdir(parents=True)
        premises = [
            {
                "full_name": axiom.split()[1],
                "code": axiom,
                "start": [line, 1],
                "end": [line, len(axiom) + 1],
                "kind": "commanddeclaration",
            }
            for line, axiom in enumerate(self.above, start=1)
        ]
        corpus = {"path": PATH, "imports": [], "premises": premises}
        (folder / "corpus.jsonl").write_text(json.dumps(corpus) + "\n", encoding="utf-8")
        theorems = [self._traced(number, goal) for number, goal in enumerate(self._learned)]
        for split, content in (("train", theorems), ("val", []), ("test", [])):
            (folder / "random" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")

    def _traced(self, number: int, goal: _Goal) -> dict[str, object]:
        line = len(self.above) + number + 1
        uses = [
            {
                "full_name": f"rule_{rule}",
                "def_path": PATH,
                "def_pos": [len(self.atoms) + rule + 1, 7],
                "def_end_pos": [len(self.atoms) + rule + 1, 9],
            }
            for rule in goal.rules
        ]
        marked = " ".join(f"<a>rule_{rule}</a>" for rule in goal.rules)
        step = {
            "tactic": marked.replace("<a>", "").replace("</a>", ""),
            "annotated_tactic": [marked, uses],
            "state_before": goal.state,
            "state_after": "no goals",
        }
        return {
            "url": "https://example.org/family",
            "commit": "a" * 40,
            "file_path": PATH,
            "full_name": f"t{number}",
            "theorem_statement": None,
            "start": [line, 1],
            "end": [line, 9],
            "traced_tactics": [step],
        }
