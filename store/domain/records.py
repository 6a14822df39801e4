"""Records of Lean files: the scan of a file, and the trace of a file, as the log keeps them and people see them.

Lines of a scan count from 1, columns from 0 in code points (Lean's convention); byte offsets are into the file's UTF-8
bytes as committed, half open. Positions of a trace are (line, column) from 1, as LeanDojo has them. `as_json` and
`from_json` are inverse to each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, NamedTuple, get_args

SorryToken = Literal["sorry", "admit", "stop"]
SorryMode = Literal["term", "tactic"]


class Declaration(NamedTuple):
    """One top-level declaration: a tuple, since a rebuild reads more of them than of anything else.

    `name` is fully qualified; anonymous ones are called `_example` or `_instance` inside their namespace. `line` is
    from 1, `column` from 0, in code points. `statement` is the source between the name and the proof or value, white
    space collapsed, comments removed. `statement_hash` identifies the statement, `text_hash` the whole declaration
    with its proof; both ignore white space and comments.
    """

    name: str
    kind: str
    line: int
    column: int
    end_line: int
    end_column: int
    byte_start: int
    byte_end: int
    statement: str
    statement_hash: str
    text_hash: str


@dataclass(frozen=True, slots=True)
class Sorry:
    """One `sorry` or `admit` that Lean would elaborate, or a `stop`, which is `repeat sorry` and leaves the rest out.

    `context_hash` covers the few tokens around
    it, so that the ones that stay can be told from the one that went when a proof is filled in part.
    """

    declaration: str
    index: int
    """its declaration's place in the list; two declarations can share a name"""
    ordinal: int
    """which one inside that declaration, from 0"""
    token: SorryToken
    mode: SorryMode
    line: int
    column: int
    byte_start: int
    byte_end: int
    context_hash: str


class NotUnderstood(NamedTuple):
    """A command that is known to nobody here: a library's, or text that no command begins. `word` is its first."""

    word: str
    line: int
    column: int
    byte_start: int
    byte_end: int


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """The scan of one file. `error` says why a file could not be read in full; what was read is still here.

    A command that declares nothing is among the declarations if it has a sorry, under the name `_` with its keyword.
    """

    path: str
    error: str | None
    imports: tuple[str, ...]
    declarations: tuple[Declaration, ...]
    sorries: tuple[Sorry, ...]
    not_understood: tuple[NotUnderstood, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "error": self.error,
            "imports": list(self.imports),
            "declarations": [item._asdict() for item in self.declarations],
            "sorries": [{name: getattr(item, name) for name in Sorry.__slots__} for item in self.sorries],
            **(
                {"not_understood": [item._asdict() for item in self.not_understood]}
                if self.not_understood
                else {}
            ),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ScannedFile:
        return cls(
            path=data["path"],
            error=data["error"],
            imports=tuple(data["imports"]),
            declarations=tuple(map(_declaration, data["declarations"])),
            sorries=tuple(Sorry(**item) for item in data["sorries"]),
            not_understood=tuple(NotUnderstood(**item) for item in data.get("not_understood", ())),
        )


_fields_of = itemgetter(*Declaration._fields)


def _declaration(data: dict[str, Any]) -> Declaration:
    if len(data) != len(Declaration._fields):
        raise TypeError(f"a declaration has {', '.join(Declaration._fields)}, this one {', '.join(data)}")
    return Declaration._make(_fields_of(data))


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One version of a file as a job read it: its scan, and of each declaration the hash of its proof or value.

    The hashes ignore white space and comments, as `text_hash` does; with the scan alone a declaration that got another
    name or attribute could not be told from one that got another proof. `exercise_words` is how often the text says
    "exercise", comments too, in whatever case: such a file's sorries may be there for people to fill. `marked` names
    the declarations with an attribute called `exercise` or `challenge`: their sorries are there by design.
    """

    scan: ScannedFile
    proof_hashes: tuple[str, ...]
    exercise_words: int = 0
    marked: tuple[str, ...] = ()


Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PremiseUse:
    """One premise of an annotated tactic, in the order of the `<a>` marks. Positions are of its name where defined."""

    full_name: str
    def_path: str
    def_pos: Position
    def_end_pos: Position
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "full_name": self.full_name,
            "def_path": self.def_path,
            "def_pos": list(self.def_pos),
            "def_end_pos": list(self.def_end_pos),
            **_extra(self.extra),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PremiseUse:
        return cls(
            full_name=data["full_name"],
            def_path=data["def_path"],
            def_pos=_position(data["def_pos"]),
            def_end_pos=_position(data["def_end_pos"]),
            extra=data.get("extra", {}),
        )


@dataclass(frozen=True, slots=True)
class ConstantUse:
    """A constant that a proof uses, and where its definition names it; `site` is None if unknown.

    `site` is (path, start, end) as in `PremiseUse`.
    """

    full_name: str
    site: tuple[str, Position, Position] | None = None

    def as_json(self) -> list[Any]:
        if self.site is None:
            return [self.full_name]
        path, start, end = self.site
        return [self.full_name, path, list(start), list(end)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> ConstantUse:
        if len(data) == 1:
            return cls(data[0])
        name, path, start, end = data
        return cls(name, (path, _position(start), _position(end)))


GapKind = Literal[
    "file",
    "elaboration",
    "theorem",
    "generated",
    "tactics",
    "premise_site",
    "sorry_goal",
]
"""What a trace lacks: a whole file; what Lean refused; a theorem that it did not make; a constant that no text declares
(a macro does); a tactic proof without steps; constants without a definition site; the goal of a sorry."""


@dataclass(frozen=True, slots=True)
class TraceGap:
    """Something that a trace of a file lacks, and why. `declaration` is "" where it is of the file as a whole."""

    kind: GapKind
    declaration: str
    reason: str

    def as_json(self) -> list[str]:
        return [self.kind, self.declaration, self.reason]

    @classmethod
    def from_json(cls, data: Sequence[str]) -> TraceGap:
        kind, declaration, reason = data
        if kind not in get_args(GapKind):
            raise ValueError(f"{kind!r} is no kind of gap")
        return cls(kind, declaration, reason)  # type: ignore[arg-type] # checked above


@dataclass(frozen=True, slots=True)
class Seen:
    """What there was to trace in a file: theorems in its source, tactic steps that Lean reported; and how many of each
    the trace has."""

    theorems: int
    theorems_traced: int
    tactics: int
    tactics_traced: int

    def as_json(self) -> list[int]:
        return [self.theorems, self.theorems_traced, self.tactics, self.tactics_traced]


@dataclass(frozen=True, slots=True)
class TracedTactic:
    """One tactic step: `annotated` is its text with each premise between `<a>` and `</a>`, one of `premises` a mark.

    `constants` are all that Lean says the step uses, full names in Lean's order: also those that its text does not
    name. Where they are defined is in the theorem's `premises`.
    """

    tactic: str
    annotated: str
    premises: tuple[PremiseUse, ...]
    state_before: str
    state_after: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "tactic": self.tactic,
            "annotated_tactic": [self.annotated, [item.as_json() for item in self.premises]],
            "state_before": self.state_before,
            "state_after": self.state_after,
            **({"constants": list(self.constants)} if self.constants else {}),
            **_extra(self.extra),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TracedTactic:
        text, premises = data["annotated_tactic"]
        return cls(
            tactic=data["tactic"],
            annotated=text,
            premises=tuple(PremiseUse.from_json(item) for item in premises),
            state_before=data["state_before"],
            state_after=data["state_after"],
            extra=data.get("extra", {}),
            constants=tuple(data.get("constants", ())),
        )


@dataclass(frozen=True, slots=True)
class TracedTheorem:
    """A theorem and its proof's steps. `statement` is None where the tracer gave none.

    `url` and `commit` are None where they are the trace's own (a merged dataset has theorems of several). `difficulty`
    is what an import said: None for nothing, infinity for a proof that holds a sorry; written as "Infinity".

    `premises` are the constants of the whole proof, also of one by a term. `sorry`: Lean said that it rests on a sorry
    of its own, which a proof by a term has no step to show. `type` is a digest that theorems share whose types are the
    same to Lean, "" where it is not known, `alike` are the theorems of packages and of Lean that share it and that the
    file imports, and `proof` is the text of its proof, "" where it is long.
    """

    full_name: str
    statement: str | None
    start: Position
    end: Position
    tactics: tuple[TracedTactic, ...]
    difficulty: float | None = None
    url: str | None = None
    commit: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    premises: tuple[ConstantUse, ...] = ()
    sorry: bool = False
    type: str = ""
    alike: tuple[ConstantUse, ...] = ()
    proof: str = ""

    def as_json(self) -> dict[str, Any]:
        optional = {"url": self.url, "commit": self.commit}
        if self.difficulty is not None:
            optional["difficulty"] = "Infinity" if math.isinf(self.difficulty) else self.difficulty  # type: ignore[assignment]
        return {
            "full_name": self.full_name,
            "theorem_statement": self.statement,
            "start": list(self.start),
            "end": list(self.end),
            "traced_tactics": [item.as_json() for item in self.tactics],
            **{name: value for name, value in optional.items() if value is not None},
            **({"premises": [item.as_json() for item in self.premises]} if self.premises else {}),
            **({"sorry": True} if self.sorry else {}),
            **({"type": self.type} if self.type else {}),
            **({"alike": [item.as_json() for item in self.alike]} if self.alike else {}),
            **({"proof": self.proof} if self.proof else {}),
            **_extra(self.extra),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TracedTheorem:
        difficulty = data.get("difficulty")
        return cls(
            full_name=data["full_name"],
            statement=data["theorem_statement"],
            start=_position(data["start"]),
            end=_position(data["end"]),
            tactics=tuple(TracedTactic.from_json(item) for item in data["traced_tactics"]),
            difficulty=math.inf if difficulty == "Infinity" else difficulty,
            url=data.get("url"),
            commit=data.get("commit"),
            extra=data.get("extra", {}),
            premises=tuple(ConstantUse.from_json(item) for item in data.get("premises", ())),
            sorry=data.get("sorry", False),
            type=data.get("type", ""),
            alike=tuple(ConstantUse.from_json(item) for item in data.get("alike", ())),
            proof=data.get("proof", ""),
        )


@dataclass(frozen=True, slots=True)
class Premise:
    """A declaration that a proof may use. `code` is the statement of a theorem, the whole text of anything else."""

    full_name: str | None
    code: str
    start: Position
    end: Position
    kind: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "full_name": self.full_name,
            "code": self.code,
            "start": list(self.start),
            "end": list(self.end),
            "kind": self.kind,
            **_extra(self.extra),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Premise:
        return cls(
            full_name=data["full_name"],
            code=data["code"],
            start=_position(data["start"]),
            end=_position(data["end"]),
            kind=data["kind"],
            extra=data.get("extra", {}),
        )


@dataclass(frozen=True, slots=True)
class TracedFile:
    """The trace of one file. `in_corpus` is false for a file that only its theorems name.

    `seen` and `gaps` say how complete it is; an import says neither.
    """

    path: str
    imports: tuple[str, ...]
    premises: tuple[Premise, ...]
    theorems: tuple[TracedTheorem, ...]
    in_corpus: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    gaps: tuple[TraceGap, ...] = ()
    seen: Seen | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "imports": list(self.imports),
            "in_corpus": self.in_corpus,
            "premises": [item.as_json() for item in self.premises],
            "theorems": [item.as_json() for item in self.theorems],
            **({"gaps": [item.as_json() for item in self.gaps]} if self.gaps else {}),
            **({} if self.seen is None else {"seen": self.seen.as_json()}),
            **_extra(self.extra),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TracedFile:
        return cls(
            path=data["path"],
            imports=tuple(data["imports"]),
            premises=tuple(Premise.from_json(item) for item in data["premises"]),
            theorems=tuple(TracedTheorem.from_json(item) for item in data["theorems"]),
            in_corpus=data["in_corpus"],
            extra=data.get("extra", {}),
            gaps=tuple(TraceGap.from_json(item) for item in data.get("gaps", ())),
            seen=Seen(*data["seen"]) if "seen" in data else None,
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The order in which an import had its records, so that they can be given back in it.

    `form` is "database" (dynamic_database.json) or "dataset" (a folder). `files` are the paths of the corpus in
    its order, then the others; a theorem is (index into `files`, index in the file's theorems), and `lists` maps
    "proven_theorems", … or "random/train", … to theorems. `files_traced` is LeanDojo's list as it was; `metadata` is a
    folder's metadata.json, whole. `extra` holds a repository record's unknown keys, `beside` those of the
    dynamic_database.json around it (next to "repositories").
    """

    form: str
    files: tuple[str, ...]
    lists: Mapping[str, tuple[tuple[int, int], ...]]
    files_traced: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "files": list(self.files),
            "lists": {name: [list(item) for item in items] for name, items in self.lists.items()},
            "files_traced": list(self.files_traced),
            "metadata": dict(self.metadata),
            **_extra(self.extra),
            **({"beside": dict(self.beside)} if self.beside else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        return cls(
            form=data["form"],
            files=tuple(data["files"]),
            lists={name: tuple(_position(item) for item in items) for name, items in data["lists"].items()},
            files_traced=tuple(data["files_traced"]),
            metadata=data["metadata"],
            extra=data.get("extra", {}),
            beside=data.get("beside", {}),
        )


def _position(value: Any) -> Position:
    line, column = value
    return int(line), int(column)


def _extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {"extra": dict(extra)} if extra else {}


SORRY_TOKENS = frozenset({"sorry", "admit", "stop"})
_SORRY_TOKEN = re.compile("|".join(SORRY_TOKENS))

# Python's letters are a superset of Lean's; the subscripts and the marks that Lean allows in a name come with \w or
# are added. What Lean reads as an operator (λ, Π, Σ) cannot begin a name.
_ATOM = r"(?:«[^»\n]*»|(?![λΠΣ\d])\w[\w'!?₀-₉ₐ-ₜᵢ-ᵪ]*)"
_NAME = rf"{_ATOM}(?:\.{_ATOM})*"
_TOKEN = re.compile(
    rf"""
      (?P<line>--[^\n]*)
    | (?P<block>/-)
    | (?P<skip>
          r(?P<hashes>\#+)".*?"(?P=hashes)      # raw strings: no escapes
        | r"[^"]*"
        | "(?:\\.|[^"\\])*"
        | '(?:\\(?:x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}}|.)|[^\\'\n])'
        | `+{_NAME}
        | (?<=[\w)\]}}⟩»'!?])\.{_NAME}          # a field of what stands before
        | \d[\w.]*
      )
    | (?P<name>{_NAME})
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/-|-/")


def holds_sorry(text: str) -> bool:
    """Return whether Lean would read a sorry, by any of its words, in this tactic or term.

    An open comment hides its rest.
    """
    if _SORRY_TOKEN.search(text) is None:
        return False
    at = 0
    while (match := _TOKEN.search(text, at)) is not None:
        if match["name"] in SORRY_TOKENS:
            return True
        at = _end_of_block(text, match.end()) if match["block"] else match.end()
    return False


def _end_of_block(text: str, at: int) -> int:
    """Return where the block comment ends whose `/-` ends at `at`."""
    depth = 1
    while depth:
        edge = _BLOCK_EDGE.search(text, at)
        if edge is None:
            return len(text)
        depth += 1 if edge[0] == "/-" else -1
        at = edge.end()
    return at
