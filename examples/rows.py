"""A library that grows, for demos and experiments: rows of numbers, rows of marks, theorems about both.

`examples/rows-project` has two volumes, each with definitions and about twenty lemmas, which Lean 4.35.0
accepts with nothing but lists, truth values and natural numbers. The theorems are drawn: each states one
lemma of terms put together at random. Its goal's outermost functions identify the lemma, all else in it is
distraction.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent / "rows-project"
VOLUMES = ("Lists", "Marks")
PER_FILE = 40
_LEMMA = re.compile(r"^theorem (\w+) ((?:\([^)]*\) )+): (.+) := by$", re.MULTILINE)
_BINDER = re.compile(r"\(([\w ]+) : ([\w ]+)\)")
_TERMS = {
    "Lists": {
        "List Nat": ("back {l}", "twice {l}", "raise {n} {l}", "{l} ++ {l}", "copies {n} {n}"),
        "Nat": ("{n} + {n}", "size {l}", "total {l}"),
    },
    "Marks": {
        "List Bool": ("last {l}", "flip {l}", "pair {l}", "{l} ++ {l}", "run {b} {n}"),
        "Nat": ("{n} + {n}", "set {l}", "unset {l}"),
        "Bool": ("not {b}",),
    },
}
"""The terms of each type in a volume: of l, another row; of n, a number; of b, a truth value."""
_VARIABLES = {"List Nat": "uvwxyz", "List Bool": "uvwxyz", "Nat": "ijkmn", "Bool": "abc"}
_DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Lemma:
    """A lemma of a volume: its name, its variables with their types, and its statement."""

    name: str
    variables: tuple[tuple[str, str], ...]
    says: str

    @property
    def header(self) -> str:
        """Its text up to `:=`."""
        binders = " ".join(f"({name} : {kind})" for name, kind in self.variables)
        return f"theorem {self.name} {binders} : {self.says}"


@dataclass(frozen=True, slots=True)
class Theorem:
    """A theorem: its header up to `:=`, and the lemma that proves it."""

    name: str
    header: str
    lemma: str

    def text(self, proof: str = "") -> str:
        """Return the whole theorem, by its lemma or another proof."""
        return f"{self.header} := by\n  {proof or f'rw [{self.lemma}]'}\n"


def source(volume: str) -> str:
    """Return a volume's definitions and lemmas."""
    return (PROJECT / "Rows" / f"{volume}.lean").read_text(encoding="utf-8")


def lemmas(volume: str) -> tuple[Lemma, ...]:
    """Return a volume's lemmas in their order."""
    result = []
    for name, binders, says in _LEMMA.findall(source(volume)):
        variables = [(one, kind) for names, kind in _BINDER.findall(binders) for one in names.split()]
        result.append(Lemma(name, tuple(variables), says))
    return tuple(result)


def theorems(volume: str, count: int, *, seed: int = 1, name: str = "t") -> list[Theorem]:
    """Return different theorems about a volume, its lemmas in turn."""
    rng, pool = random.Random(f"rows/{seed}/{volume}/{name}"), lemmas(volume)  # noqa: S311
    result: dict[str, Theorem] = {}
    for draw in range(_DRAWS * count):
        if len(result) == count:
            return list(result.values())
        lemma = pool[draw % len(pool)]
        drawn = _Drawn(rng, volume)
        says = drawn.instance(lemma)
        stated = f"{drawn.binders()} : {says}"
        if drawn.used and stated not in result:
            result[stated] = Theorem(
                f"{name}{len(result)}", f"theorem {name}{len(result)} {stated}", lemma.name
            )
    raise ValueError(f"count is {count}: {volume} has only about {len(result)} different theorems")


def files(*volumes: str, count: int, opened: int = 0, seed: int = 1) -> dict[str, str]:
    """Return the project's files by path: the volumes with `count` solved theorems each, and `opened` with a
    sorry."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in PROJECT.iterdir() if path.is_file()}
    for volume in volumes:
        texts[f"Rows/{volume}.lean"] = source(volume)
        drawn = theorems(volume, count + opened, seed=seed)
        solved, rest = drawn[:count], drawn[count:]
        parts = {
            f"Solved{1 + at // PER_FILE}": [one.text() for one in solved[at : at + PER_FILE]]
            for at in range(0, count, PER_FILE)
        }
        if rest:
            parts["Open"] = [one.text("sorry") for one in rest]
        for part, written in parts.items():
            inside = "\n".join(written)
            texts[f"Rows/{volume}/{part}.lean"] = (
                f"import Rows.{volume}\n\nnamespace {volume}\n\n{inside}\nend {volume}\n"
            )
    modules = sorted(
        path.removesuffix(".lean").replace("/", ".") for path in texts if path.startswith("Rows/")
    )
    texts["Rows.lean"] = "".join(f"import {module}\n" for module in modules)
    return texts


class _Drawn:
    """Terms drawn for one theorem, and the variables in them."""

    def __init__(self, rng: random.Random, volume: str) -> None:
        self._rng = rng
        self._terms = _TERMS[volume]
        self.used: dict[str, str] = {}

    def term(self, kind: str, depth: int) -> str:
        """Return a term of a type, in parentheses unless it is one word."""
        if depth == 0 or self._rng.random() < (0.4 if depth == 2 else 0.6):
            name = self._rng.choice(_VARIABLES[kind])
            self.used[name] = kind
            return name
        row = next(one for one in self._terms if one.startswith("List"))
        kinds = {"l": row, "n": "Nat", "b": "Bool"}
        shape = self._rng.choice(self._terms[kind])
        return f"({re.sub(r'{(.)}', lambda hole: self.term(kinds[hole[1]], depth - 1), shape)})"

    def instance(self, lemma: Lemma) -> str:
        """Return a lemma's statement about drawn terms."""
        terms = {variable: self.term(kind, 2) for variable, kind in lemma.variables}
        return re.sub(r"\b\w+\b", lambda word: terms.get(word[0], word[0]), lemma.says)

    def binders(self) -> str:
        """Return the variables as a theorem binds them."""
        return " ".join(self._binders())

    def _binders(self) -> Iterator[str]:
        for kind in dict.fromkeys(self.used.values()):
            yield f"({' '.join(sorted(name for name, its in self.used.items() if its == kind))} : {kind})"
