"""Tokens of Lean source for the splice and the gate: words and symbols, without white space, comments, strings.

What is a comment, a string or a quoted name is the scanner's lexer's knowledge; this only cuts its mask.
"""

from __future__ import annotations

import re

from pipeline.lean.source.lexer import ID_FIRST, ID_REST, Positions, lex
from pipeline.prove.splice import Token

_PART = rf"[{ID_FIRST}][{ID_REST}]*"
_TOKEN = re.compile(
    rf"#?{_PART}(?:\.{_PART})*"
    r"|[0-9]+(?:\.[0-9]+)?"
    r"|:=|=>|<;>|<\|>|<\||\|>|<->|->|<-|\|\||&&|==|!=|>=|<=|#\[|@\[|\.\.|‹|›"
    r'|"+'
    r"|[^\s\x01\x02]"
)


def tokens_of_text(text: str) -> tuple[tuple[Token, ...], str | None]:
    """Return the tokens of a piece of Lean and, where a comment or string in it never closes, which.

    A string is one token that begins with a quote; a quoted name keeps its `«»`.
    """
    lexed = lex(text)
    positions = Positions(text, lexed.bare)
    tokens = tuple(
        Token(text[found.start() : found.end()], positions.byte(found.start()), positions.byte(found.end()))
        for found in _TOKEN.finditer(lexed.bare)
    )
    return tokens, lexed.errors[0] if lexed.errors else None


def tokens_of(data: bytes, byte_start: int, byte_end: int) -> tuple[Token, ...]:
    """Return the tokens of a command of a file, with offsets into the file."""
    tokens, _ = tokens_of_text(data[byte_start:byte_end].decode())
    return tuple(
        Token(token.text, token.byte_start + byte_start, token.byte_end + byte_start) for token in tokens
    )
