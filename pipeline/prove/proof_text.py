"""A model's free-form answer as a proof for a sorry's place: only the proof is taken from it, never a statement.

A proof is a term here, in one of two forms that `block_of` tells apart: `by` on a line of its own and the tactics below
it, two columns in; or another term, whose later lines are two columns in or more. Comments are gone, for the last one's
would swallow what stands behind it in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.lean.source.lexer import Token, lex, tokens_of_text
from pipeline.lean.source.scanner import Located, locate, scan_source
from pipeline.models.tactics.requests import fences

LONGEST = 20_000
"""Characters of the longest answer that is read; what is longer is a model that does not stop."""

_LEAN = frozenset({"lean", "lean4"})
_THOUGHT = "</think>"
_STATED = frozenset({"theorem", "lemma", "example", "def", "abbrev", "instance"})
_TERMS = frozenset({"fun", "λ", "⟨", "@", "‹", "nomatch"})
_WHOLE = ((":=",), (":=", "by"))
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class ReadProof:
    """What an answer says: proofs to try, in this order. Where there is none, `why` says so in words for the model."""

    proofs: tuple[str, ...]
    why: str = ""


def read_proof(answer: str, declaration: str, *, ordinal: int = 0) -> ReadProof:
    """Return the proof in an answer: in its last fence of Lean, its last fence, or all of it.

    Where the answer states the declaration again, what stands behind its `:=` counts, and of that only what takes the
    sorry's place; the statement it gives is not looked at, since Lean will see the file's own.

    Args:
        answer: the model's text.
        declaration: the declaration's source, with the sorry.
        ordinal: which of its sorrys, from 0.
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
    """Return the lines of a proof by tactics, the first one at column 0; None where it is another term."""
    first, _, rest = proof.partition("\n")
    return tuple(line.removeprefix(_INDENT) for line in rest.split("\n")) if first == "by" and rest else None


def _stated_again(code: str, declaration: str) -> str | None:
    """Return the last declaration of that name in the answer from its `:=` on, else the last one; None without any."""
    located = locate(code.encode())
    found = [one for one in located.declarations if one.record.kind in _STATED]
    if not found:
        return None
    wanted = _name(locate(declaration.encode("utf-8", "replace")).declarations)
    named = [one for one in found if _name([one]) == wanted]
    chosen = (named or found)[-1]
    # Spaces for what stands before it, so that columns are those of the answer.
    start = located.code.rfind("\n", 0, chosen.stated) + 1
    return " " * (chosen.stated - start) + located.code[chosen.stated : chosen.end]


def _name(declarations: Sequence[Located]) -> str:
    return declarations[-1].record.name.rpartition(".")[2] if declarations else ""


@dataclass(frozen=True, slots=True)
class _Place:
    """What stands around a sorry in its declaration's value: tokens before and after it, and whether it is a tactic."""

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
    """Return the proof that a term's tokens are: tactics where it begins with `by`."""
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
    """Return the readings of a text that states nothing: `:= …`, `by …`, tactics, or a term."""
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
    """Return lines without empty ones, the first at column 0 and the others beside it as Lean counts columns.

    Lines that are not as far in as a first line which stands behind a `by` go on with that line, to Lean: they are put
    two columns in, together. Models mean the next tactics as often: that is the second layout then.
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
