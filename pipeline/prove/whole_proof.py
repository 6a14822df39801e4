"""Whole proofs: a model writes the text for a sorry's place, Lean judges it, and its errors go back to the model.

    effort = await prove_whole(ask, WholeProofMethod(author), check, seconds=120)

A text that the gate would refuse is refused without Lean, and the model receives the reason. No text is judged twice.
The order of the tries depends on the author's answers alone. A found text is a candidate, like a search's: the gate
decides.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pipeline.endpoint.errors import Usage
from pipeline.lean.client.errors import ReplDied, ReplRefused
from pipeline.lean.client.messages import Message
from pipeline.lean.pool.session import Session
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.lexer import Token, lex, tokens_of_text
from pipeline.lean.source.scanner import Located, locate, scan_source
from pipeline.lean.source.splice import Declaration, Replacement, splice, text_placements
from pipeline.lean.tactic_text import fences
from pipeline.prove.effort import Effort, Outcome, Written
from store.domain.keywords import RESTATED_KINDS
from store.domain.records import Sorry
from store.text import counted, cut, one_line

# ---- The proof in a model's free-form answer
# Only the proof is taken from it, never a statement. A proof is a term here, in one of two forms (`block_of`): `by` on
# a line of its own and the tactics below it, two columns in; or another term, whose later lines are two columns in or
# more. Comments are removed: the last one would swallow the next text of the file.


LONGEST = 20_000
"""The maximum of an answer in characters; a longer one means a model that does not stop."""

_LEAN = frozenset({"lean", "lean4"})
_THOUGHT = "</think>"
_TERMS = frozenset({"fun", "λ", "⟨", "@", "‹", "nomatch"})
_WHOLE = ((":=",), (":=", "by"))
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class ReadProof:
    """A parsed answer: proofs to try, in this order. Without one, `why` is the reason, for the model."""

    proofs: tuple[str, ...]
    why: str = ""


def read_proof(answer: str, declaration: str, *, ordinal: int = 0) -> ReadProof:
    """Return the proof in an answer: in its last fence of Lean, its last fence, or all of it.

    If the answer states the declaration again, only the text behind its `:=` counts, and of that only the part in the
    sorry's place; its statement is ignored, since Lean will see the file's own.

    Args:
        answer: the model's text.
        declaration: the declaration's source, with the sorry.
        ordinal: of the sorry in the declaration, from 0.
    """
    said = answer.rpartition(_THOUGHT)[2]
    fenced = fences(said)
    lean = [body for language, body in fenced if language.lower() in _LEAN]
    if fenced:
        said = lean[-1] if lean else fenced[-1][1]
    if len(said) > LONGEST:
        return ReadProof((), f"the answer has {len(said)} characters, and no proof has more than {LONGEST}")
    if any("\ud800" <= character <= "\udfff" for character in said):
        return ReadProof((), "the answer has half of a character in it, which no file can hold")
    lexed = lex(said.replace("\r\n", "\n").replace("\t", _INDENT))
    if lexed.errors:
        return ReadProof((), f"not closed inside the answer: {lexed.errors[0]}")
    code = lexed.code
    if not code.strip():
        return ReadProof((), "the answer has no proof in it")
    stated = _stated_again(code, declaration)
    if stated is not None:
        return _behind_the_statement(stated, declaration, ordinal)
    return _bare(code)


def block_of(proof: str) -> tuple[str, ...] | None:
    """Return the lines of a proof by tactics, the first one at column 0; None for another term."""
    first, _, rest = proof.partition("\n")
    return tuple(line.removeprefix(_INDENT) for line in rest.split("\n")) if first == "by" and rest else None


def _stated_again(code: str, declaration: str) -> str | None:
    """Return the last declaration of that name in the answer from its `:=` on, else the last one; None without any."""
    located = locate(code.encode())
    result = [one for one in located.declarations if one.record.kind in RESTATED_KINDS]
    if not result:
        return None
    wanted = _name(locate(declaration.encode("utf-8", "replace")).declarations)
    named = [one for one in result if _name([one]) == wanted]
    chosen = (named or result)[-1]
    # Spaces replace the text before it, to keep the answer's columns.
    start = located.code.rfind("\n", 0, chosen.stated) + 1
    return " " * (chosen.stated - start) + located.code[chosen.stated : chosen.end]


def _name(declarations: Sequence[Located]) -> str:
    return declarations[-1].record.name.rpartition(".")[2] if declarations else ""


@dataclass(frozen=True, slots=True)
class _Place:
    """The surroundings of a sorry in its declaration's value: tokens on both sides, and whether it is a tactic."""

    before: tuple[str, ...] = (":=",)
    after: tuple[str, ...] = ()
    tactic: bool = False

    @classmethod
    def of(cls, declaration: str, ordinal: int) -> _Place:
        data = declaration.encode("utf-8", "replace")
        located = locate(data)
        sorries = [sorry for sorry in scan_source(data, path="").sorries if sorry.ordinal == ordinal]
        if not located.declarations or not sorries:
            return cls()
        stated = len(located.code[: located.declarations[-1].stated].encode())
        tokens = [token for token in tokens_of_text(data.decode())[0] if token.byte_start >= stated]
        return cls(
            tuple(token.text for token in tokens if token.byte_end <= sorries[0].byte_start),
            tuple(token.text for token in tokens if token.byte_start >= sorries[0].byte_end),
            sorries[0].mode == "tactic",
        )

    @property
    def is_all(self) -> bool:
        """Whether the sorry is the declaration's whole value."""
        return self.before in _WHOLE and not self.after


def _behind_the_statement(value: str, declaration: str, ordinal: int) -> ReadProof:
    place = _Place.of(declaration, ordinal)
    tokens, _ = tokens_of_text(value)
    texts = tuple(token.text for token in tokens)
    if texts[:1] != (":=",):
        return ReadProof((), "the answer's theorem has no proof behind `:=`; write `:= by` and tactics")
    if place.is_all:
        return _proof_from(value, tokens[1:], "the answer's theorem has nothing behind its `:=`")
    kept = tokens[len(place.before) : len(tokens) - len(place.after)]
    same = (
        texts[: len(place.before)] == place.before and texts[len(texts) - len(place.after) :] == place.after
    )
    if not (same and kept):
        return ReadProof(
            (), "the answer changes what stands around the sorry; give only what takes the place of the sorry"
        )
    return _read_proof(value, kept, tactics=True) if place.tactic else _proof_from(value, kept, "")


def _proof_from(value: str, tokens: Sequence[Token], missing: str) -> ReadProof:
    """Return the proof spelt by a term's tokens: tactics if it begins with `by`."""
    if not tokens:
        return ReadProof((), missing)
    by = tokens[0].text == "by"
    if by and len(tokens) == 1:
        return ReadProof((), "there is nothing behind the `by`")
    return _read_proof(value, tokens[1:] if by else tokens, tactics=by)


def _read_proof(value: str, tokens: Sequence[Token], *, tactics: bool) -> ReadProof:
    data = value.encode()
    start = len(data[: tokens[0].byte_start].decode())
    text = data[tokens[0].byte_start : tokens[-1].byte_end].decode()
    column = start - (value.rfind("\n", 0, start) + 1)
    layouts = _layouts(text, column, own_line=not value[start - column : start].strip())
    return ReadProof(tuple(map(_by, layouts)) if tactics else (_term(layouts[0]),))


def _bare(code: str) -> ReadProof:
    """Return the readings of a text without a statement: `:= …`, `by …`, tactics, or a term."""
    tokens, _ = tokens_of_text(code)
    if tokens and tokens[0].text == ":=":
        tokens = tokens[1:]
    if not tokens:
        return ReadProof((), "the answer has no proof in it")
    if tokens[0].text == "by" or tokens[0].text in _TERMS:
        return _proof_from(code, tokens, "")
    as_tactics = _read_proof(code, tokens, tactics=True)
    if "\n" in code.strip():
        return as_tactics
    return ReadProof((*as_tactics.proofs, *_read_proof(code, tokens, tactics=False).proofs))


def _layouts(text: str, column: int, *, own_line: bool) -> list[list[str]]:
    """Return the non-empty lines, the first at column 0 and the others relative to it, as Lean counts columns.

    To Lean, lines less indented than a first line behind a `by` continue that line: the first layout puts them two
    columns in, together. Models mean the next tactics as often: they are the second layout.
    """
    first, *others = (line.rstrip() for line in text.split("\n") if line.strip())
    far = [len(line) - len(line.lstrip()) for line in others]
    if not own_line and far and min(far) < column:
        below = [line[min(far) :] for line in others]
        return [[first, *(_INDENT + line for line in below)], [first, *below]]
    return [[first, *(line[min(column, indent) :] for line, indent in zip(others, far, strict=True))]]


def _by(lines: Sequence[str]) -> str:
    return "\n".join(["by", *(_INDENT + line for line in lines)])


def _term(lines: Sequence[str]) -> str:
    first, *others = lines
    least = min((len(line) - len(line.lstrip()) for line in others), default=0)
    return "\n".join([first, *(_INDENT + line[least:] for line in others)])


Check = Callable[[str, float], Awaitable["Replacement | tuple[str, ...]"]]
"""Returns a proof (see `read_proof`) in the sorry's place as accepted by Lean within the given seconds, or Lean's
errors.
"""

LEAST_CHECK_S = 10.0
"""Lean's minimum time for a text, even if the author used up all of the time."""

_MOST_FAILED = 4
"""The maximum of failed proofs in a request: more would cost more than they help."""
_ERRORS = 6
_LONGEST_ERROR = 1500
_LONGEST_TEXT = 6000


@dataclass(frozen=True, slots=True)
class FailedProof:
    """A failed proof with its errors: Lean's, the text policy's or the reader's."""

    text: str
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WholeAsk:
    """The request to an author.

    Attributes:
        declaration: with the sorry, in its file.
        sorry: one of its.
        path: of the file in its project; "" if it does not matter.
        goal: the sorry's, as Lean prints it; "" if unknown.
        hypotheses: the goal's.
        premises: marked code of the premises, the nearest first.
        earlier: failed proofs, the last ones last.
        count: the number of proofs.
        seed: of the sampling.
        seconds: the time limit; None for no limit.
    """

    declaration: Declaration
    sorry: Sorry
    path: str = ""
    goal: str = ""
    hypotheses: tuple[str, ...] = ()
    premises: tuple[str, ...] = ()
    earlier: tuple[FailedProof, ...] = ()
    count: int = 1
    seed: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AuthorAnswers:
    """An author's answers, in the order of their tries, and their cost.

    Attributes:
        missing: the reason for fewer answers than requested; "" for none.
        refused: unusable answers, with the reason.
        note: for the attempt's record, however it ends.
        error: why the author cannot answer for this sorry at all; "" for none.
        reason: the error's kind.
    """

    texts: tuple[str, ...]
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    missing: str = ""
    refused: tuple[FailedProof, ...] = ()
    note: str = ""
    error: str = ""
    reason: str = ""


Author = Callable[[WholeAsk], Awaitable[AuthorAnswers]]
"""Writes whole proofs. Takes requests for several sorries at once."""


@dataclass(frozen=True, slots=True)
class WholeProofMethod:
    """The author of whole proofs: `proofs` of them a turn, with `repairs` turns after the first; each of these receives
    Lean's errors from the turn before.

    `verbatim`: its answers are the exact text for the sorry's place, not texts with a proof in them.
    """

    author: Author
    proofs: int = 4
    repairs: int = 2
    verbatim: bool = False


async def prove_whole(
    ask: WholeAsk,
    method: WholeProofMethod,
    check: Check,
    *,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Effort:
    """Prove a sorry with an author, in so many seconds; `written` is the proof exactly if it is "found".

    Raises:
        ReplError: Lean failed.
    """
    return await _Work(replace(ask, count=method.proofs), method, check, seconds, clock, clock()).run()


@dataclass(slots=True)
class _Work:
    ask: WholeAsk
    method: WholeProofMethod
    check: Check
    seconds: float
    clock: Callable[[], float]
    started: float
    turns: int = 0
    cost: Usage = field(default_factory=Usage)
    found: Written | None = None
    detail: str = ""
    notes: list[str] = field(default_factory=list)
    judged: list[FailedProof] = field(default_factory=list)
    refused: list[FailedProof] = field(default_factory=list)
    failed: list[FailedProof] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    async def run(self) -> Effort:
        outcome = await self._turns()
        return Effort(
            outcome,
            "; ".join(filter(None, (self.detail, *self.notes))),
            self._best(),
            0 if self.found is not None else None,
            len(self.judged),
            seconds=self.clock() - self.started,
            cost=self.cost,
            written=self.found,
        )

    async def _turns(self) -> Outcome:
        earlier = self.ask.earlier
        for turn in range(self.method.repairs + 1):
            left = self._left_s()
            if left <= 0:
                return self._over()
            ask = replace(self.ask, earlier=earlier, seed=self.ask.seed + turn, seconds=left)
            self.turns += 1
            written = await self.method.author(ask)
            self.cost += written.usage
            self.detail = written.error or written.missing
            if written.error:
                return "error"
            self.notes += [written.note] if written.note else []
            known = len(self.failed)
            for failed in written.refused:
                self._refuse(failed)
            outcome = await self._try(written.texts)
            if outcome is not None:
                return outcome
            # After a turn without new proofs the model receives the same failures again.
            earlier = tuple(self.failed[known:][:_MOST_FAILED]) or earlier
        in_vain = f"none of {self.turns} turns brought a proof"
        self.detail = f"{in_vain}; {self.detail}" if self.detail else in_vain
        return "budget" if self._left_s() <= 0 else "exhausted"

    def _left_s(self) -> float:
        return self.seconds - (self.clock() - self.started)

    def _over(self) -> Outcome:
        self.detail = f"the budget of {self.seconds:g} s ended it"
        return "budget"

    async def _try(self, texts: Sequence[str]) -> Outcome | None:
        """Judge a turn's answers in their order; return None for the next turn."""
        for text in texts:
            read = (
                ReadProof((text,))
                if self.method.verbatim
                else read_proof(text, self.ask.declaration.text, ordinal=self.ask.sorry.ordinal)
            )
            if not read.proofs:
                self._refuse(FailedProof(text.strip(), (read.why,)))
            first: FailedProof | None = None
            for proof in read.proofs:
                if proof in self.seen:
                    continue
                self.seen.add(proof)
                if against := complaints(proof):  # Lean tries it, and the gate decides
                    self.refused.append(
                        FailedProof(proof, tuple(f"not allowed in a proof: {one}" for one in against))
                    )
                    first = first or self.refused[-1]
                    continue
                # A program's text at the end of its time is judged all the same.
                left = self._left_s()
                if left <= 0 and not self.method.verbatim:
                    return self._over()
                fits = await self.check(proof, max(left, LEAST_CHECK_S))
                if isinstance(fits, Replacement):
                    self.judged.append(FailedProof(proof, ()))
                    self.found, self.detail = Written(proof, fits), ""
                    return "found"
                self.judged.append(FailedProof(proof, fits))
                first = first or self.judged[-1]
            # Of several readings of one answer the first is the likely one: the model receives its errors.
            if first is not None:
                self.failed.append(_short(first))
        return None

    def _refuse(self, failed: FailedProof) -> None:
        if failed.text and failed.text in self.seen:
            return
        self.seen.add(failed.text)
        self.refused.append(failed)
        self.failed.append(_short(failed))

    def _best(self) -> str:
        if self.found is not None:
            return f"found with text {len(self.judged)} of those judged, in turn {self.turns}"
        if self.judged:
            best = min(self.judged, key=lambda one: len(one.errors))
            return (
                f"the best of {len(self.judged)} texts has {counted(len(best.errors), 'error')}:"
                f" {_line(best.errors[0])}"
            )
        if self.refused:
            why = _line(self.refused[0].errors[0])
            return f"none of {len(self.refused)} texts could be given to Lean: {why}"
        return "no text was written"


def _short(failed: FailedProof) -> FailedProof:
    errors = tuple(cut(error, _LONGEST_ERROR) for error in failed.errors[:_ERRORS])
    return FailedProof(cut(failed.text, _LONGEST_TEXT), errors)


def _line(text: str) -> str:
    return cut(one_line(text), 200)


# ---- Lean's judgement of a proof text in a sorry's place, elaborated with its declaration


def check_in(session: Session, declaration: Declaration, sorry: Sorry, *, verbatim: bool = False) -> Check:
    """Return the check of proofs of a sorry.

    Args:
        session: at the declaration's place in its file.
        declaration: with the sorry.
        sorry: one of the declaration's.
        verbatim: whether a proof is the text in the sorry's place as it is, and not laid out here.
    """

    async def check(proof: str, seconds: float) -> Replacement | tuple[str, ...]:
        layouts: tuple[Replacement, ...] = (Replacement(sorry.byte_start, sorry.byte_end, proof),)
        if not verbatim:
            block = block_of(proof)
            lines = proof.split("\n") if block is None else block
            layouts = text_placements(declaration, sorry, lines, tactics=block is not None)
        return await fitting(session, declaration, layouts, timeout_s=seconds)

    return check


async def fitting(
    session: Session,
    declaration: Declaration,
    layouts: Iterable[Replacement],
    *,
    timeout_s: float | None = None,
) -> Replacement | tuple[str, ...]:
    """Return the first layout accepted by Lean in a declaration; if none, its errors about the first.

    A layout that ends the Lean process is the last: another one would take as long again.

    Raises:
        ReplError: no process can be started (see `Session`).
    """
    first: tuple[str, ...] = ()
    for layout in layouts:
        text = declaration.framed(splice(declaration.data, layout))
        try:
            units = await session.process(text, timeout_s=timeout_s)
        except ReplDied as death:
            return first or (f"Lean ends on this text: {death}",)
        except ReplRefused as error:
            first = first or (f"Lean does not get through this text: {error.desc}",)
            continue
        lines = text.split("\n")
        errors = tuple(_with_line(message, lines) for unit in units for message in unit.errors)
        # Of the sorries outside of the layout the others are still there.
        filled = sum(layout.byte_start <= one.byte_start < layout.byte_end for one in declaration.sorries)
        if not errors and filled == len(declaration.sorries) and any(unit.uses_sorry for unit in units):
            errors = ("Lean says that the proof uses sorry",)
        if not errors:
            return layout
        first = first or errors
    return first


def _with_line(message: Message, lines: Sequence[str]) -> str:
    """Return an error with its source line: the model does not know the line numbers."""
    number = message.pos.line
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"at `{line}`: {message.data.strip()}" if line else message.data.strip()
