"""What is code, comment and string to the lexer is so to Lean 4.35.0 itself, read by its own tokenizer."""

from __future__ import annotations

import itertools
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pipeline.lean.source.lexer import STRING_FILLER, Lexed, Lexer, Positions
from pipeline.lean.source.sorries import candidates

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "support" / "lean" / "Tokens.lean"
SYMBOLS = "!#$%&*+-./:<=>?@\\^|~"
PIECES = [
    *("sorry", "sorry ", "x", "x.y", "«a»", "«a b»", "a₁", "b'", "_", "α", "x!", "x?", "fun", "λ", "∀"),
    *("0", "0x1f", "1.5", "1e5", "2.", "0b1", "0o7", "1_0", "1x", '0r"a"'),
    *("--", "-- c\n", "/-", "/- c -/", "/-- d -/", "/-! e -/", "-/", "-", "/", "//", "<-", "\\/", "/\\", "|-"),
    *('"', '"a"', '"\\""', '"\\n--"', 'r"', 'r"\\"', 'r#"a"#', 'r#"', "#", 's!"'),
    *("'", "'a'", "'\"'", "'\\''", "'\\x41'", "]'", "`", "``", "`a", "."),
    *("(", ")", "{", "}", "[", "]", "⟨", "⟩", "#[", "@[", "%[", ";", ",", " ", " ", "\n", "\t"),
    *("|", "|>", "||", "=", "=>", ":=", ":", "+", "*", "!", "?", "@", "$", "%", "^", "&", "~", "\\", "→", "←", "▸"),
    *("∘", "⁻¹", "⁻¹'", "·", "‹", "›", "<;>", "<|", "<->", "->", "!=", "==", "...", "..", "::"),
]  # fmt: skip
LITERALS = frozenset({"str", "char"})

Tokens = list[tuple[int, int, str]]


def tokens_of_lean(lean: Path, folder: Path, texts: Sequence[str]) -> list[Tokens]:
    """Return Lean's tokens of each text, in code points; the last one of kind "error" where Lean reads no further."""
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.lean")
        paths[-1].write_bytes(text.encode())
    done = subprocess.run(
        [lean / "bin/lean", "--run", PROGRAM, *paths], capture_output=True, text=True, cwd=folder, check=True
    )
    found: list[Tokens] = []
    for line in done.stderr.splitlines():
        words = line.split()
        if words == ["file"]:
            text = texts[len(found)]
            places = Positions(text, text)
            found.append([])
        elif words[0] == "error":
            at = min(places.offset(int(words[1])), len(text))  # an open comment ends behind the text
            found[-1].append((at, at, "error"))
        else:
            found[-1].append((places.offset(int(words[0])), places.offset(int(words[1])), words[2]))
    assert len(found) == len(texts)
    return found


def as_lean_reads(text: str, tokens: Tokens) -> tuple[str, set[int]]:
    """Return for each character whether it is code (c), of a literal (l) or neither (a blank), and where a sorry is."""
    kinds, sorries = [" "] * len(text), set()
    for start, end, kind in tokens:
        first, last = start, end
        if kind == "str" and text[start] == "r":  # the lexer takes `r` and `#` for code
            first = text.index('"', start)
            last = end - (first - start - 1)
        for at in range(start, end):
            kinds[at] = "l" if kind in LITERALS and first <= at < last else "c"
        if kind == "atom" and text[start:end] == "sorry":
            sorries.add(start)
    return "".join(kinds), sorries


def as_read_here(lexed: Lexed) -> tuple[str, set[int]]:
    kinds = [
        " " if code.isspace() else "l" if bare == STRING_FILLER and code not in "#!?" else "c"
        for code, bare in zip(lexed.code, lexed.bare, strict=True)
    ]
    return "".join(kinds), {at for at in candidates(lexed) if lexed.text.startswith("sorry", at)}


def disagreements(texts: Sequence[str], lean: Sequence[Tokens]) -> Iterator[tuple[str, int]]:
    for text, tokens in zip(texts, lean, strict=True):
        lexed = Lexer(text, interpolate=False).run()
        if any("right behind" in error for error in lexed.errors):
            continue  # it says that it cannot tell
        (kinds, sorries), (ours, ours_sorries) = as_lean_reads(text, tokens), as_read_here(lexed)
        end = tokens[-1][0] if tokens and tokens[-1][2] == "error" else len(text)
        for at in range(end):
            behind = text[at - 1 : at]
            apart = text.startswith("sorry", at + 1)  # the last digit of a number before a word
            if not text[at].isspace() and text[at] not in "#!?" and not apart and kinds[at] != ours[at]:
                yield text, at
                break
            if (at in sorries) != (at in ours_sorries) and behind not in (".", "`"):
                yield text, at
                break


def test_symbols_before_a_comment_are_split_as_lean_splits_them(real_lean: Path, tmp_path: Path) -> None:
    before = ["".join(pair) for pair in itertools.product(SYMBOLS, ["", *SYMBOLS])]
    texts = [f"a {symbols}{opening}b" for symbols in before for opening in ("--", "/-")]
    assert list(disagreements(texts, tokens_of_lean(real_lean, tmp_path, texts))) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_generated_texts_are_split_as_lean_splits_them(real_lean: Path, tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    texts = ["".join(drawn.choices(PIECES, k=drawn.randint(1, 14))) for _ in range(1500)]
    assert list(disagreements(texts, tokens_of_lean(real_lean, tmp_path, texts))) == []


def test_real_files_are_split_as_lean_splits_them(real_lean: Path, tmp_path: Path) -> None:
    texts = [
        path.read_text()
        for folder in ("pipeline", "tests", "examples")
        for path in (ROOT / folder).rglob("*.lean")
    ]
    lean = tokens_of_lean(real_lean, tmp_path, texts)
    assert list(disagreements(texts, lean)) == []
    to_the_end = [not tokens or tokens[-1][2] != "error" for tokens in lean]
    assert sum(to_the_end) > len(texts) * 0.8
