"""Write what `make install` puts beside the application: the manual page, or the pages of docs/.

    python release/documents.py man
    python release/documents.py pages FOLDER

The manual page is made of the help of every verb. In the pages, a link to what is not installed becomes its text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]*)[^)]*\)")
_COMMON = ("--as-of", "--config", "--json", "--help")
_HEAD = """\
.TH EVERLEAN 1
.SH NAME
everlean \\- track the sorries of Lean 4 projects, and search for their proofs
.SH SYNOPSIS
.B everlean
.I VERB
.RI [ OPTION ]...
.SH OPTIONS OF ALMOST EVERY VERB
.TP
.BI \\-\\-config " FILE"
The configuration; default: $EVERLEAN_CONFIG, /etc/everlean/config.toml, ~/.config/everlean/config.toml.
.TP
.BI \\-\\-as\\-of " MOMENT"
The answer as it was at an event or a time: 2d, yesterday, an ISO date.
.TP
.B \\-\\-json
One JSON document on standard output; everlean schema prints its schema.
.SH DESCRIPTION
"""
_FOOT = """\
.SH FILES
.TP
.I /etc/everlean/config.toml
Settings of the service; ~/.config/everlean/config.toml are a user's.
.TP
.I /usr/share/doc/everlean
All pages; below /usr/local where `make install` put them there.
"""


def manual() -> str:
    """Return the manual page, in man's own macros."""
    # These load the whole command line, which the pages do without.
    import typer.main

    from daemon.cli.app import GROUPS, build
    from daemon.cli.context import ExitCode
    from store.documents.schema import attribute_docs

    top: Any = typer.main.get_command(build())
    lines = [_HEAD + _roff(str(top.help))]
    for title, verbs in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for name in verbs:
            for full, command in _commands(name, top.commands[name]):
                lines += _verb(full, command)
    meanings = attribute_docs(ExitCode)
    lines.append(".SH EXIT STATUS")
    for code in ExitCode:
        lines += [".TP", f".B {int(code)}", _roff(meanings[code.name])]
    return "\n".join([*lines, _FOOT])


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield name, command
    for verb, inner in below.items():
        if not inner.hidden:
            yield f"{name} {verb}", inner


def _verb(name: str, command: Any) -> Iterator[str]:
    shown = [
        one for one in command.params if not getattr(one, "hidden", False) and one.opts[0] not in _COMMON
    ]
    arguments = [one for one in shown if not one.opts[0].startswith("-")]
    yield f".SS {_roff(' '.join(['everlean', name, *(_placeholder(one) for one in arguments)]))}"
    yield _roff(command.help)
    for one in shown:
        spelled = ", ".join(sorted(one.opts, key=len))
        value = "" if one in arguments or one.is_flag else f" {_placeholder(one)}"
        yield ".TP"
        yield f".B {_roff(_placeholder(one) if one in arguments else spelled + value)}"
        yield _roff(one.help or "")


def _placeholder(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _roff(text: str) -> str:
    """Return a text that man shows as it is: a dash can be copied, and no line begins with a macro."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def write_pages(folder: Path) -> None:
    """Write every page and picture of docs/ into a folder."""
    for path in DOCS.rglob("*.*"):
        place = folder / path.relative_to(DOCS)
        place.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        if path.suffix == ".md":
            content = _LINK.sub(partial(_kept, path.parent), content.decode()).encode()
        place.write_bytes(content)
        place.chmod(0o644)


def _kept(folder: Path, link: re.Match[str]) -> str:
    """Return a link as it is where it leads to another page, else its text."""
    return link[0] if (folder / link[2]).resolve().is_relative_to(DOCS) else link[1]


if __name__ == "__main__":
    if sys.argv[1:] == ["man"]:
        sys.stdout.write(manual())
    else:
        write_pages(Path(sys.argv[2]))
