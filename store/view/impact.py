"""What rests on a declaration with a sorry: the theorems that use it, themselves or through others.

Read from a branch's trace, anew at each question: nothing is stored. Edges are the constants that the proof of a
traced theorem uses. What a definition uses no trace says, so that the counts are lower bounds. A declaration that the
trace does not name is unknown, which is not 0. Where there is a blueprint, its statements are counted beside the
theorems: one rests on the statements that it uses and on the declarations that state it, proved or not.

A declaration is known by its path and its name, for two files may declare the same one. A use is of the declaration
whose name is the longest beginning of the used one (`Tree.rec` is a use of `Tree`). Where several files declare it, the
site of the use decides, or the module of a private name, or the user's own file; else it counts for all of them.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from store.domain.blueprint import Statement
from store.domain.splits import files_of
from store.view.rows import TraceRow
from store.view.trace_queries import trace_of_branch

_PRIVATE = re.compile(r"_private\.(.+?)\.0\.(.+)", re.DOTALL)
QUICKLY_COUNTED = 50_000
"""Traced theorems whose uses are read in a few seconds: more of them are read only where a person asks."""
_AT_ONCE = 4096
"""Declarations whose users are counted in one pass, in which a theorem takes at most as many bits."""


class Declared(NamedTuple):
    """A declaration of a repository's own file."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Impact:
    """What rests on a sorry's declaration. Counts are lower bounds; null is unknown, and not 0."""

    theorems: int | None
    """Theorems that use the declaration, themselves or through others."""
    direct: int | None
    """Those of them that use it themselves."""
    statements: int | None
    """Statements of the blueprint that rest on it; null without a blueprint, and where none states the declaration."""
    sha: str | None
    """The traced commit that says so."""
    simulated: bool
    """Whether the simulator made the trace."""
    unknown: str = ""
    """Why the theorems are unknown; empty where they are known."""

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sort the most first, theorems and statements together, and the unknown last."""
        unknown = self.theorems is None and self.statements is None
        return unknown, -(self.theorems or 0) - (self.statements or 0), -(self.direct or 0)


def impacts(
    db: sqlite3.Connection,
    repository: str,
    branch: str,
    declarations: Iterable[Declared],
    *,
    simulated: bool = True,
    most_theorems: int | None = None,
    blueprint: Sequence[Statement] = (),
) -> dict[Declared, Impact]:
    """Return what rests on each of these declarations of a branch.

    Args:
        simulated: ask a trace of the simulator where Lean made none.
        most_theorems: a trace with more is not read, and what rests on them is unknown.
        blueprint: the statements of the branch's blueprint.
    """
    wanted = list(dict.fromkeys(declarations))
    trace = trace_of_branch(db, repository, branch, simulated=simulated) if wanted else None
    why, sha, made_up = "the branch has no trace yet", None, False
    if trace is not None:
        why, sha, made_up = "the trace does not name the declaration", trace.sha, trace.simulated
        if most_theorems is not None and trace.n_theorems > most_theorems:
            why = f"its trace has {trace.n_theorems:,} theorems, more than are counted here"
            trace = None
    counted: Mapping[Declared, tuple[int, int]] = {}
    stated: Mapping[Declared, int] = {}
    if trace is not None or blueprint:
        graph = _Graph(db, trace, wanted)
        counted = graph.counted() if trace is not None else {}
        stated = graph.stated(blueprint) if blueprint else {}

    def impact(one: Declared) -> Impact:
        theorems, direct = counted.get(one, (None, None))
        return Impact(theorems, direct, stated.get(one), sha, made_up, why if theorems is None else "")

    return {one: impact(one) for one in wanted}


class _Graph:
    """The theorems of a trace and some other declarations, as numbers; `users[n]` are the theorems that use n.

    Without a trace it has the other declarations alone.
    """

    def __init__(self, db: sqlite3.Connection, trace: TraceRow | None, wanted: Sequence[Declared]) -> None:
        self.users: dict[int, set[int]] = defaultdict(set)
        self._declared: dict[str, dict[str, None]] = defaultdict(dict)
        if trace is None:
            self._wanted = {one: Declared(one.path, _plain(one.name)) for one in wanted}
            for path, name in self._wanted.values():
                self._declared[name][path] = None
            self._numbers = {one: at for at, one in enumerate(dict.fromkeys(self._wanted.values()))}
            return
        own = f"FROM traces CROSS JOIN traced_files AS f ON {files_of(files='f')}"
        its = "WHERE traces.trace = ? AND substr(f.path, 1, 6) <> '.lake/'"
        paths: dict[int, str] = dict(db.execute(f"SELECT f.content, f.path {own} {its}", (trace.trace,)))
        theorems: dict[tuple[int, int], Declared] = {
            (content, index): Declared(paths[content], _plain(name))
            for content, index, name in db.execute(
                f'SELECT t.content, t."index", t.full_name {own} CROSS JOIN traced_theorems AS t '
                f"ON t.content = f.content {its}",
                (trace.trace,),
            )
        }
        premises = db.execute(
            f"SELECT p.full_name, f.path {own} CROSS JOIN premises AS p ON p.content = f.content {its} "
            "AND p.full_name IS NOT NULL",
            (trace.trace,),
        )
        for name, path in premises:
            self._declared[_plain(name)][path] = None
        for path, name in theorems.values():
            self._declared[name][path] = None
        self._wanted = {one: found for one in wanted if (found := self._found(one)) is not None}
        numbers: dict[Declared, int] = {}
        for one in (*self._wanted.values(), *theorems.values()):
            numbers.setdefault(one, len(numbers))
        self._numbers = numbers
        self._theorems = {numbers[one] for one in theorems.values()}
        # An import says what its tactics name, our own trace what the whole proof uses.
        table = "tactic_premises" if trace.source == "import" else "theorem_premises"
        uses = db.execute(
            f"SELECT u.content, u.theorem, u.full_name, u.def_path {own} CROSS JOIN {table} AS u "
            f"ON u.content = f.content {its} AND substr(coalesce(u.def_path, ''), 1, 6) <> '.lake/'",
            (trace.trace,),
        )
        known: dict[str, list[Declared]] = {}
        for content, index, name, site in uses:
            user = theorems.get((content, index))
            if user is None:
                continue
            can_be = known.get(name)
            if can_be is None:
                can_be = known[name] = self._resolved(name)
            for used in self._chosen(can_be, site, user.path) if len(can_be) > 1 else can_be:
                number = numbers.get(used)
                if number is not None and used != user:
                    self.users[number].add(numbers[user])

    def _found(self, one: Declared) -> Declared | None:
        """Return a declaration as the trace knows it: at its path or, if its file moved, at the one with its name."""
        name = _plain(one.name)
        paths = [*self._declared.get(name, ())]
        if one.path in paths:
            return Declared(one.path, name)
        return Declared(paths[0], name) if len(paths) == 1 else None

    def _resolved(self, name: str) -> list[Declared]:
        """Return the declarations that a constant can be, or belong to."""
        private = _PRIVATE.fullmatch(name)
        module, rest = private.groups() if private else ("", name)
        rest = _plain(rest)
        while rest not in self._declared:
            rest, dot, _ = rest.rpartition(".")
            if not dot:
                return []
        paths = [*self._declared[rest]]
        if private:
            home = _plain(module).replace(".", "/") + ".lean"
            paths = [path for path in paths if path == home or path.endswith(f"/{home}")] or paths
        return [Declared(path, rest) for path in paths]

    @staticmethod
    def _chosen(found: Sequence[Declared], site: str | None, own: str) -> Sequence[Declared]:
        """Return which of several files' declarations a use is of; all where nothing says it."""
        for path in (site, own):
            chosen = [one for one in found if one.path == path]
            if chosen:
                return chosen
        return found

    def counted(self) -> dict[Declared, tuple[int, int]]:
        """Return, for each wanted declaration that the trace names, how many theorems rest on it and use it."""
        numbers = {one: self._numbers[found] for one, found in self._wanted.items()}
        distinct = sorted(set(numbers.values()))
        resting = dict(zip(distinct, count_resting(self.users, distinct, self._theorems), strict=True))
        return {one: (resting[number], len(self.users.get(number, ()))) for one, number in numbers.items()}

    def stated(self, blueprint: Sequence[Statement]) -> dict[Declared, int]:
        """Return, for each wanted declaration that states one of a blueprint's, how many of the others rest on it."""
        first = max(self._numbers.values(), default=-1) + 1
        labels = {label: at for at, one in reversed([*enumerate(blueprint, first)]) for label in one.labels}
        users: dict[int, set[int]] = defaultdict(set, {used: set(its) for used, its in self.users.items()})
        states: dict[int, set[int]] = defaultdict(set)
        for at, one in enumerate(blueprint, first):
            for label in one.uses:
                if (used := labels.get(label, at)) != at:
                    users[used].add(at)
            for name in one.lean:
                plain = _plain(name)
                for path in self._declared.get(plain, ()):
                    if (number := self._numbers.get(Declared(path, plain))) is not None:
                        users[number].add(at)
                        states[number].add(at)
        found = {one: number for one, its in self._wanted.items() if (number := self._numbers[its]) in states}
        distinct = sorted(set(found.values()))
        counts = count_resting(users, distinct, range(first, first + len(blueprint)))
        resting = {number: n - len(states[number]) for number, n in zip(distinct, counts, strict=True)}
        return {one: resting[number] for one, number in found.items()}


def count_resting(
    users: Mapping[int, Collection[int]], of: Sequence[int], counting: Collection[int]
) -> list[int]:
    """Count, for each of some nodes, the other nodes of `counting` from which a path of uses leads to it.

    One pass over what rests on any of them, in the order of the uses, with a bit for each of them. Nodes of a cycle
    rest on one another, and none on itself.
    """
    groups = _groups(users, of)
    at = {node: number for number, group in enumerate(groups) for node in group}
    above = [sorted({at[user] for node in group for user in users.get(node, ())}) for group in groups]
    found: list[int] = []
    for start in range(0, len(of), _AT_ONCE):
        some = of[start : start + _AT_ONCE]
        own = {node: 1 << bit for bit, node in enumerate(some)}
        reached: dict[int, int] = {}
        planes: list[int] = []
        for number, group in enumerate(groups):
            bits = reached.pop(number, 0)
            for node in group:
                bits |= own.get(node, 0)
            if not bits:
                continue
            for user in above[number]:
                if user != number:
                    reached[user] = reached.get(user, 0) | bits
            for node in group:
                if node in counting:
                    _add(planes, bits & ~own.get(node, 0))
        found += (
            sum((plane >> bit & 1) << power for power, plane in enumerate(planes)) for bit in range(len(some))
        )
    return found


def _groups(users: Mapping[int, Collection[int]], of: Sequence[int]) -> list[list[int]]:
    """Return some nodes and what rests on them, each cycle as one group, groups before their users (Kosaraju)."""
    order = _users_last(users, of)
    uses: dict[int, list[int]] = {node: [] for node in order}
    for node in order:
        for user in users.get(node, ()):
            uses[user].append(node)
    grouped: set[int] = set()
    groups: list[list[int]] = []
    for node in order:
        if node not in grouped:
            grouped.add(node)
            group = [node]
            for member in group:  # grows meanwhile
                new = [used for used in uses[member] if used not in grouped]
                grouped.update(new)
                group += dict.fromkeys(new)
            groups.append(group)
    return groups


def _users_last(users: Mapping[int, Collection[int]], roots: Iterable[int]) -> list[int]:
    """Return the roots and what rests on them, each before its users unless they are in a cycle."""
    seen: set[int] = set()
    ended: list[int] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        path: list[tuple[int, Iterator[int]]] = [(root, iter(users.get(root, ())))]
        while path:
            node, rest = path[-1]
            user = next((one for one in rest if one not in seen), None)
            if user is None:
                ended.append(node)
                path.pop()
            else:
                seen.add(user)
                path.append((user, iter(users.get(user, ()))))
    return ended[::-1]


def _add(planes: list[int], bits: int) -> None:
    """Add 1 to the counter of each set bit; the counters' binary digits stand one to a plane."""
    at = 0
    while bits:
        if at == len(planes):
            planes.append(0)
        planes[at], bits = planes[at] ^ bits, planes[at] & bits
        at += 1


def _plain(name: str) -> str:
    """Return a name without its quotes: where they are needed, Lean and people see differently."""
    return name.replace("«", "").replace("»", "")
