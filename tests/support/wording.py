"""Constructions that make a page hard to read, each with its rewriting: `make lint` looks for them in all pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 35
"""Words of a sentence."""
RULES = {
    r"what (?:is|are|was|were|has|have|had)": 'name it: "what is stored" is "the stored data"',
    r"what (?:it|they|you|we)": 'name it: "what it found" is "its findings"',
    r"what (?:an?|the)": 'name it: "what the daemon writes" is "the daemon\'s files"',
    r"says? (?:what|which|who)": 'use a verb of your own: "says which" is "names"',
    r"(?:the )?ones? that": 'repeat the noun: "the one that failed" is "the failed job"',
    r"(?:all|nothing|that) (?:that|which)": 'name it: "all that it needs" is "its needs"',
    r"so (?:many|long)": "say how many, how long",
    r"(?:has|have|had) been": "use the present, or the past",
    r"(?:is|are|was) not known": 'write "unknown"',
    r"(?:has|have) to be": 'write "must be"',
    r"where there (?:is|are)": 'write "if" or "with"',
    r"there is (?:no|none)": 'write "without", or let the thing act: "X has no Y"',
    r"in order to": 'write "to"',
    r"as well as": 'write "and"',
    r"(?:is|are) told": 'let somebody act: "you hear", "the daemon reports"',
    r"who(?:m)?ever|whatsoever": 'write "anyone", "each"',
    r"(?:Asked|Read|Written|Left|Taken|Found|Shown|Tested|Compared|Named) (?:are|is|was)": "put the subject first",
}


def wrong(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the complaint of each construction in a page, without its code, tables and links."""
    plain = re.sub(r"^```.*?^```$|`[^`]*`|<!--.*?-->", _blank, text, flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"^\|.*$|^#.*$|^ {4}.*$", _blank, plain, flags=re.MULTILINE)
    plain = re.sub(r"(?<=\])\([^)]*\)", _blank, plain)
    for pattern, advice in RULES.items():
        spaced = pattern.replace(" ", r"\s+")
        for match in re.finditer(rf"(?<![\w-]){spaced}(?!\w)", plain):
            found = " ".join(match.group().split())
            yield plain.count("\n", 0, match.start()) + 1, f'"{found}": {advice}'
    for sentence in re.finditer(r"(?:(?!\n\s*(?:\n|[-*] |\d+\. ))[^.!?:;]|[.!?](?!\s))+", plain):
        number = len(re.findall(r"[^\W\d_][\w'-]*", sentence.group()))
        if number > LONGEST:
            yield plain.count("\n", 0, sentence.end()) + 1, f"a sentence of {number} words: make two"


def _blank(match: re.Match[str]) -> str:
    """Return as many lines, without the words."""
    return "\n" * match.group().count("\n")


def pages() -> list[Path]:
    """Return the pages of the documentation."""
    return sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


if __name__ == "__main__":
    lines = [
        f"{page.relative_to(ROOT)}:{line}: {complaint}"
        for page in pages()
        for line, complaint in wrong(page.read_text(encoding="utf-8"))
    ]
    if lines:
        sys.exit("\n".join(lines))
