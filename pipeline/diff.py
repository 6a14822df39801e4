"""What a pull request does to the sorries, statements and axioms of a repository: two commits, compared without Lean.

`compare_commits` reads both versions of each changed file out of git's objects, as the scan job does, and takes
sorries and declarations for the same by the same rules (`store.domain`). Beside the steps of the sorries' lives it
finds what makes a theorem mean or rest on something else. Words are looked for in the commands whose text is new, and
count where their declaration has more of them than before: what only moved is not reported.

It reads text. A macro's uses, a changed definition, `lakefile` options and what a dependency brings are not seen.
"""

from __future__ import annotations

import os
import re
import subprocess
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Literal, get_args

from pipeline.jobs.mirror import Changes, Mirror, TreeFile
from pipeline.jobs.protocol import JobError
from pipeline.jobs.version import content, shortened, unread
from pipeline.lean.source.forbidden import (
    SEARCHES,
    SORRY_NAMES,
    UNCHECKED_NAMES,
    invisible,
    may_set,
    skeleton,
)
from pipeline.lean.source.lexer import Positions, decode, lex, tokens_of_text
from pipeline.lean.source.scanner import Command, read_source
from store.domain.keywords import THEOREM_KINDS, UNPROVED_KINDS
from store.domain.matching import (
    Decl,
    Filled,
    Kept,
    LivingSorry,
    Opened,
    Removed,
    compare,
    declarations_known,
    declarations_now,
    place_of,
    sorry_steps,
)
from store.events.places import SorryPlace
from store.text import and_more, clean

Kind = Literal[
    "opened",
    "answer",
    "moved",
    "filled",
    "removed",
    "statement",
    "axiom",
    "unchecked",
    "option",
    "hidden",
    "unread",
]
KINDS: Mapping[Kind, str] = {
    "opened": "a sorry, admit or stop that was not there",
    "answer": "an answer(sorry) that was not there",
    "moved": "a sorry in another file, declaration or place of its declaration",
    "filled": "a sorry whose declaration stands without it, and says what it said",
    "removed": "a sorry that went with its declaration, or whose declaration needs no proof any more",
    "statement": "a declaration that says something else under its name",
    "axiom": "an axiom that was not there, or a declaration that became one",
    "unchecked": "what rests on compiled or unchecked code (native_decide, sorryAx, extern), or a search (exact?)",
    "option": "an option that a proof may not set",
    "hidden": "a sorry or an axiom in a macro, a program or look-alike letters, #exit, invisible characters",
    "unread": "a file that could not be read in full, a symbolic link or a submodule in the place of Lean files",
}
"""What can be found, each with its meaning."""

_ASSERTED = frozenset({*THEOREM_KINDS, "axiom"})
_SEARCHES = tuple(word for word in SEARCHES if word.endswith(("?", "?!")))
_MAKERS = frozenset({"sorryAx", "mkSorry", "mkLabeledSorry", "mkSyntheticSorry", "admitGoal", "axiomDecl"})
"""What a program of Lean's calls to make a sorry or an axiom."""
_SUSPECT = (*sorted(SORRY_NAMES | UNCHECKED_NAMES | _MAKERS), "axiom", "set_option")
"""What a command must have as text to be looked at word by word."""
_ANSWER = re.compile(rb"\banswer\s*\(\s*\Z")
_ANSWERED = re.compile(r"\banswer ?\( ?sorry ?\)")
_BEFORE_ANSWER = 64
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SHOWN_AS_SPACE = frozenset("\t\f\ufeff")
_ONLY_SHOW = frozenset({"#check", "#check_failure", "#print", "#reduce", "#synth"})
"""Commands that leave nothing behind; `#eval` can declare."""
_MASKS = {1: " ", 2: " "}
"""The lexer's marks of doc comments."""
_CONTEXT = frozenset({"variable", "universe", "include", "omit"})
_BOUND = re.compile(r"[({⦃]([^:(){}\[\]⦃⦄]*):")
MOST_IN_FORCE = 500_000
"""Lines in force at declarations, in all, that are compared where they differ."""
_NAME = re.compile(r"[^\W\d][\w'!?]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the later version does. Line from 1, column from 0 in code points; 0, 0 is the whole file."""

    kind: Kind
    path: str
    line: int
    column: int
    declaration: str
    message: str
    gone: bool = False
    """the place is in the earlier version: the later one has none"""
    was: str | None = None
    """the former place (`A.lean:12`) of what moved"""
    before: str | None = None
    """the statement that it was"""
    after: str | None = None
    """the statement that it is"""


class CloneError(Exception):
    """A clone cannot be compared; the message says what is missing, and what to do."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The findings, by path and line, and the number of the changed Lean files."""

    files: int
    findings: tuple[Finding, ...]


def compare_commits(mirror: Mirror, base: str, head: str, *, meant: Callable[[str], bool]) -> Compared:
    """Compare two commits by their files that `meant` takes.

    Raises:
        JobError: git failed, or a commit is not there.
    """
    return _compared(mirror, mirror.changes(base, head), meant)


def compare_staged(mirror: Mirror, base: str, *, meant: Callable[[str], bool]) -> Compared:
    """Compare a commit or tree with what is staged for the next commit."""
    return _compared(mirror, mirror.staged(base), meant)


def compare_clone(
    folder: Path, base: str | None, head: str | None, *, staged: bool, meant: Callable[[str], bool]
) -> tuple[str, str | None, Compared]:
    """Compare a commit of a clone, or what is staged there, with where its history left another's.

    Args:
        folder: the clone, or a folder in it.
        base: the commit to merge into; None: HEAD, with `staged` alone.
        head: the later commit; None: HEAD.

    Returns:
        The commit that was compared with, the later one (None with `staged`), and what was found.

    Raises:
        CloneError: the folder is no clone, or it lacks something; the message says what, and what to do.
    """
    try:
        with Mirror(_git_folder(folder)) as mirror:
            if staged:
                # A repository without a commit has no HEAD.
                start = mirror.empty_tree() if base is None and not mirror.commit_of("HEAD") else None
                start = start or _commit(mirror, base or "HEAD")
                return start, None, compare_staged(mirror, start, meant=meant)
            later = _commit(mirror, head or "HEAD")
            start = _where_it_left(mirror, str(base), later)
            return start, later, compare_commits(mirror, start, later, meant=meant)
    except JobError as error:
        # Its own remedies are for the daemon's mirrors.
        raise CloneError(f"{clean(str(error))}; check the clone with `git fsck`") from error


def _git_folder(folder: Path) -> Path:
    """Return the folder where git keeps the clone that a folder belongs to."""
    if not folder.is_dir():
        raise CloneError(f"{folder}: no such folder; name a clone with -C")
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(folder), "rev-parse", "--absolute-git-dir"],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise CloneError("there is no git; install it") from error
    if done.returncode:
        said = clean(done.stderr.decode("utf-8", "replace")).removeprefix("fatal: ")
        raise CloneError(f"{folder}: {said}; name a clone with -C")
    return Path(os.fsdecode(done.stdout.rstrip(b"\n")))


def _commit(mirror: Mirror, name: str) -> str:
    found = mirror.commit_of(name)
    if found is None:
        raise CloneError(
            f"{clean(name)} is no commit here; fetch it (`git fetch origin BRANCH`; in a workflow, fetch-depth: 0 of "
            "actions/checkout), or correct the name"
        )
    return found


def _where_it_left(mirror: Mirror, base: str, head: str) -> str:
    """Return the commit at which the head's history left that of the base."""
    found = mirror.merge_base(_commit(mirror, base), head)
    if found is not None:
        return found
    if mirror.shallow():
        raise CloneError(
            f"the clone is shallow and does not reach to where HEAD left {clean(base)}; fetch the history (`git fetch "
            "--unshallow`; in a workflow, fetch-depth: 0 of actions/checkout, or GIT_DEPTH: 0 of GitLab)"
        )
    raise CloneError(
        f"HEAD and {clean(base)} have no common history; name the branch that HEAD was made from"
    )


def _compared(mirror: Mirror, changes: Changes, meant: Callable[[str], bool]) -> Compared:
    old = {item.path: _version(mirror, item) for item in changes.before if meant(item.path)}
    new = {item.path: _version(mirror, item) for item in changes.present if meant(item.path)}
    found = {*_Difference(old, new).findings(), *_strange(changes.strange, meant)}
    order: tuple[Kind, ...] = get_args(Kind)

    def place(item: Finding) -> tuple[str, int, int, int, str]:
        return item.path, item.line, item.column, order.index(item.kind), item.message

    return Compared(len(old.keys() | new.keys()), tuple(sorted(found, key=place)))


def _strange(items: Iterable[TreeFile], meant: Callable[[str], bool]) -> Iterator[Finding]:
    """Report what stands where Lean files could: Lean follows a link, and a submodule's files are its own commits'."""
    for item in items:
        folder = "." not in item.path.rpartition("/")[2] and meant(f"{item.path}/A.lean")
        if meant(item.path) or folder:
            yield Finding("unread", item.path, 0, 0, "", f"{item.problem}, which is not followed")


class _Chains:
    """Lists of lines, each by a number: that of its beginning is kept with its last line, and equal ones are one."""

    def __init__(self) -> None:
        self._links: list[tuple[int, str]] = [(0, "")]
        self._numbers: dict[tuple[int, str], int] = {}

    def longer(self, chain: int, line: str) -> int:
        """Return the number of a list with a line more."""
        link = chain, line
        if link not in self._numbers:
            self._numbers[link] = len(self._links)
            self._links.append(link)
        return self._numbers[link]

    def lines(self, chain: int) -> Counter[str]:
        """Return the lines of a list, and how often each is in it."""
        found: Counter[str] = Counter()
        while chain:
            chain, line = self._links[chain]
            found[line] += 1
        return found


@dataclass(frozen=True, slots=True)
class _Mark:
    """A word of a command that counts; `owner` is the index of its declaration, -1 outside of any."""

    kind: Kind
    word: str
    byte: int
    owner: int


class _Version:
    """One version of a file: its scan, its bytes, and what is read of its commands where someone asks."""

    def __init__(self, item: TreeFile, data: bytes | str) -> None:
        self.item = item
        self.data = b"" if isinstance(data, str) else data
        read, self.source = read_source(self.data, path=item.path)
        self.read = unread(item, data) if isinstance(data, str) else shortened(read)
        self.declarations = self.read.scan.declarations
        self._marks: dict[int, list[_Mark]] = {}

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        return sorted((one.byte_start, index) for index, one in enumerate(self.declarations))

    @cached_property
    def owners(self) -> dict[int, int]:
        """The declaration of each sorry, by the sorry's first byte."""
        return {sorry.byte_start: sorry.index for sorry in self.read.scan.sorries}

    @cached_property
    def _sorry_starts(self) -> list[int]:
        return sorted(self.owners)

    @cached_property
    def _positions(self) -> Positions:
        return Positions(decode(self.data)[0], "")

    def place(self, byte: int) -> tuple[int, int]:
        """Return the line from 1 and the column from 0 of a byte."""
        at = self._positions.offset(byte)
        return self._positions.line(at), self._positions.column(at)

    def answer(self, place: SorryPlace) -> bool:
        """Return whether a sorry stands in `answer(…)`."""
        before = self.data[max(0, place.byte_start - _BEFORE_ANSWER) : place.byte_start]
        return _ANSWER.search(before) is not None

    @cached_property
    def exits(self) -> int:
        """The byte of the `#exit` after which Lean reads nothing; -1 without one."""
        if b"#exit" not in self.data:
            return -1
        end = max((command.byte_end for command in self.source.commands), default=self.source.header_end)
        tokens, _ = tokens_of_text(self.data[end:].decode("utf-8", "replace"))
        return end + tokens[0].byte_start if tokens and tokens[0].text == "#exit" else -1

    @cached_property
    def unseen(self) -> Counter[str]:
        """The characters that hide something: those that turn text around wherever they stand, others in code."""
        text = self.data.decode("utf-8", "replace")
        found = {one for one in set(text) if one not in _SHOWN_AS_SPACE and invisible(one)}
        if not found:
            return Counter()
        bare = lex(text).bare.translate(_MASKS)
        return Counter({one: (text if one in _BIDI else bare).count(one) for one in sorted(found)})

    def contexts(self, chains: _Chains) -> dict[int, int]:
        """Return the chain of lines in force at each declaration that give it variables, by its index."""
        found: dict[int, int] = {}
        chain = [0]  # of the first 0, 1, 2, … lines
        for command, lines in self.source.in_force():
            # One command closes scopes or adds lines, never both.
            del chain[len(lines) + 1 :]
            for line in lines[len(chain) - 1 :]:
                counts = line.partition(" ")[0] in _CONTEXT
                chain.append(chains.longer(chain[-1], line) if counts else chain[-1])
            found.update((index, chain[-1]) for _, index in self._inside(command))
        return found

    def _inside(self, command: Command) -> list[tuple[int, int]]:
        first = bisect_left(self._starts, (command.byte_start, -1))
        return self._starts[first : bisect_left(self._starts, (command.byte_end, -1))]

    def marks_of(self, index: int) -> list[_Mark]:
        """Return the marks of one declaration."""
        start, commands = self.declarations[index].byte_start, self.source.commands
        at = bisect_left(commands, start + 1, key=lambda one: one.byte_end)
        return (
            [mark for mark in self.marks(commands[at]) if mark.owner == index] if at < len(commands) else []
        )

    def marks(self, command: Command) -> list[_Mark]:
        """Return the words of a command that count."""
        if command.byte_start not in self._marks:
            text = "" if command.keyword in _ONLY_SHOW else skeleton(command.text)
            suspect = [word for word in _SUSPECT if word in text]
            if "?" in text:
                suspect += [word for word in _SEARCHES if word in text]
            if suspect == ["sorry"] and text.count("sorry") == self._sorries_in(command):
                suspect = []
            self._marks[command.byte_start] = list(self._marked(command)) if suspect else []
        return self._marks[command.byte_start]

    def _sorries_in(self, command: Command) -> int:
        starts = self._sorry_starts
        return bisect_left(starts, command.byte_end) - bisect_left(starts, command.byte_start)

    def _marked(self, command: Command) -> Iterator[_Mark]:
        inside = self._inside(command)
        code = self.data[command.byte_start : command.byte_end].decode("utf-8", "replace")
        tokens, _ = tokens_of_text(code)
        previous = ""
        for token, next_token in zip_longest(tokens, tokens[1:]):
            byte = command.byte_start + token.byte_start
            after = next_token.text if next_token else ""
            found = None if previous == "set_option" else self._counts(command, token.text, after, byte)
            previous = skeleton(token.text)
            if found is not None:
                at = max(bisect_left(inside, (byte + 1, -1)) - 1, 0)
                yield _Mark(*found, byte, inside[at][1] if inside else -1)

    def _counts(self, command: Command, word: str, following: str, byte: int) -> tuple[Kind, str] | None:
        """Return as what a word counts, and how it is called."""
        plain = skeleton(word)
        if plain == "set_option":
            skips = skeleton(following).split(".")[0] == "debug"
            return None if may_set(following) else ("unchecked" if skips else "option", following)
        parts = {part.rstrip("?!") for part in plain.removeprefix("_root_.").split(".")}
        if (parts & (SORRY_NAMES | UNCHECKED_NAMES)) - {part.rstrip("?!") for part in word.split(".")}:
            return "hidden", f"{word}, which looks like {plain},"
        declares = command.kind == "declaration"
        where = "quoted syntax" if declares else f"the command {command.keyword}"
        before = self.data[byte - 1 : byte]
        if parts & _MAKERS or plain.endswith(".admit") or (plain == "admit" and before == b"."):
            if "sorryAx" in parts and declares and before != b"`":
                return "unchecked", plain
            return "hidden", f"{plain} in {'a program' if declares else where}"
        if plain in SORRY_NAMES:
            if byte in self.owners or before in (b".", b"`") or (plain == "admit" and declares):
                return None
            return "hidden", f"{plain} in {where}"
        if plain == "axiom" != command.keyword:
            return "hidden", f"{plain} in {where}"
        if parts & UNCHECKED_NAMES:
            return "unchecked", plain
        if plain in _SEARCHES and declares:
            return "unchecked", f"{plain}, which looks for a proof,"
        return None


def _version(mirror: Mirror, item: TreeFile) -> _Version:
    try:
        return _Version(item, content(mirror, item))
    except JobError as error:
        if error.reason != "object_missing":
            raise
        return _Version(item, "git has not its content here, as in a partial clone; not scanned")


class _Difference:
    """The versions of the changed files, and which declarations are the same."""

    def __init__(self, old: Mapping[str, _Version], new: Mapping[str, _Version]) -> None:
        self._old, self._new = old, new
        self._compared = compare(
            [item for path in sorted(old) for item in _earlier(old[path])],
            [item for path in sorted(new) for item in _present(new[path])],
        )
        self._partner = {(now.path, now.index): old for old, now in self._compared.pairs}

    def findings(self) -> Iterator[Finding]:
        """Yield all that the later version does."""
        pretended: set[tuple[str, int]] = set()
        for version, mark in self._words():
            name = version.declarations[mark.owner].name if mark.owner >= 0 else ""
            is_option = mark.kind == "option" or mark.word.startswith("debug.")
            what = f"the option {mark.word}" if is_option else mark.word
            message = f"{what} in {name}" if name else what
            yield Finding(mark.kind, version.item.path, *version.place(mark.byte), name, message)
            if mark.kind == "hidden" or mark.word.startswith("sorryAx") or mark.word.endswith(","):
                pretended.add((version.item.path, mark.owner))
        yield from self._sorries(pretended)
        yield from self._restated()
        yield from self._axioms()
        yield from self._variables()
        yield from self._unreadable()
        yield from self._out_of_sight()

    # ---- sorries

    def _sorries(self, pretended: Collection[tuple[str, int]]) -> Iterator[Finding]:
        """Yield the steps of the sorries' lives; `pretended` are declarations that now say a sorry by another word."""
        for step in sorry_steps(self._compared):
            match step:
                case Opened(_, place):
                    yield self._opened(place)
                case Kept(old, living, _, place):
                    if self._really_moved(living.place, old, place):
                        yield _moved(living.place, place)
                case Removed(_, living):
                    was = living.place
                    message = f"a sorry went with {was.declaration}"
                    yield Finding(
                        "removed", was.path, was.line, was.column, was.declaration, message, gone=True
                    )
                case Filled(old, _, now):
                    if (now.path, now.index) not in pretended:
                        yield from self._filled(old, now)

    def _opened(self, place: SorryPlace) -> Finding:
        answer = self._new[place.path].answer(place)
        kind: Kind = "answer" if answer else "opened"
        message = f"{'answer(sorry)' if answer else place.token} in {place.declaration}"
        return Finding(kind, place.path, place.line, place.column, place.declaration, message)

    def _really_moved(self, was: SorryPlace, old: Decl, place: SorryPlace) -> bool:
        """Return whether more changed than the lines above its declaration, and not the statement."""
        new = self._new[place.path]
        line_before = was.line - self._old[was.path].declarations[old.index].line
        line_now = place.line - new.declarations[new.owners[place.byte_start]].line
        before = (was.path, was.declaration, was.context_hash, line_before)
        now = (place.path, place.declaration, place.context_hash, line_now)
        return was.statement_hash == place.statement_hash and before != now

    def _filled(self, old: Decl, now: Decl) -> Iterator[Finding]:
        """Report a sorry that its declaration has no more, if a proof of the same took its place."""
        if now.kind in UNPROVED_KINDS and now.kind != "axiom":
            message = f"{now.name} became {now.kind}, which needs no proof"
            yield Finding("removed", now.path, *self._line(now), now.name, message)
        elif now.kind != "axiom" and now.statement_hash == old.statement_hash:
            yield Finding("filled", now.path, *self._line(now), now.name, f"a sorry of {now.name} is filled")

    def _line(self, item: Decl) -> tuple[int, int]:
        found = self._new[item.path].declarations[item.index]
        return found.line, found.column

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

    def _variables(self) -> Iterator[Finding]:
        """Report statements of the same text that got other variables: of a file and a change, the first of them."""
        found: dict[tuple[str, str], list[Decl]] = defaultdict(list)
        chains, left = _Chains(), MOST_IN_FORCE
        known: dict[_Version, dict[int, int]] = {}
        differences: dict[tuple[int, int], tuple[str, ...]] = {}
        ends: dict[str, int] = {}
        for old, now in self._compared.pairs:
            if old.path != now.path or now.kind not in _ASSERTED or old.text_hash != now.text_hash:
                continue
            versions = self._old[old.path], self._new[now.path]
            for one in versions:
                if one not in known:
                    known[one] = one.contexts(chains)
            version = versions[1]
            both = known[versions[0]][old.index], known[version][now.index]
            record = version.declarations[now.index]
            if both[0] == both[1]:
                continue
            if both not in differences and left >= 0:
                before, after = (chains.lines(chain) for chain in both)
                left -= before.total() + after.total()
                gone, come = before - after, after - before
                differences[both] = (*(f"- {line}" for line in gone), *(f"+ {line}" for line in come))
            changed = differences.get(both, ())
            left -= len(changed)
            if left < 0:
                ends[now.path] = min(record.line, ends.get(now.path, record.line))
                continue
            words = set(
                _NAME.findall(version.data[record.byte_start : record.byte_end].decode("utf-8", "replace"))
            )
            changed = tuple(line for line in changed if _concerns(line, words))
            if changed:
                found[now.path, " ".join(changed)].append(now)
        for path, line in ends.items():
            message = "too many variables and the like; those of declarations were not compared"
            yield Finding("unread", path, line, 0, "", message)
        for (path, lines), items in found.items():
            first = min(items, key=lambda item: item.index)
            message = f"the variables of {first.name}{and_more(len(items) - 1)} changed: {lines}"
            yield Finding("statement", path, *self._line(first), first.name, message)

    # ---- words

    def _words(self) -> Iterator[tuple[_Version, _Mark]]:
        """Yield the words that a declaration, or a file's other commands, have more of than before."""
        had: dict[tuple[str, int], Counter[tuple[Kind, str]]] = {}
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


def _earlier(version: _Version) -> list[Decl]:
    """Return a file's declarations as they were; its sorries are called by their places."""
    scan, item = version.read.scan, version.item
    living = [
        LivingSorry(f"{item.path}\0{sorry.byte_start}", place_of(scan, sorry, path=item.path, blob=item.blob))
        for sorry in scan.sorries
    ]
    return declarations_known(living, version.read, path=item.path) or []


def _present(version: _Version) -> list[Decl]:
    return declarations_now(version.read, path=version.item.path, blob=version.item.blob)


def _only(
    these: Mapping[str, _Version], others: Mapping[str, _Version]
) -> Iterator[tuple[_Version, Command]]:
    """Yield the commands of these versions whose text the others have not, or not as often."""
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


def _concerns(line: str, words: Collection[str]) -> bool:
    """Return whether a line that gives variables could give them to a declaration with these words."""
    names = [name for binder in _BOUND.findall(line) for name in binder.split()]
    return not names or any(name in words for name in names)
