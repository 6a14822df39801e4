"""Which declaration of now is which of before: the one set of rules that sorrys and theorems are followed by.

Pure: it compares the declarations of the files that differ between two scanned commits, so that a line that moved,
a file that moved, a renamed declaration and a reworded statement do not make another declaration of it:

1. same path, name and statement;  2. same name and statement in another file;
3. same path and name (the statement changed);  4. same name in another file;
5. same statement under another name (renamed): same last part of the name, same file, elsewhere;
6. same file and last part of the name, one on either side: the namespace was renamed, and words of the statement;
7. anonymous ones (`example`, `instance`) whose statement changed, by where they stand between matched ones.

An earlier rule goes before a later one, and of those alike the first meets the first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from store.events import SorryPlace
from store.identity import short_hash
from store.scanned import THEOREM_KINDS, ReadFile, ScannedFile, Sorry

_NO_STATEMENT = short_hash("statement", "")
_ANONYMOUS_PREFIX = "_"


@dataclass(frozen=True, slots=True)
class LivingSorry:
    """A sorry that was in the source at the previous scan of the branch."""

    sorry: str
    place: SorryPlace


@dataclass(frozen=True, slots=True)
class Decl:
    """What is compared of a declaration: `living` are the sorrys it had, `places` those it has.

    `proof_hash` covers what stands after the statement; it and `text_hash` are empty where the text is not known.
    `statement` is empty where nobody will ask for it.
    """

    path: str
    index: int
    name: str
    kind: str
    statement: str
    statement_hash: str
    text_hash: str
    proof_hash: str = ""
    living: tuple[LivingSorry, ...] = ()
    places: tuple[SorryPlace, ...] = ()

    @property
    def anonymous(self) -> bool:
        return self.name.rpartition(".")[2].startswith(_ANONYMOUS_PREFIX) and self.kind in (
            "example",
            "instance",
            "deriving instance",
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """The declarations of the changed files before and now, and which of them are the same."""

    before: tuple[Decl, ...]
    now: tuple[Decl, ...]
    pairs: tuple[tuple[Decl, Decl], ...]


def compare(before: Sequence[Decl], now: Sequence[Decl]) -> Compared:
    """Find each earlier declaration among the present ones; see the module for the order of the rules."""
    return Compared(tuple(before), tuple(now), tuple(match_declarations(before, now)))


def place_of(scan: ScannedFile, sorry: Sorry, *, path: str, blob: str) -> SorryPlace:
    """Where one sorry of a scan stands, as the events say it."""
    declaration = scan.declarations[sorry.index]
    return SorryPlace(
        path=path,
        blob=blob,
        line=sorry.line,
        column=sorry.column,
        byte_start=sorry.byte_start,
        byte_end=sorry.byte_end,
        declaration=declaration.name,
        kind=declaration.kind,
        statement=declaration.statement,
        statement_hash=declaration.statement_hash,
        ordinal=sorry.ordinal,
        token=sorry.token,
        mode=sorry.mode,
        context_hash=sorry.context_hash,
    )


def declarations_now(read: ReadFile, *, path: str, blob: str) -> list[Decl]:
    """The declarations of a file as it is now. Only a theorem's statement is kept."""
    places: dict[int, list[SorryPlace]] = defaultdict(list)
    for sorry in read.scan.sorries:
        places[sorry.index].append(place_of(read.scan, sorry, path=path, blob=blob))
    return [
        Decl(
            path=path,
            index=index,
            name=item.name,
            kind=item.kind,
            statement=item.statement if item.kind in THEOREM_KINDS else "",
            statement_hash=item.statement_hash,
            text_hash=item.text_hash,
            proof_hash=proof_hash,
            places=tuple(places.get(index, ())),
        )
        for index, (item, proof_hash) in enumerate(
            zip(read.scan.declarations, read.proof_hashes, strict=True)
        )
    ]


def declarations_known(living: Sequence[LivingSorry], read: ReadFile, *, path: str) -> list[Decl] | None:
    """The declarations of a file as it was, with the sorrys that lived in it; their statements are left out.

    With them even those without a sorry are known, and cannot be taken for new ones. None where the file does not
    have these sorrys: another version of the scanner recorded them.
    """
    at = {sorry.byte_start: sorry.index for sorry in read.scan.sorries}
    inside: dict[int, list[LivingSorry]] = defaultdict(list)
    for item in _ordered(living):
        index = at.get(item.place.byte_start)
        if index is None:
            return None
        inside[index].append(item)
    return [
        Decl(
            path=path,
            index=index,
            name=item.name,
            kind=item.kind,
            statement="",
            statement_hash=item.statement_hash,
            text_hash=item.text_hash,
            proof_hash=proof_hash,
            living=tuple(inside.get(index, ())),
        )
        for index, (item, proof_hash) in enumerate(
            zip(read.scan.declarations, read.proof_hashes, strict=True)
        )
    ]


def declarations_guessed(living: Sequence[LivingSorry], *, path: str) -> list[Decl]:
    """The declarations that had a sorry, where a file as it was can not be read any more.

    The sorrys' places alone say what there was: a declaration begins wherever the name changes or the ordinal does
    not grow.
    """
    groups: list[list[LivingSorry]] = []
    for item in _ordered(living):
        last = groups[-1][-1].place if groups else None
        if last and last.declaration == item.place.declaration and last.ordinal < item.place.ordinal:
            groups[-1].append(item)
        else:
            groups.append([item])
    return [
        Decl(
            path=path,
            index=index,
            name=group[0].place.declaration,
            kind=group[0].place.kind,
            statement="",
            statement_hash=group[0].place.statement_hash,
            text_hash="",
            living=tuple(group),
        )
        for index, group in enumerate(groups)
    ]


def same_file(before: Sequence[Decl], now: Sequence[Decl]) -> bool:
    """Whether a file's declarations are what they were and none has or had a sorry: nothing became of any of them.

    The first rule would pair them one by one, so that leaving such a file out of a comparison changes nothing.
    """
    return len(before) == len(now) and all(
        (old.name, old.kind, old.statement_hash, old.text_hash)
        == (new.name, new.kind, new.statement_hash, new.text_hash)
        and not (old.living or new.places)
        for old, new in zip(before, now, strict=True)
    )


def _ordered(living: Sequence[LivingSorry]) -> list[LivingSorry]:
    return sorted(living, key=lambda item: item.place.byte_start)


@dataclass(slots=True)
class _Matching:
    """Pairs of declarations, and what is still without a partner."""

    before: list[Decl]
    now: list[Decl]
    pairs: list[tuple[Decl, Decl]] = field(default_factory=list)

    def by(self, key: Callable[[Decl], Hashable], *, only: Callable[[Decl], bool] = lambda _: True) -> None:
        """Pair those with the same key, in order of appearance."""
        waiting: dict[Hashable, list[Decl]] = defaultdict(list)
        for item in self.before:
            if only(item):
                waiting[key(item)].append(item)
        for queue in waiting.values():
            queue.reverse()
        paired_before: set[int] = set()
        left: list[Decl] = []
        for item in self.now:
            queue = waiting.get(key(item), []) if only(item) else []
            if queue:
                partner = queue.pop()
                paired_before.add(id(partner))
                self.pairs.append((partner, item))
            else:
                left.append(item)
        self.now = left
        self.before = [item for item in self.before if id(item) not in paired_before]

    def by_last_part(self) -> None:
        """Pair those of one file whose names end alike, where there is no choice."""
        once = [
            {key for key, count in Counter(_last_part(item) for item in side).items() if count == 1}
            for side in (self.before, self.now)
        ]
        sure = once[0] & once[1]
        self.by(_last_part, only=lambda item: not item.anonymous and _last_part(item) in sure)

    def by_neighbours(self) -> None:
        """Pair anonymous declarations of one name and file that follow the same matched declaration."""
        partners = {(old.path, old.index): new.index for old, new in self.pairs if old.path == new.path}
        own = {(new.path, new.index): new.index for _, new in self.pairs}
        gaps = _gaps(self.before, partners) | _gaps(self.now, own)
        self.by(
            lambda item: (item.path, item.name, item.kind, gaps[id(item)]),
            only=lambda item: item.anonymous,
        )


def _gaps(left: Iterable[Decl], matched: Mapping[tuple[str, int], int]) -> dict[int, int]:
    """For each declaration without a partner: the present index of the matched one before it, -1 for none."""
    gaps: dict[int, int] = {}
    places = sorted([*matched, *((item.path, item.index) for item in left)])
    by_place = {(item.path, item.index): item for item in left}
    path, last = "", -1
    for place in places:
        if place[0] != path:
            path, last = place[0], -1
        if place in by_place:
            gaps[id(by_place[place])] = last
        else:
            last = matched[place]
    return gaps


def _last_part(item: Decl) -> tuple[str, str]:
    return item.path, item.name.rpartition(".")[2]


def _named(item: Decl) -> bool:
    return not item.anonymous


def _stated(item: Decl) -> bool:
    return item.statement_hash != _NO_STATEMENT


def match_declarations(before: Sequence[Decl], now: Sequence[Decl]) -> list[tuple[Decl, Decl]]:
    """Find each earlier declaration among the present ones; see the module for the order of the rules."""
    matching = _Matching(list(before), list(now))
    matching.by(lambda item: (item.path, item.name, item.statement_hash))
    matching.by(lambda item: (item.name, item.statement_hash, item.kind))
    matching.by(lambda item: (item.path, item.name), only=_named)
    matching.by(lambda item: item.name, only=_named)
    matching.by(lambda item: (item.name.rpartition(".")[2], item.statement_hash), only=_stated)
    matching.by(lambda item: (item.path, item.statement_hash), only=_stated)
    matching.by(lambda item: item.statement_hash, only=_stated)
    matching.by_last_part()
    matching.by_neighbours()
    return matching.pairs
