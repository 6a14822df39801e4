"""What may stand next on a command line: verbs, options, their values, and names that the database knows.

Asked by the scripts of `unsorry completion`, on every press of the key, so: only the verb that stands there is loaded,
the daemon is never asked, and of the view only what an index leads to is read. A question that cannot be answered has
no candidates; there is nobody at that moment whom an error could be told.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import typer.main

from daemon.cli.render import clean
from daemon.paths import ConfigNotFoundError, find_config, paths_from_config

FILES, FOLDERS = ":file", ":dir"
"""Lines that ask the shell for its own completion; no value begins with a colon."""

MOST = 200
"""Candidates of the database at most: nobody reads more, and the first letters of an id narrow them down."""


_LIST = re.compile(r"(?:Only|One of):? ([\w-]+(?:, [\w-]+)+)\.?")


class Candidate(NamedTuple):
    """One possible word, and a line on it that zsh and fish show."""

    word: str
    about: str = ""


@dataclass(slots=True)
class _Standing:
    """What the words before the one in question have come to."""

    command: Any
    path: tuple[str, ...] = ()
    waiting: Any = None
    """The option whose value comes next."""
    arguments: int = 0
    no_more_options: bool = False
    config: Path | None = None
    given: set[str] = field(default_factory=set)


def answer(words: Sequence[str]) -> None:
    """Write the candidates for the last of the words after `unsorry`, one a line: the word, a tab, a line on it."""
    for word, about in candidates(words):
        sys.stdout.write(f"{word}\t{clean(about)}\n" if word not in (FILES, FOLDERS) else f"{word}\n")


def candidates(words: Sequence[str]) -> Iterator[Candidate]:
    """Yield what may stand in the place of the last word, which may be empty or half written."""
    from daemon.cli.app import VERBS, asked_for, build

    # bash makes three words of --repo=x.
    *before, word = [item for item in words if item != "="] or [""]
    if words and words[-1] == "=":
        return
    verbs = asked_for(before)
    standing = _walk(typer.main.get_command(build(verbs)), before)
    if standing.waiting is not None:
        yield from _values(standing, standing.waiting, word)
    elif word.startswith("--") and "=" in word and not standing.no_more_options:
        name, _, value = word.partition("=")
        option = _option(standing.command, name)
        if option is not None:
            for found in _values(standing, option, value):
                yield found._replace(
                    word=found.word if found.word in (FILES, FOLDERS) else f"{name}={found.word}"
                )
    elif word.startswith("-") and not standing.no_more_options:
        yield from _options(standing, word)
    else:
        below: Mapping[str, Any] = getattr(standing.command, "commands", {})
        if not standing.arguments:
            order = VERBS if not standing.path else tuple(below)
            for name in order:
                if name in below and name.startswith(word):
                    yield Candidate(name, below[name].help or "")
        argument = _argument(standing.command, standing.arguments)
        if argument is not None:
            yield from _values(standing, argument, word)


def _walk(command: Any, words: Sequence[str]) -> _Standing:
    standing = _Standing(command)
    for word in words:
        if standing.waiting is not None:
            if standing.waiting.name == "config":
                standing.config = Path(word)
            standing.waiting = None
        elif word == "--":
            standing.no_more_options = True
        elif word.startswith("-") and not standing.no_more_options:
            name, has_value, value = word.partition("=")
            option = _option(standing.command, name)
            if option is None:
                continue
            standing.given.update(option.opts)
            if has_value and option.name == "config":
                standing.config = Path(value)
            elif not has_value and not option.is_flag:
                standing.waiting = option
        elif not standing.arguments and word in getattr(standing.command, "commands", {}):
            standing = _Standing(
                standing.command.commands[word],
                (*standing.path, word),
                no_more_options=standing.no_more_options,
                config=standing.config,
            )
        else:
            standing.arguments += 1
    return standing


def _option(command: Any, name: str) -> Any:
    return next((item for item in command.params if name in item.opts), None)


def _argument(command: Any, index: int) -> Any:
    """The argument that so many others stand before; the last one goes on where it takes any number."""
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    if index < len(arguments):
        return arguments[index]
    return arguments[-1] if arguments and arguments[-1].nargs == -1 else None


def _options(standing: _Standing, word: str) -> Iterator[Candidate]:
    for option in standing.command.params:
        if option.param_type_name != "option" or getattr(option, "hidden", False):
            continue
        if standing.given.intersection(option.opts) and not option.multiple:
            continue
        for name in option.opts:
            if name.startswith(word) and (name.startswith("--") or word == name):
                yield Candidate(name, option.help or "")
    if "--help".startswith(word):
        yield Candidate("--help", "Show this message and exit.")


def _values(standing: _Standing, parameter: Any, word: str) -> Iterator[Candidate]:
    metavar = str(parameter.metavar or "")
    if parameter.type.name in ("path", "file", "directory") or "FILE" in metavar:
        yield Candidate(FOLDERS if metavar == "DIR" else FILES)
        return
    for value in _listed(parameter.help or ""):
        if value.startswith(word):
            yield Candidate(value)
    question = _LIVE.get(str(parameter.name))
    if question is not None:
        yield from _from_view(standing.config, question, word)


def _listed(text: str) -> Sequence[str]:
    """The values of a parameter that has a fixed list of them, which is then all that its help says."""
    match = _LIST.fullmatch(text)
    return match[1].split(", ") if match else ()


# --- what the database knows ------------------------------------------------------------------------------------

_Question = Callable[[sqlite3.Connection, str], Iterator[Candidate]]


def _from_view(config: Path | None, question: _Question, word: str) -> Iterator[Candidate]:
    from store.errors import LogError
    from store.readonly import connect_readonly

    try:
        view = paths_from_config(find_config(config)).database_db
        with closing(connect_readonly(view)) as database:
            found = list(question(database, word))
    except (ConfigNotFoundError, LogError, OSError, sqlite3.Error):
        return  # no configuration, no view yet, one of another version: see the first lines of this file
    yield from found


def _repositories(database: sqlite3.Connection, word: str) -> Iterator[Candidate]:
    """Keys, and where something else was begun, the ends of keys that begin so."""
    rows = database.execute("SELECT repository, url FROM repositories WHERE watched = 1 ORDER BY repository")
    for key, url in rows:
        parts = key.split("/")
        names = [key] if not word else [key, "/".join(parts[1:]), parts[-1]]
        name = next((name for name in names if name and name.startswith(word)), None)
        if name is not None:
            yield Candidate(name, url)


def _rows(statement: str) -> _Question:
    """Ask for two columns: an id that begins with the word, and what it is."""

    def ask(database: sqlite3.Connection, word: str) -> Iterator[Candidate]:
        # A range, which the key's index serves: all texts that begin with the word lie before its end.
        rows = database.execute(statement, {"word": word, "end": word + "\U0010ffff", "most": MOST})
        for name, about in rows:
            yield Candidate(name, about or "")

    return ask


_SAME_BEGINNING = "{0} >= :word AND {0} < :end"
_JOBS = _rows(
    f"SELECT job, state || ': ' || describes FROM jobs WHERE {_SAME_BEGINNING.format('job')} "
    "ORDER BY started_at DESC LIMIT :most"
)
_CHECKPOINTS = _rows(
    "SELECT checkpoint, model || CASE promoted WHEN 1 THEN ', in use' ELSE '' END FROM checkpoints "
    f"WHERE {_SAME_BEGINNING.format('checkpoint')} ORDER BY saved_at DESC LIMIT :most"
)
_PROOFS = _rows(
    "SELECT proof, CASE simulated WHEN 1 THEN 'SIMULATED ' ELSE '' END || state || ': ' || declaration FROM proofs "
    f"WHERE {_SAME_BEGINNING.format('proof')} ORDER BY found_at DESC LIMIT :most"
)
_SORRIES = _rows(
    "SELECT sorry, min(state) || ': ' || min(declaration) FROM sorries "
    f"WHERE {_SAME_BEGINNING.format('sorry')} GROUP BY sorry ORDER BY sorry LIMIT :most"
)
_THEOREMS = _rows(
    "SELECT name, min(repository) FROM theorems "
    f"WHERE {_SAME_BEGINNING.format('name')} AND state = 'present' GROUP BY name ORDER BY name LIMIT :most"
)


def _proofs_and_sorries(database: sqlite3.Connection, word: str) -> Iterator[Candidate]:
    yield from _PROOFS(database, word)
    yield from _SORRIES(database, word)


_LIVE: Mapping[str, _Question] = {
    "repo": _repositories,
    "repos": _repositories,
    "repository": _repositories,
    "job": _JOBS,
    "checkpoint": _CHECKPOINTS,
    "before": _CHECKPOINTS,
    "after": _CHECKPOINTS,
    "proof": _PROOFS,
    "sorry": _SORRIES,
    "which": _proofs_and_sorries,
    "theorem": _THEOREMS,
}
"""By the name that a verb's function has for it: the question whose answers may stand there."""
