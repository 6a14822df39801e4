"""The task of a program for proofs: a JSON object, on its standard input and in the file named by $EVERLEAN_TASK.

docs/proving.md describes its rights and the judgement of its result.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pipeline.jobs.specs import EarlierAttempt
from store.domain.records import SorryMode

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a program from `[[prove.programs]]`."""

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
    """`tactic`: the sorry is a tactic; `term`: it is a term, and tactics there need a `by`"""
    source: str
    """The whole declaration with its sorries, as the file has it. Other sorries must stay"""
    statement: str
    """The declaration's binders and type, white space collapsed"""
    goal: str
    """The sorry's goal as Lean prints it; empty where Lean's goals cannot be told apart"""
    hypotheses: tuple[str, ...]
    """The goal's hypotheses, `name : type` each"""
    premises: tuple[str, ...]
    """Declarations from the retriever in use for the goal, the nearest first"""
    toolchain: str
    """The project's `lean-toolchain`"""
    lean: tuple[str, ...]
    """The command to compile a file, with the path at its end; it sees the project's imports"""
    earlier: tuple[EarlierAttempt, ...]
    """Earlier attempts, the newest last"""
    seconds: float
    """The program's time limit in seconds"""

    def as_text(self) -> str:
        """Return its text, in lines: a field other than a list is one line, readable to sed."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, ensure_ascii=False, indent=1) + "\n"
