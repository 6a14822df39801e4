"""Answers to agents: the shared documents without their empty fields, and their JSON schema.

An answer is a document of `store.documents`, a selection of its fields, or a composition of several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError
from typing_extensions import TypedDict

from store.documents import repositories, sorries
from store.documents.attempts import Attempt
from store.documents.document import of_row, plain
from store.documents.proofs import Proof, Word
from store.text import clean_block, cut, one_line, shown

LONGEST_STATEMENT = 80
"""The most characters of a statement in a listing."""
SHORTENED = "a statement that ends with … is longer, show_sorry has the whole of it"
_TOLD_WHEN_FALSE = frozenset({"daemon_running", "same_file", "stands"})
_WHOLE = frozenset({"certificate"})
"""Its hash covers all its fields, empty or not."""


@dataclass(frozen=True, slots=True)
class Repository(repositories.Repository):
    SHOWN: ClassVar = ("repository", "default_branch", "heads", "sorries", "sorries_elsewhere")


@dataclass(frozen=True, slots=True)
class Repositories:
    repositories: list[Repository]
    daemon_running: bool
    """Without it nothing here changes."""


@dataclass(frozen=True, slots=True)
class Sorry(sorries.Sorry):
    """A sorry on one branch. It names the claiming agent but hides the claim's id, which gives power over the
    claim."""

    claimed_by: str
    """The agent at work on it now; empty without one."""
    claimed_until: str | None
    yours: bool
    """The claim is the asking agent's own."""
    SHOWN: ClassVar = (
        *(
            name
            for name in sorries.Sorry.__dataclass_fields__
            if name not in ("claim", "statement_hash", "context_hash", "tried", "branches")
        ),
        *("claimed_by", "claimed_until", "yours"),
    )


@dataclass(frozen=True, slots=True)
class ListedSorry(Sorry):
    SHOWN: ClassVar = (
        *("sorry", "repository", "branch", "also_on", "path", "line", "declaration", "statement", "state"),
        *("disproved", "doubts", "by_design", "claimed_by", "claimed_until", "yours"),
        *("attempts", "outcome", "resting"),
    )

    @property
    def also_on(self) -> list[str]:
        """The other branches with it."""
        return self.branches[1:]

    @property
    def attempts(self) -> int | None:
        return None if self.tried is None else self.tried.number

    @property
    def outcome(self) -> str | None:
        """Outcome of the newest attempt."""
        return None if self.tried is None else self.tried.outcome

    @property
    def resting(self) -> int | None:
        """Number of theorems and blueprint statements that depend on it; only with `order` impact."""
        return None if self.impact is None else self.impact.resting


@dataclass(frozen=True, slots=True)
class Sorries:
    sorries: list[ListedSorry]
    total: int
    """Number of matches on all pages."""
    next_offset: int | None
    """Offset of the next page; left out on the last page."""
    note: str


@dataclass(frozen=True, slots=True)
class Source:
    """The lines around a sorry in the newest scanned commit."""

    path: str
    blob: str
    """Git's id of the file."""
    before: str
    """Its text up to the sorry."""
    token: str
    """The word replaced by a proof."""
    after: str
    """Its text behind the sorry."""
    cut: bool
    """The file has more text."""


@dataclass(frozen=True, slots=True)
class OneSorry:
    branches: list[Sorry]
    """The sorry on each of its branches."""
    source: Source | None
    attempts: list[Attempt]
    """Oldest first."""
    proofs: list[Proof]
    """Oldest first."""


@dataclass(frozen=True, slots=True)
class Submitted:
    verdict: Word
    why: str
    proof: str | None = None
    """The proof's id, for show_proof; none if nothing was recorded."""
    others: dict[str, str] = field(default_factory=dict)
    """The ids of the proofs for the other given sorries, by the sorry's id."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's verdict on a proof; nothing is recorded."""

    verdict: Literal["accepted", "rejected", "unknown"]
    reason: str
    remedy: str = ""
    findings: list[dict[str, str]] = field(default_factory=list)
    """The checks in their order."""
    not_checked: list[str] = field(default_factory=list)
    axioms: list[str] = field(default_factory=list)
    grade: str | None = None
    conditional_on: list[str] = field(default_factory=list)
    toolchain: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Premise:
    full_name: str
    score: float
    code: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Premises:
    premises: list[Premise]
    """The most promising first, of those usable there."""
    commit: str
    """Of the trace; newer premises are unknown."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A sorry reserved for an agent; or given back, without `until`."""

    claim: str
    """Its id: keep it, to renew the claim, to release it and to submit under it."""
    sorry: str
    until: str = ""
    """End of the lease, UTC."""


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    certificate: dict[str, Any]
    """The file's content: docs/certificates.md."""
    in_doubt: str
    """The reason to doubt the proof; empty without one."""


def shown_sorry(item: sorries.Sorry, *, agent: str | None, claim: str | None) -> Sorry:
    """Return a sorry for the agent with this name or this claim."""
    return of_row(Sorry, item, **_claimed(item, agent=agent, claim=claim))


def listed_sorry(item: sorries.Sorry, *, agent: str | None, claim: str | None) -> ListedSorry:
    """Return a sorry as a line of a listing, for the agent with this name or this claim."""
    statement = cut(one_line(item.statement), LONGEST_STATEMENT)
    return of_row(ListedSorry, item, statement=statement, **_claimed(item, agent=agent, claim=claim))


def _claimed(item: sorries.Sorry, *, agent: str | None, claim: str | None) -> dict[str, Any]:
    lease = item.claim
    if lease is None:
        return {"claimed_by": "", "claimed_until": None, "yours": False}
    yours = lease.claim == claim or lease.agent == agent
    return {"claimed_by": lease.agent, "claimed_until": lease.until, "yours": yours}


# ---- JSON without empty fields, and its schema


def filled(answer: object, hidden: Sequence[str] = ()) -> dict[str, Any]:
    """Return an answer in JSON without its empty fields, its texts without control characters and hidden
    folders."""
    whole = json.loads(json.dumps(answer, default=plain))
    fit = _filled(whole, hidden)
    assert isinstance(fit, dict)
    return fit


def _filled(value: Any, hidden: Sequence[str], *, whole: bool = False) -> Any:
    if isinstance(value, str):
        return fit(value, hidden)
    if isinstance(value, list):
        return [_filled(one, hidden, whole=whole) for one in value]
    if isinstance(value, dict):
        parts = {name: _filled(one, hidden, whole=whole or name in _WHOLE) for name, one in value.items()}
        return {name: one for name, one in parts.items() if whole or not _empty(name, one)}
    return value


def _empty(name: str, value: object) -> bool:
    # 0 is a number, and no answer is without it.
    if isinstance(value, bool):
        return not value and name not in _TOLD_WHEN_FALSE
    return value is None or (isinstance(value, str | list | dict) and not value)


def fit(text: str, hidden: Sequence[str]) -> str:
    """Return a text without control characters, and without the daemon's folders."""
    for folder in hidden:
        text = text.replace(folder, "…")
    return clean_block(text)


@cache
def schema_type(kind: Any) -> Any:
    """Return the JSON type of a document, for its schema: fields that may be empty may be missing."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        types = {}
        for name in getattr(kind, "SHOWN", kind.__dataclass_fields__):
            computed = None if name in hints else getattr(kind, name).fget
            types[name] = schema_type(get_type_hints(computed)["return"] if computed else hints[name])
        return TypedDict(kind.__name__, types, total=False)  # type: ignore[operator]
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return Union[tuple(schema_type(one) for one in get_args(kind) if one is not type(None))]  # noqa: UP007
    if origin in (list, dict):
        return origin[tuple(schema_type(one) for one in get_args(kind))]
    return kind


# ---- Wrong arguments


def why_refused(tool: str, error: ValidationError, arguments: Mapping[str, Any]) -> str:
    """Return in one sentence the fault of a tool's first wrong argument.

    Args:
        arguments: their JSON schemas, by name.
    """
    first, *_ = error.errors(include_url=False, include_context=False)
    name = str(first["loc"][0]) if first["loc"] else "arguments"
    takes = str(arguments.get(name, {}).get("description", "")).rstrip(".")
    remedy = f"; give {takes[:1].lower()}{takes[1:]}" if takes else "; give another"
    if first["type"] == "missing":
        return f"{tool}: the argument {name} is missing{remedy}"
    place = "".join(f" {part}" for part in first["loc"][1:] if part != "[key]")
    expected = first["msg"].partition("should ")[2]
    reason = f"should {expected}" if expected else one_line(first["msg"])
    return f"{tool}: the argument {name}{clean_block(place)} is {shown(first['input'])}, but {reason}{remedy}"


def why_unnamed(tool: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return in one sentence that a tool has no such argument, with its arguments."""
    return f"{tool}: has no argument {shown(name)}; it takes {', '.join(arguments) or 'none'}"
