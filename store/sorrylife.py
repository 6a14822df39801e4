"""What became of a branch's sorrys from one commit to the next: opened, moved, changed, filled, removed.

Pure: it compares what lived before with what the scanner reads now and returns the events. Declarations are matched
first, sorrys inside matched declarations second, so that a line that moved, a file that moved, a renamed
declaration and a reworded statement keep their sorrys' identities:

1. same path, name and statement;  2. same name and statement in another file;
3. same path and name (the statement changed);  4. same name in another file;
5. same statement under another name (renamed): same last part of the name, same file, elsewhere;
6. same file and last part of the name, one on either side: the namespace was renamed, and words of the statement;
7. anonymous ones (`example`, `instance`) whose statement changed, by where they stand between matched ones.

Inside a declaration the sorrys are aligned by what stands around them (`context_hash`), order kept, so that the one
that was filled is told from the ones that stay. What is left over was filled or is new.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from store.events import (
    SorryChanged,
    SorryEvent,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryPlace,
    SorryRemoved,
)
from store.identity import short_hash, sorry_id
from store.scanned import ScannedFile, Sorry

_NO_STATEMENT = short_hash("statement", "")
_ANONYMOUS_PREFIX = "_"
_MOST_PAIRS = (
    1_000_000  # sorrys before times sorrys now that are aligned by context; more are paired in order
)
_PART = 4  # hex digits of each part of a context hash
_SAME_DECLARATION = 0.5  # two sorrys of one declaration are rather one that was edited around than two


@dataclass(frozen=True, slots=True)
class LivingSorry:
    """A sorry that was in the source at the previous scan of the branch."""

    sorry: str
    place: SorryPlace


@dataclass(frozen=True, slots=True)
class GivenProof:
    """A proof of ours; `declaration_text_hash` is the patched declaration's `text_hash`."""

    proof: str
    sorry: str
    declaration_text_hash: str


@dataclass(frozen=True, slots=True)
class Decl:
    """What matching needs of a declaration: `living` are the sorrys it had, `places` those it has."""

    path: str
    index: int
    name: str
    kind: str
    statement: str
    statement_hash: str
    text_hash: str
    living: tuple[LivingSorry, ...] = ()
    places: tuple[SorryPlace, ...] = ()

    @property
    def anonymous(self) -> bool:
        return self.name.rpartition(".")[2].startswith(_ANONYMOUS_PREFIX) and self.kind in (
            "example",
            "instance",
            "deriving instance",
        )


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


def declarations_now(scan: ScannedFile, *, path: str, blob: str) -> list[Decl]:
    """The declarations of a file as it is now. Statements are kept only where there are sorrys."""
    places: dict[int, list[SorryPlace]] = defaultdict(list)
    for sorry in scan.sorries:
        places[sorry.index].append(place_of(scan, sorry, path=path, blob=blob))
    return [
        Decl(
            path=path,
            index=index,
            name=item.name,
            kind=item.kind,
            statement=item.statement if index in places else "",
            statement_hash=item.statement_hash,
            text_hash=item.text_hash,
            places=tuple(places.get(index, ())),
        )
        for index, item in enumerate(scan.declarations)
    ]


def declarations_before(
    living: Sequence[LivingSorry], scans: Mapping[tuple[str, str], ScannedFile]
) -> list[Decl]:
    """The declarations as they were, with the living sorrys in them.

    `scans` holds the earlier versions by (path, blob) where they can still be read; with them even the declarations
    without a sorry are known, and cannot be taken for new ones. Without, the places alone say what there was.
    """
    by_file: dict[tuple[str, str], list[LivingSorry]] = defaultdict(list)
    for item in living:
        by_file[item.place.path, item.place.blob].append(item)
    result: list[Decl] = []
    for key in sorted(by_file):
        items = sorted(by_file[key], key=lambda item: item.place.byte_start)
        scan = scans.get(key)
        known = _known(items, scan, path=key[0]) if scan else None
        result.extend(known if known is not None else _guessed(items, path=key[0]))
    return result


def _known(items: Sequence[LivingSorry], scan: ScannedFile, *, path: str) -> list[Decl] | None:
    """From the earlier scan; None where it does not have these sorrys (another scanner version read it)."""
    at = {sorry.byte_start: sorry.index for sorry in scan.sorries}
    inside: dict[int, list[LivingSorry]] = defaultdict(list)
    for item in items:
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
            statement=item.statement,
            statement_hash=item.statement_hash,
            text_hash=item.text_hash,
            living=tuple(inside.get(index, ())),
        )
        for index, item in enumerate(scan.declarations)
    ]


def _guessed(items: Sequence[LivingSorry], *, path: str) -> list[Decl]:
    """From the places: a declaration begins wherever the name changes or the ordinal does not grow."""
    groups: list[list[LivingSorry]] = []
    for item in items:
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
            statement=group[0].place.statement,
            statement_hash=group[0].place.statement_hash,
            text_hash="",
            living=tuple(group),
        )
        for index, group in enumerate(groups)
    ]


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


def align(before: Sequence[str], now: Sequence[str]) -> list[tuple[int, int]]:
    """Pair the sorrys of one declaration by their context hashes: in order, so that surroundings agree best."""
    start = 0
    while start < min(len(before), len(now)) and before[start] == now[start]:
        start += 1
    end = 0
    while end < min(len(before), len(now)) - start and before[-1 - end] == now[-1 - end]:
        end += 1
    middle_before = before[start : len(before) - end]
    middle_now = now[start : len(now) - end]
    pairs = [(index, index) for index in range(start)]
    if len(middle_before) * len(middle_now) > _MOST_PAIRS:
        middle = [(index, index) for index in range(min(len(middle_before), len(middle_now)))]
    else:
        middle = _best(middle_before, middle_now)
    pairs += [(start + old, start + new) for old, new in middle]
    pairs += [(len(before) - back, len(now) - back) for back in range(end, 0, -1)]
    return pairs


def _likeness(one: str, other: str) -> float:
    parts = range(0, min(len(one), len(other)), _PART)
    return _SAME_DECLARATION + sum(one[at : at + _PART] == other[at : at + _PART] for at in parts)


def _best(before: Sequence[str], now: Sequence[str]) -> list[tuple[int, int]]:
    rows, columns = len(before), len(now)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            paired = best[row + 1][column + 1] + _likeness(before[row], now[column])
            best[row][column] = max(paired, best[row + 1][column], best[row][column + 1])
    pairs = []
    row = column = 0
    while row < rows and column < columns:
        if best[row][column] == best[row + 1][column + 1] + _likeness(before[row], now[column]):
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs


@dataclass(frozen=True, slots=True)
class Commit:
    """Which commit of which branch the present declarations are of."""

    repository: str
    branch: str
    sha: str


def live(
    commit: Commit,
    *,
    before: Sequence[Decl],
    now: Sequence[Decl],
    proofs: Iterable[GivenProof] = (),
    elsewhere: Collection[str] = (),
    closed: Collection[str] = (),
) -> list[SorryEvent]:
    """The events of one commit, at most one a sorry.

    Args:
        before: The declarations of the changed and removed files, as they were (`declarations_before`).
        now: Those of the changed files, as they are (`declarations_now`).
        proofs: Our proofs of living sorrys; decide whether a sorry was filled by us.
        elsewhere: The sorrys that live in files that did not change; their ids are taken.
        closed: The sorrys that were filled or removed earlier; one that comes back is reopened.
    """
    given: dict[str, list[GivenProof]] = defaultdict(list)
    for proof in proofs:
        given[proof.sorry].append(proof)
    taken = {*elsewhere, *(item.sorry for old in before for item in old.living)}
    events: list[SorryEvent] = []
    new: list[tuple[Decl, SorryPlace]] = []
    partner = {id(new): old for old, new in match_declarations(before, now)}
    gone = {id(old): old for old in before if old.living}
    for item in sorted(now, key=lambda item: (item.path, item.index)):
        old = partner.get(id(item))
        if old is None:
            new.extend((item, place) for place in item.places)
            continue
        gone.pop(id(old), None)
        pairs = align(
            [living.place.context_hash for living in old.living],
            [place.context_hash for place in item.places],
        )
        kept_before, kept_now = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        for index, living in enumerate(old.living):
            if index not in kept_before:
                events.append(_filled(commit, living, item, given[living.sorry]))
        for index_before, index_now in pairs:
            event = _kept(commit, old.living[index_before], item.places[index_now])
            if event:
                events.append(event)
        new.extend((item, place) for index, place in enumerate(item.places) if index not in kept_now)
    for old in gone.values():
        events += (SorryRemoved(**_about(commit, living.sorry)) for living in old.living)
    for _, place in new:
        identity = _fresh(commit.repository, place, taken)
        taken.add(identity)
        events.append(SorryOpened(**_about(commit, identity), place=place, reopened=identity in closed))
    return events


def _about(commit: Commit, sorry: str) -> dict[str, str]:
    return {"repository": commit.repository, "branch": commit.branch, "sha": commit.sha, "sorry": sorry}


def _filled(commit: Commit, living: LivingSorry, now: Decl, proofs: Iterable[GivenProof]) -> SorryFilled:
    ours = next((item.proof for item in proofs if item.declaration_text_hash == now.text_hash), None)
    return SorryFilled(**_about(commit, living.sorry), by="us" if ours else "people", proof=ours)


def _kept(commit: Commit, living: LivingSorry, place: SorryPlace) -> SorryMoved | SorryChanged | None:
    """Nothing where place and file are as they were; `context` where only the file around it changed.

    That one is an event because the view needs the new blob and byte range.
    """
    before = living.place
    if before == place:
        return None
    about = _about(commit, living.sorry)
    if before.statement_hash != place.statement_hash:
        return SorryChanged(**about, place=place, statement_before=before.statement)
    what: list[Literal["line", "file", "rename"]] = []
    if (before.line, before.column) != (place.line, place.column):
        what.append("line")
    if before.path != place.path:
        what.append("file")
    if before.declaration != place.declaration:
        what.append("rename")
    return SorryMoved(**about, place=place, what=tuple(what) or ("context",))


def _fresh(repository: str, place: SorryPlace, taken: Collection[str]) -> str:
    """The id of a sorry at first sight. Twins (two `example : p := sorry`) are counted off."""
    twin = 0
    while True:
        statement = place.statement_hash if not twin else f"{place.statement_hash}#{twin}"
        identity = sorry_id(repository, place.declaration, statement, place.ordinal)
        if identity not in taken:
            return identity
        twin += 1
