"""The generated parts of the pages in docs/: `make docs` writes them, tests compare.

A generated part of a page stands between two comment lines. Of the command line it is made of Typer's commands, of
`ExitCode`; of the configuration, of the models in `daemon.settings` with their defaults and the
docstrings of their attributes; of the problems, of the docstrings of `ProblemCode`; of the metrics, of the calls that
make them.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import typer.main

from daemon.cli.app import GROUPS, build
from daemon.cli.context import ExitCode
from daemon.http import metrics
from daemon.leandojo.names import NAMES
from daemon.settings.explained import explained, tables
from pipeline.serve import measures
from store.documents import ladder
from store.documents.ladder import RungKind
from store.documents.problems import ProblemCode
from store.documents.schema import attribute_docs

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- make docs -->\n", "<!-- end -->\n"
build()
LONG = 100
"""Characters of a default from which on only `everlean config explain` shows it."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every verb that can be called by itself, with its parsed command."""
    top: Any = typer.main.get_command(build())
    for name, command in top.commands.items():
        below = getattr(command, "commands", {})
        if not below or command.invoke_without_command:
            yield name, command
        for verb, inner in below.items():
            if not inner.hidden:
                yield f"{name} {verb}", inner


def verbs_part() -> str:
    """Return the names of the verbs by purpose; `--help` has the rest."""
    names = [name for name, _ in commands()]
    lines = [
        f"- **{purpose}**: {', '.join(f'`{name}`' for verb in verbs for name in names if name.split()[0] == verb)}"
        for purpose, verbs in GROUPS.items()
    ]
    return "\n".join([*lines, ""])


def problems_part() -> str:
    """Return the list of the problems; the docstring below each member says what it is, then what to do."""
    docs = attribute_docs(ProblemCode)
    return "\n".join([*(f"- `{code}`: {docs[code.name].removesuffix('.')}" for code in ProblemCode), ""])


def ladder_part() -> str:
    """Return the table of the rungs."""
    names = RungKind._fields
    rows = [
        f"| {one.number} | `{one.prover}` | {one.method} | {one.costs} | {one.needs} |"
        for one in ladder.RUNGS
    ]
    return "\n".join(["| rung | " + " | ".join(names[1:]) + " |", "|---" * len(names) + "|", *rows, ""])


def exit_codes_part() -> str:
    """Return the table of the exit codes; the docstring below each member of `ExitCode` says what it means."""
    meanings = attribute_docs(ExitCode)
    rows = [f"| {int(code)} | {code.name} | {_cell(meanings[code.name])} |" for code in ExitCode]
    return "\n".join(["| code | name | meaning |", "|---|---|---|", *rows, ""])


def table_part(heading: str) -> str:
    """Return a table's settings: key, default, and a sentence; `everlean config explain` has the limits."""
    lines = []
    for one in explained():
        if one.table == heading:
            empty = one.default in (None, '""', "[]", "{}")
            default = "" if empty else f" = {one.default if len(str(one.default)) < LONG else '[…]'}"
            lines.append(
                f"- `{one.key}{default}`{' (required)' if one.default is None else ''}: {one.in_a_sentence}"
            )
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_KINDS = {
    "_gauge": "",
    "_counter": "_total",
    "_one": "",
    "HistogramMetricFamily": "",
    "Gauge": "",
    "Counter": "_total",
    "Histogram": "",
}
"""The calls that make a metric, and what each adds to its name."""


def metrics_part(module: ModuleType) -> str:
    """Return the list of the metrics with their labels; `/metrics` explains each."""
    lines = []
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda one: one.lineno):
        kind = node.func.id if isinstance(node.func, ast.Name) else ""
        if kind not in _KINDS:
            continue
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not isinstance(given[0], ast.Constant):
            continue  # `_one` itself
        name = ast.literal_eval(given[0])
        labels = ", ".join(
            f"`{label}`"
            for one in given[2:3]
            if isinstance(one, ast.Tuple)
            for label in ast.literal_eval(one)
        )
        called = f"`everlean_{name.removeprefix('everlean_')}{_KINDS[kind]}`"
        lines.append(f"- {called}{f' ({labels})' if labels else ''}")
    return "\n".join([*lines, ""])


def names_part() -> str:
    """Return LeanDojo's names by the modules that have them here."""
    here: dict[str, list[str]] = {}
    for names in NAMES.values():
        for name, place in names.items():
            where, _, own = place.partition(":")
            shown = own if name == "main" else f"{name}` (as `{own}" if own else name
            here.setdefault(where, []).append(f"`{shown}`{')' if '(' in shown else ''}")
    return "\n".join([*(f"- `{where}`: {', '.join(names)}" for where, names in here.items()), ""])


@cache
def parts() -> dict[str, dict[str, str]]:
    """Return the generated parts of each page, by the text of the heading above."""
    return {
        "cli.md": {
            "Exit codes": exit_codes_part(),
            "All verbs": verbs_part(),
        },
        "configuration.md": {heading: table_part(heading) for heading, _ in tables()},
        "editors.md": {"Numbers": metrics_part(measures)},
        "leandojo.md": {"The names": names_part()},
        "monitoring.md": {"Metrics": metrics_part(metrics)},
        "proving.md": {"The ladder": ladder_part()},
        "operations.md": {"Common failures": problems_part()},
    }


def generated(text: str, parts: dict[str, str]) -> str:
    """Return a page with its generated parts as they have to be.

    Raises:
        ValueError: a heading of `parts` or the place below it is missing, or a place belongs to no heading.
    """
    sections = re.split(r"^(#{2,3} .+\n)", text, flags=re.MULTILINE)
    left = dict(parts)
    for number in range(1, len(sections), 2):
        heading, body = sections[number].lstrip("#").strip(), sections[number + 1]
        if (BEGIN in body) != (heading in left):
            raise ValueError(
                f'"{heading}": a heading with a generated part needs the two comment lines, and no other'
            )
        if BEGIN in body:
            head, _, rest = body.partition(BEGIN)
            sections[number + 1] = f"{head}{BEGIN}\n{left.pop(heading)}\n{END}{rest.partition(END)[2]}"
    if left:
        raise ValueError(f"no heading in the page: {', '.join(left)}")
    return "".join(sections)


if __name__ == "__main__":
    for page, found in parts().items():
        path = DOCS / page
        path.write_text(generated(path.read_text(encoding="utf-8"), found), encoding="utf-8")
