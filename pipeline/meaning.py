"""Decide whether a sorry is filled. One rule, for the daemon's records and for `everlean diff`.

A sorry is filled if its declaration has the same statement, the source below the statement's words is unchanged, and a
proof is there. A statement depends on: the variables and options in force, the definitions of its names (and of names
in these, looked up in the open namespaces), and notations, macros and instances used by it or these. Both versions of
the changed files are read for it, the project's files imported by only one version, and, for a statement without its
sorry, unchanged files between it and the changes. Names are looked up as Lean does it, as far as text allows: the
meaning of `h.foo` depends on a type, so every changed `foo` counts.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pipeline.lean.source.context import (
    InForce,
    Item,
    Opened,
    Part,
    bound_names,
    concerned,
    has_signs,
    is_a_proposition,
    last_parts,
    opened,
    text_of,
    uses,
    words_of,
)
from pipeline.lean.source.lexer import lex
from pipeline.versions import Chains, Definition, Version
from store.domain.keywords import (
    DECLARATION_KEYWORDS,
    INSTANCE_KINDS,
    PROVABLE_KINDS,
    THEOREM_KINDS,
    UNPROVED_KINDS,
)
from store.domain.matching import Compared, Decl, Outcome

MOST_IN_FORCE = 500_000
"""Maximum of compared parts in force, over all declarations."""
_MOST_ROUNDS = 3
"""Steps through unchanged definitions between a statement and a change."""
_MOST_REACHED = 5000
"""Maximum of definitions followed from the words of one statement."""
_KINDS = frozenset(one.word for one in DECLARATION_KEYWORDS)

Side = Literal[0, 1]
"""The earlier version, and the present one."""
Lookup = Callable[[str, int], list[Definition]]
"""Gives the definitions of a full name; in the file itself only those before a byte."""
Names = tuple[Collection[str], list[str], tuple[Opened, ...]]
"""Names, with the namespaces around their place, and the open ones."""
Reached = dict[str, Definition]
"""Definitions by their meaning."""


class Beside:
    """Access to unchanged files. This base class has none."""

    def module(self, side: Side, module: str) -> Version | None:  # noqa: ARG002
        """Return the file of a module of the project on a side, by its name."""
        return None

    def imported(self, side: Side, path: str) -> Collection[str] | None:  # noqa: ARG002
        """Return a file's imports on a side, direct or not; None if unknown."""
        return None

    def saying(self, names: Collection[str], among: Collection[str]) -> Iterable[Version]:  # noqa: ARG002
        """Return the unchanged files, among these, with one of the names in them."""
        return ()


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes in a statement's dependencies, one line each. `unread`: too much to compare."""

    statement: tuple[str, ...] = ()
    """variables and included ones"""
    context: tuple[str, ...] = ()
    """open namespaces, options, local attributes"""
    meaning: tuple[str, ...] = ()
    """definitions, notations, macros, instances"""
    doubtful: tuple[str, ...] = ()
    """opened or closed namespaces of libraries: their effect on the words is unknown"""
    unread: bool = False

    @property
    def of_the_statement(self) -> tuple[str, ...]:
        return (*self.statement, *self.context, *self.meaning)


@dataclass(slots=True)
class _Side:
    """All definitions in the versions of one side."""

    versions: dict[str, Version]
    chains: Chains
    by_name: dict[str, list[Definition]] = field(default_factory=dict)
    _contexts: dict[str, dict[int, int]] = field(default_factory=dict)
    _parts: dict[int, Counter[Part]] = field(default_factory=dict)
    _opened: dict[int, tuple[Opened, ...]] = field(default_factory=dict)
    _in_force: dict[int, InForce] = field(default_factory=dict)
    _words: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given, self.versions = self.versions, {}
        for version in given.values():
            self.add(version)

    def add(self, version: Version) -> None:
        """Add a file's definitions."""
        self.versions[version.item.path] = version
        for one in version.defined:
            self.by_name.setdefault(one.name, []).append(one)

    def chain(self, path: str, index: int) -> int:
        if path not in self._contexts:
            self._contexts[path] = self.versions[path].contexts(self.chains)
        return self._contexts[path].get(index, 0)

    def parts(self, chain: int) -> Counter[Part]:
        if chain not in self._parts:
            self._parts[chain] = self.chains.parts(chain)
        return self._parts[chain]

    def opened(self, chain: int) -> tuple[Opened, ...]:
        if chain not in self._opened:
            lines = [part.text for part in self.parts(chain) if part.kind == "open"]
            self._opened[chain] = tuple(one for line in lines for one in opened(line))
        return self._opened[chain]

    def in_force(self, path: str, index: int) -> InForce:
        chain = self.chain(path, index)
        if chain not in self._in_force:
            self._in_force[chain] = InForce(self.parts(chain))
        return self._in_force[chain]

    def words(self, one: Definition) -> frozenset[str]:
        """Return the names in a definition's content."""
        key = one.path, one.index
        if key not in self._words:
            code = self.versions[one.path].code_of(one.index)
            parts = one.name.split(".")
            own = {".".join(parts[start:]) for start in range(len(parts))}
            self._words[key] = self.in_force(*key).meant(code) - own
        return self._words[key]

    def sees(self, path: str, index: int) -> tuple[list[str], tuple[Opened, ...]]:
        """Return the namespaces to search for a declaration's short names: its own, innermost first, and opened."""
        parts = self.versions[path].declarations[index].name.split(".")
        return _around(".".join(parts[:-1])), self.opened(self.chain(path, index))

    def opens(self, path: str, index: int, namespace: str) -> bool:
        """Return whether items scoped to a namespace hold at a declaration."""
        if self.versions[path].declarations[index].name.startswith(f"{namespace}."):
            return True
        last = namespace.rpartition(".")[2]
        lines = self.parts(self.chain(path, index))
        return any(
            name.rpartition(".")[2] == last for part in lines if part.kind == "open" for name in part.names
        )


def _around(namespace: str) -> list[str]:
    """Return a namespace and its parents, innermost first."""
    parts = namespace.split(".") if namespace else []
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def full_names(word: str, own: list[str], others: Iterable[Opened], has: Callable[[str], bool]) -> list[str]:
    """Return the full names meant by a word: its longest beginning that is a name, in the innermost namespace.

    Args:
        word: a name as written, such as `foo.bar.1` with its fields.
        own: the namespaces around the place, innermost first.
        others: the open ones.
        has: whether a full name exists.
    """
    parts = word.removeprefix("_root_.").split(".")
    for end in range(len(parts), 0, -1):
        head = ".".join(parts[:end])
        if not word.startswith("_root_."):
            result = [name for name in (f"{space}.{head}" for space in own) if has(name)][:1]
            for one in others:
                if one.has(parts[0]):
                    spaces = [one.namespace, *(f"{space}.{one.namespace}" for space in own)]
                    result += [name for name in (f"{space}.{head}" for space in spaces) if has(name)]
            if result:
                return list(dict.fromkeys(result))
        if has(head):
            return [head]
    return []


class Meanings:
    """Both versions of the changed files, with their declarations matched.

    Args:
        old, new: the versions by path.
        compared: their declarations, and the matching ones.
        beside: access to other files.
        sorried: full names of declarations elsewhere with a sorry.
        elsewhere: gives versions of unchanged files with a sorry in them, on demand.
    """

    def __init__(
        self,
        old: Mapping[str, Version],
        new: Mapping[str, Version],
        compared: Compared,
        *,
        beside: Beside | None = None,
        sorried: Collection[str] = (),
        elsewhere: Callable[[], Iterable[Version]] = tuple,
    ) -> None:
        self._old, self._new, self._compared = old, new, compared
        self._beside = beside or Beside()
        self._sorried_elsewhere, self._read_elsewhere = sorried, elsewhere
        self._chains = Chains()
        self._left = MOST_IN_FORCE
        self._differences: dict[tuple[int, int], tuple[list[Part], list[Part]]] = {}
        self._imported: dict[str, tuple[tuple[Version, ...], tuple[Version, ...]]] = {}
        self._words_before: dict[str, frozenset[str]] = {}
        self._named: dict[tuple[int, str, int], list[Definition]] = {}
        self._used: dict[tuple[int, str, int], list[Item]] = {}

    # ---- the end of a sorry

    def outcome(self, old: Decl, now: Decl) -> Outcome:
        """Judge a declaration with a sorry less than before."""
        new, was = self._new.get(now.path), self._old.get(old.path)
        statement = now.statement if new is None else new.declarations[now.index].statement
        if now.kind in UNPROVED_KINDS and old.kind not in UNPROVED_KINDS:
            why = f"{now.name} became {now.kind}, which needs no proof"
            return Outcome("became an axiom", why, statement)
        hidden, unchecked = ("", "") if new is None else self._marked(old, now, was, new)
        if hidden:
            return Outcome("hidden", hidden, statement)
        if old.kind in _KINDS and now.kind not in _KINDS:
            return Outcome("hidden", f"{now.name} is in the command {now.kind}", statement)
        if old.statement_hash != now.statement_hash:
            return Outcome("restated", "the statement changed", statement)
        if not unchecked and old.kind in THEOREM_KINDS and now.kind not in PROVABLE_KINDS | INSTANCE_KINDS:
            unchecked = f"the {old.kind} became a {now.kind}"
        if unchecked:
            return Outcome("unchecked", unchecked, statement)
        if changed := self.changed(old, now).of_the_statement:
            return Outcome("restated", "; ".join(changed), statement)
        return Outcome("filled", statement=statement, rests_on=self._rests_on(now))

    def _marked(self, old: Decl, now: Decl, was: Version | None, new: Version) -> tuple[str, str]:
        """Return the declaration's new means to hide a sorry, and to escape the kernel."""
        had = Counter((mark.kind, mark.word) for mark in ([] if was is None else was.marks_of(old.index)))
        result: dict[str, str] = {}
        for mark in new.marks_of(now.index):
            if had[mark.kind, mark.word] > 0:
                had[mark.kind, mark.word] -= 1
            else:
                result.setdefault(mark.kind, mark.word.rstrip(","))
        hidden = result.get("hidden") or self._sorry_by_a_macro(new, now)
        return hidden, result.get("unchecked") or new.modifier_of(now.index)

    def hidden_by(self, old: Decl) -> Outcome | None:
        """Return the outcome for a vanished declaration with its sorry in an unknown command."""
        version = None if old.anonymous else self._new.get(old.path)
        command = None if version is None else version.unknown_command_with(old.name.rpartition(".")[2])
        if command is None:
            return None
        return Outcome("hidden", f"{old.name} is in the command {command.keyword}")

    def _sorry_by_a_macro(self, new: Version, now: Decl) -> str:
        """Return the beginning of a macro with a sorry in it, used by the declaration."""
        if not self._macros:
            return ""
        code = new.code_of(now.index)
        words = words_of(code)
        for path, item in self._macros:
            mine = path == now.path
            if (item.local and not mine) or (mine and item.byte > new.declarations[now.index].byte_start):
                continue
            if has_signs(item, code, words):
                return f"a sorry of `{item.text[:60]}`"
        return ""

    @cached_property
    def _elsewhere(self) -> tuple[Version, ...]:
        return tuple(self._read_elsewhere())

    @cached_property
    def _macros(self) -> list[tuple[str, Item]]:
        return [
            (version.item.path, item)
            for version in (*self._new.values(), *self._elsewhere)
            for item in version.items
            if item.kind == "notation" and item.sorry
        ]

    @cached_property
    def _declared(self) -> dict[str, list[tuple[Version, int]]]:
        """Every declaration of the read files, by its full name."""
        result: dict[str, list[tuple[Version, int]]] = defaultdict(list)
        for version in (*self._new.values(), *self._elsewhere):
            for index, one in enumerate(version.declarations):
                result[one.name].append((version, index))
        return result

    @cached_property
    def _sorried(self) -> frozenset[str]:
        names = {item.name for item in self._compared.now if item.places and not item.anonymous}
        for version in self._elsewhere:
            names |= {sorry.declaration for sorry in version.read.scan.sorries}
        return frozenset(names | set(self._sorried_elsewhere))

    def _rests_on(self, now: Decl) -> tuple[str, ...]:
        """Return the declarations with a sorry cited by a declaration, directly or not."""
        version = self._new.get(now.path)
        if version is None or not self._sorried:
            return ()
        result: set[str] = set()
        seen = {(now.path, now.index)}
        todo = [(version, now.index)]
        while todo and len(seen) < _MOST_REACHED:
            citing, index = todo.pop()
            for name in self._cited(citing, index):
                own = [one for one in self._declared.get(name, ()) if one[0] is citing]
                some = own or [one for one in self._declared.get(name, ()) if not one[0].private(one[1])]
                if name in self._sorried and (not own or any(one[0].has_a_sorry(one[1]) for one in own)):
                    result.add(name)
                new = [one for one in some if (one[0].item.path, one[1]) not in seen]
                seen.update((one[0].item.path, one[1]) for one in new)
                todo += new
        return tuple(sorted(result - {now.name}))

    def _cited(self, version: Version, index: int) -> Iterator[str]:
        """Yield the full names cited in a declaration, among those read or with a sorry."""
        if version.item.path in self._new:
            own, others = self._sides[1].sees(version.item.path, index)
        else:
            own, others = _around(version.declarations[index].name.rpartition(".")[0]), ()
        code = version.code_of(index)
        bound = bound_names(code.split())
        for word in words_of(code):
            if word.split(".")[0] not in bound:
                yield from full_names(
                    word, own, others, lambda name: name in self._sorried or name in self._declared
                )

    # ---- the dependencies of a statement

    def changed(self, old: Decl, now: Decl) -> Changed:
        """Return the changes in the dependencies of an unchanged statement."""
        if old.path not in self._old or now.path not in self._new:
            return Changed()
        before, after = self._sides
        chains = before.chain(old.path, old.index), after.chain(now.path, now.index)
        parts = self._different(chains)
        if parts is None:
            return Changed(unread=True)
        gone, come = parts
        statement = self._new[now.path].declarations[now.index].statement
        forces = before.in_force(old.path, old.index), after.in_force(now.path, now.index)
        words = forces[0].words(statement) | forces[1].words(statement)
        mine: list[str] = []
        around: list[str] = []
        doubtful: list[str] = []
        if gone or come:
            proof = self._words_of_the_proof(now)
            bound = forces[0].bound | forces[1].bound
            for sign, some in (("-", gone), ("+", come)):
                for part in some:
                    if part.kind == "open":
                        if not self._own_namespace(part):
                            doubtful.append(f"{sign} {part.text}")
                    elif concerned(part, words, bound) or (
                        part.kind == "variable" and sign == "+" and part.names[0] in proof
                    ):
                        line = _shown(part)
                        (mine if part.kind in ("variable", "instance", "include") else around).append(
                            f"{sign} {line}"
                        )
        elsewhere = old.path != now.path or _namespace(old) != _namespace(now)
        reopened = elsewhere or any(part.kind == "open" for part in (*gone, *come))
        names = forces[0].meant(statement), forces[1].meant(statement)
        reached = self._reached_apart(old, now, names, words, reopened=reopened)
        meaning = [
            *_other_definitions(*reached),
            *self._other_items(old, now, statement, words, reached, reopened=reopened),
        ]
        return Changed(tuple(mine), tuple(around), tuple(meaning), tuple(doubtful))

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        return _Side(dict(self._old), self._chains), _Side(dict(self._new), self._chains)

    @cached_property
    def _apart(self) -> set[str]:
        """The last parts of names with another definition, or other notations in it, in the two versions."""
        sides = [
            {(one.name, self._hash(one)) for some in side.by_name.values() for one in some}
            for side in self._sides
        ]
        result = {name.rpartition(".")[2] for name, _ in sides[0] ^ sides[1]}
        for number, side in enumerate(self._sides):
            said_of = {name for _, item in self._items_apart[number] for name in item.named[1:]}
            for some in side.by_name.values() if self._items_apart[number] else ():
                for one in some:
                    if self._items_in(number, one) or not said_of.isdisjoint(
                        self._stands_for(number, one)[1]
                    ):
                        result.add(one.name.rpartition(".")[2])
        return result

    def _widen(self) -> None:
        """Read the unchanged files between the changes and the statements without their sorry."""
        paths: set[str] = set()
        for old, now in self._compared.pairs:
            if len(old.living) > len(now.places) and old.path in self._old and now.path in self._new:
                paths.update(*(self._visible(path) or () for path in (old.path, now.path)))
        names = self._apart
        for _ in range(_MOST_ROUNDS):
            paths -= self._sides[0].versions.keys() | self._sides[1].versions.keys()
            between = list(self._beside.saying(names, paths)) if names and paths else []
            if not between:
                break
            for side in self._sides:
                for version in between:
                    side.add(version)
            names = self._resting_on(names)

    def _different(self, chains: tuple[int, int]) -> tuple[list[Part], list[Part]] | None:
        """Return the removed and the added parts in force; None if there are too many to compare."""
        if chains[0] == chains[1]:
            return [], []
        if chains not in self._differences:
            if self._left < 0:
                return None
            before, after = (self._sides[side].parts(chain) for side, chain in enumerate(chains))
            self._left -= before.total() + after.total()
            if self._left < 0:
                return None
            self._differences[chains] = list(before - after), list(after - before)
        result = self._differences[chains]
        self._left -= len(result[0]) + len(result[1])
        return result if self._left >= 0 else None

    def _words_of_the_proof(self, now: Decl) -> set[str]:
        """Return the free names in a proof: before Lean 4.12 they included variables."""
        words = self._new[now.path].code_of(now.index)
        return last_parts(words_of(words)) - bound_names(words.split())

    def _own_namespace(self, part: Part) -> bool:
        """Return whether the changed files declare all the namespaces opened by a line: then the names themselves
        decide.
        """
        return all(name.split(".")[-1] in self._namespaces for name in part.names)

    @cached_property
    def _namespaces(self) -> set[str]:
        return {part for side in self._sides for name in side.by_name for part in name.split(".")[:-1]}

    # ---- definitions

    @cached_property
    def _completed(self) -> dict[str, str]:
        """The present meaning of each definition with only its sorries replaced, and the former one."""
        result = {}
        for old, now in self._compared.pairs:
            if (
                old.living
                and old.kind not in PROVABLE_KINDS
                and old.path in self._old
                and now.path in self._new
            ):
                was, new = self._old[old.path], self._new[now.path]
                if _completes(was, old, new, now):
                    result[new.meaning_of(now.index)] = was.meaning_of(old.index)
                    self._words_before[new.meaning_of(now.index)] = words_of(was.code_of(old.index))
        return result

    def _hash(self, one: Definition) -> str:
        return self._completed.get(one.meaning, one.meaning)

    @cached_property
    def _last_names(self) -> set[str]:
        return {name.rpartition(".")[2] for side in self._sides for name in side.by_name}

    @cached_property
    def _unsettled(self) -> set[str]:
        """The last parts of names with another meaning in the two versions, and of everything that rests on them."""
        self._widen()
        return self._resting_on(self._apart)

    def _resting_on(self, names: Collection[str]) -> set[str]:
        """Return the last parts of names, and of all definitions that rest on them."""
        result = set(names)
        users: dict[str, set[str]] = defaultdict(set)
        for side in self._sides if result else ():
            for some in side.by_name.values():
                for one in some:
                    for word in last_parts(side.words(one)):
                        users[word].add(one.name.rpartition(".")[2])
        todo = set(result)
        while todo:
            while todo:
                new = users[todo.pop()] - result
                result |= new
                todo |= new
            for number, side in enumerate(self._sides):
                for some in side.by_name.values():
                    last = some[0].name.rpartition(".")[2]
                    if last not in result and any(self._items_below(number, one, result) for one in some):
                        todo.add(last)
            result |= todo
        return result

    def _items_below(self, number: int, one: Definition, names: Collection[str]) -> bool:
        """Return whether a definition uses a notation or an instance with one of these names in it."""
        items = self._items_with(number, names)
        if not items:
            return False
        side = self._sides[number]
        code, words = side.versions[one.path].code_of(one.index), last_parts(side.words(one))
        return any(
            self._holds(number, item, one.path, one.index) and uses(item[1], code, words) for item in items
        )

    def _items_with(self, number: int, names: Collection[str]) -> list[tuple[str, Item]]:
        versions = self._sides[number].versions
        return [
            (path, item)
            for path in sorted(versions)
            for item in versions[path].items
            if not item.names.isdisjoint(names) and self._says_something(item)
        ]

    @cached_property
    def _items_unsettled(self) -> tuple[list[tuple[str, Item]], list[tuple[str, Item]]]:
        """The notations and instances of each side with an unsettled name in them."""
        return self._items_with(0, self._unsettled), self._items_with(1, self._unsettled)

    def _by_items(
        self, number: Side, path: str, index: int, text: str, words: Collection[str]
    ) -> list[Names]:
        """Return the names in the notations and instances used by a text, each with the namespaces of its place."""
        side = self._sides[number]
        others = side.opened(side.chain(path, index))
        return [
            (item.names, _around(item.namespace), others)
            for where, item in self._items_unsettled[number]
            if self._holds(number, (where, item), path, index) and uses(item, text, words)
        ]

    def _visible(self, path: str) -> Collection[str] | None:
        """Return a file and its imports in both versions; None if unknown."""
        before, after = self._beside.imported(0, path), self._beside.imported(1, path)
        return None if before is None or after is None else {path, *before, *after}

    def _reached_apart(
        self,
        old: Decl,
        now: Decl,
        names: tuple[Collection[str], Collection[str]],
        words: Collection[str],
        *,
        reopened: bool,
    ) -> tuple[Reached, Reached]:
        """Return the definitions reached by a statement in each version; none if none can differ.

        Args:
            old, now: the declaration.
            names: the names in the statement, in each version.
            words: all its words, with those of its variables.
            reopened: whether another place or other open namespaces may change the meaning of names.
        """
        apart = self._imports_apart(old.path, now.path)
        statement = self._new[now.path].declarations[now.index].statement
        below = (
            self._by_items(0, old.path, old.index, statement, words),
            self._by_items(1, now.path, now.index, statement, words),
        )
        named = last_parts([*names[0], *names[1]])
        extra = {one.name.rpartition(".")[2] for some in apart for version in some for one in version.defined}
        if not any(below) and not named & (
            self._unsettled | extra | (self._last_names if reopened else set())
        ):
            return {}, {}
        looks = self._lookup(0, old.path, old.path, now.path), self._lookup(1, now.path, old.path, now.path)
        if extra:
            files = {version.item.path for some in apart for version in some}
            told = {word for word in {*names[0], *names[1]} if self._told(word, old, now, looks, files)}
            names = told & set(names[0]), told & set(names[1])
        return self._reached(0, old, names[0], looks[0], below[0]), self._reached(
            1, now, names[1], looks[1], below[1]
        )

    def _lookup(self, number: Side, path: str, was: str, now: str) -> Lookup:
        """Return a lookup of the definitions of a full name, as seen by a file.

        Args:
            number: the side.
            path: the file.
            was, now: its path in each version, for files imported by only one.
        """
        visible = self._visible(path)
        side, apart = self._sides[number], self._imports_apart(was, now)
        hidden = {version.item.path for version in apart[1 - number]}
        extra: dict[str, list[Definition]] = defaultdict(list)
        for version in apart[number]:
            for one in version.defined:
                extra[one.name].append(one)

        def lookup(name: str, before: int) -> list[Definition]:
            some = [
                *(one for one in side.by_name.get(name, ()) if visible is None or one.path in visible),
                *extra.get(name, ()),
            ]
            return [
                one
                for one in some
                if one.path not in hidden and (one.byte < before if one.path == path else not one.private)
            ]

        return lookup

    def _told(
        self, word: str, old: Decl, now: Decl, looks: tuple[Lookup, Lookup], files: Collection[str]
    ) -> bool:
        """Return whether both versions resolve a word, or neither does.

        `files` are those imported by one version alone: another import may have brought their contents too.
        """
        meant = []
        for number, item in ((0, old), (1, now)):
            side = self._sides[number]
            before = side.versions[item.path].declarations[item.index].byte_start
            meant.append(self._meant((word,), *side.sees(item.path, item.index), looks[number], before))
        earlier, later = meant
        if bool(earlier) == bool(later):
            return True
        return any(one.path not in files for one in earlier or later)

    def _meant(
        self, words: Iterable[str], own: list[str], others: tuple[Opened, ...], lookup: Lookup, before: int
    ) -> list[Definition]:
        """Return the definitions of names in a place."""
        result = []
        for word in words:
            names = full_names(word, own, others, lambda name: bool(lookup(name, before)))
            if not names and "." in word:
                names = [name for part in word.split(".")[1:] for name in self._redefined.get(part, ())]
            result += [one for name in names for one in lookup(name, before)]
        return result

    def _named_by(self, number: Side, one: Definition) -> list[Definition]:
        """Return the definitions named by a definition, itself or through its notations and instances."""
        key = number, one.path, one.index
        if key not in self._named:
            side = self._sides[number]
            words, code = side.words(one), side.versions[one.path].code_of(one.index)
            if number and one.meaning in self._completed:
                # A text in a sorry's place is new: only the earlier words count.
                words &= self._words_before[one.meaning]
            lookup = self._lookup(number, one.path, one.path, one.path)
            result = []
            for names in (
                (words, *side.sees(one.path, one.index)),
                *self._by_items(number, one.path, one.index, code, last_parts(words)),
            ):
                result += self._meant(*names, lookup, one.byte) or self._meant(*names, lookup, sys.maxsize)
            self._named[key] = result
        return self._named[key]

    def _reached(
        self, number: Side, item: Decl, words: Collection[str], lookup: Lookup, below: list[Names]
    ) -> Reached:
        """Return all definitions reached by the words of a statement, by their meaning."""
        side = self._sides[number]
        before = side.versions[item.path].declarations[item.index].byte_start
        result: Reached = {}
        todo = [
            one
            for names in ((words, *side.sees(item.path, item.index)), *below)
            for one in self._meant(*names, lookup, before)
        ]
        while todo and len(result) < _MOST_REACHED:
            one = todo.pop()
            key = self._hash(one)
            if key not in result:
                result[key] = one
                if one.path in side.versions:
                    todo += self._named_by(number, one)
        return result

    @cached_property
    def _redefined(self) -> dict[str, list[str]]:
        """The full names defined by both versions, but differently, by their last parts."""
        before, after = (
            {name: {self._hash(one) for one in some} for name, some in side.by_name.items()}
            for side in self._sides
        )
        result: dict[str, list[str]] = defaultdict(list)
        for name in before.keys() & after.keys():
            if before[name] != after[name]:
                result[name.rpartition(".")[2]].append(name)
        return result

    def _imports_apart(self, was: str, path: str) -> tuple[tuple[Version, ...], tuple[Version, ...]]:
        """Return the files imported by only one version: by the earlier, and by the present one."""
        if was not in self._old or path not in self._new:
            return (), ()
        if path not in self._imported:
            before = dict.fromkeys(self._old[was].read.scan.imports)
            after = dict.fromkeys(self._new[path].read.scan.imports)
            gone, come = self._beside.imported(0, was) or (), self._beside.imported(1, path) or ()
            self._imported[path] = (
                self._files(0, [module for module in before if module not in after], come),
                self._files(1, [module for module in after if module not in before], gone),
            )
        return self._imported[path]

    def _files(self, side: Side, modules: Iterable[str], others: Collection[str]) -> tuple[Version, ...]:
        """Return the files of modules, without those imported indirectly by the other side."""
        result = (self._beside.module(side, module) for module in modules)
        return tuple(version for version in result if version is not None and version.item.path not in others)

    # ---- notations, macros, instances

    @cached_property
    def _items_apart(self) -> tuple[list[tuple[str, Item]], list[tuple[str, Item]]]:
        """The notations, macros and instances of only one side, with their files."""
        sides = [
            [(path, item) for path in sorted(side.versions) for item in side.versions[path].items]
            for side in self._sides
        ]
        counts = [Counter((item.text, item.scope) for _, item in side) for side in sides]
        result: list[list[tuple[str, Item]]] = []
        for number, side in enumerate(sides):
            left = counts[number] - counts[1 - number]
            some = []
            for path, item in side:
                if left[item.text, item.scope] > 0:
                    left[item.text, item.scope] -= 1
                    some.append((path, item))
            result.append(some)
        completed = self._completed_instances
        return (
            [one for one in result[0] if one[1].text not in completed and self._says_something(one[1])],
            [one for one in result[1] if one[1].text not in completed and self._says_something(one[1])],
        )

    def _says_something(self, item: Item) -> bool:
        """Return whether it is anything but an instance of a proposition: all of those are equal."""
        return not item.named or not self._propositions.get(
            item.named[0].rpartition(".")[2], item.proposition
        )

    @cached_property
    def _propositions(self) -> dict[str, bool]:
        """The classes of the changed files by the last parts of their names, and whether their instances are proofs."""
        result: dict[str, bool] = {}
        for side in self._sides:
            for version in side.versions.values():
                for one in version.declarations:
                    if one.kind == "class":
                        last = one.name.rpartition(".")[2]
                        result[last] = result.get(last, True) and is_a_proposition(one.statement)
        return result

    @cached_property
    def _completed_instances(self) -> set[str]:
        """The texts of instances with only their sorries replaced, before and now."""
        result = set()
        for old, now in self._compared.pairs:
            if old.living and now.kind == "instance" and old.path in self._old and now.path in self._new:
                was, new = self._old[old.path], self._new[now.path]
                if _completes(was, old, new, now):
                    result |= {text_of(was.code_of(old.index)), text_of(new.code_of(now.index))}
        return result

    @cached_property
    def _items_scoped(self) -> tuple[list[tuple[str, Item]], list[tuple[str, Item]]]:
        """The scoped items in the changed files of each side that are the same on the other."""
        result: list[list[tuple[str, Item]]] = []
        for number, side in enumerate(self._sides):
            apart = {(path, item) for path, item in self._items_apart[number]}
            result.append(
                [
                    (path, item)
                    for path in sorted(side.versions)
                    for item in side.versions[path].items
                    if item.scope and (path, item) not in apart and self._says_something(item)
                ]
            )
        return result[0], result[1]

    def _holds(self, number: int, one: tuple[str, Item], path: str, index: int) -> bool:
        """Return whether a notation or an instance of a file holds at a declaration."""
        where, item = one
        mine = path == where
        side = self._sides[number]
        if (item.local and not mine) or (
            mine and item.byte >= side.versions[path].declarations[index].byte_start
        ):
            return False
        return not item.scope or side.opens(path, index, item.scope)

    def _items_in(self, number: int, one: Definition) -> list[Item]:
        """Return the items of this side alone used by a definition."""
        key = number, one.path, one.index
        if key not in self._used:
            side = self._sides[number]
            some = [
                item for item in self._items_apart[number] if self._holds(number, item, one.path, one.index)
            ]
            code = side.versions[one.path].code_of(one.index) if some else ""
            words = set(side.words(one)) | last_parts(side.words(one)) if some else ()
            self._used[key] = [item for _, item in some if uses(item, code, words)]
        return self._used[key]

    def _stands_for(self, number: int, one: Definition) -> tuple[str, Collection[str]]:
        """Return the code and the names of an abbreviation's content: statements about the content are about the
        abbreviation.
        """
        side = self._sides[number]
        version = side.versions.get(one.path)
        if version is None or version.declarations[one.index].kind != "abbrev":
            return "", ()
        return version.code_of(one.index), last_parts(side.words(one))

    def _other_items(
        self,
        old: Decl,
        now: Decl,
        statement: str,
        words: Collection[str],
        reached: tuple[Reached, Reached],
        *,
        reopened: bool,
    ) -> Iterator[str]:
        """Yield the notations, macros and instances used, directly or not, by a statement in one version only."""
        result: list[list[Item]] = []
        for number, decl in enumerate((old, now)):
            visible = self._visible(decl.path) if self._items_apart[number] else None
            has, text = set(words), statement
            some: dict[str, Item] = {}
            for one in reached[number].values():
                version = self._sides[number].versions.get(one.path)
                if version is None:
                    continue
                some.update((item.text, item) for item in self._items_in(number, one))
                code, its = self._stands_for(number, one)
                has.update(its)
                text = f"{text} {code}" if code else text
            for where, item in (
                *self._items_apart[number],
                *(self._items_scoped[number] if reopened else ()),
            ):
                if visible is not None and where not in visible:
                    continue
                if self._holds(number, (where, item), decl.path, decl.index) and uses(item, text, has):
                    some[item.text] = item
            result.append(list(some.values()))
        both = {item.said for item in result[0]} & {item.said for item in result[1]}
        for sign, items in zip("-+", result, strict=True):
            for item in items:
                if item.said not in both:
                    yield f"{sign} {item.text if len(item.text) <= 120 else item.text[:119] + '…'}"


def _other_definitions(before: Reached, after: Reached) -> Iterator[str]:
    """Yield the definitions reached in one version only."""
    if before.keys() == after.keys():
        return
    come = {one.name for key, one in after.items() if key not in before}
    names = {one.name for key, one in before.items() if key not in after}
    yield from (f"{name} changed" for name in sorted(come & names))
    yield from (f"- {name}" for name in sorted(names - come))
    yield from (f"+ {name}" for name in sorted(come - names))


def _namespace(item: Decl) -> str:
    return item.name.rpartition(".")[0]


def _shown(part: Part) -> str:
    return f"variable {part.text}" if part.kind in ("variable", "instance") else part.text


def _completes(was: Version, old: Decl, new: Version, now: Decl) -> bool:
    """Return whether a declaration changed only in the places of its sorries."""
    start, end = was.declarations[old.index].byte_start, was.declarations[old.index].byte_end
    pieces, at = [], start
    for living in old.living:
        pieces.append(was.data[at : living.place.byte_start])
        at = living.place.byte_end
    pieces.append(was.data[at:end])
    left = b"".join(new.code_of(now.index).encode().split())
    parts = [b"".join(_code(piece).split()) for piece in pieces]
    if not left.startswith(parts[0]) or not left.endswith(parts[-1]):
        return False
    result = len(parts[0])
    for part in parts[1:]:
        result = left.find(part, result)
        if result < 0:
            return False
        result += len(part)
    return True


def _code(piece: bytes) -> bytes:
    return lex(piece.decode("utf-8", "replace")).code.encode()
