"""What a proof's text cites that it must not: the declaration that it proves, or one that comes after it.

Names are read, not resolved, so this is a suspicion where Lean has the last word and a safeguard where nobody else
looks: no constant can rest on itself or on a later one once the kernel has taken it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.lean.source.scanner import parse
from pipeline.prove.source import tokens_of_text
from pipeline.prove.splice import Token

_BINDERS = frozenset(
    {"fun", "λ", "intro", "intros", "rintro", "obtain", "rcases", "have", "let", "with", "next"}
)
_PART = re.compile(r"«([^»]*)»|([^.«»]+)")
_BINDER_NAME = re.compile(r"[^\s:(){}\[\]⦃⦄,]+(?=[^:(){}\[\]]*:)")
_CLOSERS = frozenset({")", "]", "}", "⟩", "›", "⟧"})
_BINDERS_END = frozenset({"=>", ":=", ":", ";", "|", "<;>", "↦", "at"})


def cites_itself(replacement: str, declaration: str) -> bool:
    """Say whether a name in the text could mean the declaration that it is to prove.

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


def _called_on_a_term(before: tuple[Token, ...], token: Token) -> bool:
    """Say whether the token is `mine` in `(f h).mine`: not in `.mine`, where nothing stands before the dot."""
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
    bound = _bound(tokens) | set(_BINDER_NAME.findall(own.statement if own is not None else ""))
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


def _bound(tokens: list[str]) -> set[str]:
    """Return the words between `fun`, `intro`, `obtain`, … and what ends their names."""
    found: set[str] = set()
    binding = False
    for token in tokens:
        if token in _BINDERS:
            binding = True
        elif token in _BINDERS_END:
            binding = False
        elif binding:
            found.add(token)
    return found


def _parts(name: str) -> list[str]:
    """Return the parts of a name, without the quotes of quoted parts."""
    return [quoted or bare for quoted, bare in _PART.findall(name)] or [name]
