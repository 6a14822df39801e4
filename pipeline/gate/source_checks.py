"""Checks of a proof's source text that need no Lean: its shape, what it cites, and the sorries that it rests on.

They read names and commands as the scanner does, on the safe side. Where a real Lean judges, its verdict decides and
these only name what it found; without one they keep a bad proof from passing as a candidate.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.source.context import NOTATIONS, bound_names
from pipeline.lean.source.forbidden import SORRY_NAMES, complaints
from pipeline.lean.source.imports import closure
from pipeline.lean.source.lexer import Token, lex, tokens_of_text, words
from pipeline.lean.source.scanner import Command, SourceFile, parse, scan_source
from pipeline.lean.source.splice import Replacement
from store.domain.keywords import INSTANCE_KINDS
from store.domain.records import Declaration, Sorry


def outside_the_sorries(before: bytes, replacement: Replacement, *, judged: bool) -> tuple[str, ...]:
    """Check that the replaced bytes are one sorry, or several with the text between them kept."""
    byte_start, byte_end = replacement.byte_start, replacement.byte_end
    sorries = _sorries_in(before, replacement)
    if not sorries or (sorries[0].byte_start, sorries[-1].byte_end) != (byte_start, byte_end):
        return (f"bytes {byte_start}..{byte_end} are no sorry at this commit",)
    if len({sorry.index for sorry in sorries}) != 1:
        return ("the replaced bytes reach over more than one declaration",)
    told = _told_apart(
        replacement.text,
        _between(before, sorries),
        judged=judged,
        ends_line=ends_its_line(before, replacement),
    )
    return (told,) if isinstance(told, str) else ()


def parts_of(
    before: bytes, replacement: Replacement, *, judged: bool
) -> list[tuple[Sorry, Replacement]] | str:
    """Return the sorries with the text for each; of several readings the first harmless one, else the first.

    Empty where the text between the sorries is not in the replacement. A string says why it could not be read.
    """
    sorries = _sorries_in(before, replacement)
    between = _between(before, sorries)
    ends_line = ends_its_line(before, replacement)
    told = _told_apart(replacement.text, between, judged=judged, ends_line=ends_line)
    if told == _TOO_LONG:
        return _TOO_LONG
    texts = _cut(replacement.text, between) if isinstance(told, str) else told
    return [
        (sorry, Replacement(sorry.byte_start, sorry.byte_end, text))
        for sorry, text in zip(sorries, texts, strict=False)
    ]


def ends_its_line(before: bytes, replacement: Replacement) -> bool:
    """Return whether nothing of the source stands behind the replaced bytes on their last line."""
    end = before.find(b"\n", replacement.byte_end)
    return not before[replacement.byte_end : None if end < 0 else end].strip()


def _sorries_in(before: bytes, replacement: Replacement) -> list[Sorry]:
    start, end = replacement.byte_start, replacement.byte_end
    scanned = scan_source(before, path="")
    return [one for one in scanned.sorries if start <= one.byte_start and one.byte_end <= end]


def _between(before: bytes, sorries: Sequence[Sorry]) -> list[str]:
    return [before[one.byte_end : other.byte_start].decode() for one, other in itertools.pairwise(sorries)]


def dedents(before: bytes, commands: Sequence[Command], replacement: Replacement) -> tuple[str, ...]:
    """Check that no line of the replacement begins where the next command would.

    The scanner cannot know a library's own commands; a proof's lines are indented further.
    """
    byte_start, byte_end = replacement.byte_start, replacement.byte_end
    at = max((c.byte_start for c in commands if c.byte_start <= byte_start), default=0)
    edge = len(before[before.rfind(b"\n", 0, at) + 1 : at].decode())
    line = before[before.rfind(b"\n", 0, byte_start) + 1 : byte_start].decode()
    if len(line) <= edge:
        return ()  # the sorry itself is there, so the lines of its block are
    had = _lines_up_to(before[byte_start:byte_end].decode(), edge)
    if _lines_up_to(replacement.text, edge) > had:
        return ("a line of the replacement begins at the column of the declaration, like a command",)
    return ()


def in_its_place(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return why the two versions of a file are not the same commands with one of them changed; empty if they are."""
    old, new = parse(before), parse(after)
    if new.scanned.error != old.scanned.error:
        return (f"the patched file does not scan: {new.scanned.error}",)
    if len(old.commands) != len(new.commands):
        return (f"{len(old.commands)} commands before, {len(new.commands)} after",)
    changed = []
    for one, other in zip(old.commands, new.commands, strict=True):
        if (one.kind, one.keyword) != (other.kind, other.keyword):
            return (f"the command {one.keyword!r} became {other.keyword!r}",)
        if before[one.byte_start : one.byte_end] != after[other.byte_start : other.byte_end]:
            changed.append((one, other))
    if len(changed) != 1:
        return (f"{len(changed)} commands changed where one should",)
    ((one, other),) = changed
    # A comment at the proof's end is outside the command, in front of what followed it.
    same = before[: one.byte_start] == after[: other.byte_start]
    if not same or not after[other.byte_end :].endswith(before[one.byte_end :]):
        return (f"text outside the command {one.keyword!r} changed",)
    return ()


def _lines_up_to(text: str, column: int) -> int:
    """Count the lines after the first whose code begins at this column or left of it."""
    lines = lex(text).bare.split("\n")[1:]
    return sum(bool(line.strip()) and len(line) - len(line.lstrip()) <= column for line in lines)


_MOST_READ = 500_000
"""So many characters are read again to tell the texts of several sorries apart: they may repeat the text between as
often as they like."""
_CHANGED = "the text between the declaration's sorries was changed"
_TOO_LONG = (
    "the proofs are too long to be told apart: they repeat the text between the declaration's sorries too often;"
    " write them shorter"
)


def _told_apart(
    replacement: str, between: Sequence[str], *, judged: bool, ends_line: bool
) -> tuple[str, ...] | str:
    """Return one harmless text for each sorry, with the source's own text between them, or why there is none.

    A text that opens a comment or bracket and closes it after the next sorry would hide the text between.
    """
    # The first text read for each sorry is free: a long proof is no reason to refuse it.
    left, seen, begun = _MOST_READ, {(0, 0)}, -1
    # The texts so far, where the next begins, and from where on its end is searched.
    todo: list[tuple[tuple[str, ...], int, int]] = [((), 0, 0)]
    while todo:
        if left <= 0:
            return _TOO_LONG
        texts, start, search = todo.pop()
        last = len(texts) == len(between)
        end = len(replacement) if last else replacement.find(between[len(texts)], search)
        if end < 0:
            continue
        if not last:
            todo.append((texts, start, end + 1))
        behind = end if last else end + len(between[len(texts)])
        if not last and (len(texts) + 1, behind) in seen:
            continue
        if len(texts) > begun:
            begun = len(texts)
        else:
            left -= end - start + 1
        alone = ends_line if last else between[len(texts)].lstrip(" \t\r").startswith("\n")
        if complaints(replacement[start:end], judged=judged, ends_line=alone):
            continue
        if last:
            return (*texts, replacement[start:])
        seen.add((len(texts) + 1, behind))
        todo.append(((*texts, replacement[start:end]), behind, behind))
    return _CHANGED


def _cut(replacement: str, between: Sequence[str]) -> list[str]:
    """Cut a text at the first places that may be the source's own; return nothing where there are none."""
    texts, start = [], 0
    for gap in between:
        end = replacement.find(gap, start)
        if end < 0:
            return []
        texts.append(replacement[start:end])
        start = end + len(gap)
    return [*texts, replacement[start:]]


# ---- citations: a proof must not cite the declaration it proves, nor a later one
# Names are read, not resolved, so a hit is a suspicion that Lean may clear (see `Gate`).


_PART = re.compile(r"«([^»]*)»|([^.«»]+)")
_BINDER_NAME = re.compile(r"[^\s:(){}\[\]⦃⦄,]+(?=[^:(){}\[\]]*:)")
_CLOSERS = frozenset({")", "]", "}", "⟩", "›", "⟧"})


def cites_itself(replacement: str, declaration: str) -> bool:
    """Return whether a name in the text could mean the declaration that it is to prove.

    That is: its name, or the end of it, with or without more behind it (`mine.symm`, `N.mine`). Not `h.mine` and not
    `(f h).mine`: that is mostly another type's lemma of the same name (`hf.add hg` in a proof of `ContinuousAt.add`),
    and where it is not, Lean sees the recursion.
    """
    own = _parts(declaration)
    if own[-1].startswith("_"):
        return False
    tokens = tokens_of_text(replacement)[0]
    for position, token in enumerate(tokens):
        parts = _parts(token.text)
        if _called_on_a_term(tokens[:position], token):
            continue
        if parts[0] == "_root_":
            if parts[1 : len(own) + 1] == own:
                return True
        elif any(own[-end:] == parts[:end] for end in range(1, len(parts) + 1)):
            return True
    return False


_SCOPES = frozenset({"namespace", "open", "export"})


def parts_below(names: Iterable[str], declaration: str) -> set[str]:
    """Return the parts behind the declaration's name of those constants that are below it."""
    own = _parts(declaration)
    found = (_parts(name) for name in names)
    return {part for parts in found if parts[: len(own)] == own for part in parts[len(own) :]}


def taken_further_down(
    declared: Collection[str], *, file: bytes, declaration: Declaration
) -> tuple[str, ...]:
    """Return what a proof declares and the file would mean by a name of its own further down.

    Lean puts `go` of a proof of `mine` below it, as `mine.go`: in a scope of that name the file's own `go` is hidden.
    """
    if not declared:
        return ()
    own = _parts(declaration.name)[-1]
    later = [command for command in parse(file).commands if command.byte_start >= declaration.byte_end]
    used, scoped = set[str](), False
    for command in later:
        parts = [_parts(token.text) for token in tokens_of_text(command.text)[0]]
        used |= {part for some in parts for part in some}
        scoped |= any(own in (some if command.keyword in _SCOPES else some[:-1]) for some in parts)
    return tuple(sorted(used.intersection(declared))) if scoped else ()


def _called_on_a_term(before: tuple[Token, ...], token: Token) -> bool:
    """Return whether the token is `mine` in `(f h).mine`: not in `.mine`, which has nothing before the dot."""
    if len(before) < 2 or before[-1].text != "." or before[-1].byte_end != token.byte_start:
        return False
    return before[-2].text in _CLOSERS and before[-2].byte_end == before[-1].byte_start


@dataclass(frozen=True, slots=True)
class Later:
    """A word of a proof and the declaration that it could mean, which comes after the proof's own."""

    word: str
    name: str


def cites_later(replacement: str, *, file: bytes, declaration_start: int) -> tuple[Later, ...]:
    """Return what the text names that the file declares only after the proof's own declaration, or together with it.

    A name that an earlier declaration also has, or that the proof or statement binds, is taken for that. Whether an
    import has it too is not known here.
    """
    source = parse(file)
    scanned = source.scanned
    # In a `mutual` block what comes first may rest on what comes last: none of it is earlier.
    start = next(
        (
            command.byte_start
            for command in source.commands
            if command.keyword == "mutual" and command.byte_start <= declaration_start < command.byte_end
        ),
        declaration_start,
    )
    earlier = [_parts(one.name) for one in scanned.declarations if one.byte_start < start]
    later = [
        one.name
        for one in scanned.declarations
        if one.byte_start >= start
        and one.byte_start != declaration_start
        and not one.name.rsplit(".", 1)[-1].startswith("_")
    ]
    own = next((one for one in scanned.declarations if one.byte_start == declaration_start), None)
    tokens = [token.text for token in tokens_of_text(replacement)[0]]
    bound = bound_names(tokens) | set(_BINDER_NAME.findall(own.statement if own is not None else ""))
    found = []
    for token in tokens:
        parts = _parts(token)
        if parts[0] in bound:
            continue
        for end in range(1, len(parts) + 1):
            word = parts[:end]
            meant = next((name for name in later if _could_mean(word, _parts(name))), None)
            if meant is not None and not any(_could_mean(word, other) for other in earlier):
                found.append(Later(".".join(part for part in word if part != "_root_"), meant))
    return tuple(dict.fromkeys(found))


def _could_mean(parts: list[str], name: list[str]) -> bool:
    if parts[0] == "_root_":
        return parts[1:] == name
    return name[-len(parts) :] == parts


def _parts(name: str) -> list[str]:
    """Return the parts of a name, without the quotes of quoted parts."""
    return [quoted or bare for quoted, bare in _PART.findall(name)] or [name]


# ---- conditional: the sorries that a proof rests on, directly or not
# A name that could mean a declaration with a sorry counts as citing it, a tactic reaches every lemma that an attribute
# registers, an instance is reachable from everything, and a macro that contains a sorry counts as one.


# Attributes that hand a declaration to no tactic: what has only these is found by its name alone.
_INERT = words(
    """inline noinline always_inline reducible irreducible semireducible specialize nospecialize deprecated inherit_doc
    to_additive nolint local scoped export extern implemented_by csimp expose implicit_reducible"""
)
_ATTRIBUTES = re.compile(r"@\[([^\]]*)\]")
_ATTRIBUTE_COMMAND = re.compile(r"\battribute\s*\[([^\]]*)\]\s*([^\n]*(?:\n[ \t]+[^\n]*)*)")
_WORD = re.compile(r"[^\W\d][\w'!?.«»]*")
_QUOTED = re.compile(r'"([^"\n]*)"')


@dataclass(frozen=True, slots=True)
class _Item:
    name: str
    cites: frozenset[str]
    has_sorry: bool
    reach: str
    """Its implicit uses: "" none, "tactics" every `by`, "all" every declaration."""


@dataclass(frozen=True, slots=True)
class _Macro:
    """A macro, notation or elaborator with a sorry in it: any of these words uses it; without words, anything may."""

    line: str
    words: frozenset[str]


def rests_on(project: Path, *, path: str, patched: bytes, declaration_start: int) -> tuple[str, ...]:
    """Return the full names of declarations with sorries that the declaration at this byte may rest on.

    Looks at the patched file up to that declaration and at every file of the project that it imports. A macro with a
    sorry is named by its first line.
    """
    source = parse(patched)
    mine: _Item | None = None
    known: list[_Item] = []
    handed: list[tuple[str, str]] = []
    for item, start in _items(source, patched):
        if start == declaration_start:
            mine = item
            break
        known.append(item)
    if mine is None:
        raise ValueError(
            f"{path}: no declaration begins at byte {declaration_start}; scan the patched file anew"
        )
    macros = _macros(source, until=declaration_start)
    handed += _handed_out(source, until=declaration_start)
    for file in closure(project, source.imports).files:
        known += [item for item, _ in _items(file.source, file.data)]
        macros += _macros(file.source)
        handed += _handed_out(file.source)
    if mine.has_sorry:
        return (mine.name,)
    return _closure(mine, known, macros, handed)


def _closure(
    start: _Item, known: list[_Item], macros: list[_Macro], handed: list[tuple[str, str]]
) -> tuple[str, ...]:
    by_last: dict[str, list[_Item]] = {}
    for item in known:
        by_last.setdefault(item.name.rsplit(".", 1)[-1], []).append(item)
    by_attribute = [(other, reach) for name, reach in handed for other in _meant(name, by_last)]
    reaches = [(item, item.reach) for item in known] + by_attribute
    to_tactics = [item for item, reach in reaches if reach == "tactics"]
    to_all = [item for item, reach in reaches if reach == "all"]
    seen: set[int] = set()
    sorried: list[str] = []
    todo = [start]
    while todo:
        item = todo.pop()
        cited = [other for word in sorted(item.cites) for other in _meant(word, by_last)] + to_all
        if "by" in item.cites:
            cited += to_tactics
        sorried += [macro.line for macro in macros if not macro.words or macro.words & item.cites]
        for other in cited:
            if id(other) in seen or other is item:
                continue
            seen.add(id(other))
            if other.has_sorry:
                sorried.append(other.name)
            todo.append(other)
    return tuple(sorted(set(sorried)))


def _meant(word: str, by_last: dict[str, list[_Item]]) -> Iterable[_Item]:
    """Yield every declaration that the word, or the word less its last parts (`foo.symm`), could name."""
    parts = word.removeprefix("_root_.").split(".")
    for end in range(len(parts), 0, -1):
        suffix = ".".join(parts[:end])
        for item in by_last.get(parts[end - 1], ()):
            if item.name == suffix or item.name.endswith(f".{suffix}"):
                yield item
    if word.startswith(".") or len(parts) > 1:
        # `h.foo` may be `Type.foo` for whatever type h has.
        yield from by_last.get(parts[-1], ())


def _items(source: SourceFile, data: bytes) -> list[tuple[_Item, int]]:
    scanned = source.scanned
    with_sorry = {sorry.index for sorry in scanned.sorries}
    out = []
    for index, declaration in enumerate(scanned.declarations):
        text = data[declaration.byte_start : declaration.byte_end].decode("utf-8", errors="replace")
        tokens, _ = tokens_of_text(text)
        attributes = _attributes(text)
        is_instance = declaration.kind in INSTANCE_KINDS or "instance" in attributes
        reach = "all" if is_instance else "tactics" if attributes - _INERT else ""
        item = _Item(
            name=declaration.name,
            cites=frozenset(token.text.replace("«", "").replace("»", "") for token in tokens),
            has_sorry=index in with_sorry or any(token.text in SORRY_NAMES for token in tokens),
            reach=reach,
        )
        out.append((item, declaration.byte_start))
    return out


def _attributes(text: str) -> frozenset[str]:
    """Return the words of every attribute in the text."""
    return frozenset(word for listed in _ATTRIBUTES.findall(lex(text).bare) for word in _WORD.findall(listed))


def _handed_out(source: SourceFile, *, until: int | None = None) -> list[tuple[str, str]]:
    """Return each name that an `attribute [simp] …` command of the file speaks of, and who then cites it unasked."""
    found: list[tuple[str, str]] = []
    for command in source.commands:
        if until is not None and command.byte_start >= until:
            break
        for listed, names in _ATTRIBUTE_COMMAND.findall(lex(command.text).code):
            given = set(_WORD.findall(listed)) - _INERT
            reach = "all" if "instance" in given else "tactics"
            if given:
                found += [(name.replace("«", "").replace("»", ""), reach) for name in _WORD.findall(names)]
    return found


def _macros(source: SourceFile, *, until: int | None = None) -> list[_Macro]:
    found = []
    for command in source.commands:
        if until is not None and command.byte_start >= until:
            break
        if command.keyword not in NOTATIONS:
            continue
        lexed = lex(command.text)
        if SORRY_NAMES & set(_WORD.findall(lexed.bare)):
            used_by = {word for quoted in _QUOTED.findall(lexed.code) for word in quoted.split()}
            found.append(_Macro(" ".join(command.text.split())[:80], frozenset(used_by)))
    return found
