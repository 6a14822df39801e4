"""Records of Lean files: the scan of a file and the trace of a file, for the log and for people.

Lines of a scan count from 1, columns from 0 in code points (Lean's convention); byte offsets are into the
file's UTF-8 bytes as committed, half open. Positions of a trace are LeanDojo's: (line, column) from 1.
`as_json` and `from_json` are inverse to each other.
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
    """One `sorry` or `admit` for Lean to elaborate, or a `stop`: `repeat sorry` without the rest.

    `context_hash` covers the few tokens around it, to tell the remaining sorries from the filled one when a
    proof is filled in part.
    """

    declaration: str
    index: int
    """its declaration's place in the list; two declarations can share a name"""
    ordinal: int
    """its number inside that declaration, from 0"""
    token: SorryToken
    mode: SorryMode
    line: int
    column: int
    byte_start: int
    byte_end: int
    context_hash: str


class NotUnderstood(NamedTuple):
    """An unknown command: a library's, or text without a command. `word` is its first."""

    word: str
    line: int
    column: int
    byte_start: int
    byte_end: int


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """The scan of one file. With an `error` it is incomplete; the readable part is still here.

    A command without a declaration is among the declarations if it has a sorry, under the name `_` with its
    keyword.
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
            "declarations": [declaration._asdict() for declaration in self.declarations],
            "sorries": [{name: getattr(sorry, name) for name in Sorry.__slots__} for sorry in self.sorries],
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
    """One version of a file as read by a job: its scan, and the hash of each declaration's proof or value.

    The hashes ignore white space and comments, as `text_hash` does; they tell another name or attribute from
    another proof. `exercise_words` counts "exercise" in the text, comments too, in any case: such a file's
    sorries may be there for people to fill. `marked` names the declarations with an attribute called
    `exercise` or `challenge`: their sorries are there by design.
    """

    scan: ScannedFile
    proof_hashes: tuple[str, ...]
    exercise_words: int = 0
    marked: tuple[str, ...] = ()


Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PremiseUse:
    """One premise of an annotated tactic, in the order of the `<a>` marks, with the place of its definition."""

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
    """A constant used in a proof, and the site of its name's definition; `site` is None if unknown.

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
"""The missing part of a trace: a whole file; a file refused by Lean; a theorem missing in Lean; a constant
declared by a macro and no text; the steps of a tactic proof; definition sites of constants; the goal of a
sorry."""


@dataclass(frozen=True, slots=True)
class TraceGap:
    """A missing part of a file's trace, with the reason. `declaration` is "" for the file as a whole."""

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
    """A file's theorems in its source and tactic steps reported by Lean, and how many of each are traced."""

    theorems: int
    theorems_traced: int
    tactics: int
    tactics_traced: int

    def as_json(self) -> list[int]:
        return [self.theorems, self.theorems_traced, self.tactics, self.tactics_traced]


@dataclass(frozen=True, slots=True)
class TracedTactic:
    """One tactic step: `annotated` is its text with `<a>` and `</a>` around each premise of `premises`.

    `constants` are all constants Lean reports for the step, full names in Lean's order, also those missing in
    its text. Their definition sites are in the theorem's `premises`.
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
            "annotated_tactic": [self.annotated, [premise.as_json() for premise in self.premises]],
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
            premises=tuple(PremiseUse.from_json(premise) for premise in premises),
            state_before=data["state_before"],
            state_after=data["state_after"],
            extra=data.get("extra", {}),
            constants=tuple(data.get("constants", ())),
        )


@dataclass(frozen=True, slots=True)
class TracedTheorem:
    """A theorem and its proof's steps. `statement` is None if the tracer gave none.

    `url` and `commit` are None if they equal the trace's (a merged dataset has theorems of several).
    `difficulty` is an import's: None for nothing, infinity for a proof with a sorry; written as "Infinity".
    `premises` are the constants of the whole proof, also of a term. `sorry`: by Lean's word it rests on a
    sorry of its own, which a proof by a term has no step to show. `type` is a digest, equal for types equal
    to Lean, "" if unknown; `alike` are the imported theorems of packages and of Lean with the same digest,
    and `proof` is the text of its proof, "" if long.
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
            "traced_tactics": [tactic.as_json() for tactic in self.tactics],
            **{name: value for name, value in optional.items() if value is not None},
            **({"premises": [premise.as_json() for premise in self.premises]} if self.premises else {}),
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
    """A declaration usable in proofs. `code` is a theorem's statement, the whole text of anything else."""

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
    """The trace of one file. `in_corpus` is false for a file known from theorems alone.

    `seen` and `gaps` tell how complete it is; an import has neither.
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
            "premises": [premise.as_json() for premise in self.premises],
            "theorems": [theorem.as_json() for theorem in self.theorems],
            **({"gaps": [gap.as_json() for gap in self.gaps]} if self.gaps else {}),
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
    """The order of an import's records, for an export in the same order.

    `form` is "database" (dynamic_database.json) or "dataset" (a folder). `files` are the paths of the corpus
    in its order, then the others; a theorem is (index into `files`, index in the file's theorems), and
    `lists` maps "proven_theorems", … or "random/train", … to theorems. `files_traced` is LeanDojo's list,
    unchanged; `metadata` is a folder's metadata.json, whole. `extra` holds a repository record's unknown
    keys, `beside` those of the dynamic_database.json around it (next to "repositories").
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

# Python's letters are a superset of Lean's; Lean's subscripts and marks in names come with \w or are added.
# Lean's operators (λ, Π, Σ) cannot begin a name.
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
    """Return the end of the block comment whose `/-` ends at `at`."""
    depth = 1
    while depth:
        edge = _BLOCK_EDGE.search(text, at)
        if edge is None:
            return len(text)
        depth += 1 if edge[0] == "/-" else -1
        at = edge.end()
    return at
