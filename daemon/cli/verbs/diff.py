"""`everlean diff BASE`: a pull request's effect on sorries, statements and axioms. No daemon, no database, no
Lean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import Call, ExitCode, files, verb
from daemon.cli.render import check_choice, has_colour, say, styled
from store.documents.document import json_text
from store.domain.identity import short_hash
from store.text import clean, clean_block, counted, printable_json

if TYPE_CHECKING:
    from pipeline.diff import Finding

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_MARKDOWN = 60_000
"""Characters: a comment on GitHub holds 65,536."""
MOST_RESULTS = 5000
"""GitHub shows no more of one SARIF file."""
PROGRESS = frozenset({"moved", "filled"})
"""Kinds of findings that are no trouble."""
SHOWN_CHANGE, SHOWN_AROUND = 150, 60
"""Characters at each end of a change in a statement, and of the common text on either side of it."""
MOST_COMPARED = 2000
"""Words of a statement."""
_WORD = re.compile(r"[\w.'!?]+|\s+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Difference:
    base: str
    """the commit to compare with: the point where HEAD left BASE"""
    head: str | None
    """the later commit; null with --staged"""
    files: int
    """changed Lean files"""
    findings: Sequence[Finding]
    """by path and line"""
    counts: dict[str, int]
    """findings of each kind present"""
    failed_on: list[str]
    """the kinds of --fail-on with a finding; exit 6 if there are any"""


@verb("diff", Difference)
def diff(
    call: Call,  # noqa: ARG001 - it asks nothing of a daemon
    base: Annotated[
        str | None,
        typer.Argument(
            metavar="BASE", help="The branch or commit to merge into; with --staged, HEAD by default."
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Argument(metavar="HEAD", help="The pull request's commit; by default the present one."),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", "-C", metavar="FOLDER", help="The clone, or a folder in it.")
    ] = Path(),
    staged: Annotated[bool, typer.Option("--staged", help="Compare with the staged changes.")] = False,
    fail_on: Annotated[
        str,
        typer.Option(metavar="KINDS", help="Exit 6 if one of these is found: kinds with commas, or any."),
    ] = "",
    include: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only these files; without it every Lean file.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Not these files.")] = None,
    style: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="text, json, github, markdown or sarif.")
    ] = "text",
    write: Annotated[
        list[str] | None, typer.Option(metavar="FORMAT=FILE", help="Write it to a file too, in this format.")
    ] = None,
) -> Answer:
    """Show a pull request's effect on sorries, statements and axioms."""
    check_choice(style, tuple(_FORMATS), option="--format")
    targets = [_wanted_file(item) for item in write or ()]
    result = _compared(
        base,
        head,
        folder,
        staged=staged,
        patterns=(include or (), exclude or ()),
        failing=_failing(fail_on),
    )
    for form, path in targets:
        with files("choose another file"):
            path.write_text(_FORMATS[form](result) + "\n", encoding="utf-8")
    code = ExitCode.DIFFERENCES if result.failed_on else ExitCode.OK

    def show() -> None:
        if style == "text":
            say(_text(result), wrap=False)
        else:
            # A program reads lines as they are, also while a person looks on.
            print(_FORMATS[style](result))

    return Answer(result, show, code)


def _wanted_file(text: str) -> tuple[str, Path]:
    form, _, name = text.partition("=")
    # Colour is for a terminal, and this goes to a file.
    choices = tuple(sorted(_FORMATS.keys() - {"text"}))
    check_choice(form, choices, option="--write")
    if not name:
        raise typer.BadParameter(f'"{text}" names no file, as markdown=summary.md does', param_hint="--write")
    return form, Path(name)


def _failing(fail_on: str) -> frozenset[str]:
    from pipeline.diff import KINDS

    kinds = frozenset(word.strip() for word in fail_on.split(",")) - {""}
    unknown = sorted(kinds - KINDS.keys() - {"any"})
    if unknown:
        raise typer.BadParameter(f'"{unknown[0]}" is none of {", ".join(KINDS)}, any', param_hint="--fail-on")
    return frozenset(KINDS) - PROGRESS | kinds if "any" in kinds else kinds


def _compared(
    base: str | None,
    head: str | None,
    folder: Path,
    *,
    staged: bool,
    patterns: tuple[Sequence[str], Sequence[str]],
    failing: frozenset[str],
) -> Difference:
    """Compare, or report the objects missing in the clone."""
    from pipeline.diff import KINDS, compare_clone
    from pipeline.lean.source.globs import path_filter

    if staged and head is not None:
        raise typer.BadParameter("with --staged there is no HEAD", param_hint="HEAD")
    if base is None and not staged:
        raise typer.BadParameter(
            "name the branch or commit to merge into, such as origin/main", param_hint="BASE"
        )
    try:
        matches = path_filter(*patterns)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--include, --exclude") from error
    start, later, result = compare_clone(folder, base, head, staged=staged, meant=matches)
    counts = Counter(item.kind for item in result.findings)
    counted_kinds = {str(kind): counts[kind] for kind in KINDS if counts[kind]}
    failed_on = [kind for kind in counted_kinds if kind in failing]
    return Difference(start, later, result.files, result.findings, counted_kinds, failed_on)


# ---- formats: for people, programs, and the places that show findings beside the code
# Names, statements and paths are a stranger's: each format writes them as text and nothing else.


def _text(difference: Difference) -> str:
    return "\n".join(
        [*(line for item in difference.findings for line in _lines(difference, item)), summary(difference)]
    )


def _lines(difference: Difference, item: Finding) -> Iterator[str]:
    style = "green" if item.kind == "filled" else "dim" if item.kind in PROGRESS else "yellow"
    kind = styled(item.kind, "red" if item.kind in difference.failed_on else style)
    yield f"{_place(item)}: {kind}: {_plain(item.message)}"
    if item.before is not None and item.after is not None:
        both = pieces_of(item.before, item.after)
        for mark, colour, pieces in zip("-+", ("red", "green"), both, strict=True):
            parts = (styled(clean(text), colour, *["inverse"] * changed) for text, changed in pieces)
            text = "".join(parts) if has_colour() else _plain("".join(text for text, _ in pieces))
            yield f"    {styled(mark, colour)} {text}"


def _place(item: Finding) -> str:
    """Return path:line:column; a runner of GitHub takes a line that begins with `::` for its own command."""
    path = _plain(item.path)
    path = f"./{path}" if path.startswith(":") else path
    return f"{path}:{item.line}:{item.column}" if item.line else path


def _plain(text: str) -> str:
    """Return one line without commands for a runner of GitHub."""
    return clean(text).replace("##[", "## [")


def summary(difference: Difference) -> str:
    """Return the findings in one line."""
    counts = ", ".join(f"{count:,} {kind}" for kind, count in difference.counts.items()) or "nothing"
    to = difference.head[:12] if difference.head else "the staged changes"
    return (
        f"{counts} in {counted(difference.files, 'changed Lean file')}, from {difference.base[:12]} to {to}"
    )


Piece = tuple[str, bool]
"""A part of a statement, and whether it differs in the other one."""


def around_the_change(before: str, after: str) -> tuple[str, str]:
    """Return both statements, their long common parts and long changes cut in the middle."""
    old, new = ("".join(text for text, _ in pieces) for pieces in pieces_of(before, after))
    return old, new


def pieces_of(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    """Return both statements in pieces, cut for display."""
    old, new = (_WORD.findall(text) for text in (before, after))
    same = _shared(old, new)
    end = _shared(old[same:][::-1], new[same:][::-1])
    middle = old[same : len(old) - end], new[same : len(new) - end]
    # A difference of thousands of words is another statement, and would take long to compare.
    if max(map(len, middle)) > MOST_COMPARED:
        steps = [(0, len(middle[0]), 0, len(middle[1]), True)]
    else:
        result = SequenceMatcher(None, *middle, autojunk=False).get_opcodes()
        steps = [(begin, stop, first, last, step != "equal") for step, begin, stop, first, last in result]
    left: list[Piece] = [("".join(old[:same]), False)]
    right = [*left]
    for begin, stop, first, last, changed in steps:
        left.append(("".join(middle[0][begin:stop]), changed))
        right.append(("".join(middle[1][first:last]), changed))
    tail = "".join(old[len(old) - end :])
    return _elided([*left, (tail, False)]), _elided([*right, (tail, False)])


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of words that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _elided(pieces: Sequence[Piece]) -> list[Piece]:
    cut = []
    for number, (text, changed) in enumerate(pieces):
        most = SHOWN_CHANGE if changed else SHOWN_AROUND
        # Of the common beginning and end only the side of the change is of interest.
        head = 0 if number == 0 else most
        tail = 0 if number == len(pieces) - 1 else most
        if len(text) > head + tail + 1:
            begins, ends = text[:head], text[len(text) - tail :]
            # At spaces, so that no word is broken.
            text = f"{begins.rpartition(' ')[0] or begins} … {ends.partition(' ')[2] or ends}"
        if text:
            cut.append((text, changed))
    return cut


def _level(difference: Difference, item: Finding) -> int:
    """Return 0 for a failing finding, 1 for other trouble, 2 for progress."""
    return 0 if item.kind in difference.failed_on else 2 if item.kind in PROGRESS else 1


def _worst_first(difference: Difference) -> list[Finding]:
    return sorted(difference.findings, key=lambda item: _level(difference, item))


def _github(difference: Difference) -> str:
    """Return commands to GitHub's runner, failing findings first, as it shows ten of a level for a step.

    https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    lines = []
    for item in _worst_first(difference):
        about = {"title": f"everlean: {item.kind}", "file": item.path}
        if item.line and not item.gone:
            about |= {"line": str(item.line), "col": str(item.column + 1)}
        properties = ",".join(
            f"{name}={_command(clean(value), within=True)}" for name, value in about.items()
        )
        message = item.message
        if item.before is not None and item.after is not None:
            message += "\n- {}\n+ {}".format(*around_the_change(item.before, item.after))
        level = ("error", "warning", "notice")[_level(difference, item)]
        lines.append(f"::{level} {properties}::{_command(clean_block(message))}")
    return "\n".join([*lines, summary(difference)])


def _command(text: str, *, within: bool = False) -> str:
    """Return text as data of a runner's command, or as the value of a property of one."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escaped.replace(":", "%3A").replace(",", "%2C") if within else escaped


def _markdown(difference: Difference) -> str:
    lines = [f"**everlean**: {summary(difference)}", ""]
    size = 0
    for number, item in enumerate(_worst_first(difference)):
        messages = [f"- **{item.kind}** {_code(_place(item))}: {_code(item.message)}"]
        if item.before is not None and item.after is not None:
            before, after = around_the_change(item.before, item.after)
            messages += [f"  - before: {_code(before)}", f"  - now: {_code(after)}"]
        size += sum(len(line) for line in messages)
        if size > MOST_MARKDOWN:
            lines += ["", f"and {len(difference.findings) - number:,} more"]
            break
        lines += messages
    return "\n".join(lines)


def _code(text: str) -> str:
    """Return text as Markdown's code on one line, whatever quotes it has."""
    plain = clean(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    edge = " " if "`" in plain else ""
    return f"{fence}{edge}{plain}{edge}{fence}"


def _sarif(difference: Difference) -> str:
    """Return a log of OASIS' Static Analysis Results Interchange Format 2.1.0, in GitHub's form."""
    from pipeline.diff import KINDS

    order = list(KINDS)
    results = []
    for item in _worst_first(difference)[:MOST_RESULTS]:
        # A byte that is no UTF-8 is shown as \xNN in a path.
        physical: dict[str, object] = {
            "artifactLocation": {"uri": quote(item.path), "uriBaseId": "%SRCROOT%"},
        }
        if item.line and not item.gone:
            physical["region"] = {"startLine": item.line, "startColumn": item.column + 1}
        results.append(
            {
                "ruleId": item.kind,
                "ruleIndex": order.index(item.kind),
                "level": ("error", "warning", "note")[_level(difference, item)],
                # A viewer makes a link of [words](address).
                "message": {"text": clean(item.message).replace("](", "] (")},
                "locations": [{"physicalLocation": physical}],
                # Without the line: a finding that only moved down is no new alert.
                "partialFingerprints": {
                    "everlean/v1": short_hash(item.kind, item.path, item.declaration, item.message)
                },
            }
        )
    rules = [{"id": kind, "shortDescription": {"text": description}} for kind, description in KINDS.items()]
    driver = {"name": "everlean", "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return printable_json({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


_FORMATS: dict[str, Callable[[Difference], str]] = {
    "text": _text,
    "json": json_text,
    "github": _github,
    "markdown": _markdown,
    "sarif": _sarif,
}
