"""When is a sorry filled? One answer, for the lives that the daemon records and for `everlean diff`.

A sorry is filled when its declaration says what it said, all that the words of its statement depend on in the source
is what it was, and a proof is there. What a statement depends on: the variables and options in force, what its names
mean (definitions, and what these name, looked up in the namespaces that are open there), notations, macros and
instances that it uses. Both versions of the changed files are read for it, and the files of the project that only one
version imports; what lies in unchanged files is the same. Names are looked up as Lean does it, as far as text tells:
what `h.foo` means depends on a type, and is taken for every changed `foo`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pipeline.lean.source.context import (
    Item,
    Opened,
    Part,
    concerned,
    last_parts,
    opened,
    uses,
    with_types,
    words_of,
)
from pipeline.lean.source.lexer import lex, words
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
"""Parts in force at declarations, in all, that are compared where they differ."""
_MOST_REACHED = 5000
"""Definitions that the words of one statement are followed through."""
_KINDS = frozenset(one.word for one in DECLARATION_KEYWORDS)
_BINDERS = words(
    "fun λ intro intros rintro obtain rcases have let with next case rename_i set generalize choose"
)
_BINDERS_END = words("=> := : ; | <;> ↦ at")

Side = Literal[0, 1]
"""The version before, and the one now."""
Lookup = Callable[[str], list[Definition]]
Beside = Callable[[Side, str], "Version | None"]
"""Reads the file of a module on a side."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What differs of all that a statement depends on, each as a line. `unread`: too much to compare."""

    statement: tuple[str, ...] = ()
    """variables, and what is included"""
    context: tuple[str, ...] = ()
    """namespaces that are open, options, local attributes"""
    meaning: tuple[str, ...] = ()
    """definitions, notations, macros, instances"""
    doubtful: tuple[str, ...] = ()
    """namespaces of libraries that were opened or closed: whether a word means something else is not known"""
    unread: bool = False

    @property
    def of_the_statement(self) -> tuple[str, ...]:
        return (*self.statement, *self.context, *self.meaning)


@dataclass(slots=True)
class _Side:
    """All that is defined in the versions of one side."""

    versions: Mapping[str, Version]
    chains: Chains
    by_name: dict[str, list[Definition]] = field(default_factory=dict)
    _contexts: dict[str, dict[int, int]] = field(default_factory=dict)
    _parts: dict[int, Counter[Part]] = field(default_factory=dict)
    _opened: dict[int, tuple[Opened, ...]] = field(default_factory=dict)
    _words: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for version in self.versions.values():
            self.add(version)

    def add(self, version: Version) -> None:
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

    def words(self, one: Definition) -> frozenset[str]:
        """Return the names that a definition has in it."""
        key = one.path, one.index
        if key not in self._words:
            self._words[key] = words_of(self.versions[one.path].code_of(one.index))
        return self._words[key]

    def sees(self, path: str, index: int) -> tuple[list[str], tuple[Opened, ...]]:
        """Return the namespaces whose names a declaration writes without them: its own, innermost first, and opened."""
        parts = self.versions[path].declarations[index].name.split(".")
        own = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
        return own, self.opened(self.chain(path, index))

    def opens(self, path: str, index: int, namespace: str) -> bool:
        """Return whether what is scoped to a namespace holds at a declaration."""
        if self.versions[path].declarations[index].name.startswith(f"{namespace}."):
            return True
        last = namespace.rpartition(".")[2]
        lines = self.parts(self.chain(path, index))
        return any(
            name.rpartition(".")[2] == last for part in lines if part.kind == "open" for name in part.names
        )


def full_names(word: str, own: list[str], others: Iterable[Opened], has: Callable[[str], bool]) -> list[str]:
    """Return what a word means: the longest beginning of it that is a name, in the innermost namespace.

    Args:
        word: a name as it is written, `foo.bar.1` with what is asked of it.
        own: the namespaces around the place, innermost first.
        others: those that are open there.
        has: whether there is something of this full name.
    """
    parts = word.removeprefix("_root_.").split(".")
    for end in range(len(parts), 0, -1):
        head = ".".join(parts[:end])
        if not word.startswith("_root_."):
            found = [name for name in (f"{space}.{head}" for space in own) if has(name)][:1]
            for one in others:
                if one.has(parts[0]):
                    spaces = [one.namespace, *(f"{space}.{one.namespace}" for space in own)]
                    found += [name for name in (f"{space}.{head}" for space in spaces) if has(name)]
            if found:
                return list(dict.fromkeys(found))
        if has(head):
            return [head]
    return []


class Meanings:
    """Both versions of the changed files, with what became of their declarations.

    Args:
        old, new: the versions by path.
        compared: their declarations, and which are the same.
        beside: reads a file that only one version imports.
        sorried: the full names of declarations elsewhere that have a sorry.
        elsewhere: gives versions of unchanged files with a sorry in them, where someone asks.
    """

    def __init__(
        self,
        old: Mapping[str, Version],
        new: Mapping[str, Version],
        compared: Compared,
        *,
        beside: Beside = lambda _side, _module: None,
        sorried: Collection[str] = (),
        elsewhere: Callable[[], Iterable[Version]] = tuple,
    ) -> None:
        self._old, self._new, self._compared = old, new, compared
        self._beside, self._sorried_elsewhere, self._read_elsewhere = beside, sorried, elsewhere
        self._chains = Chains()
        self._left = MOST_IN_FORCE
        self._differences: dict[tuple[int, int], tuple[list[Part], list[Part]]] = {}
        self._imported: dict[str, tuple[tuple[Version, ...], tuple[Version, ...]]] = {}

    # ---- what became of a sorry

    def outcome(self, old: Decl, now: Decl) -> Outcome:
        """Judge a declaration that has a sorry less than before."""
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
        """Return what in the declaration hides a sorry, and what the kernel does not see, that was not there before."""
        had = Counter((mark.kind, mark.word) for mark in ([] if was is None else was.marks_of(old.index)))
        found: dict[str, str] = {}
        for mark in new.marks_of(now.index):
            if had[mark.kind, mark.word] > 0:
                had[mark.kind, mark.word] -= 1
            else:
                found.setdefault(mark.kind, mark.word.rstrip(","))
        hidden = found.get("hidden") or self._sorry_by_a_macro(new, now)
        return hidden, found.get("unchecked") or new.modifier_of(now.index)

    def hidden_by(self, old: Decl) -> Outcome | None:
        """Return what holds the sorry of a declaration that is gone, where a command that no one here knows does."""
        version = None if old.anonymous else self._new.get(old.path)
        command = None if version is None else version.unknown_command_with(old.name.rpartition(".")[2])
        if command is None:
            return None
        return Outcome("hidden", f"{old.name} is in the command {command.keyword}")

    def _sorry_by_a_macro(self, new: Version, now: Decl) -> str:
        """Return the beginning of a macro with a sorry in it that the declaration uses."""
        if not self._macros:
            return ""
        code = new.code_of(now.index)
        words = words_of(code)
        for path, item in self._macros:
            mine = path == now.path
            if (item.local and not mine) or (mine and item.byte > new.declarations[now.index].byte_start):
                continue
            if any(sign in words if sign[0].isalpha() else sign in code for sign in item.signs):
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
    def _sorried(self) -> frozenset[str]:
        found = {item.name for item in self._compared.now if item.places and not item.anonymous}
        for version in self._elsewhere:
            found |= {sorry.declaration for sorry in version.read.scan.sorries}
        return frozenset(found | set(self._sorried_elsewhere))

    def _rests_on(self, now: Decl) -> tuple[str, ...]:
        """Return the declarations with a sorry that a declaration cites by their names."""
        version = self._new.get(now.path)
        if version is None or not self._sorried:
            return ()
        own, others = self._sides[1].sees(now.path, now.index)
        code = version.code_of(now.index)
        bound = bound_names(code.split())
        found = {
            name
            for word in words_of(code)
            if word.split(".")[0] not in bound
            for name in full_names(word, own, others, self._sorried.__contains__)
        }
        return tuple(sorted(found - {now.name}))

    # ---- what a statement depends on

    def changed(self, old: Decl, now: Decl) -> Changed:
        """Return what differs of all that a statement depends on that is itself the same text."""
        if old.path not in self._old or now.path not in self._new:
            return Changed()
        before, after = self._sides
        chains = before.chain(old.path, old.index), after.chain(now.path, now.index)
        parts = self._different(chains)
        if parts is None:
            return Changed(unread=True)
        gone, come = parts
        statement = self._new[now.path].declarations[now.index].statement
        in_force = (*before.parts(chains[0]), *after.parts(chains[1])) if gone or come else ()
        words = with_types(words_of(statement), in_force)
        mine: list[str] = []
        around: list[str] = []
        doubtful: list[str] = []
        if gone or come:
            proof = self._words_of_the_proof(now)
            bound = {name for part in in_force for name in part.names if part.kind != "open"}
            for sign, some in (("-", gone), ("+", come)):
                for part in some:
                    if part.kind == "open":
                        # What `open scoped` brings are notations, which are compared themselves.
                        if opened(part.text) and not self._own_namespace(part):
                            doubtful.append(f"{sign} {part.text}")
                    elif concerned(part, words, bound) or (
                        part.kind == "variable" and sign == "+" and part.names[0] in proof
                    ):
                        line = _shown(part)
                        (mine if part.kind in ("variable", "instance", "include") else around).append(
                            f"{sign} {line}"
                        )
        meaning = [
            *self._other_definitions(
                old, now, words, opened=any(part.kind == "open" for part in (*gone, *come))
            ),
            *self._other_items(old, now, statement, words),
        ]
        return Changed(tuple(mine), tuple(around), tuple(meaning), tuple(doubtful))

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        return _Side(self._old, self._chains), _Side(self._new, self._chains)

    def _different(self, chains: tuple[int, int]) -> tuple[list[Part], list[Part]] | None:
        """Return the parts in force that went and came; None if there are too many to compare."""
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
        found = self._differences[chains]
        self._left -= len(found[0]) + len(found[1])
        return found if self._left >= 0 else None

    def _words_of_the_proof(self, now: Decl) -> set[str]:
        """Return the names in a proof that it does not bind: before Lean 4.12 they brought variables with them."""
        words = self._new[now.path].code_of(now.index)
        return last_parts(words_of(words)) - bound_names(words.split())

    def _own_namespace(self, part: Part) -> bool:
        """Return whether all that a line opens is declared in the changed files: then the names themselves tell."""
        return all(name.split(".")[-1] in self._namespaces for name in part.names)

    @cached_property
    def _namespaces(self) -> set[str]:
        return {part for side in self._sides for name in side.by_name for part in name.split(".")[:-1]}

    # ---- definitions

    @cached_property
    def _completed(self) -> dict[str, str]:
        """The present meaning of each definition of which only sorries were replaced, with its former one."""
        found = {}
        for old, now in self._compared.pairs:
            if (
                old.living
                and old.kind not in PROVABLE_KINDS
                and old.path in self._old
                and now.path in self._new
            ):
                was, new = self._old[old.path], self._new[now.path]
                if _completes(was, old, new, now):
                    found[_meaning(new, now.index)] = _meaning(was, old.index)
        return found

    def _hash(self, one: Definition) -> str:
        return self._completed.get(one.meaning, one.meaning)

    @cached_property
    def _last_names(self) -> set[str]:
        return {name.rpartition(".")[2] for side in self._sides for name in side.by_name}

    @cached_property
    def _unsettled(self) -> set[str]:
        """The last parts of the names that mean something else in the two versions, and of all that rests on these."""
        sides = [
            {(one.name, self._hash(one)) for some in side.by_name.values() for one in some}
            for side in self._sides
        ]
        found = {name.rpartition(".")[2] for name, _ in sides[0] ^ sides[1]}
        todo = set(found)
        users: dict[str, set[str]] = defaultdict(set)
        if todo:
            for side in self._sides:
                for some in side.by_name.values():
                    for one in some:
                        for word in last_parts(side.words(one)):
                            users[word].add(one.name.rpartition(".")[2])
        while todo:
            new = users[todo.pop()] - found
            found |= new
            todo |= new
        return found

    def _other_definitions(
        self, old: Decl, now: Decl, words: Collection[str], *, opened: bool
    ) -> Iterator[str]:
        """Yield the definitions that the words of a statement reach in one version only; `opened`: others are open."""
        apart = self._imports_apart(old.path, now.path)
        named = last_parts(words)
        extra = {one.name.rpartition(".")[2] for some in apart for version in some for one in version.defined}
        moved = opened or old.name.rpartition(".")[0] != now.name.rpartition(".")[0]
        if not named & (self._unsettled | extra | (self._last_names if moved else set())):
            return
        looks = self._lookup(0, old, apart), self._lookup(1, now, apart)
        if extra:
            files = {version.item.path for some in apart for version in some}
            words = [word for word in words if self._told(word, old, now, looks, files)]
        before, after = self._reached(0, old, words, looks[0]), self._reached(1, now, words, looks[1])
        if before.keys() == after.keys():
            return
        come = {one.name for key, one in after.items() if key not in before}
        gone = {one.name for key, one in before.items() if key not in after}
        yield from (f"{name} changed" for name in sorted(come & gone))
        yield from (f"- {name}" for name in sorted(gone - come))
        yield from (f"+ {name}" for name in sorted(come - gone))

    def _lookup(
        self, number: Side, item: Decl, apart: tuple[tuple[Version, ...], tuple[Version, ...]]
    ) -> Lookup:
        """Return what gives the definitions of a full name that a declaration can see."""
        side = self._sides[number]
        hidden = {version.item.path for version in apart[1 - number]}
        extra: dict[str, list[Definition]] = defaultdict(list)
        for version in apart[number]:
            for one in version.defined:
                extra[one.name].append(one)
        start = side.versions[item.path].declarations[item.index].byte_start

        def lookup(name: str) -> list[Definition]:
            some = [*side.by_name.get(name, ()), *extra.get(name, ())]
            return [
                one for one in some if one.path not in hidden and (one.path != item.path or one.byte < start)
            ]

        return lookup

    def _told(
        self, word: str, old: Decl, now: Decl, looks: tuple[Lookup, Lookup], files: Collection[str]
    ) -> bool:
        """Return whether both versions tell what a word means, or both do not.

        `files` are those that one version alone imports: what they bring, another import may have brought as well.
        """
        meant = []
        for number, item in ((0, old), (1, now)):
            lookup = looks[number]
            names = full_names(
                word,
                *self._sides[number].sees(item.path, item.index),
                lambda name, lookup=lookup: bool(lookup(name)),  # type: ignore[misc]
            )
            meant.append([one for name in names for one in lookup(name)])
        before, after = meant
        if bool(before) == bool(after):
            return True
        return any(one.path not in files for one in before or after)

    def _reached(
        self, number: Side, item: Decl, words: Collection[str], lookup: Lookup
    ) -> dict[str, Definition]:
        """Return all that the words of a statement mean, and what these definitions mean, each by its meaning."""
        side = self._sides[number]
        found: dict[str, Definition] = {}
        own, others = side.sees(item.path, item.index)
        todo = [(set(words), own, others)]
        while todo and len(found) < _MOST_REACHED:
            some, own, others = todo.pop()
            for word in some:
                names = full_names(word, own, others, lambda name: bool(lookup(name)))
                if not names and "." in word:
                    names = [name for part in word.split(".")[1:] for name in self._redefined.get(part, ())]
                for one in (one for name in names for one in lookup(name)):
                    key = self._hash(one)
                    if key in found:
                        continue
                    found[key] = one
                    if one.path in side.versions:
                        todo.append((set(side.words(one)), *side.sees(one.path, one.index)))
        return found

    @cached_property
    def _redefined(self) -> dict[str, list[str]]:
        """The full names that both versions define, not alike, by their last parts."""
        before, after = (
            {name: {self._hash(one) for one in some} for name, some in side.by_name.items()}
            for side in self._sides
        )
        found: dict[str, list[str]] = defaultdict(list)
        for name in before.keys() & after.keys():
            if before[name] != after[name]:
                found[name.rpartition(".")[2]].append(name)
        return found

    def _imports_apart(self, was: str, path: str) -> tuple[tuple[Version, ...], tuple[Version, ...]]:
        """Return the files that only one version of a file imports: of the version before, and of the one now."""
        if path not in self._imported:
            before = dict.fromkeys(self._old[was].read.scan.imports)
            after = dict.fromkeys(self._new[path].read.scan.imports)
            self._imported[path] = (
                self._files(0, [module for module in before if module not in after]),
                self._files(1, [module for module in after if module not in before]),
            )
        return self._imported[path]

    def _files(self, side: Side, modules: Iterable[str]) -> tuple[Version, ...]:
        found = (self._beside(side, module) for module in modules)
        return tuple(version for version in found if version is not None)

    # ---- notations, macros, instances

    @cached_property
    def _items_apart(self) -> tuple[list[tuple[str, Item]], list[tuple[str, Item]]]:
        """The notations, macros and instances that only one side has, with their files."""
        sides = [
            [(path, item) for path in sorted(side.versions) for item in side.versions[path].items]
            for side in self._sides
        ]
        counts = [Counter(item.text for _, item in side) for side in sides]
        found: list[list[tuple[str, Item]]] = []
        for number, side in enumerate(sides):
            left = counts[number] - counts[1 - number]
            some = []
            for path, item in side:
                if left[item.text] > 0:
                    left[item.text] -= 1
                    some.append((path, item))
            found.append(some)
        completed = self._completed_instances
        return (
            [one for one in found[0] if one[1].text not in completed],
            [one for one in found[1] if one[1].text not in completed],
        )

    @cached_property
    def _completed_instances(self) -> set[str]:
        """The texts of instances, before and now, of which only sorries were replaced."""
        found = set()
        for old, now in self._compared.pairs:
            if old.living and now.kind == "instance" and old.path in self._old and now.path in self._new:
                was, new = self._old[old.path], self._new[now.path]
                if _completes(was, old, new, now):
                    found |= {
                        " ".join(was.code_of(old.index).split()),
                        " ".join(new.code_of(now.index).split()),
                    }
        return found

    def _other_items(self, old: Decl, now: Decl, statement: str, words: Collection[str]) -> Iterator[str]:
        for number, sign, decl, versions in ((0, "-", old, self._old), (1, "+", now, self._new)):
            start = versions[decl.path].declarations[decl.index].byte_start
            for path, item in self._items_apart[number]:
                mine = path == decl.path
                if (item.local and not mine) or (mine and item.byte >= start):
                    continue
                if item.scope and not self._sides[number].opens(decl.path, decl.index, item.scope):
                    continue
                if uses(item, statement, words):
                    yield f"{sign} {item.text if len(item.text) <= 120 else item.text[:119] + '…'}"


def bound_names(tokens: Iterable[str]) -> set[str]:
    """Return the words between `fun`, `intro`, `obtain`, … and what ends their names."""
    found: set[str] = set()
    binding = False
    for token in tokens:
        if token in _BINDERS:
            binding = True
        elif token in _BINDERS_END:
            binding = False
        elif binding:
            found |= words_of(token)
    return found


def _shown(part: Part) -> str:
    return f"variable {part.text}" if part.kind in ("variable", "instance") else part.text


def _meaning(version: Version, index: int) -> str:
    return f"{version.declarations[index].statement_hash} {version.read.proof_hashes[index]}"


def _completes(was: Version, old: Decl, new: Version, now: Decl) -> bool:
    """Return whether a declaration is what it was but for texts in the places of its sorries."""
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
    found = len(parts[0])
    for part in parts[1:]:
        found = left.find(part, found)
        if found < 0:
            return False
        found += len(part)
    return True


def _code(piece: bytes) -> bytes:
    return lex(piece.decode("utf-8", "replace")).code.encode()
