r"""Blueprints: the statements of a plan, their declarations, and the statements each uses.

Two formats are read. leanblueprint's is LaTeX below blueprint/src: an environment with `\label`, `\lean` and
`\uses`, and the proof after it, or with `\proves`. verso-blueprint's is Lean: `:::theorem "label" (lean :=
"…") (uses := "…")`, `{uses "label"}[]` and code blocks with a label. Macros of a project's own are not
expanded. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_STATEMENTS = 20_000
"""The first ones are kept."""
LONGEST_NAME = 1000

_ENVIRONMENTS = frozenset({"definition", "lemma", "proposition", "theorem", "corollary"})
_PACKAGE = re.compile(r"\\usepackage\s*\[([^\[\]{}]*)\]\s*\{blueprint\}")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*")
_LATEX = re.compile(r"\\(begin|end|label|lean|uses|proves)\s*\{([^{}]*)\}")
_DIRECTIVE = re.compile(
    r'^[ \t]*:{3,}(?P<kind>[a-z_]+)[ \t]+"(?P<label>[^"\n]+)"(?P<options>(?:\s*\([a-z_]+ := "[^"]*"\))*)'
    r'|(?P<close>^[ \t]*:{3,}[ \t]*$)|\{uses "(?P<uses>[^"\n]+)"\}'
    r'|^[ \t]*```lean[ \t]+"(?P<code>[^"\n]+)"[^\n]*\n(?P<text>(?:(?![ \t]*```)[^\n]*\n)*)',
    re.MULTILINE,
)
_OPTIONS = re.compile(r'\((lean|uses) := "([^"]*)"\)')
_DECLARES = re.compile(
    r"^(?:[a-z]+[ \t]+)*?(?:theorem|lemma|def|structure|inductive|class|abbrev)[ \t]+([^\s:({\[]+)",
    re.MULTILINE,
)
_VERSO = frozenset({"definition", "proposition", "lemma_", "theorem", "corollary", "proof"})


@dataclass(slots=True)
class Statement:
    """A statement of a blueprint. `lean` are full names of declarations, `uses` labels of other statements."""

    labels: list[str] = field(default_factory=list)
    lean: list[str] = field(default_factory=list)
    uses: list[str] = field(default_factory=list)


def read_latex(files: Iterable[tuple[str, str]]) -> list[Statement]:
    """Read the LaTeX files of a leanblueprint, given by path and text."""
    texts = [(path, _COMMENT.sub("", text)) for path, text in sorted(files)]
    options = [
        one.strip() for _, text in texts for argument in _PACKAGE.findall(text) for one in argument.split(",")
    ]
    named = (option.removeprefix("thms=").split("+") for option in options if option.startswith("thms="))
    environments = frozenset(name for names in named for name in names) or _ENVIRONMENTS
    result: list[Statement] = []
    proofs: list[tuple[Statement, Statement | None]] = []
    for _, text in texts:
        stack: list[tuple[str, Statement | None]] = []
        last: Statement | None = None
        for command, argument in (match.groups() for match in _LATEX.finditer(text)):
            if command == "begin":
                statement: Statement | None = None
                if argument in environments and len(result) < MOST_STATEMENTS:
                    statement = last = Statement()
                    result.append(statement)
                elif argument == "proof":
                    statement = Statement()
                    proofs.append((statement, last))
                stack.append((argument, statement))
            elif command == "end":
                while stack and stack.pop()[0] != argument:
                    pass
            elif stack and command == "label":
                # The label of an equation inside is none of the statement's.
                if stack[-1][1] is not None:
                    stack[-1][1].labels += _names(argument)
            elif (
                of := next((statement for _, statement in reversed(stack) if statement is not None), None)
            ) is not None:
                into = of.labels if command == "proves" else of.lean if command == "lean" else of.uses
                into += _names(argument)
    by_label = {label: one for one in reversed(result) for label in one.labels}
    for proof, before in proofs:
        of = next((by_label[label] for label in proof.labels if label in by_label), before)
        if of is not None:
            of.lean += proof.lean
            of.uses += proof.uses
    return result


def read_verso(files: Iterable[tuple[str, str]]) -> list[Statement]:
    """Read the Lean files of a verso-blueprint, given by path and text."""
    result: dict[str, Statement] = {}

    def of(label: str) -> Statement | None:
        if label not in result and len(result) < MOST_STATEMENTS:
            result.update({name: Statement([name]) for name in _names(label, split=False)})
        return result.get(label)

    for _, text in sorted(files):
        current: Statement | None = None
        for match in _DIRECTIVE.finditer(text):
            if match["kind"]:
                current = of(match["label"]) if match["kind"] in _VERSO else current
                if current is not None and match["kind"] in _VERSO:
                    for option, argument in _OPTIONS.findall(match["options"]):
                        (current.lean if option == "lean" else current.uses).extend(_names(argument))
            elif match["close"] is not None:
                current = None
            elif match["uses"] and current is not None:
                current.uses += _names(match["uses"], split=False)
            elif match["code"] and (stated := of(match["code"])) is not None:
                stated.lean += [
                    name for name in _DECLARES.findall(match["text"]) if len(name) <= LONGEST_NAME
                ]
    return [*result.values()]


def _names(argument: str, *, split: bool = True) -> list[str]:
    parts = argument.split(",") if split else [argument]
    return [name for part in parts if (name := " ".join(part.split())) and len(name) <= LONGEST_NAME]
