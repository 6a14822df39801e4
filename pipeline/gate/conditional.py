"""What a proof rests on, read from the source: does it cite, directly or not, something that still has a sorry?

A reading of names, on the safe side: a name that could mean a declaration with a sorry counts as citing it, and
`simp` cites every simp lemma in reach. With a real Lean the axiom check decides and this only names the sorrys;
with the simulator it is what keeps "conditional" from passing as a candidate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.lean.scanner import SourceFile, parse
from pipeline.prove.imports import closure
from pipeline.prove.source import tokens_of_text

_SIMP_ATTRIBUTE = re.compile(r"@\[[^\]]*\bsimp\b")
_SIMP_TACTICS = frozenset({"simp", "simp_all", "simpa", "dsimp", "simp_arith", "aesop", "norm_num", "grind"})


@dataclass(frozen=True, slots=True)
class _Item:
    name: str
    cites: frozenset[str]
    has_sorry: bool
    is_simp: bool


def rests_on(project: Path, *, path: str, patched: bytes, declaration_start: int) -> tuple[str, ...]:
    """Return the full names of declarations with sorrys that the declaration at this byte may rest on.

    Looks at the patched file up to that declaration and at every file of the project that it imports.
    """
    source = parse(patched)
    mine: _Item | None = None
    known: list[_Item] = []
    for item, start in _items(source, patched):
        if start == declaration_start:
            mine = item
            break
        known.append(item)
    if mine is None:
        raise ValueError(
            f"{path}: no declaration begins at byte {declaration_start}; scan the patched file anew"
        )
    for file in closure(project, source.imports).files:
        known += [item for item, _ in _items(file.source, file.data)]
    if mine.has_sorry:
        return (mine.name,)
    return _closure(mine, known)


def _closure(start: _Item, known: list[_Item]) -> tuple[str, ...]:
    by_last: dict[str, list[_Item]] = {}
    for item in known:
        by_last.setdefault(item.name.rsplit(".", 1)[-1], []).append(item)
    simp_lemmas = [item for item in known if item.is_simp]
    seen: set[int] = set()
    sorried: list[str] = []
    todo = [start]
    while todo:
        item = todo.pop()
        cited = [other for word in sorted(item.cites) for other in _meant(word, by_last)]
        if item.cites & _SIMP_TACTICS:
            cited += simp_lemmas
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
        item = _Item(
            name=declaration.name,
            cites=frozenset(token.text.replace("«", "").replace("»", "") for token in tokens),
            has_sorry=index in with_sorry,
            is_simp=_SIMP_ATTRIBUTE.search(text) is not None,
        )
        out.append((item, declaration.byte_start))
    return out


def cites_itself(replacement: str, declaration: str) -> bool:
    """Say whether a name in the text could mean the declaration that it is to prove."""
    own = declaration.split(".")
    if own[-1].startswith("_"):
        return False
    for token in tokens_of_text(replacement)[0]:
        parts = token.text.replace("«", "").replace("»", "").removeprefix("_root_.").split(".")
        for end in range(1, len(parts) + 1):
            if own[-end:] == parts[:end]:
                return True
    return False
