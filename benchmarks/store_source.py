"""Lean source files for `benchmarks/store_history.py`: made up, edited by commits, read as by the scanner."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any, Literal

from store.domain.identity import short_hash
from store.domain.keywords import THEOREM_KINDS
from store.domain.life import Step, TheoremAfter, TheoremBefore, TheoremStep
from store.events.places import SorryPlace

FILES_A_COMMIT = 4.3
DECLARATIONS_A_FILE = 12.8
SORRIES_A_FILE = 2.0
MOST_SORRIES_A_FILE = 2
OPENED_A_FILE = 1.7 / FILES_A_COMMIT
RESTATED_A_FILE = 0.4
REPROVED_A_FILE = 1.0


@dataclass(slots=True)
class Decl:
    """A declaration; `sorry` is the id of its sorry, once opened."""

    name: str
    kind: str
    statement: str
    statement_hash: str
    lines: int
    proof: int = 0
    sorry: str = ""
    life: Literal["none", "new", "held", "gone"] = "none"
    restated: bool = False

    @property
    def has_sorry(self) -> bool:
        return self.life in ("new", "held")

    @property
    def text_hash(self) -> str:
        return short_hash(self.statement, str(self.proof), str(self.has_sorry))


@dataclass(slots=True)
class SourceFile:
    path: str
    declarations: list[Decl]
    blob: str = ""
    shift: int = 0


def new_file(number: int, rng: random.Random) -> SourceFile:
    """Make the file with this number."""
    count = geometric(rng, DECLARATIONS_A_FILE)
    path = f"Library/Part{number % 12}/Section{number}.lean"
    return SourceFile(path, [_new_declaration(number, index, rng) for index in range(count)])


def _new_declaration(file: int, index: int, rng: random.Random) -> Decl:
    kind = rng.choice(["theorem", "theorem", "theorem", "lemma", "lemma", "def", "instance"])
    statement = _statement(file, index, 0)
    return Decl(
        name=f"Library.Part{file % 12}.Section{file}.statement_{index}",
        kind=kind,
        statement=statement,
        statement_hash=short_hash(statement),
        lines=rng.randrange(2, 14),
    )


def first_sorries(file: SourceFile, rng: random.Random) -> None:
    """Put sorries into a file at first sight."""
    for declaration in file.declarations:
        if rng.random() < SORRIES_A_FILE / DECLARATIONS_A_FILE:
            declaration.life = "new"


def edit(file: SourceFile, rng: random.Random, *, number: int) -> list[TheoremStep]:
    """Change a file in commit `number`: lines, now and then a statement or a proof, and sorries.

    Returns the steps of its theorems.
    """
    file.shift += rng.randrange(3)
    declarations = file.declarations
    touched: dict[int, list[Step]] = {}
    before = [_before(file, declaration) for declaration in declarations]
    for _ in range(_poisson(rng, OPENED_A_FILE)):
        index = rng.randrange(len(declarations))
        if declarations[index].life == "none":
            declarations[index].life = "new"
            touched[index] = ["reproved"]
    holding = [index for index, item in enumerate(declarations) if item.life == "held"]
    # A file must lose as many sorries as it gains on the average, or it would have no room for more.
    for index in rng.sample(holding, max(0, len(holding) - MOST_SORRIES_A_FILE)):
        declarations[index].life = "gone"
        touched[index] = ["reproved"]
    for _ in range(_poisson(rng, REPROVED_A_FILE)):
        index = rng.randrange(len(declarations))
        declarations[index].proof += 1
        touched[index] = ["reproved"]
    for _ in range(_poisson(rng, RESTATED_A_FILE)):
        index = rng.randrange(len(declarations))
        item = declarations[index]
        item.statement = _statement(index, item.lines, number)
        item.statement_hash = short_hash(item.statement)
        item.restated = True
        touched[index] = ["restated"]
    return [
        TheoremStep(tuple(steps), before[index], _after(file, declarations[index]))
        for index, steps in sorted(touched.items())
        if declarations[index].kind in THEOREM_KINDS
    ]


def scan(file: SourceFile) -> tuple[dict[str, SorryPlace], bytes]:
    """Return the places of a file's sorries, by declaration, and the payload of its `file_scanned`."""
    line = 20 + file.shift
    declarations: list[dict[str, Any]] = []
    sorries: list[dict[str, Any]] = []
    places: dict[str, SorryPlace] = {}
    for index, item in enumerate(file.declarations):
        byte = 40 * line
        declarations.append(
            {
                "name": item.name,
                "kind": item.kind,
                "line": line,
                "column": 0,
                "end_line": line + item.lines,
                "end_column": 7,
                "byte_start": byte,
                "byte_end": byte + 40 * item.lines,
                "statement": item.statement,
                "statement_hash": item.statement_hash,
                "text_hash": item.text_hash,
            }
        )
        if item.has_sorry:
            sorry = {
                "declaration": item.name,
                "index": index,
                "ordinal": 0,
                "token": "sorry",
                "mode": "tactic",
                "line": line + item.lines,
                "column": 2,
                "byte_start": byte + 40 * item.lines - 5,
                "byte_end": byte + 40 * item.lines,
                "context_hash": short_hash("context", item.name, str(file.shift)),
            }
            sorries.append(sorry)
            place: dict[str, Any] = {name: value for name, value in sorry.items() if name != "index"}
            places[item.name] = SorryPlace(
                **place,
                path=file.path,
                blob=file.blob,
                kind=item.kind,
                statement=item.statement,
                statement_hash=item.statement_hash,
            )
        line += item.lines + 2
    payload = json.dumps(
        {
            "path": file.path,
            "error": None,
            "imports": ["Mathlib.Analysis.Basic", "Library.Prelude"],
            "declarations": declarations,
            "sorries": sorries,
        },
        sort_keys=True,
    ).encode()
    return places, payload


def _statement(file: int, index: int, version: int) -> str:
    return (
        f"{{α : Type*}} [NormedField α] (f : ℕ → α) (n : ℕ) (hf : ∀ k, ‖f k‖ ≤ {file + 1}) : "
        f"‖∑ k ∈ Finset.range n, f k‖ ≤ {index + 1} * n + {version}"
    )


def _before(file: SourceFile, item: Decl) -> TheoremBefore:
    return TheoremBefore(item.name, item.kind, file.path, item.statement_hash, item.text_hash)


def _after(file: SourceFile, item: Decl) -> TheoremAfter:
    return TheoremAfter(
        item.name,
        item.kind,
        file.path,
        item.statement,
        item.statement_hash,
        item.text_hash,
        n_sorries=int(item.has_sorry),
    )


def geometric(rng: random.Random, mean: float) -> int:
    """Return a number from 1, small ones more often, with this mean."""
    number = 1
    while rng.random() > 1 / mean:
        number += 1
    return number


def _poisson(rng: random.Random, mean: float) -> int:
    """Return a number from 0 with this mean."""
    number, left = 0, rng.expovariate(1.0)
    while left < mean:
        number += 1
        left += rng.expovariate(1.0)
    return number
