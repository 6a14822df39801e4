"""Match the declarations of a commit, and the sorries in them, with those of the previous one.

Pure. It compares the declarations of the files changed between two scanned commits. A declaration stays the
same through moved lines, a moved file, a new name or a reworded statement:

1. same path, name and statement;  2. same name and statement in another file;
3. same path and name (the statement changed);
4. same statement under another name (renamed): same last part of the name, then same file;
5. same name in another file (moved, and the statement changed); then same statement anywhere;
6. same file and last part of the name, one on either side: the namespace was renamed, and words of the
   statement;
7. theorems of another name and nearly the same statement, each more like the other than like any third:
   renaming a definition renames it in the names and in the statements of its lemmas at once;
8. anonymous ones (`example`, `instance`) with a changed statement, by their position between matched ones.

An earlier rule goes before a later one; by one rule a theorem rather meets a theorem than a definition, and
of those alike the first meets the first. An alias is another name for something and no other declaration's
later self: a renaming often leaves an alias under the old name, and the alias must not hide the theorem's
move. An alias is the same while its name and text are. Sorries are paired inside of matched declarations.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Literal, NamedTuple, Protocol

from store.domain.identity import hash_of_statement
from store.domain.keywords import THEOREM_KINDS, is_nameless
from store.domain.records import ReadFile, ScannedFile, Sorry
from store.events.places import SorryPlace

_NO_STATEMENT = hash_of_statement("")
_ALIAS = "alias"
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|\S")
_ALIKE = 0.8  # on real histories all pairs above were one theorem, and below 0.75 some were two
_NAME_SHARE = 0.25
_MOST_WORDS = 1000  # of a statement for comparison by words: the work is quadratic
_MOST_WORK = 50_000_000  # words before times words now; above it nothing is compared by words
_MOST_PAIRS = 1_000_000  # sorries before times sorries now for alignment by context; above it, pairs in order
_PART = 4  # hex digits of each part of a context hash
_SAME_DECLARATION = 0.5  # two sorries of one declaration are rather one edited around than two


@dataclass(frozen=True, slots=True)
class LivingSorry:
    """A sorry in the source at the previous scan of the branch."""

    sorry: str
    place: SorryPlace


@dataclass(frozen=True, slots=True)
class Decl:
    """The compared parts of a declaration: `living` are its sorries before, `places` its sorries now.

    `proof_hash` covers the text after the statement; it and `text_hash` are empty if the text is unknown.
    `statement` is empty if unknown, and for anything but a theorem.
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
        return is_nameless(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class Compared:
    """The declarations of the changed files before and now, and the pairs of the same one."""

    before: tuple[Decl, ...]
    now: tuple[Decl, ...]
    pairs: tuple[tuple[Decl, Decl], ...]


def compare(before: Sequence[Decl], now: Sequence[Decl]) -> Compared:
    """Find each earlier declaration among the present ones; see the module for the order of the rules."""
    return Compared(tuple(before), tuple(now), tuple(match_declarations(before, now)))


def place_of(scan: ScannedFile, sorry: Sorry, *, path: str, blob: str) -> SorryPlace:
    """Return the place of a scanned sorry, in the form of its events."""
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
    """Return the declarations of a file as it is now. Only a theorem's statement is kept."""
    places: dict[int, list[SorryPlace]] = defaultdict(list)
    for sorry in read.scan.sorries:
        places[sorry.index].append(place_of(read.scan, sorry, path=path, blob=blob))
    return [
        Decl(
            path=path,
            index=index,
            name=declaration.name,
            kind=declaration.kind,
            statement=declaration.statement if declaration.kind in THEOREM_KINDS else "",
            statement_hash=declaration.statement_hash,
            text_hash=declaration.text_hash,
            proof_hash=proof_hash,
            places=tuple(places.get(index, ())),
        )
        for index, (declaration, proof_hash) in enumerate(
            zip(read.scan.declarations, read.proof_hashes, strict=True)
        )
    ]


def declarations_known(living: Sequence[LivingSorry], read: ReadFile, *, path: str) -> list[Decl] | None:
    """Return the declarations of a file as it was, with its sorries. Only a theorem's statement is kept.

    They include those without a sorry, so that these do not count as new. None if the file does not have these sorries:
    another version of the scanner recorded them.
    """
    at = {sorry.byte_start: sorry.index for sorry in read.scan.sorries}
    inside: dict[int, list[LivingSorry]] = defaultdict(list)
    for sorry in _by_place(living):
        index = at.get(sorry.place.byte_start)
        if index is None:
            return None
        inside[index].append(sorry)
    return [
        Decl(
            path=path,
            index=index,
            name=declaration.name,
            kind=declaration.kind,
            statement=declaration.statement if declaration.kind in THEOREM_KINDS else "",
            statement_hash=declaration.statement_hash,
            text_hash=declaration.text_hash,
            proof_hash=proof_hash,
            living=tuple(inside.get(index, ())),
        )
        for index, (declaration, proof_hash) in enumerate(
            zip(read.scan.declarations, read.proof_hashes, strict=True)
        )
    ]


def declarations_guessed(living: Sequence[LivingSorry], *, path: str) -> list[Decl]:
    """Return the declarations with a sorry of a file that is unreadable now.

    Only the sorries' places remain: a declaration begins wherever the name changes or the ordinal does not
    grow.
    """
    groups: list[list[LivingSorry]] = []
    for sorry in _by_place(living):
        last = groups[-1][-1].place if groups else None
        if last and last.declaration == sorry.place.declaration and last.ordinal < sorry.place.ordinal:
            groups[-1].append(sorry)
        else:
            groups.append([sorry])
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
    """Return whether a file's declarations are unchanged and none has or had a sorry.

    The first rule would pair them one by one: leaving out such a file changes no comparison.
    """
    return len(before) == len(now) and all(
        (old.name, old.kind, old.statement_hash, old.text_hash)
        == (new.name, new.kind, new.statement_hash, new.text_hash)
        and not (old.living or new.places)
        for old, new in zip(before, now, strict=True)
    )


def _by_place(living: Sequence[LivingSorry]) -> list[LivingSorry]:
    return sorted(living, key=lambda sorry: sorry.place.byte_start)


@dataclass(slots=True)
class _Matching:
    """Pairs of declarations, and the rest without a partner."""

    before: list[Decl]
    now: list[Decl]
    pairs: list[tuple[Decl, Decl]] = field(default_factory=list)

    def by(self, key: Callable[[Decl], Hashable], *, only: Callable[[Decl], bool] = lambda _: True) -> None:
        """Pair declarations with the same key, in order of appearance; theorems first with theorems."""
        self._by(lambda decl: (_theorem(decl), key(decl)), only)
        self._by(key, only)

    def _by(self, key: Callable[[Decl], Hashable], only: Callable[[Decl], bool]) -> None:
        waiting: dict[Hashable, list[Decl]] = defaultdict(list)
        for decl in self.before:
            if only(decl):
                waiting[key(decl)].append(decl)
        for queue in waiting.values():
            queue.reverse()
        paired_before: set[int] = set()
        left: list[Decl] = []
        for decl in self.now:
            queue = waiting.get(key(decl), []) if only(decl) else []
            if queue:
                partner = queue.pop()
                paired_before.add(id(partner))
                self.pairs.append((partner, decl))
            else:
                left.append(decl)
        self.now = left
        self.before = [decl for decl in self.before if id(decl) not in paired_before]

    def by_last_part(self) -> None:
        """Pair declarations of one file whose names end alike, without another choice."""
        once = [
            {key for key, count in Counter(_last_part(decl) for decl in side).items() if count == 1}
            for side in (self.before, self.now)
        ]
        sure = once[0] & once[1]
        self.by(_last_part, only=lambda decl: not decl.anonymous and _last_part(decl) in sure)

    def by_likeness(self) -> None:
        """Pair theorems with nearly the same statement and name, if each is the other's only best."""
        old, new = _in_words(self.before), _in_words(self.now)
        work = sum(len(decl.statement) for decl in old) * sum(len(decl.statement) for decl in new)
        if work > _MOST_WORK:
            return
        likeness: dict[tuple[int, int], tuple[float, float]] = {}
        best: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for row, one in enumerate(old):
            for column, other in enumerate(new):
                alike = _likeness(one, other)
                if alike >= _ALIKE:
                    # For a statement under two names: the more similar name.
                    score = alike, _ratio(_words(one.decl.name), _words(other.decl.name))
                    likeness[row, column] = score
                    best["old", row].append(score)
                    best["new", column].append(score)
        partners: dict[int, int] = {}
        for (row, column), score in likeness.items():
            if all(
                max(scores) == score and scores.count(score) == 1
                for scores in (best["old", row], best["new", column])
            ):
                partners[id(old[row].decl)] = partners[id(new[column].decl)] = len(partners)
        self._by(lambda decl: partners[id(decl)], lambda decl: id(decl) in partners)

    def by_neighbours(self) -> None:
        """Pair anonymous declarations of one name and file behind the same matched declaration."""
        partners = {(old.path, old.index): new.index for old, new in self.pairs if old.path == new.path}
        own = {(new.path, new.index): new.index for _, new in self.pairs}
        gaps = _gaps(self.before, partners) | _gaps(self.now, own)
        self.by(
            lambda decl: (decl.path, decl.name, decl.kind, gaps[id(decl)]),
            only=lambda decl: decl.anonymous,
        )


def _gaps(left: Iterable[Decl], matched: Mapping[tuple[str, int], int]) -> dict[int, int]:
    """Map each unmatched declaration to the present index of the matched one before it, -1 for none."""
    gaps: dict[int, int] = {}
    places = sorted([*matched, *((decl.path, decl.index) for decl in left)])
    by_place = {(decl.path, decl.index): decl for decl in left}
    path, last = "", -1
    for place in places:
        if place[0] != path:
            path, last = place[0], -1
        if place in by_place:
            gaps[id(by_place[place])] = last
        else:
            last = matched[place]
    return gaps


@dataclass(frozen=True, slots=True)
class _Worded:
    """A theorem in words, and the numbers of its statement."""

    decl: Decl
    name: list[str]
    statement: list[str]
    numbers: Counter[str]


def _in_words(left: Iterable[Decl]) -> list[_Worded]:
    """Return the theorems with a short, known statement, in words: `rTensor_id'` is r tensor _ id '."""
    result = []
    for decl in left:
        statement = _words(decl.statement) if _theorem(decl) else []
        if 0 < len(statement) <= _MOST_WORDS:
            numbers = Counter(word for word in statement if word.isdecimal())
            result.append(_Worded(decl, _words(decl.name.rpartition(".")[2]), statement, numbers))
    return result


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _likeness(one: _Worded, other: _Worded) -> float:
    """Return a likeness, 0..1; 0 for other numbers, as tables of bounds differ in nothing else."""
    if one.numbers != other.numbers:
        return 0.0
    least = (_ALIKE - _NAME_SHARE) / (1 - _NAME_SHARE)  # with less the same name does not help either
    matcher = SequenceMatcher(None, one.statement, other.statement, autojunk=False)
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
        return 0.0
    return (1 - _NAME_SHARE) * matcher.ratio() + _NAME_SHARE * _ratio(one.name, other.name)


def _ratio(one: list[str], other: list[str]) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _theorem(decl: Decl) -> bool:
    return decl.kind in THEOREM_KINDS


def _last_part(decl: Decl) -> tuple[str, str]:
    return decl.path, decl.name.rpartition(".")[2]


def _has_name(decl: Decl) -> bool:
    return not decl.anonymous


def _real(side: Iterable[Decl]) -> list[Decl]:
    return [decl for decl in side if decl.kind != _ALIAS]


def _aliases(side: Iterable[Decl]) -> list[Decl]:
    return [decl for decl in side if decl.kind == _ALIAS]


def _has_statement(decl: Decl) -> bool:
    return decl.statement_hash != _NO_STATEMENT


def match_declarations(before: Sequence[Decl], now: Sequence[Decl]) -> list[tuple[Decl, Decl]]:
    """Find each earlier declaration among the present ones; see the module for the order of the rules."""
    matching = _Matching(_real(before), _real(now))
    matching.by(lambda decl: (decl.path, decl.name, decl.statement_hash))
    matching.by(lambda decl: (decl.name, decl.statement_hash, decl.kind))
    matching.by(lambda decl: (decl.path, decl.name), only=_has_name)
    matching.by(lambda decl: (decl.name.rpartition(".")[2], decl.statement_hash), only=_has_statement)
    matching.by(lambda decl: (decl.path, decl.statement_hash), only=_has_statement)
    matching.by(lambda decl: decl.name, only=_has_name)
    matching.by(lambda decl: decl.statement_hash, only=_has_statement)
    matching.by_last_part()
    matching.by_likeness()
    matching.by_neighbours()
    aliases = _Matching(_aliases(before), _aliases(now))
    aliases.by(lambda decl: (decl.path, decl.name, decl.statement_hash))
    aliases.by(lambda decl: (decl.name, decl.statement_hash))
    return matching.pairs + aliases.pairs


How = Literal["filled", "restated", "became an axiom", "unchecked", "hidden"]
"""The end of a sorry that its declaration has no more. `filled`: the declaration's statement, with everything
it depends on, is the same, and a proof is there. `restated`: the statement is another. `became an axiom`:
nothing is left to prove. `unchecked`: the kernel does not see the replacement (compiled or unsafe code), or
the replacement may admit the goal. `hidden`: it is in a macro, a program or an unknown command."""


class Outcome(NamedTuple):
    """The end of a sorry, and the reason.

    `detail` is the change, `statement` the declaration's present one; `rests_on` are the declarations with a
    sorry cited by a proof.
    """

    how: How
    detail: str = ""
    statement: str = ""
    rests_on: tuple[str, ...] = ()


class Judge(Protocol):
    """Judges the sorries that left the source (`pipeline.meaning.Meanings`)."""

    def outcome(self, old: Decl, now: Decl) -> Outcome:
        """Judge a declaration with one sorry less than before."""

    def hidden_by(self, old: Decl) -> Outcome | None:
        """Return the holder of the sorries of a missing declaration; None without one."""


class Kept(NamedTuple):
    """A sorry of a declaration, still in its later self."""

    old: Decl
    was: LivingSorry
    new: Decl
    place: SorryPlace


class Filled(NamedTuple):
    """A sorry missing in the later self of its declaration."""

    old: Decl
    was: LivingSorry
    new: Decl


class Removed(NamedTuple):
    """A sorry gone with its declaration."""

    old: Decl
    was: LivingSorry


class Opened(NamedTuple):
    """A new sorry."""

    new: Decl
    place: SorryPlace


def sorry_steps(compared: Compared) -> Iterator[Kept | Filled | Removed | Opened]:
    """Yield each sorry's step: by declaration those kept and filled, then the removed, then the opened."""
    opened: list[Opened] = []
    partner = {id(new): old for old, new in compared.pairs}
    gone = {id(old): old for old in compared.before if old.living}
    for new in sorted(compared.now, key=lambda decl: (decl.path, decl.index)):
        old = partner.get(id(new))
        if old is None:
            opened += (Opened(new, place) for place in new.places)
            continue
        gone.pop(id(old), None)
        pairs = align(
            [living.place.context_hash for living in old.living], [place.context_hash for place in new.places]
        )
        kept_before, kept_now = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        yield from (Filled(old, was, new) for index, was in enumerate(old.living) if index not in kept_before)
        yield from (Kept(old, old.living[before], new, new.places[now]) for before, now in pairs)
        opened += (Opened(new, place) for index, place in enumerate(new.places) if index not in kept_now)
    yield from (Removed(old, was) for old in gone.values() for was in old.living)
    yield from opened


def align(before: Sequence[str], now: Sequence[str]) -> list[tuple[int, int]]:
    """Pair the sorries of one declaration in order, with the best agreement of their context hashes."""
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
        middle = _align_middle(middle_before, middle_now)
    pairs += [(start + old, start + new) for old, new in middle]
    pairs += [(len(before) - back, len(now) - back) for back in range(end, 0, -1)]
    return pairs


def _context_likeness(one: str, other: str) -> float:
    parts = range(0, min(len(one), len(other)), _PART)
    return _SAME_DECLARATION + sum(one[at : at + _PART] == other[at : at + _PART] for at in parts)


def _align_middle(before: Sequence[str], now: Sequence[str]) -> list[tuple[int, int]]:
    rows, columns = len(before), len(now)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            paired = best[row + 1][column + 1] + _context_likeness(before[row], now[column])
            best[row][column] = max(paired, best[row + 1][column], best[row][column + 1])
    pairs = []
    row = column = 0
    while row < rows and column < columns:
        if best[row][column] == best[row + 1][column + 1] + _context_likeness(before[row], now[column]):
            pairs.append((row, column))
            row, column = row + 1, column + 1
        elif best[row][column] == best[row + 1][column]:
            row += 1
        else:
            column += 1
    return pairs
