"""The impact of a declaration with a sorry: the theorems that use it, themselves or through others.

Computed from a branch's trace at each query: nothing is stored. Edges are the constants used in the proof of
a traced theorem. A trace does not record the uses in definitions: the counts are lower bounds. A declaration
missing in the trace is unknown, not 0. With a blueprint, its statements are counted beside the theorems: one
rests on the statements it uses and on the declarations that state it, proved or not.

A declaration's key is its path and its name, since two files may declare the same one. A use is of the
declaration whose name is the longest beginning of the used one (`Tree.rec` is a use of `Tree`). If several
files declare it, the site of the use decides, or the module of a private name, or the user's own file; else
it counts for all of them.
"""

from __future__ import annotations

import math
import re
import sqlite3
import time
from array import array
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar

from store.domain.blueprint import Statement
from store.text import counted
from store.view.rows import TraceRow
from store.view.trace_queries import files_of_trace, trace_of_branch

_PRIVATE = re.compile(r"_private\.(.+?)\.0\.(.+)", re.DOTALL)
MOST_COUNTED = 400_000
"""The most traced theorems for an uninvited count: of more, the graph takes hundreds of MB."""
_AT_ONCE = 1024
"""Declarations in one pass of the count: the most bits for a theorem."""
_A_PART = 512
"""Nodes in one part of the count: some milliseconds."""
_Result = TypeVar("_Result")
_Parts = Generator[None, None, _Result]


class Uses(Protocol):
    """The uses of each node, by number; each once, and not itself."""

    def __len__(self) -> int: ...

    def __getitem__(self, node: int, /) -> Collection[int]: ...


class Declared(NamedTuple):
    """A declaration of a repository's own file."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class Impact:
    """The impact of a sorry's declaration. Counts are lower bounds; null is unknown, not 0."""

    theorems: int | None
    """Theorems with the declaration among their uses, direct or through others."""
    direct: int | None
    """Theorems with a direct use."""
    statements: int | None
    """Statements of the blueprint that rest on it; null without a blueprint, or if none states the
    declaration."""
    sha: str | None
    """The traced commit behind the counts."""
    unknown: str = ""
    """Why the theorems are unknown; else empty."""

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sort the most first, theorems and statements together, and the unknown last."""
        unknown = self.theorems is None and self.statements is None
        return unknown, -self.resting, -(self.direct or 0)

    @property
    def text(self) -> str:
        """Return the impact for people; "" if unknown."""
        lines = []
        if self.theorems is not None:
            lines.append(counted(self.theorems, "theorem"))
        if self.statements is not None:
            lines.append(
                counted(self.statements, "statement of the blueprint", "statements of the blueprint")
            )
        return f"{' and '.join(lines)} {'rests' if self.resting == 1 else 'rest'} on it" if lines else ""

    @property
    def resting(self) -> int:
        """Return the known number of theorems and statements that rest on it."""
        return (self.theorems or 0) + (self.statements or 0)


def impacts(
    db: sqlite3.Connection,
    repository: str,
    branch: str,
    declarations: Iterable[Declared],
    *,
    most_theorems: int | None = None,
    blueprint: Sequence[Statement] = (),
) -> dict[Declared, Impact]:
    """Return the impact of each of these declarations of a branch.

    Args:
        most_theorems: a larger trace is not read, and the impact is unknown.
        blueprint: the statements of the branch's blueprint.
    """
    targets = list(dict.fromkeys(declarations))
    trace = trace_of_branch(db, repository, branch) if targets else None
    counting = Counting(trace, targets, most_theorems=most_theorems, blueprint=blueprint)
    counting.go_on(db)
    return counting.impacts


class Counting:
    """Counts the impact of declarations, in parts of some milliseconds.

    Args:
        trace: the trace to read, if any.
        targets, most_theorems, blueprint: as in `impacts`.
    """

    def __init__(
        self,
        trace: TraceRow | None,
        targets: Sequence[Declared],
        *,
        most_theorems: int | None = None,
        blueprint: Sequence[Statement] = (),
    ) -> None:
        self.impacts: dict[Declared, Impact] = {}
        """The impact of each; empty before the end."""
        self._db: sqlite3.Connection
        self._parts = self._count(trace, targets, most_theorems, blueprint)

    def go_on(self, db: sqlite3.Connection, *, until: float = math.inf) -> bool:
        """Count until this time of `time.monotonic`, or to the end; return whether the count is complete.

        Between two parts nothing of the view is held: a trace's rows never change.
        """
        self._db = db
        return all(time.monotonic() < until for _ in self._parts)

    def _rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, parameters).fetchall()

    def _count(
        self,
        trace: TraceRow | None,
        targets: Sequence[Declared],
        most_theorems: int | None,
        blueprint: Sequence[Statement],
    ) -> _Parts[None]:
        why, sha = "the branch has no trace yet", None
        if trace is not None:
            why, sha = "the trace does not name the declaration", trace.sha
            if most_theorems is not None and trace.n_theorems > most_theorems:
                why = f"its trace has {trace.n_theorems:,} theorems, more than are counted here"
                trace = None
        graph = _Graph()
        if trace is not None:
            yield from self._read(graph, trace, targets)
        nodes = {target: node for target in targets if (node := graph.find(target)) is not None}
        traced = {*nodes}
        if blueprint:
            nodes |= {
                target: graph.add(_plain(target.name), target.path)
                for target in targets
                if target not in traced
            }
        of = sorted(set(nodes.values()))
        first, stating = graph.state(blueprint)
        resting = yield from count_resting(graph, of, (graph.theorems, range(first, len(graph))))
        counts = dict(zip(of, zip(*resting, strict=True), strict=True))
        for target in targets:
            theorems, uses, statements = None, None, None
            if (node := nodes.get(target)) is not None:
                if target in traced:
                    theorems, uses = counts[node][0], graph.direct[node]
                if node in stating:
                    statements = counts[node][1] - len(stating[node])
            unknown = why if theorems is None else ""
            self.impacts[target] = Impact(theorems, uses, statements, sha, unknown)

    def _read(self, graph: _Graph, trace: TraceRow, targets: Sequence[Declared]) -> _Parts[None]:
        listed = files_of_trace(self._db, trace.trace)
        files = [(file.content, file.path) for file in listed if not file.path.startswith(".lake/")]
        for content, path in files:
            theorems = self._rows("SELECT full_name FROM traced_theorems WHERE content = ?", content)
            graph.theorems.update(graph.add(_plain(name), path) for (name,) in theorems)
            for (name,) in self._rows(
                "SELECT full_name FROM premises WHERE content = ? AND full_name IS NOT NULL", content
            ):
                graph.add(_plain(name), path)
            yield
        graph.direct = {node: 0 for target in targets if (node := graph.find(target)) is not None}
        # An import names the premises of its tactics, our own trace those of the whole proof.
        table = "tactic_premises" if trace.source == "import" else "theorem_premises"
        for content, path in files:
            users = dict(
                self._rows('SELECT "index", full_name FROM traced_theorems WHERE content = ?', content)
            )
            uses = self._rows(
                f"SELECT theorem, full_name, def_path FROM {table} WHERE content = ? "
                "AND substr(coalesce(def_path, ''), 1, 6) <> '.lake/' ORDER BY theorem",
                content,
            )
            for index, its in groupby(uses, key=lambda row: row[0]):
                if (user := users.get(index)) is not None:
                    graph.use(graph.add(_plain(user), path), path, ((name, site) for _, name, site in its))
            yield


class _Graph:
    """Declarations as numbers; `graph[n]` are the declarations used by n, each once and not itself."""

    def __init__(self) -> None:
        self.theorems: set[int] = set()
        self.direct: dict[int, int] = {}
        """The number of theorems with a direct use of each; the requested declarations are put in before any
        use."""
        self._numbers: dict[str, int | dict[str, int]] = {}
        """By name; by path too if several files declare it."""
        self._paths: list[str] = []
        self._uses = array("I")
        self._spans: dict[int, tuple[int, int]] = {}
        self._resolutions: dict[str, tuple[int, ...] | dict[str, int]] = {}
        """The possible declarations of each constant so far."""

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, node: int) -> Sequence[int]:
        span = self._spans.get(node)
        return self._uses[span[0] : span[1]] if span else ()

    def add(self, name: str, path: str) -> int:
        """Return the number of a declaration, a new one at first sight."""
        its = self._numbers.get(name)
        if isinstance(its, int):
            if self._paths[its] == path:
                return its
            its = self._numbers[name] = {self._paths[its]: its}
        number = len(self._paths) if its is None else its.setdefault(path, len(self._paths))
        if number == len(self._paths):
            self._paths.append(path)
            if its is None:
                self._numbers[name] = number
        return number

    def find(self, one: Declared) -> int | None:
        """Return a declaration at its path or, if its file moved, by its name."""
        its = self._numbers.get(_plain(one.name))
        return its.get(one.path) if isinstance(its, dict) else its

    def use(self, user: int, own: str, uses: Iterable[tuple[str, str | None]]) -> None:
        """Add the uses of constants by a theorem of a file, each with the path of its site, if known."""
        before = self[user]
        result: dict[int, None] = dict.fromkeys(before)
        for name, site in uses:
            can_be = self._resolutions.get(name)
            if can_be is None:
                can_be = self._resolutions[name] = self._resolve(name)
            if isinstance(can_be, dict):
                one = can_be.get(site or "", can_be.get(own))
                can_be = tuple(can_be.values()) if one is None else (one,)
            for used in can_be:
                result[used] = None
        result.pop(user, None)
        for used in result:
            if used in self.direct and used not in before:
                self.direct[used] += 1
        self._set(user, result)

    def _set(self, user: int, uses: Collection[int]) -> None:
        begin = len(self._uses)
        self._uses.extend(uses)
        self._spans[user] = begin, len(self._uses)

    def _resolve(self, name: str) -> tuple[int, ...] | dict[str, int]:
        """Return a constant's possible declarations or their owners; by path if several files have it."""
        private = _PRIVATE.fullmatch(name)
        module, rest = private.groups() if private else ("", name)
        rest = _plain(rest)
        while (its := self._numbers.get(rest)) is None:
            rest, dot, _ = rest.rpartition(".")
            if not dot:
                return ()
        if isinstance(its, int):
            return (its,)
        if private:
            home = _plain(module).replace(".", "/") + ".lean"
            there = {path: at for path, at in its.items() if path == home or path.endswith(f"/{home}")}
            its = there or its
        return its

    def state(self, blueprint: Sequence[Statement]) -> tuple[int, dict[int, set[int]]]:
        """Add a blueprint's statements; return the first's number, and the statements of each declaration."""
        first = len(self)
        labels = {label: at for at, one in reversed([*enumerate(blueprint, first)]) for label in one.labels}
        stating: dict[int, set[int]] = defaultdict(set)
        for at, one in enumerate(blueprint, first):
            uses = {labels[label] for label in one.uses if label in labels}
            for name in one.lean:
                its = self._numbers.get(_plain(name), {})
                for stated in its.values() if isinstance(its, dict) else (its,):
                    uses.add(stated)
                    stating[stated].add(at)
            self._paths.append("")
            self._set(at, uses - {at})
        return first, stating


def count_resting(
    uses: Uses, of: Sequence[int], counting: Sequence[Collection[int]]
) -> _Parts[list[list[int]]]:
    """Count, for each of some nodes, the other nodes with a path of uses to it, by sets of such nodes.

    Passes over all nodes, used ones first, with a bit for each requested node. Nodes of a cycle rest on one
    another, and none on itself.
    """
    groups: list[tuple[int, ...]] = []
    yield from _groups(uses, groups)
    result: list[list[int]] = [[] for _ in counting]
    for start in range(0, len(of), _AT_ONCE):
        some = of[start : start + _AT_ONCE]
        own = {node: 1 << bit for bit, node in enumerate(some)}
        below = [0] * len(uses)  # those of `some` below each node, or the node itself
        planes: list[list[int]] = [[] for _ in counting]
        for at, group in enumerate(groups):
            bits = 0
            for node in group:
                for used in uses[node]:
                    bits |= below[used]
            if len(group) > 1:
                for node in group:
                    bits |= own.get(node, 0)
            for node in group:
                its = own.get(node, 0)
                below[node] = bits | its
                if bits:
                    for nodes, digits in zip(counting, planes, strict=True):
                        if node in nodes:
                            _add(digits, bits & ~its)
            if not at % _A_PART:
                yield
        for counts, digits in zip(result, planes, strict=True):
            counts += (
                sum((plane >> bit & 1) << power for power, plane in enumerate(digits))
                for bit in range(len(some))
            )
    return result


def _groups(uses: Uses, groups: list[tuple[int, ...]]) -> _Parts[None]:
    """List the nodes, each cycle as one group, and each group behind the groups it uses (Tarjan 1972)."""
    ended = len(uses) + 1
    order, low = [0] * len(uses), [0] * len(uses)
    count = 0
    waiting: list[int] = []
    path: list[tuple[int, Iterator[int]]] = []
    for root in range(len(uses)):
        begun = [root] if not order[root] else []
        while begun or path:
            if begun:
                node = begun.pop()
                order[node] = low[node] = count = count + 1
                waiting.append(node)
                path.append((node, iter(uses[node])))
            node, rest = path[-1]
            for used in rest:
                if not order[used]:
                    begun.append(used)
                    break
                if order[used] < low[node]:
                    low[node] = order[used]
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    at = len(waiting) - 1
                    while waiting[at] != node:
                        at -= 1
                    groups.append(tuple(waiting[at:]))
                    del waiting[at:]
                    for member in groups[-1]:
                        order[member] = ended
                    if not len(groups) % _A_PART:
                        yield


def _add(planes: list[int], bits: int) -> None:
    """Add 1 to the counter of each set bit; the counters' binary digits stand one to a plane."""
    at = 0
    while bits:
        if at == len(planes):
            planes.append(0)
        planes[at], bits = planes[at] ^ bits, planes[at] & bits
        at += 1


def _plain(name: str) -> str:
    """Return a name without its quotes: Lean and people disagree on where they are needed."""
    return name.replace("«", "").replace("»", "")
