"""One declaration with sorrys: its frame (what makes it compile alone) and the proofs found for it.

The frame is the scanner's preamble (open namespaces, sections, variables, options) before the declaration's own
text, because each REPL call starts with a fresh scope. The REPL's goals carry no positions, so a proof found for
a goal is tried at every sorry of the declaration and kept where the declaration then elaborates without error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.lean.client.messages import Message, Unit
from pipeline.lean.client.repl import ReplDied, ReplRefused
from pipeline.lean.pool.session import Session
from pipeline.prove.script import Script
from pipeline.prove.search import Budget, Search, SearchResult
from pipeline.prove.splice import Replacement, Token, join, placements, splice
from pipeline.prove.tactics import Ladder
from store.scanned import Sorry


class CannotAttempt(Exception):  # noqa: N818 - named by what it means for the caller
    """The declaration cannot be worked on; the message is what the attempt records."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The command that the sorrys stand in, cut out of its file."""

    data: bytes
    byte_start: int
    byte_end: int
    preamble: str
    tokens: tuple[Token, ...]
    sorries: tuple[Sorry, ...]

    def framed(self, data: bytes | None = None) -> str:
        """Return the declaration as a text that elaborates by itself; `data` is a patched version of the file."""
        patched = self.data if data is None else data
        end = self.byte_end + len(patched) - len(self.data)
        return self._frame(patched[self.byte_start : end].decode())

    def framed_for_distil(self) -> str:
        """Return the framed text with `example` made a theorem: an example makes no constant to look at."""
        text = self.data[self.byte_start : self.byte_end]
        for token in self.tokens:
            if token.text == "example":
                at = token.byte_start - self.byte_start
                name = f"theorem unsorry_example_{self.byte_start}".encode()
                text = text[:at] + name + text[at + len(b"example") :]
                break
            if token.text in ("theorem", "lemma"):
                break
        return self._frame(text.decode())

    def _frame(self, text: str) -> str:
        # The first line keeps its column, or the layout of a block that begins on it would change.
        line_start = self.data.rfind(b"\n", 0, self.byte_start) + 1
        column = len(self.data[line_start : self.byte_start].decode())
        preamble = (
            self.preamble if not self.preamble or self.preamble.endswith("\n") else self.preamble + "\n"
        )
        return f"{preamble}{' ' * column}{text}\n"


@dataclass(slots=True)
class Solved:
    """A sorry's proof: the script and the text that was accepted in its place."""

    script: Script
    replacement: Replacement
    search: SearchResult


@dataclass(slots=True)
class Worked:
    """What came of a declaration. `joint` is there when every sorry of several was solved and they fit together."""

    solved: dict[int, Solved] = field(default_factory=dict)
    """By the sorry's ordinal in the declaration."""
    unsolved: list[SearchResult] = field(default_factory=list)
    joint: Replacement | None = None
    unplaced: str = ""
    """The first complaint about a found proof that no sorry's place would take."""


async def prove_declaration(
    session: Session, declaration: Declaration, *, ladder: Ladder, budget: Budget
) -> Worked:
    """Search for a proof of every sorry of the declaration.

    Raises:
        CannotAttempt: the declaration does not compile, or Lean makes no goals of it.
        ReplError: no process gets as far as a search (see `Session`), or a search is incomplete (`StateLost`).
    """
    try:
        states = await session.distil(declaration.framed_for_distil(), timeout_s=max(budget.seconds, 10.0))
    except ReplRefused as error:
        raise CannotAttempt(f"Lean makes no goal of the declaration: {_first_line(error.desc)}") from error
    worked = Worked()
    goals = [(state, at) for state in states for at in range(len(state.goals))]
    if not goals:
        raise CannotAttempt("Lean makes no goal of the declaration")
    ordinals = [sorry.ordinal for sorry in declaration.sorries]
    for number, (state, at) in enumerate(goals):
        if len(worked.solved) == len(ordinals):
            break
        result = await Search(session, ladder, budget=budget).run(state, goal=at)
        if result.script is None:
            worked.unsolved.append(result)
            continue
        # Goals mostly come in the order of their sorrys, so the one with the same number is tried first.
        likely = ordinals[number : number + 1] if len(goals) == len(ordinals) else []
        order = [*likely, *(ordinal for ordinal in ordinals if ordinal not in likely)]
        await _place(session, declaration, worked, result, result.script, order)
    session.release(states)
    if len(worked.solved) == len(ordinals) > 1:
        worked.joint = await _joined(session, declaration, worked)
    return worked


async def _place(
    session: Session,
    declaration: Declaration,
    worked: Worked,
    result: SearchResult,
    script: Script,
    order: Sequence[int],
) -> None:
    """Try the script at every unsolved sorry, in this order, and keep it where Lean takes it."""
    by_ordinal = {sorry.ordinal: sorry for sorry in declaration.sorries}
    taken = False
    for ordinal in order:
        if ordinal in worked.solved:
            continue
        sorry = by_ordinal[ordinal]
        for replacement in placements(
            declaration.data,
            declaration.tokens,
            script,
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
            mode=sorry.mode,
            declaration_start=declaration.byte_start,
            declaration_end=declaration.byte_end,
        ):
            complaint = await _complaint(session, declaration, replacement)
            if complaint is None:
                worked.solved[ordinal] = Solved(script, replacement, result)
                taken = True
                break
            worked.unplaced = worked.unplaced or complaint
    if taken:
        worked.unplaced = ""
    else:
        worked.unsolved.append(result)


async def _joined(session: Session, declaration: Declaration, worked: Worked) -> Replacement | None:
    joint = join(declaration.data, [solved.replacement for solved in worked.solved.values()])
    patched = splice(declaration.data, joint)
    units = await session.process(declaration.framed(patched))
    if first_error(units) is not None or any(unit.uses_sorry for unit in units):
        return None
    return joint


async def _complaint(session: Session, declaration: Declaration, replacement: Replacement) -> str | None:
    """Return Lean's first error about the declaration with the replacement in place, None if it has none."""
    try:
        units = await session.process(declaration.framed(splice(declaration.data, replacement)))
    except ReplDied as death:
        return f"Lean ends on the text: {_first_line(str(death))}"
    error = first_error(units)
    return None if error is None else _first_line(error.data)


def first_error(units: Sequence[Unit]) -> Message | None:
    """Return the first error message of processed text."""
    return next((error for unit in units for error in unit.errors), None)


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:300] if lines else "(no message)"
