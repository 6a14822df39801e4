"""`unsorry doctor` and `unsorry version`: what is installed and what is missing, each with the remedy."""

from __future__ import annotations

import platform
import sqlite3
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import typer

from daemon.cli.context import Config, ExitCode, Json
from daemon.cli.render import clean, counted, emit_json, say, styled

if TYPE_CHECKING:
    from daemon.doctor import Finding

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "missing": ("missing", "red")}


def register(app: typer.Typer) -> None:
    app.command("doctor", help="Check what is installed and what is missing.")(doctor)
    app.command("version", help="Show the version of unsorry, Python and SQLite.")(version)


def doctor(config: Config = None, as_json: Json = False) -> None:
    from daemon.doctor import LEAN, examine

    findings = examine(config)
    lacking = [item for item in findings if item.essential and item.verdict == "missing"]
    proves = all(item.verdict != "missing" for item in findings if item.name == LEAN)
    if as_json:
        emit_json(Examination(proves and not lacking, findings))
    else:
        others = sum(item.verdict != "ok" for item in findings) - len(lacking)
        if lacking:
            say(styled(f"unsorry cannot run here: {', '.join(item.name for item in lacking)}", "bold", "red"))
        elif not proves:
            say(
                styled(
                    "unsorry can watch here and prove nothing: there is no Lean (unsorry setup)",
                    "bold",
                    "red",
                )
            )
        else:
            rest = f"; {counted(others, 'optional thing')} could be better" if others else ""
            say(styled(f"unsorry can run here{rest}", "bold"))
        width = max(len(item.name) for item in findings)
        for item in findings:
            mark, colour = _MARKS[item.verdict]
            say(f"  {styled(f'{mark:<7}', colour)}  {item.name:<{width}}  {clean(item.detail)}")
            if item.remedy:
                say(f"{' ' * (width + 13)}-> {clean(item.remedy)}")
    if lacking or not proves:
        raise typer.Exit(ExitCode.FAILURE)


@dataclass(frozen=True, slots=True)
class Examination:
    ok: bool
    """nothing essential is missing, and there is a Lean"""
    checks: list[Finding]
    """what was looked at"""


def version(as_json: Json = False) -> None:
    if as_json:
        emit_json(Versions(metadata.version("unsorry"), platform.python_version(), sqlite3.sqlite_version))
        return
    say(text())


@dataclass(frozen=True, slots=True)
class Versions:
    version: str
    """of unsorry"""
    python: str
    """of the interpreter"""
    sqlite: str
    """of the library"""


def text() -> str:
    """The line that `unsorry version` and `unsorry --version` show."""
    return (
        f"unsorry {metadata.version('unsorry')} (Python {platform.python_version()},"
        f" SQLite {sqlite3.sqlite_version})"
    )
