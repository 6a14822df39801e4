"""Lean's judgement of a proof text in a sorry's place: the declaration is elaborated with it, as it stands in the file.

filling = Filling(session, declaration, sorry, timeout_s=60)
errors = await filling("by\\n  simp")        # () where Lean takes it; `filling.replacement` is then what stands there
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.lean.client.errors import ReplDied, ReplRefused
from pipeline.lean.client.messages import Message, Unit
from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Declaration, Replacement, splice, text_placements
from pipeline.prove.proof_text import block_of
from store.domain.records import Sorry


class Filling:
    """A `whole.Check` for one sorry.

    Attributes:
        replacement: the text that Lean took last; None as long as there is none.
    """

    def __init__(
        self, session: Session, declaration: Declaration, sorry: Sorry, *, timeout_s: float | None = None
    ) -> None:
        """Args:
        session: at the declaration's place in its file.
        declaration: with the sorry.
        sorry: which one.
        timeout_s: of one elaboration.
        """
        self._session = session
        self._declaration = declaration
        self._sorry = sorry
        self._timeout_s = timeout_s
        self.replacement: Replacement | None = None

    async def __call__(self, proof: str) -> tuple[str, ...]:
        """Return Lean's errors with the proof in the sorry's place, written in each way that may fit there.

        Raises:
            ReplError: there is no process to be had (see `Session`).
        """
        first: tuple[str, ...] = ()
        for replacement in self.replacements(proof):
            errors = await self._errors(replacement)
            if not errors:
                self.replacement = replacement
                return ()
            first = first or errors
        return first

    def replacements(self, proof: str) -> tuple[Replacement, ...]:
        """Return the ways to write a proof in the sorry's place, most readable first."""
        block = block_of(proof)
        return text_placements(
            self._declaration.data,
            self._declaration.tokens,
            proof.split("\n") if block is None else block,
            tactics=block is not None,
            byte_start=self._sorry.byte_start,
            byte_end=self._sorry.byte_end,
            mode=self._sorry.mode,
            declaration_start=self._declaration.byte_start,
            declaration_end=self._declaration.byte_end,
        )

    async def _errors(self, replacement: Replacement) -> tuple[str, ...]:
        text = self._declaration.framed(splice(self._declaration.data, replacement))
        judge = self._session.judge
        try:
            units = await self._session.process(text, timeout_s=self._timeout_s)
        except ReplDied as death:
            return (f"{judge} ends on this text: {death}",)
        except ReplRefused as error:
            return (f"{judge} does not get through this text: {error.desc}",)
        lines = text.split("\n")
        errors = tuple(_told(message, lines) for unit in units for message in unit.errors)
        if errors or len(self._declaration.sorries) > 1:
            return errors
        return (f"{judge} says that the proof uses sorry",) if _unproved(units) else ()


def _unproved(units: Sequence[Unit]) -> bool:
    return any(unit.uses_sorry for unit in units)


def _told(message: Message, lines: Sequence[str]) -> str:
    """Return an error with the line that it is about: the model does not know the line numbers."""
    number = message.pos.line
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"at `{line}`: {message.data.strip()}" if line else message.data.strip()
