"""The generated parts of the pages in docs/: `make docs` writes them, tests compare.

A generated part of a page stands between two comment lines. Of the command line it is made of Typer's commands, of
`ExitCode` and of the view's rows; of the configuration, of the models in `daemon.settings` with their defaults and the
docstrings of their attributes; of the problems, of the docstrings of `ProblemCode`; of the metrics, of the calls that
make them; of the tables, of their models.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

import typer.main
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from daemon.cli.app import build
from daemon.cli.context import ExitCode
from daemon.http import metrics
from daemon.leandojo.names import NAMES
from daemon.settings.schema import ConfigFile
from daemon.settings.types import Duration, Size, toml_of
from pipeline.serve import measures
from store.documents import ladder
from store.documents.ladder import RungKind
from store.documents.problems import ProblemCode
from store.documents.schema import attribute_docs
from store.view import models as table_models
from store.view.tables import table_list

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- make docs -->\n", "<!-- end -->\n"
build()
COMMON = ("--as-of", "--config", "--json", "--help")
"""Options of almost every verb, which the head of the page explains; `--repo` too, where it says the same."""
SAME = "Only this repository: its key or the end of it."


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


def verb_part(name: str, command: Any) -> str:
    """Return what is generated of a verb: its usage, its help, its arguments and its options."""
    arguments = [item for item in command.params if not item.opts[0].startswith("-")]
    options = [item for item in command.params if item.opts[0].startswith("-") and not item.hidden]
    common = [item for item in options if item.opts[0] in COMMON or item.help == SAME]
    also = [f"`{item.opts[0]}`" for item in common if item.opts[0] not in ("--config", "--help")]
    usage = " ".join(["everlean", name, *(_metavar(item) for item in arguments)])
    rows = [f"- `{_metavar(item)}`: {item.help}" for item in arguments]
    rows += [f"- `{_spelled(item)}`: {item.help}" for item in options if item not in common]
    lines = [f"`{usage}`", "", f"{command.help}" + (f" Also: {', '.join(also)}." if also else "")]
    if rows:
        lines += ["", *rows]
    if command.epilog:
        example = command.epilog.removeprefix("Example: ")
        lines += ["", f"Example: `{example}`"]
    return "\n".join([*lines, ""])


def _plain(doc: str) -> str:
    """Return a docstring as a cell has it: no sentence."""
    proper = doc.startswith(("Lean", "Pantograph")) or not doc[:1].isupper() or doc[1:2].isupper()
    return (doc if proper else doc[0].lower() + doc[1:]).removesuffix(".")


def _metavar(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _spelled(option: Any) -> str:
    name = ", ".join(sorted(option.opts, key=len, reverse=True))
    return name if option.is_flag else f"{name} {option.metavar or 'N'}"


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


def tables(model: type[BaseModel] = ConfigFile, path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield every table of config.toml as its heading and its model."""
    for name, field in model.model_fields.items():
        key = f"{path}{field.alias or name}"
        inner, is_list = _table(field)
        if inner is not None:
            yield (f"[[{key}]]" if is_list else f"[{key}]"), inner
            yield from tables(inner, f"{key}.")


def _table(field: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """Return the model of a table's field, if it is one, and whether it is a list of tables."""
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) is tuple:
        first = get_args(annotation)[0]
        if isinstance(first, type) and issubclass(first, BaseModel):
            return first, True
    assert get_origin(annotation) not in (Union, UnionType) or not any(
        isinstance(one, type) and issubclass(one, BaseModel) for one in get_args(annotation)
    )
    return None, False


def table_part(model: type[BaseModel]) -> str:
    """Return a table's settings: key, default with its limits, meaning and when to change it."""
    meanings = attribute_docs(model)
    rows = ["| setting | default | meaning, and when to change it |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        inner, is_list = _table(field)
        if inner is not None and not is_list:
            continue  # it has a part of its own
        key = field.alias or name
        default = (
            "required"
            if field.is_required()
            else f"`{toml_of(field, field.get_default(call_default_factory=True))}`"
        ) + _limits(field)
        rows.append(f"| `{key}` | {default} | {_cell(meanings[name])} |")
    return "\n".join([*rows, ""])


def _limits(field: FieldInfo) -> str:
    """Return what a setting may be, in brackets behind its default; "" where nothing limits it."""
    found: dict[str, object] = {}
    for marker in field.metadata:
        if isinstance(marker, Duration | Size):
            return f" ({marker})"
        found |= {bound: getattr(marker, bound) for bound in ("ge", "gt", "le") if hasattr(marker, bound)}
    if "ge" in found and "le" in found:
        return f" ({found['ge']} to {found['le']})"
    words = {"ge": "at least", "gt": "more than", "le": "at most"}
    said = ", ".join(f"{word} {found[bound]}" for bound, word in words.items() if bound in found)
    return f" ({said})" if said else ""


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


def _first(about: str) -> str:
    """Return what a text says before its first semicolon or full stop; `/metrics` has all of it."""
    return re.split(r"; |\. |\.$", about)[0]


def metrics_part(module: ModuleType) -> str:
    """Return the list of the metrics: the labels, and how the texts begin, with which a module makes each of them."""
    lines = []
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda one: one.lineno):
        kind = node.func.id if isinstance(node.func, ast.Name) else ""
        if kind not in _KINDS:
            continue
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not isinstance(given[0], ast.Constant):
            continue  # `_one` itself
        name, about = (ast.literal_eval(one) for one in given[:2])
        labels = ", ".join(
            f"`{label}`"
            for one in given[2:3]
            if isinstance(one, ast.Tuple)
            for label in ast.literal_eval(one)
        )
        called = f"`everlean_{name.removeprefix('everlean_')}{_KINDS[kind]}`"
        lines.append(f"- {called}{f' ({labels})' if labels else ''}: {_first(about)}")
    return "\n".join([*lines, ""])


def tables_part() -> str:
    """Return the list of the view's tables: how its model begins to say what a row is, and what names one."""
    lines = ["| class | table | a row is | named by |", "|---|---|---|---|"]
    for table in sorted(table_list(), key=lambda one: one.row.__name__.removesuffix("Row")):
        model = getattr(table_models, table.row.__name__.removesuffix("Row"))
        about = re.split(r"(?<=\.)\s|[;:] see ", inspect.cleandoc(model.__doc__))[0]
        key = ", ".join(f"`{name}`" for name in table.key)
        lines.append(f"| `{model.__name__}` | {table.name} | {_cell(_plain(about))} | {key} |")
    return "\n".join([*lines, ""])


def names_part() -> str:
    """Return where each of LeanDojo's names is."""
    lines = ["| `lean_dojo_v2.` | name | here |", "|---|---|---|"]
    for module, names in NAMES.items():
        for name, place in names.items():
            where, _, own = place.partition(":")
            lines.append(f"| `{module}` | `{name}` | `{where}`{f', `{own}`' if own else ''} |")
    return "\n".join([*lines, ""])


@cache
def parts() -> dict[str, dict[str, str]]:
    """Return the generated parts of each page, by the text of the heading above."""
    return {
        "cli.md": {
            "Exit codes": exit_codes_part(),
            **{f"`everlean {name}`": verb_part(name, command) for name, command in commands()},
        },
        "configuration.md": {heading: table_part(model) for heading, model in tables()},
        "editors.md": {"Numbers": metrics_part(measures)},
        "notebooks.md": {"The tables": tables_part()},
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
