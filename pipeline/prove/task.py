"""The task of a program that proves: a JSON object, on its standard input and in the file that $EVERLEAN_TASK names.

What it may do, and how it is judged, is in docs/proving.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pipeline.jobs.specs import EarlierAttempt
from store.domain.records import SorryMode

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What a program of `[[prove.programs]]` is given."""

    file: str
    """The file to edit, below the working folder. Only the text in the sorry's place may change in it"""
    declaration: str
    """Full name of the declaration with the sorry"""
    line: int
    """The sorry's line, from 1"""
    column: int
    """The sorry's column, from 0, in code points"""
    byte_start: int
    """Where the sorry begins in the file, in bytes from 0"""
    byte_end: int
    """Where it ends"""
    mode: SorryMode
    """`tactic`: the sorry is a tactic; `term`: it is a term, in whose place tactics need a `by`"""
    source: str
    """The whole declaration with its sorries, as the file has it. Other sorries than this one are to stay"""
    statement: str
    """The declaration's binders and type, white space collapsed"""
    goal: str
    """The sorry's goal as Lean prints it; empty where Lean's goals cannot be told apart"""
    hypotheses: tuple[str, ...]
    """The goal's hypotheses, `name : type` each"""
    premises: tuple[str, ...]
    """Declarations that the retriever in use finds for the goal, the nearest first"""
    toolchain: str
    """The project's `lean-toolchain`"""
    lean: tuple[str, ...]
    """The command that compiles a file, whose path is put behind it; it sees the project's imports"""
    earlier: tuple[EarlierAttempt, ...]
    """What was tried before, the newest last"""
    seconds: float
    """How long the program may run"""

    def as_text(self) -> str:
        """Return it as it is handed over, in lines: a field that is no list is one line, which sed can read."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, ensure_ascii=False, indent=1) + "\n"
