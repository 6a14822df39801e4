"""The theorems of `examples.rows` as an experiment proves them, and what a retriever learns from: others of their kind.

The lemmas of both volumes stand above every theorem. Which of them proves it, the outermost functions of its goal tell;
all other words in it are distraction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples import rows
from experiments.file import RowsFamily
from pipeline.lean.goal_text import state_of
from pipeline.lean.pool.session import Session

PATH = "Rows.lean"


@dataclass(frozen=True, slots=True)
class Problem:
    """A theorem to prove, in its volume's namespace."""

    volume: str
    theorem: rows.Theorem

    @property
    def name(self) -> str:
        return f"{self.volume}.{self.theorem.name}"

    def text(self, proof: Sequence[str] = ("sorry",)) -> str:
        """Return the whole theorem, proved by lines of tactics."""
        return self.theorem.text("\n  ".join(proof)).replace(
            f"theorem {self.theorem.name}", f"theorem {self.name}"
        )


class Rows:
    """The theorems of a seed."""

    def __init__(self, seed: int, sizes: RowsFamily) -> None:
        self.above = "\n".join([*map(rows.source, rows.VOLUMES), f"open {' '.join(rows.VOLUMES)}"])
        """Definitions and lemmas; their volumes' namespaces are open."""
        self.problems = _drawn(2 * seed, sizes.held_out, "held")
        stated = {one.theorem.header.partition(" (")[2] for one in self.problems}
        learned = _drawn(2 * seed + 1, sizes.learned_from, "t")
        self._learned = [one for one in learned if one.theorem.header.partition(" (")[2] not in stated]

    async def write(self, folder: Path, session: Session) -> None:
        """Write the dataset that the retriever learns from; Lean says each theorem's goal."""
        theorems = []
        for number, problem in enumerate(self._learned):
            (root,) = await session.distil(problem.text())
            theorems.append(self._traced(number, problem, state_of(root.goals)))
        (folder / "random").mkdir(parents=True)
        premises = [
            {
                "full_name": f"{volume}.{lemma.name}",
                "code": lemma.header,
                "start": [self._line(lemma), 1],
                "end": [self._line(lemma), 9],
                "kind": "commanddeclaration",
            }
            for volume in rows.VOLUMES
            for lemma in rows.lemmas(volume)
        ]
        corpus = {"path": PATH, "imports": [], "premises": premises}
        (folder / "corpus.jsonl").write_text(json.dumps(corpus) + "\n", encoding="utf-8")
        for split, content in (("train", theorems), ("val", []), ("test", [])):
            (folder / "random" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")

    @property
    def end(self) -> int:
        """The line that theorems stand on."""
        return self.above.count("\n") + 2

    def _line(self, lemma: rows.Lemma) -> int:
        return self.above.partition(f"theorem {lemma.name} ")[0].count("\n") + 1

    def _traced(self, number: int, problem: Problem, state: str) -> dict[str, Any]:
        (lemma,) = (one for one in rows.lemmas(problem.volume) if one.name == problem.theorem.lemma)
        line = self._line(lemma)
        use = {
            "full_name": f"{problem.volume}.{lemma.name}",
            "def_path": PATH,
            "def_pos": [line, 1],
            "def_end_pos": [line, 9],
        }
        step = {
            "tactic": f"rw [{lemma.name}]",
            "annotated_tactic": [f"rw [<a>{lemma.name}</a>]", [use]],
            "state_before": state,
            "state_after": "no goals",
        }
        return {
            "url": "https://example.org/rows",
            "commit": "a" * 40,
            "file_path": PATH,
            "full_name": problem.name,
            "theorem_statement": None,
            "start": [self.end + number, 1],
            "end": [self.end + number, 9],
            "traced_tactics": [step],
        }


def _drawn(seed: int, count: int, name: str) -> list[Problem]:
    """Return so many theorems, half of each volume."""
    shares = [count - count // 2, count // 2]
    return [
        Problem(volume, theorem)
        for volume, share in zip(rows.VOLUMES, shares, strict=True)
        if share
        for theorem in rows.theorems(volume, share, seed=seed, name=name)
    ]
