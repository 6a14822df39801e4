"""LeanDojo's marks: which words of a tactic are premises, each put between `<a>` and `</a>`.

Lean says which constants a step used, by full name, and not where in its text. A word stands for such a constant where
Lean's name resolution would take it: written in full, or under a namespace that is open there. A hypothesis hides a
constant of its name, and what follows its dot (`h.symm`) may be one that the step used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from pipeline.lean.source.lexer import ID_FIRST, ID_REST, lex
from store.traced import ConstantUse, PremiseUse

_PART = rf"(?:«[^«»\n]*»|[{ID_FIRST}][{ID_REST}]*)"
_WORD = re.compile(rf"\.?{_PART}(?:\.{_PART})*")
_PARTS = re.compile(_PART)
_SCOPE = re.compile(r"^\s*(namespace|open)\b(.*)$", re.MULTILINE)
_NAMED = re.compile(rf"{_PART}(?:\.{_PART})*")


def open_namespaces(preamble: str, declaration: str) -> tuple[str, ...]:
    """Return the namespaces under which a name may be written short at a declaration, "" among them.

    `preamble` re-issues the scopes there (`SourceFile.preamble_at`), `declaration` is the full name.
    """
    current = ""
    opened: list[str] = []
    for keyword, rest in _SCOPE.findall(preamble):
        names = _NAMED.findall(rest.split("hiding")[0].split("renaming")[0].split("(")[0])
        if keyword == "namespace" and names:
            current = f"{current}.{names[0]}" if current else names[0]
        elif keyword == "open":
            for name in names:
                opened += [name, *(f"{outer}.{name}" for outer in _outer(current) if outer)]
    # A declaration's own name opens its namespaces for its proof.
    own = declaration.rpartition(".")[0]
    return tuple(dict.fromkeys([*_outer(own), *_outer(current), *opened]))


def annotate(
    text: str, *, uses: Iterable[ConstantUse], hidden: Collection[str], namespaces: Collection[str]
) -> tuple[str, tuple[PremiseUse, ...]]:
    """Return the marked text, and the premises in the order of the marks.

    Only constants with a known site are marked: a mark is a premise that a corpus can be asked for.
    """
    known = {use.full_name: use for use in uses if use.site is not None}
    if not known:
        return text, ()
    bare = lex(text).bare
    pieces: list[str] = []
    premises: list[PremiseUse] = []
    done = 0
    for start, end, name in _found(bare, text, known, hidden, namespaces):
        use = known[name]
        assert use.site is not None
        path, site_start, site_end = use.site
        pieces += [text[done:start], "<a>", text[start:end], "</a>"]
        premises.append(PremiseUse(name, path, site_start, site_end))
        done = end
    return "".join([*pieces, text[done:]]), tuple(premises)


def _found(
    bare: str,
    text: str,
    known: Mapping[str, ConstantUse],
    hidden: Collection[str],
    namespaces: Collection[str],
) -> Iterator[tuple[int, int, str]]:
    by_last: dict[str, list[str]] = {}
    for name in known:
        by_last.setdefault(_parts(name)[-1], []).append(name)
    for match in _WORD.finditer(bare):
        start, end = match.span()
        if start and (bare[start - 1].isalnum() or bare[start - 1] == "'"):
            continue  # the tail of a number or a character
        word = text[start:end]
        if word.startswith("."):
            # `.inl h`: the type says which one; only a single candidate is certain.
            yield from _single(by_last, _parts(word)[-1], start, end)
            continue
        parts = _parts(word)
        taken = 0
        if parts[0] not in hidden:
            for count in range(len(parts), 0, -1):
                constant = _resolved(".".join(parts[:count]), known, namespaces)
                if constant is not None:
                    taken = count
                    yield start, start + len(".".join(parts[:count])), constant
                    break
        if taken == len(parts) or (taken == 0 and parts[0] not in hidden):
            continue
        rest = max(taken, 1)
        at = start + len(".".join(parts[:rest])) + 1
        for part in parts[rest:]:
            yield from _single(by_last, part, at, at + len(part))
            at += len(part) + 1


def _single(
    by_last: Mapping[str, list[str]], part: str, start: int, end: int
) -> Iterator[tuple[int, int, str]]:
    names = by_last.get(part, [])
    if len(names) == 1:
        yield start, end, names[0]


def _resolved(word: str, known: Mapping[str, ConstantUse], namespaces: Collection[str]) -> str | None:
    word = word.removeprefix("_root_.")
    if word in known:
        return word
    return next((name for space in namespaces if space and (name := f"{space}.{word}") in known), None)


def _parts(name: str) -> list[str]:
    return _PARTS.findall(name) or [name]


def _outer(name: str) -> list[str]:
    """The namespace and those around it, the innermost first, "" last."""
    parts = _parts(name) if name else []
    return [".".join(parts[:count]) for count in range(len(parts), -1, -1)]
