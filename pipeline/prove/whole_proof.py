"""Whole proofs: a model writes the text for a sorry's place, Lean judges it, and its errors go back to the model.

    result = await prove_whole(ask, author=author, check=check, seconds=120, repairs=2)

A text that the gate would refuse is refused without Lean, and the model receives the reason. No text is judged twice.
The order of the tries depends on the author's answers alone. A found text is a candidate, like a search's: the gate
decides.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from pipeline.lean.client.errors import ReplDied, ReplError, ReplRefused
from pipeline.lean.client.messages import Message
from pipeline.lean.pool.session import Session
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.lexer import Token, lex, tokens_of_text
from pipeline.lean.source.scanner import Located, locate, scan_source
from pipeline.lean.source.splice import Declaration, Replacement, splice, text_placements
from pipeline.lean.tactic_text import fences
from store.domain.keywords import RESTATED_KINDS
from store.domain.records import Sorry
from store.text import counted, cut, one_line

# ---- The proof in a model's free-form answer
# Only the proof is taken from it, never a statement.
# A proof is a term here, in one of two forms that `block_of` distinguishes: `by` on a line of its own and the tactics
# below it, two columns in; or another term, whose later lines are two columns in or more. Comments are removed: the
# last one would swallow the text that follows it in the file.


LONGEST = 20_000
"""The maximum of an answer in characters; a longer one is of a model that does not stop."""

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
    found = [one for one in located.declarations if one.record.kind in RESTATED_KINDS]
    if not found:
        return None
    wanted = _name(locate(declaration.encode("utf-8", "replace")).declarations)
    named = [one for one in found if _name([one]) == wanted]
    chosen = (named or found)[-1]
    # Spaces replace the text before it, so that columns are those of the answer.
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
    return _kept(value, kept, tactics=True) if place.tactic else _proof_from(value, kept, "")


def _proof_from(value: str, tokens: Sequence[Token], missing: str) -> ReadProof:
    """Return the proof that a term's tokens spell: tactics if it begins with `by`."""
    if not tokens:
        return ReadProof((), missing)
    by = tokens[0].text == "by"
    if by and len(tokens) == 1:
        return ReadProof((), "there is nothing behind the `by`")
    return _kept(value, tokens[1:] if by else tokens, tactics=by)


def _kept(value: str, tokens: Sequence[Token], *, tactics: bool) -> ReadProof:
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
    as_tactics = _kept(code, tokens, tactics=True)
    if "\n" in code.strip():
        return as_tactics
    return ReadProof((*as_tactics.proofs, *_kept(code, tokens, tactics=False).proofs))


def _layouts(text: str, column: int, *, own_line: bool) -> list[list[str]]:
    """Return the non-empty lines, the first at column 0 and the others relative to it, as Lean counts columns.

    To Lean, lines less indented than a first line behind a `by` continue that line: the first layout puts them two
    columns in, together. Models mean the next tactics as often: that is the second layout.
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


Outcome = Literal["found", "exhausted", "budget", "error"]
Check = Callable[[str], Awaitable[tuple[str, ...]]]
"""Returns Lean's errors with a proof (see `read_proof`) in the sorry's place; none if Lean accepts it."""

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
class InFile:
    """A sorry where it stands: its file in the project, its declaration there, and its hypotheses."""

    path: str
    declaration: Declaration
    sorry: Sorry
    hypotheses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WholeAsk:
    """The request to an author.

    Attributes:
        context: the file's text before the declaration.
        declaration: its source, with the sorry.
        goal: the sorry's goal as Lean prints it; "" if unknown.
        earlier: failed proofs, the last ones last.
        count: the number of proofs.
        seed: of the sampling.
        ordinal: of the sorry in the declaration, from 0.
        seconds: the time limit; None for no limit.
        premises: marked code of the premises that are shown, the nearest first.
        place: the sorry in its file; None where it is in none.
    """

    context: str
    declaration: str
    goal: str = ""
    earlier: tuple[FailedProof, ...] = ()
    count: int = 1
    seed: int = 0
    ordinal: int = 0
    seconds: float | None = None
    premises: tuple[str, ...] = ()
    place: InFile | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a request to a model. `usd` is None if the prices are unknown."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None

    def __add__(self, other: Cost) -> Cost:
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        return Cost(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            sum(known) if known else None,
        )

    def since(self, before: Cost) -> Cost:
        """Return the difference to an earlier total."""
        return Cost(
            self.prompt_tokens - before.prompt_tokens,
            self.completion_tokens - before.completion_tokens,
            None if self.usd is None else self.usd - (before.usd or 0.0),
        )


@dataclass(frozen=True, slots=True)
class AuthorAnswers:
    """An author's answers, in the order of their tries, and their cost.

    `missing` is the reason for fewer answers than requested; "" for none. `refused` are those that are none, with the
    reason. `note` is told with the attempt, however it ends.
    """

    texts: tuple[str, ...]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    missing: str = ""
    refused: tuple[FailedProof, ...] = ()
    note: str = ""

    @property
    def cost(self) -> Cost:
        return Cost(self.prompt_tokens, self.completion_tokens, self.usd)


class AuthorError(Exception):
    """An author cannot answer for the sorry of the request; `cost` was spent all the same."""

    def __init__(self, message: str, *, reason: str = "author", cost: Cost | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.cost = cost or Cost()


class Author(Protocol):
    """An author of whole proofs. Takes requests for several sorries at once."""

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Return answers.

        Raises:
            AuthorError: the author has none.
        """


@dataclass(frozen=True, slots=True)
class WholeResult:
    """The result of the work on one sorry.

    Attributes:
        outcome: "found"; "exhausted": all turns are used up; "budget"; "error": the author or Lean failed.
        found: the proof that Lean accepted, exactly if the outcome is "found".
        detail: the reason for no proof, and the author's notes.
        best: the progress, in a line for people.
        turns: the number of requests to the author.
        tried: the number of different proofs that Lean judged.
        refused: the number of proofs refused without Lean.
        cost: tokens and money, with those of failed requests.
        seconds: in all.
        failed: the failed proofs, in the order of their tries.
        failure: of Lean, if that ended the work; the caller decides whether other sorries can be tried.
    """

    outcome: Outcome
    found: str | None
    detail: str
    best: str
    turns: int
    tried: int
    refused: int
    cost: Cost
    seconds: float
    failed: tuple[FailedProof, ...] = ()
    failure: ReplError | None = None


async def prove_whole(
    ask: WholeAsk,
    *,
    author: Author,
    check: Check,
    seconds: float,
    repairs: int,
    verbatim: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> WholeResult:
    """Prove a sorry with an author.

    Args:
        ask: for the first turn.
        author: writes the proofs.
        check: Lean.
        seconds: the limit of the whole work.
        repairs: turns after the first, in which the author receives Lean's errors from the turn before.
        verbatim: whether an answer is what stands in the sorry's place, and not a text that has a proof in it.
        clock: in seconds.
    """
    work = _Work(ask, author, check, seconds, verbatim, clock)
    outcome = await work.run(repairs + 1)
    return work.result(outcome)


@dataclass(slots=True)
class _Work:
    ask: WholeAsk
    author: Author
    check: Check
    seconds: float
    verbatim: bool
    clock: Callable[[], float]
    started: float = 0.0
    turns: int = 0
    cost: Cost = field(default_factory=Cost)
    found: str | None = None
    detail: str = ""
    notes: list[str] = field(default_factory=list)
    failure: ReplError | None = None
    judged: list[FailedProof] = field(default_factory=list)
    refused: list[FailedProof] = field(default_factory=list)
    failed: list[FailedProof] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    async def run(self, turns: int) -> Outcome:
        self.started = self.clock()
        earlier = self.ask.earlier
        for turn in range(turns):
            if self._spent():
                return "budget"
            left = self.seconds - (self.clock() - self.started)
            ask = replace(self.ask, earlier=earlier, seed=self.ask.seed + turn, seconds=left)
            self.turns += 1
            try:
                written = await self.author.write(ask)
            except AuthorError as error:
                self.cost += error.cost
                self.detail = str(error)
                return "error"
            self.cost += written.cost
            self.detail = written.missing
            self.notes += [written.note] if written.note else []
            known = len(self.failed)
            for failed in written.refused:
                self._refuse(failed)
            outcome = await self._try(written.texts)
            if outcome is not None:
                return outcome
            # After a turn without new proofs the model receives the same failures again.
            earlier = tuple(self.failed[known:][:_MOST_FAILED]) or earlier
        self.detail = f"none of {self.turns} turns brought a proof" + (
            f"; {self.detail}" if self.detail else ""
        )
        return "budget" if self._over else "exhausted"

    @property
    def _over(self) -> bool:
        return self.clock() - self.started >= self.seconds

    def _spent(self) -> bool:
        if not self._over:
            return False
        self.detail = f"the budget of {self.seconds:g} s ended it"
        return True

    async def _try(self, texts: Sequence[str]) -> Outcome | None:
        """Judge a turn's answers in their order; return None for the next turn."""
        for text in texts:
            read = (
                ReadProof((text,))
                if self.verbatim
                else read_proof(text, self.ask.declaration, ordinal=self.ask.ordinal)
            )
            if not read.proofs:
                self._refuse(FailedProof(text.strip(), (read.why,)))
            first: FailedProof | None = None
            for proof in read.proofs:
                if proof in self.seen:
                    continue
                self.seen.add(proof)
                if against := complaints(proof, judged=True):  # Lean tries it, and the gate decides
                    self.refused.append(
                        FailedProof(proof, tuple(f"not allowed in a proof: {one}" for one in against))
                    )
                    first = first or self.refused[-1]
                    continue
                # What a program had written when its time was over is judged all the same.
                if not self.verbatim and self._spent():
                    return "budget"
                try:
                    errors = await self.check(proof)
                except ReplError as error:
                    self.failure, self.detail = error, f"Lean failed: {error}"
                    return "error"
                if not errors:
                    self.judged.append(FailedProof(proof, ()))
                    self.found, self.detail = proof, ""
                    return "found"
                self.judged.append(FailedProof(proof, errors))
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

    def result(self, outcome: Outcome) -> WholeResult:
        return WholeResult(
            outcome,
            self.found,
            "; ".join(filter(None, (self.detail, *self.notes))),
            self._best(),
            self.turns,
            len(self.judged),
            len(self.refused),
            self.cost,
            self.clock() - self.started,
            tuple(self.failed),
            self.failure,
        )

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


class SorryCheck:
    """A `Check` for one sorry.

    Attributes:
        replacement: the text that Lean accepted last; None before.
    """

    def __init__(
        self,
        session: Session,
        declaration: Declaration,
        sorry: Sorry,
        *,
        timeout_s: float | None = None,
        verbatim: bool = False,
    ) -> None:
        """Args:
        session: at the declaration's place in its file.
        declaration: with the sorry.
        sorry: one of the declaration's.
        timeout_s: of one elaboration.
        verbatim: whether a proof is the text in the sorry's place as it is, and not laid out here.
        """
        self._verbatim = verbatim
        self._session = session
        self._declaration = declaration
        self._sorry = sorry
        self._timeout_s = timeout_s
        self.replacement: Replacement | None = None

    async def __call__(self, proof: str) -> tuple[str, ...]:
        """Return Lean's errors with the proof in the sorry's place, in each layout that may fit there.

        Raises:
            ReplError: no process can be started (see `Session`).
        """
        first: tuple[str, ...] = ()
        for replacement in self.replacements(proof):
            errors = await errors_with(
                self._session, self._declaration, replacement, timeout_s=self._timeout_s
            )
            if not errors:
                self.replacement = replacement
                return ()
            first = first or errors
        return first

    def replacements(self, proof: str) -> tuple[Replacement, ...]:
        """Return the layouts of a proof in the sorry's place, most readable first."""
        if self._verbatim:
            return (Replacement(self._sorry.byte_start, self._sorry.byte_end, proof),)
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


async def errors_with(
    session: Session, declaration: Declaration, replacement: Replacement, *, timeout_s: float | None = None
) -> tuple[str, ...]:
    """Return Lean's errors about a declaration with a replacement in its place; none if it accepts it.

    Raises:
        ReplError: no process can be started (see `Session`).
    """
    text = declaration.framed(splice(declaration.data, replacement))
    try:
        units = await session.process(text, timeout_s=timeout_s)
    except ReplDied as death:
        return (f"Lean ends on this text: {death}",)
    except ReplRefused as error:
        return (f"Lean does not get through this text: {error.desc}",)
    lines = text.split("\n")
    errors = tuple(_with_line(message, lines) for unit in units for message in unit.errors)
    # Of several sorries the others are still there.
    if errors or len(declaration.sorries) > 1:
        return errors
    return ("Lean says that the proof uses sorry",) if any(unit.uses_sorry for unit in units) else ()


def _with_line(message: Message, lines: Sequence[str]) -> str:
    """Return an error with its source line: the model does not know the line numbers."""
    number = message.pos.line
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"at `{line}`: {message.data.strip()}" if line else message.data.strip()
