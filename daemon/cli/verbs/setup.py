"""`everlean setup`, `doctor`, `version`: list installed and missing parts, and install Lean's versions."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import Call, CliError, ExitCode, verb
from daemon.cli.render import note, say, styled, table
from daemon.place.paths import SYSTEM_CONFIG
from store.text import clean, clean_block, counted, size

if TYPE_CHECKING:
    from daemon.health.doctor import Finding
    from daemon.health.setup import Step


@dataclass(frozen=True, slots=True)
class SetUp:
    steps: list[Step]
    """the steps, in order"""
    installed: list[str]
    """the names of this run's installations"""


@dataclass(frozen=True, slots=True)
class Examination:
    ok: bool
    """nothing essential is missing, and there is a Lean"""
    checks: list[Finding]
    """the checks, in order"""


@dataclass(frozen=True, slots=True)
class Versions:
    version: str
    """of everlean"""
    python: str
    """of the interpreter"""
    sqlite: str
    """of the library"""


def _tell(text: str) -> None:
    note(clean_block(text))


_MATHLIB = (
    "a branch that needs Mathlib takes about 7 GB more when it is first built: its cache of compiled files"
)


@verb("setup", SetUp)
def setup(
    call: Call,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show missing parts, and do nothing.")] = False,
    elan: Annotated[
        str,
        typer.Option(
            "--elan", metavar="FILE|URL", help="elan's release (.tar.gz), where GitHub is out of reach."
        ),
    ] = "",
) -> Answer:
    """Install elan and the Lean versions of the watched repositories."""
    from daemon.health.setup import hold_room, programs, versions
    from daemon.health.setup import install as install_steps

    settings = call.settings
    if call.instance.config == SYSTEM_CONFIG and os.geteuid() == 0:
        raise CliError(
            "root's Lean is not the service's; run it as its user: sudo -H -u everlean everlean setup"
        )
    if os.geteuid() == 0 and not settings.lean.as_root and settings.lean.backend != "none":
        from pipeline.lean.backend import NOT_AS_ROOT

        note(f"everlean: {NOT_AS_ROOT}")
    steps = [*programs(settings), *versions(call.instance, settings)]
    missing = [step for step in steps if not step.there]
    doable = [step for step in missing if not step.by_hand]
    # Without curl Mathlib is built from its source: slower, and no failure.
    lacks = any(step.by_hand for step in missing if step.name != "curl")
    code = ExitCode.FAILURE if lacks else ExitCode.OK
    if not call.as_json:
        _show_steps(steps, doable)
    if dry_run or not doable:
        return Answer(SetUp(steps, []), code=code)
    hold_room(doable)
    _agree(yes=yes)
    result = install_steps(doable, settings, elan=elan, say=_tell)
    text = f"installed: {', '.join(result)}; a daemon that runs finds it within a minute"
    return Answer(SetUp(steps, result), text, code)


def _show_steps(steps: Sequence[Step], doable: Sequence[Step]) -> None:
    table(
        ("", "WHAT", "DETAIL"),
        [("ok" if step.there else "missing", step.name, step.by_hand or step.detail) for step in steps],
        shrink=(2,),
    )
    if not doable:
        say("nothing is to be installed")
        return
    from daemon.health.setup import free_room

    takes = sum(step.size_bytes for step in doable)
    names = ", ".join(step.name for step in doable)
    say(f"to install: {names}; about {size(takes)}, of {size(free_room())} that are free")
    say(f"minutes each, most of it download; {_MATHLIB}")


def _agree(*, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError("no terminal to ask at; --yes installs, --dry-run only shows", code=ExitCode.USAGE)
    if not typer.confirm("install it?", err=True):
        raise typer.Exit(ExitCode.FAILURE)


_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "missing": ("missing", "red")}


@verb("doctor", Examination)
def doctor(call: Call) -> Answer:
    """Check the installation."""
    from daemon.health.doctor import LEAN, examine

    findings = examine(call.config)
    lacking = [item for item in findings if item.essential and item.verdict == "missing"]
    proves = all(item.verdict != "missing" for item in findings if item.name == LEAN)
    ok = proves and not lacking
    code = ExitCode.OK if ok else ExitCode.FAILURE

    def write() -> None:
        others = sum(item.verdict != "ok" for item in findings) - len(lacking)
        if lacking:
            names = ", ".join(dict.fromkeys(item.name for item in lacking))
            say(styled(f"everlean cannot run here: {names}", "bold", "red"))
        elif not proves:
            prove_nothing = "everlean can watch here and prove nothing: there is no Lean (everlean setup)"
            say(styled(prove_nothing, "bold", "red"))
        else:
            rest = f"; {counted(others, 'optional thing')} could be better" if others else ""
            say(styled(f"everlean can run here{rest}", "bold"))
        width = max(len(item.name) for item in findings)
        for item in findings:
            mark, colour = _MARKS[item.verdict]
            say(f"  {styled(f'{mark:<7}', colour)}  {item.name:<{width}}  {clean(item.detail)}")
            if item.remedy:
                say(f"{' ' * (width + 13)}-> {clean(item.remedy)}")

    return Answer(Examination(ok, findings), write, code)


@verb("version", Versions)
def version(call: Call) -> Answer:  # noqa: ARG001 - it asks nothing of a daemon
    """Show the version of everlean, Python and SQLite."""
    versions = Versions(metadata.version("everlean"), platform.python_version(), sqlite3.sqlite_version)
    return Answer(versions, version_text())


def version_text() -> str:
    """Return the line of `everlean version` and `everlean --version`."""
    return (
        f"everlean {metadata.version('everlean')} (Python {platform.python_version()},"
        f" SQLite {sqlite3.sqlite_version})"
    )
