"""Compare two commits without Lean: a pull request's effects on the sorries, statements and axioms of a repository.

`compare_commits` reads both versions of each changed file from git's objects, as the scan job does, and matches sorries
and declarations by the same rules (`store.domain`, `pipeline.meaning`). Beside the steps of the sorries' lives it finds
changes in a theorem's meaning or foundations. Words are looked for in commands with new text, and count if their
declaration has more of them than before: a mere move is not reported.

It reads text. It does not see a macro's use of its arguments, nor the contents of a dependency.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from pipeline.jobs.mirror import Changes, Mirror, TreeFile
from pipeline.jobs.protocol import JobError
from pipeline.lean.source.attributes import Attributes
from pipeline.lean.source.forbidden import UNSEEN_NAMES
from pipeline.lean.source.scanner import Command
from pipeline.meaning import Meanings
from pipeline.unchanged import Unchanged
from pipeline.versions import Mark, MarkKind, Version, earlier, present, version_of
from store.domain.keywords import THEOREM_KINDS
from store.domain.matching import (
    Decl,
    Filled,
    Kept,
    Opened,
    Outcome,
    Removed,
    compare,
    sorry_steps,
)
from store.events.places import SorryPlace
from store.text import and_more, clean

Kind = Literal[
    "opened",
    "answer",
    "moved",
    "filled",
    "rests on",
    "removed",
    "deleted",
    "statement",
    "context",
    "meaning",
    "axiom",
    "unchecked",
    "option",
    "hidden",
    "unread",
    "build",
]
KINDS: Mapping[Kind, str] = {
    "opened": "a new sorry, admit or stop",
    "answer": "a new answer(sorry)",
    "moved": "a sorry in another file, declaration or place of its declaration",
    "filled": "a proof in a sorry's place, with the statement and everything below it unchanged",
    "rests on": "a proof in a sorry's place, citing a declaration with a sorry",
    "removed": "a sorry deleted with its declaration, or in a declaration without need of a proof now",
    "deleted": "a proved theorem, now gone",
    "statement": "a declaration with another statement or other variables under its name",
    "context": "a statement with other open namespaces, options or local attributes around it",
    "meaning": "a statement with changed definitions, notations, macros or instances",
    "axiom": "a new axiom, or a declaration turned into one",
    "unchecked": "a proof by compiled or unchecked code (native_decide, extern, unsafe), or a search (exact?)",
    "option": "an option forbidden to proofs",
    "hidden": "a sorry or an axiom in a macro, a program or look-alike letters, #exit, invisible characters",
    "unread": "a file not read in full, a symbolic link or a submodule in the place of Lean files",
    "build": "another toolchain, lakefile, manifest or .gitattributes",
}
"""The kinds of findings, each with its meaning."""

_ASSERTED = frozenset({*THEOREM_KINDS, "axiom"})
_ANSWERED = re.compile(r"\banswer ?\( ?sorry ?\)")
_BUILD = frozenset(
    {"lean-toolchain", "lakefile.toml", "lakefile.lean", "lake-manifest.json", ".gitattributes"}
)
_MOST_LAKEFILE_BYTES = 1 << 20
_LET_PASS = re.compile(rf"(?:\b|(?<=-D))(?:warn\.sorry|{'|'.join(sorted(UNSEEN_NAMES))})\b")


@dataclass(frozen=True, slots=True)
class Finding:
    """One effect of the later version. Line from 1, column from 0 in code points; 0, 0 is the whole file."""

    kind: Kind
    path: str
    line: int
    column: int
    declaration: str
    message: str
    gone: bool = False
    """the place is in the earlier version: the later one has none"""
    was: str | None = None
    """the former place (`A.lean:12`) of a moved sorry"""
    before: str | None = None
    """the former statement"""
    after: str | None = None
    """the present statement"""


class CloneError(Exception):
    """The clone cannot be compared; the message names the missing thing and the remedy."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The findings, by path and line, and the number of the changed Lean files."""

    files: int
    findings: tuple[Finding, ...]


def compare_commits(mirror: Mirror, base: str, head: str, *, meant: Callable[[str], bool]) -> Compared:
    """Compare two commits by the files accepted by `meant`.

    Raises:
        JobError: git failed, or a commit is missing.
    """
    return _compared(mirror, mirror.changes(base, head), Unchanged(mirror, base, head), meant)


@dataclass(frozen=True, slots=True)
class Fill:
    """A declaration without its last sorry, and its present proof."""

    path: str
    name: str
    kind: str
    statement: str
    proof: str
    rests_on: tuple[str, ...]


def filled_between(mirror: Mirror, base: str, head: str, *, meant: Callable[[str], bool]) -> list[Fill]:
    """Return all declarations with sorries filled by the later commit.

    Raises:
        JobError: git failed, or a commit is missing.
    """
    changes = mirror.changes(base, head)
    old = {item.path: version_of(mirror, item) for item in changes.before if meant(item.path)}
    if not any(version.read.scan.sorries for version in old.values()):
        return []
    new = {item.path: version_of(mirror, item) for item in changes.present if meant(item.path)}
    return [*_Difference(old, new, Unchanged(mirror, base, head)).fills()]


def compare_staged(mirror: Mirror, base: str, *, meant: Callable[[str], bool]) -> Compared:
    """Compare a commit or tree with the staged files."""
    return _compared(mirror, mirror.staged(base), Unchanged(mirror, base, None), meant)


def compare_clone(
    folder: Path, base: str | None, head: str | None, *, staged: bool, meant: Callable[[str], bool]
) -> tuple[str, str | None, Compared]:
    """Compare a commit of a clone, or its staged files, with the point where its history left another's.

    Args:
        folder: the clone, or a folder in it.
        base: the commit to merge into; None: HEAD, with `staged` alone.
        head: the later commit; None: HEAD.

    Returns:
        The starting commit, the later one (None with `staged`), and the comparison.

    Raises:
        CloneError: the folder is no clone, or it lacks something; the message names it and the remedy.
    """
    try:
        with Mirror(clone(folder)) as mirror:
            if staged:
                # A repository without a commit has no HEAD.
                start = mirror.empty_tree() if base is None and not mirror.commit_of("HEAD") else None
                start = start or _commit(mirror, base or "HEAD")
                return start, None, compare_staged(mirror, start, meant=meant)
            later = _commit(mirror, head or "HEAD")
            start = _where_it_left(mirror, str(base), later)
            return start, later, compare_commits(mirror, start, later, meant=meant)
    except JobError as error:
        # The error's own remedies are for the daemon's mirrors.
        raise CloneError(f"{clean(str(error))}; check the clone with `git fsck`") from error


def clone(folder: Path) -> Path:
    """Return the git folder of a clone, from any folder in it.

    Raises:
        CloneError: the folder is in no clone.
    """
    if not folder.is_dir():
        raise CloneError(f"{folder}: no such folder; name a clone with -C")
    try:
        result = subprocess.run(
            ["git", "-C", os.fspath(folder), "rev-parse", "--absolute-git-dir"],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise CloneError("there is no git; install it") from error
    if result.returncode:
        text = clean(result.stderr.decode("utf-8", "replace")).removeprefix("fatal: ")
        raise CloneError(f"{folder}: {text}; name a clone with -C")
    return Path(os.fsdecode(result.stdout.rstrip(b"\n")))


def _commit(mirror: Mirror, name: str) -> str:
    commit = mirror.commit_of(name)
    if commit is None:
        raise CloneError(
            f"{clean(name)} is no commit here; fetch it (`git fetch origin BRANCH`; in a workflow, fetch-depth: 0 of "
            "actions/checkout), or correct the name"
        )
    return commit


def _where_it_left(mirror: Mirror, base: str, head: str) -> str:
    """Return the commit where the head's history left the base's."""
    result = mirror.merge_base(_commit(mirror, base), head)
    if result is not None:
        return result
    if mirror.shallow():
        raise CloneError(
            f"the clone is shallow and does not reach to where HEAD left {clean(base)}; fetch the history (`git fetch "
            "--unshallow`; in a workflow, fetch-depth: 0 of actions/checkout, or GIT_DEPTH: 0 of GitLab)"
        )
    raise CloneError(
        f"HEAD and {clean(base)} have no common history; name the branch that HEAD was made from"
    )


def _compared(
    mirror: Mirror, changes: Changes, unchanged: Unchanged, meant: Callable[[str], bool]
) -> Compared:
    old = {item.path: version_of(mirror, item) for item in changes.before if meant(item.path)}
    new = {item.path: version_of(mirror, item) for item in changes.present if meant(item.path)}
    result = [
        *_Difference(old, new, unchanged).findings(),
        *_strange(changes.strange, meant),
        *_built_otherwise(mirror, changes),
        *_not_as_committed(unchanged, new),
    ]
    order: tuple[Kind, ...] = get_args(Kind)

    def place(item: Finding) -> tuple[str, int, int, int, str]:
        return item.path, item.line, item.column, order.index(item.kind), item.message

    return Compared(len(old.keys() | new.keys()), tuple(sorted(result, key=place)))


def _built_otherwise(mirror: Mirror, changes: Changes) -> Iterator[Finding]:
    """Report the files that govern the build and the checkout, and the checks they turn off."""
    before = {item.path: item for item in changes.before}
    present = {item.path: item for item in changes.present}
    gone = dict.fromkeys(changes.gone, True)
    for path in sorted(present.keys() | gone.keys()):
        name = PurePosixPath(path).name
        if name not in _BUILD:
            continue
        what = "is gone" if path in gone else "changed" if path in before else "is new"
        yield Finding("build", path, 0, 0, "", f"{name} {what}", gone=path in gone)
        if name.startswith("lakefile.") and path in present:
            had = set(_let_pass(mirror, before.get(path)))
            for word, line in _let_pass(mirror, present[path]).items():
                if word not in had:
                    kind: Kind = "unchecked" if word in UNSEEN_NAMES else "option"
                    yield Finding(kind, path, line, 0, "", f"{word} in {name}")


def _let_pass(mirror: Mirror, item: TreeFile | None) -> dict[str, int]:
    """Return the words of a lakefile that turn off Lean's checks, each with its first line."""
    data = (
        b"" if item is None or not item.readable else mirror.read(item.blob, most_bytes=_MOST_LAKEFILE_BYTES)
    )
    lines = b"" if isinstance(data, int) else data
    result: dict[str, int] = {}
    for number, line in enumerate(lines.decode("utf-8", "replace").splitlines(), 1):
        for word in _LET_PASS.findall(line):
            result.setdefault(word, number)
    return result


def _not_as_committed(unchanged: Unchanged, new: Mapping[str, Version]) -> Iterator[Finding]:
    """Report changed files that git alters in a checkout: Lean reads the checkout."""
    attributes = Attributes(dict(unchanged.attributes() if new else ()).get)
    for path in new:
        if altered := attributes.altered(path):
            yield Finding("unread", path, 0, 0, "", altered)


def _strange(items: Iterable[TreeFile], meant: Callable[[str], bool]) -> Iterator[Finding]:
    """Report links and submodules in the place of Lean files: Lean follows a link, and a submodule's files are its own
    commits'.
    """
    for item in items:
        folder = "." not in item.path.rpartition("/")[2] and meant(f"{item.path}/A.lean")
        if meant(item.path) or folder:
            yield Finding("unread", item.path, 0, 0, "", f"{item.problem}, which is not followed")


class _Difference:
    """The versions of the changed files, with their declarations matched."""

    def __init__(self, old: Mapping[str, Version], new: Mapping[str, Version], unchanged: Unchanged) -> None:
        self._old, self._new, self._unchanged = old, new, unchanged
        self._compared = compare(
            [item for path in sorted(old) for item in earlier(old[path])],
            [item for path in sorted(new) for item in present(new[path])],
        )
        self._partner = {(now.path, now.index): old for old, now in self._compared.pairs}
        self._outcomes: dict[tuple[str, int], Outcome] = {}

    @cached_property
    def _meanings(self) -> Meanings:
        return Meanings(
            self._old,
            self._new,
            self._compared,
            beside=self._unchanged,
            elsewhere=lambda: self._unchanged.with_a_sorry(self._new),
        )

    def findings(self) -> Iterator[Finding]:
        """Yield all effects of the later version."""
        marked: set[tuple[str, int]] = set()
        for version, mark in self._words():
            name = version.declarations[mark.owner].name if mark.owner >= 0 else ""
            is_option = mark.kind == "option" or mark.word.startswith("debug.")
            what = f"the option {mark.word}" if is_option else mark.word
            message = f"{what} in {name}" if name else what
            yield Finding(mark.kind, version.item.path, *version.place(mark.byte), name, message)
            marked.add((version.item.path, mark.owner))
        yield from self._sorries(marked)
        yield from self._restated()
        yield from self._axioms()
        yield from self._unproved(marked)
        yield from self._around()
        yield from self._unreadable()
        yield from self._out_of_sight()

    # ---- sorries

    def _sorries(self, marked: Collection[tuple[str, int]]) -> Iterator[Finding]:
        """Yield the steps of the sorries' lives; `marked` are declarations with a word already reported."""
        for step in sorry_steps(self._compared):
            match step:
                case Opened(_, place):
                    yield self._opened(place)
                case Kept(old, living, _, place):
                    if self._really_moved(living.place, old, place):
                        yield _moved(living.place, place)
                case Removed(old, living):
                    was = living.place
                    hidden = self._meanings.hidden_by(old)
                    yield Finding(
                        "removed" if hidden is None else "hidden",
                        was.path,
                        was.line,
                        was.column,
                        was.declaration,
                        f"a sorry went with {was.declaration}" if hidden is None else hidden.detail,
                        gone=True,
                    )
                case Filled(old, living, now):
                    yield from self._went(old, living.place, now, (now.path, now.index) in marked)

    def fills(self) -> Iterator[Fill]:
        """Yield each declaration that had sorries, has none, and is proved as it stands."""
        last: Decl | None = None
        for step in sorry_steps(self._compared):
            if not isinstance(step, Filled) or step.new.places or step.new is last:
                continue
            last = step.new
            outcome = self._outcome(step.old, step.new)
            if outcome.how == "filled":
                version, one = self._new[last.path], step.new
                yield Fill(
                    one.path,
                    one.name,
                    one.kind,
                    version.declarations[one.index].statement,
                    version.proof_of(one.index),
                    outcome.rests_on,
                )

    def _opened(self, place: SorryPlace) -> Finding:
        answer = self._new[place.path].answer(place)
        kind: Kind = "answer" if answer else "opened"
        message = f"{'answer(sorry)' if answer else place.token} in {place.declaration}"
        return Finding(kind, place.path, place.line, place.column, place.declaration, message)

    def _really_moved(self, was: SorryPlace, old: Decl, place: SorryPlace) -> bool:
        """Return whether more changed than the lines above its declaration, with the statement the same."""
        new = self._new[place.path]
        line_before = was.line - self._old[was.path].declarations[old.index].line
        line_now = place.line - new.declarations[new.owners[place.byte_start]].line
        before = (was.path, was.declaration, was.context_hash, line_before)
        now = (place.path, place.declaration, place.context_hash, line_now)
        return was.statement_hash == place.statement_hash and before != now

    def _outcome(self, old: Decl, now: Decl) -> Outcome:
        key = now.path, now.index
        if key not in self._outcomes:
            self._outcomes[key] = self._meanings.outcome(old, now)
        return self._outcomes[key]

    def _went(self, old: Decl, was: SorryPlace, now: Decl, marked: bool) -> Iterator[Finding]:
        """Report a sorry missing from its declaration. A change of its statement is reported with the declaration."""
        outcome = self._outcome(old, now)
        former = f"{was.path}:{was.line}"

        def finding(kind: Kind, message: str) -> Finding:
            return Finding(kind, now.path, *self._line(now), now.name, message, was=former)

        match outcome.how:
            case "filled":
                yield finding("filled", f"a sorry of {now.name} is filled")
                if outcome.rests_on:
                    cited = ", ".join(outcome.rests_on)
                    have = "has" if len(outcome.rests_on) == 1 else "have"
                    yield finding(
                        "rests on", f"the proof of {now.name} rests on {cited}, which {have} a sorry"
                    )
            case "became an axiom" if now.kind != "axiom":
                yield finding("removed", outcome.detail)
            case "unchecked" | "hidden" if not marked:
                yield finding(
                    "hidden" if outcome.how == "hidden" else "unchecked", f"{outcome.detail} in {now.name}"
                )
            case _:
                pass

    def _line(self, item: Decl) -> tuple[int, int]:
        result = self._new[item.path].declarations[item.index]
        return result.line, result.column

    # ---- declarations

    def _restated(self) -> Iterator[Finding]:
        for old, now in self._compared.pairs:
            if old.statement_hash == now.statement_hash or now.anonymous or now.kind == "deriving instance":
                continue
            before = self._old[old.path].declarations[old.index]
            after = self._new[now.path].declarations[now.index]
            message = f"the statement of {now.name} changed"
            if old.name != now.name:
                message += f", which was {old.name}"
            if _ANSWERED.search(before.statement) and not _ANSWERED.search(after.statement):
                message += "; its answer(sorry) was replaced"
            elif old.living and not now.places:
                message += "; it has no sorry any more"
            yield Finding(
                "statement",
                now.path,
                after.line,
                after.column,
                now.name,
                message,
                was=f"{old.path}:{before.line}" if old.path != now.path else None,
                before=before.statement,
                after=after.statement,
            )

    def _axioms(self) -> Iterator[Finding]:
        for now in self._compared.now:
            old = self._partner.get((now.path, now.index))
            if now.kind == "axiom" and (old is None or old.kind != "axiom"):
                message = f"the {old.kind} {now.name} became an axiom" if old else f"the axiom {now.name}"
                yield Finding("axiom", now.path, *self._line(now), now.name, message)

    def _unproved(self, marked: Collection[tuple[str, int]]) -> Iterator[Finding]:
        """Report theorems without a sorry that are gone or no longer theorems."""
        kept = set()
        for old, now in self._compared.pairs:
            kept.add((old.path, old.index))
            if old.kind not in THEOREM_KINDS or old.living or (now.path, now.index) in marked:
                continue
            outcome = self._outcome(old, now) if now.kind not in THEOREM_KINDS else None
            if outcome is not None and outcome.how == "unchecked":
                yield Finding(
                    "unchecked", now.path, *self._line(now), now.name, f"{outcome.detail}: {now.name}"
                )
        gone: dict[str, list[Decl]] = defaultdict(list)
        for old in self._compared.before:
            if old.kind in THEOREM_KINDS and not old.living and (old.path, old.index) not in kept:
                gone[old.path].append(old)
        for path, items in gone.items():
            first = self._old[path].declarations[items[0].index]
            message = f"the theorem {first.name}{and_more(len(items) - 1)} is gone"
            yield Finding("deleted", path, first.line, first.column, first.name, message, gone=True)

    def _around(self) -> Iterator[Finding]:
        """Report unchanged statements with changes around them: for each file and change, the first."""
        result: dict[tuple[Kind, str, str], list[Decl]] = defaultdict(list)
        ends: dict[str, int] = {}
        for old, now in self._compared.pairs:
            if now.kind not in _ASSERTED or old.statement_hash != now.statement_hash:
                continue
            changed = self._meanings.changed(old, now)
            if changed.unread:
                line = self._new[now.path].declarations[now.index].line
                ends[now.path] = min(line, ends.get(now.path, line))
            if old.path == now.path:
                kinds: tuple[tuple[Kind, tuple[str, ...]], ...] = (
                    ("statement", changed.statement),
                    ("context", (*changed.context, *changed.doubtful)),
                    ("meaning", changed.meaning),
                )
            else:
                # In another file other lines stand around it; its words' meaning is compared all the same.
                kinds = (("meaning", changed.meaning),)
            for kind, lines in kinds:
                if lines:
                    result[kind, now.path, " ".join(lines)].append(now)
        for path, line in ends.items():
            message = "too many variables and the like; those of declarations were not compared"
            yield Finding("unread", path, line, 0, "", message)
        for (kind, path, changes), items in result.items():
            first = min(items, key=lambda item: item.index)
            names = f"{first.name}{and_more(len(items) - 1)}"
            message = {
                "statement": f"the variables of {names} changed: {changes}",
                "context": f"around the statement of {names} changed: {changes}",
                "meaning": f"of what the statement of {names} says changed: {changes}",
            }[kind]
            yield Finding(kind, path, *self._line(first), first.name, message)

    # ---- words

    def _words(self) -> Iterator[tuple[Version, Mark]]:
        """Yield the words more frequent than before in a declaration, or in a file's other commands."""
        had: dict[tuple[str, int], Counter[tuple[MarkKind, str]]] = {}
        for version, command in _only(self._old, self._new):
            loose = had.setdefault((version.item.path, -1), Counter())
            loose.update((mark.kind, mark.word) for mark in version.marks(command) if mark.owner < 0)
        for version, command in _only(self._new, self._old):
            for mark in version.marks(command):
                key = version.item.path, mark.owner
                if key not in had:
                    old = self._partner.get(key)
                    marks = [] if old is None else self._old[old.path].marks_of(old.index)
                    had[key] = Counter((one.kind, one.word) for one in marks)
                if had[key][mark.kind, mark.word] > 0:
                    had[key][mark.kind, mark.word] -= 1
                else:
                    yield version, mark

    # ---- files

    def _unreadable(self) -> Iterator[Finding]:
        for path, version in self._new.items():
            if version.read.scan.error is not None:
                yield Finding("unread", path, 0, 0, "", version.read.scan.error)
        for path, version in self._old.items():
            if not version.data and version.read.scan.error is not None:
                reason = f"as it was: {version.read.scan.error}"
                yield Finding("unread", path, 0, 0, "", reason, gone=path not in self._new)

    def _out_of_sight(self) -> Iterator[Finding]:
        gone: Counter[str] = Counter()
        for version in self._old.values():
            gone.update(version.unseen)
        for path, version in self._new.items():
            old = self._old.get(path)
            if version.exits >= 0 and (old is None or old.exits < 0):
                message = "#exit, after which Lean reads nothing"
                yield Finding("hidden", path, *version.place(version.exits), "", message)
            for character, count in version.unseen.items():
                if count > gone[character]:
                    at = version.data.find(character.encode())
                    message = f"the invisible character U+{ord(character):04X}"
                    yield Finding("hidden", path, *version.place(at), "", message)
                gone[character] -= min(count, gone[character])


def _only(these: Mapping[str, Version], others: Mapping[str, Version]) -> Iterator[tuple[Version, Command]]:
    """Yield the commands of these versions missing, or less frequent, in the others."""
    left = Counter(command.text for version in others.values() for command in version.source.commands)
    for path in sorted(these):
        for command in these[path].source.commands:
            if left[command.text] > 0:
                left[command.text] -= 1
            else:
                yield these[path], command


def _moved(was: SorryPlace, place: SorryPlace) -> Finding:
    former = f"{was.path}:{was.line}"
    named = f" in {was.declaration}" if was.declaration != place.declaration else ""
    message = f"{place.token} in {place.declaration}, before {former}{named}"
    return Finding("moved", place.path, place.line, place.column, place.declaration, message, was=former)
