"""What a proof rests on, read from the source: does it cite, directly or not, something that still has a sorry?

A reading of names, on the safe side: a name that could mean a declaration with a sorry counts as citing it, a tactic
reaches every lemma that an attribute hands to tactics, an instance is in reach of everything, and a macro with a sorry
in it stands for a sorry. With a real Lean the axiom check decides and this only names the sorrys where that cannot;
with the simulator it is what keeps "conditional" from passing as a candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.source.lexer import lex
from pipeline.lean.source.scanner import SourceFile, parse
from pipeline.lean.source.words import words
from pipeline.prove.imports import closure
from pipeline.prove.source import tokens_of_text

# Attributes that hand a declaration to no tactic: what has only these is found by its name alone.
_INERT = words(
    """inline noinline always_inline reducible irreducible semireducible specialize nospecialize deprecated inherit_doc
    to_additive nolint local scoped export extern implemented_by csimp expose implicit_reducible"""
)
_ATTRIBUTES = re.compile(r"@\[([^\]]*)\]")
_ATTRIBUTE_COMMAND = re.compile(r"\battribute\s*\[([^\]]*)\]\s*([^\n]*(?:\n[ \t]+[^\n]*)*)")
_WORD = re.compile(r"[^\W\d][\w'!?.«»]*")
_INSTANCE_KINDS = frozenset({"instance", "deriving instance"})
# What makes a piece of syntax mean something: with a sorry inside, its uses are sorrys.
_MACROS = words(
    "macro macro_rules elab elab_rules syntax notation notation3 infix infixl infixr prefix postfix"
)
_SORRY_WORDS = frozenset({"sorry", "sorryAx", "admit"})
_QUOTED = re.compile(r'"([^"\n]*)"')


@dataclass(frozen=True, slots=True)
class _Item:
    name: str
    cites: frozenset[str]
    has_sorry: bool
    reach: str
    """Who cites it unasked: "" nobody, "tactics" every `by`, "all" every declaration."""


@dataclass(frozen=True, slots=True)
class _Macro:
    """A macro, notation or elaborator with a sorry in it: any of these words uses it; without words, anything may."""

    line: str
    words: frozenset[str]


def rests_on(project: Path, *, path: str, patched: bytes, declaration_start: int) -> tuple[str, ...]:
    """Return the full names of declarations with sorrys that the declaration at this byte may rest on.

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
        is_instance = declaration.kind in _INSTANCE_KINDS or "instance" in attributes
        reach = "all" if is_instance else "tactics" if attributes - _INERT else ""
        item = _Item(
            name=declaration.name,
            cites=frozenset(token.text.replace("«", "").replace("»", "") for token in tokens),
            has_sorry=index in with_sorry or any(token.text in _SORRY_WORDS for token in tokens),
            reach=reach,
        )
        out.append((item, declaration.byte_start))
    return out


def _attributes(text: str) -> frozenset[str]:
    """Return the words of every attribute that stands in the text."""
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
        if command.keyword not in _MACROS:
            continue
        lexed = lex(command.text)
        if _SORRY_WORDS & set(_WORD.findall(lexed.bare)):
            used_by = {word for quoted in _QUOTED.findall(lexed.code) for word in quoted.split()}
            found.append(_Macro(" ".join(command.text.split())[:80], frozenset(used_by)))
    return found
