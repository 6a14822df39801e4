"""The manual page unsorry(1), from the text of docs/cli.md and of --help: `python -m daemon.cli.manual docs/cli.md`.

Owns the way from our Markdown (paragraphs, lists, tables, code spans, links) to man(7). The page is ASCII, so that it
reads the same in every locale, and has no date, so that the same sources give the same page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer.main

from daemon.cli.app import build

_CODE = re.compile(r"(`[^`]+`)")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_TITLES = {"Exit codes": "Exit status"}
"""What man-pages(7) calls a chapter of ours."""

_SIGNS = {"\\": r"\e", "-": r"\-", "^": r"\(ha", "~": r"\(ti", "`": r"\(ga", "'": r"\(aq", '"': r"\(dq"}


def main(arguments: Sequence[str]) -> int:
    """Write the page that the Markdown file named by the one argument makes to standard output."""
    if len(arguments) != 1:
        print("usage: python -m daemon.cli.manual docs/cli.md >unsorry.1", file=sys.stderr)
        return 2
    try:
        text = Path(arguments[0]).read_text(encoding="utf-8")
    except OSError as error:
        print(f"{arguments[0]}: {error.strerror}; name docs/cli.md of the source tree", file=sys.stderr)
        return 1
    sys.stdout.write(page(text, version=metadata.version("unsorry")))
    return 0


def page(text: str, *, version: str) -> str:
    """Return the manual page made of docs/cli.md and of the verbs that there are."""
    top: Any = typer.main.get_command(build())
    chapters = _parts(text, "##")
    verbs = {
        name.removeprefix("unsorry "): body
        for name, body in _parts(chapters.pop("Verbs"), "###").items()
        if name
    }
    about = top.help.rstrip(".")
    lines = [
        '.\\" Made from docs/cli.md and --help by daemon/cli/manual.py; edit those.',
        f'.TH UNSORRY 1 "" "unsorry {escaped(version)}" "User Commands"',
        ".SH NAME",
        f"unsorry \\- {escaped(about[0].lower() + about[1:])}",
        ".SH SYNOPSIS",
        ".B unsorry",
        r"[\fB\-\-help\fR] [\fB\-\-version\fR] \fIVERB\fR [\fIOPTION\fR]... [\fIARGUMENT\fR]...",
        ".SH DESCRIPTION",
        *_markdown(chapters.pop("").partition("\n")[2]),
        ".SH VERBS",
    ]
    for name, command in commands(top):
        lines += _verb(name, command, verbs.get(name, ""))
    for title, body in chapters.items():
        title = _TITLES.get(title, title)
        lines += [f'.SH "{escaped(title.upper())}"', *_markdown(body)]
    # A heading begins a paragraph by itself.
    kept = [
        line
        for before, line in pairwise(["", *lines])
        if line != ".PP" or not before.startswith((".SH", ".SS"))
    ]
    return "\n".join(kept) + "\n"


def commands(top: Any) -> Iterator[tuple[str, Any]]:
    """Yield every verb that can be called by itself, with its parsed command."""
    for name, command in top.commands.items():
        below: Mapping[str, Any] = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            yield name, command
        for verb, inner in below.items():
            yield f"{name} {verb}", inner


def _verb(name: str, command: Any, body: str) -> Iterator[str]:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    usage = " ".join(["unsorry", name, *(_usage(item) for item in arguments)])
    yield f'.SS "{escaped(usage)}"'
    if command.help:
        yield from _prose(command.help)
    for item in arguments:
        if item.help:
            yield from (".TP", rf"\fI{escaped(_metavar(item))}\fR", *_prose(item.help))
    for item in command.params:
        if item.param_type_name == "option" and not item.hidden:
            names = ", ".join(rf"\fB{escaped(option)}\fR" for option in item.opts)
            value = "" if item.is_flag else rf" \fI{escaped(_metavar(item))}\fR"
            yield from (".TP", names + value, *_prose(item.help or ""))
    yield from (
        ".TP",
        r"\fB\-h\fR, \fB\-\-help\fR",
        "Show what --help shows of it and exit.".replace("-", r"\-"),
    )
    yield from _markdown(body)


def _metavar(item: Any) -> str:
    return str(item.metavar or item.name.upper())


def _usage(item: Any) -> str:
    name = _metavar(item).strip("[]")
    name += "..." if item.nargs == -1 else ""
    return name if item.required else f"[{name}]"


def _parts(text: str, marker: str) -> dict[str, str]:
    """Return the text below each heading of one level, and under "" what stands before the first."""
    parts = re.split(rf"^{marker} (.+)$", text, flags=re.MULTILINE)
    return {"": parts[0]} | {parts[at].strip("` "): parts[at + 1] for at in range(1, len(parts), 2)}


def _markdown(text: str) -> Iterator[str]:
    """Yield the lines of man(7) for the Markdown that docs/cli.md is written in."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        if not block.strip():
            continue
        if lines[0].startswith("```"):
            yield from (".IP", ".EX", *(_guarded(escaped(line)) for line in lines[1:-1]), ".EE")
        elif lines[0].startswith("|"):
            yield from _table(lines)
        elif lines[0].startswith("- "):
            for item in re.split(r"\n- ", "\n" + block)[1:]:
                yield from (r".IP \(bu 2", *_prose(item))
        else:
            yield from (".PP", *_prose(block))


def _table(lines: Sequence[str]) -> Iterator[str]:
    """A table as a list: the first cell of a row is what the others are about."""
    for line in lines[2:]:
        first, *rest = (
            cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))
        )
        yield from (".TP", _guarded(_inline(first)), *_prose(": ".join(cell for cell in rest if cell)))


def _prose(text: str) -> Iterator[str]:
    yield _guarded(_inline(" ".join(text.split())))


def _inline(text: str) -> str:
    text = _LINK.sub(r"\1", text)
    made = []
    for part in _CODE.split(text):
        if part.startswith("`") and len(part) > 1:
            made.append(rf"\fB{escaped(part[1:-1])}\fR")
        else:
            plain = _BOLD.split(part)
            made += [
                rf"\fB{escaped(piece)}\fR" if at % 2 else escaped(piece) for at, piece in enumerate(plain)
            ]
    return "".join(made)


def escaped(text: str) -> str:
    """Return the text as groff and mandoc have to be given it to show it as it is."""
    return "".join(_SIGNS.get(sign) or (sign if sign.isascii() else f"\\[u{ord(sign):04X}]") for sign in text)


def _guarded(line: str) -> str:
    """A line that begins like a request is text after all."""
    return rf"\&{line}" if line.startswith(".") else line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
