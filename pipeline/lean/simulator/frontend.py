"""Elaborate a file's commands: what `frontend.process` and `frontend.distil` do.

One `Command` per top-level command, with its range, its messages and the constants it made. Errors do not stop a
file: the next command goes on with the environment as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipeline.lean.simulator.declarations import Declarations, initial_environment
from pipeline.lean.simulator.elaboration import Command, Note, SectionFrame, read_header
from pipeline.lean.simulator.kernel import Constant, Environment, Exhausted, KernelError, LeanError, outside
from pipeline.lean.simulator.parser import Parser
from pipeline.lean.simulator.protocol import Json
from pipeline.lean.simulator.terms import (
    COMMANDS,
    App,
    Decide,
    Lam,
    ParseError,
    Pi,
    Sorry,
    Term,
    Token,
    all_tokens,
    has_sorry,
)

_MODIFIERS = frozenset(
    ("private", "protected", "noncomputable", "unsafe", "partial", "local", "scoped", "public")
)
_DECLARATIONS = frozenset(("theorem", "lemma", "def", "abbrev", "example", "axiom"))


class Frontend(Declarations):
    """Elaborates the commands of one text."""

    def run(self, text: str, *, start: int = 0) -> list[Command]:
        """Process all commands from the code point `start` on."""
        tokens = tuple(token for token in all_tokens(text) if token.start >= start)
        commands: list[Command] = []
        index = 0
        while tokens[index].kind != "end":
            command = Command(tokens[index].start)
            index = self._one(text, tokens, index, command)
            commands.append(command)
        for command, following in itertools.pairwise(commands):
            command.end = following.start
        if commands:
            commands[0].start, commands[-1].end = start, len(text)
        return commands

    def _one(self, text: str, tokens: tuple[Token, ...], index: int, command: Command) -> int:
        parser = Parser(text, tokens)
        parser.index = index
        try:
            self._command(parser, command)
            self._locate(text, command, parser.last_end())
            token = parser.raw()
            if parser.index > index and not _starts_command(token):
                raise parser.unexpected("expected command")
        except ParseError as error:
            end = min(error.offset + 1, len(text))
            command.notes.append(Note("error", error.message, error.offset, end))
        except LeanError as error:
            begin, end = error.span or (command.start, tokens[max(parser.index - 1, 0)].end)
            command.notes.append(Note("error", error.message, begin, end))
        except KernelError as error:
            command.notes.append(Note("error", f"(kernel) {error}", command.start, command.start + 1))
        except Exhausted as error:
            command.notes.append(Note("error", str(error), command.start, command.start + 1))
        except RecursionError:
            text_ = "maximum recursion depth has been reached (simulator)"
            command.notes.append(Note("error", text_, command.start, command.start + 1))
        position = max(parser.index, index + 1) if parser.index == index else parser.index
        while not _starts_command(tokens[position]):
            position += 1
        return position

    def _locate(self, text: str, command: Command, end: int) -> None:
        def position(offset: int) -> tuple[int, int]:
            return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1)

        for name in command.new_constants:
            self.ranges[name] = position(command.declaration_start), position(end)

    # ---- commands

    def _command(self, parser: Parser, command: Command) -> None:
        command.declaration_start = parser.raw().start
        while parser.raw().kind == "doc":
            doc = parser.advance()
            if doc.text.startswith("/-!"):
                return
        self._attributes(parser)
        modifiers = set()
        while parser.raw().text in _MODIFIERS:
            modifiers.add(parser.advance().text)
        token = parser.raw()
        if modifiers & {"unsafe", "partial"}:
            raise outside(f"the modifier `{', '.join(sorted(modifiers))}`", (token.start, token.end))
        if token.text in _DECLARATIONS:
            self.declare(parser, command, private="private" in modifiers)
            if "protected" in modifiers:
                self.env = self.env.protect(command.new_constants)
            if "noncomputable" in modifiers:
                self.noncomputable.update(command.new_constants)
            return
        method: Callable[[Parser, Command], None] | None = (
            getattr(self, f"_cmd_{token.text.lstrip('#')}", None)
            if token.text.lstrip("#").isidentifier()
            else None
        )
        if method is None:
            if token.text == "import":
                raise LeanError(
                    "invalid 'import' command, it must be used in the beginning of the file",
                    (token.start, token.end),
                )
            if token.text in COMMANDS or token.text.startswith("#"):
                raise outside(f"the command `{token.text}`", (token.start, token.end))
            raise parser.unexpected("expected command")
        parser.advance()
        method(parser, command)

    def _attributes(self, parser: Parser) -> None:
        while parser.raw().text == "@[":
            depth = 1
            parser.advance()
            while depth:
                token = parser.advance()
                if token.kind == "end":
                    raise parser.unexpected("expected ']'")
                depth += (token.text in ("[", "@[")) - (token.text == "]")

    def _cmd_namespace(self, parser: Parser, _command: Command) -> None:
        name = parser.identifier().text
        self.frames.append(SectionFrame("namespace", name, self.scope, self.variables))
        self.scope = replace(self.scope, namespace=f"{self.scope.namespace}.{name}".lstrip("."))

    def _cmd_section(self, parser: Parser, _command: Command) -> None:
        name = parser.identifier().text if parser.raw().kind == "ident" else ""
        self.frames.append(SectionFrame("section", name, self.scope, self.variables))

    def _cmd_end(self, parser: Parser, _command: Command) -> None:
        name = parser.identifier().text if parser.raw().kind == "ident" else ""
        if not self.frames:
            raise LeanError("invalid 'end', insufficient scopes")
        # `end A.B` closes `namespace A` and `namespace B` too.
        closed = ""
        while True:
            frame = self.frames.pop()
            closed = f"{frame.name}.{closed}".rstrip(".")
            self.scope, self.variables = frame.scope, frame.variables
            if closed == name:
                return
            if not name.endswith(f".{closed}") or not self.frames:
                raise LeanError(f"invalid 'end', name mismatch: expected '{closed}', found '{name}'")

    def _cmd_open(self, parser: Parser, command: Command) -> None:
        names = []
        while parser.raw().kind == "ident" and not _starts_command(parser.raw()):
            names.append(parser.identifier().text)
        if not names:
            raise parser.unexpected("expected namespace")
        if parser.raw().text in ("(", "hiding", "renaming"):
            raise outside("`open` with a list of names")
        opens = self.scope.opens
        for name in names:
            found = [c for c in self.scope.candidates(name) if self._is_namespace(c)]
            if not found:
                raise LeanError(f"unknown namespace '{name}'")
            opens = (*opens, *found[:1])
        outer = self.scope
        self.scope = replace(self.scope, opens=opens)
        if parser.raw().text == "in":
            parser.advance()
            try:
                self._command(parser, command)
            finally:
                self.scope = outer

    def _is_namespace(self, name: str) -> bool:
        known = {frame.name for frame in self.frames} | {self.scope.namespace}
        return name in known or any(other.startswith(f"{name}.") for other in self.env.table)

    def _cmd_variable(self, parser: Parser, _command: Command) -> None:
        binders = parser.binders()
        # Elaborate once for its errors; declarations do it again for what they use.
        elaborator = self._elaborator(self._session())
        elaborator.bind((*self.variables, *binders))
        elaborator.run_blocks()
        self.variables = (*self.variables, *binders)

    def _cmd_universe(self, parser: Parser, _command: Command) -> None:
        parser.identifier()
        while parser.raw().kind == "ident":
            parser.identifier()

    def _cmd_set_option(self, parser: Parser, command: Command) -> None:
        parser.identifier()
        value = parser.advance()
        if value.kind not in ("ident", "number", "string"):
            raise ParseError("expected an option's value", value.start)
        if parser.raw().text == "in":
            parser.advance()
            self._command(parser, command)

    def _cmd_print(self, parser: Parser, command: Command) -> None:
        token = parser.advance()
        if token.text != "axioms":
            raise outside("#print of anything but axioms", (token.start, token.end))
        stx = parser.identifier()
        constant = next((c for n in self.scope.candidates(stx.text) if (c := self.env.get(n))), None)
        if constant is None:
            raise LeanError(f"unknown constant '{stx.text}'", (stx.start, stx.end))
        axioms = sorted(constant.axioms)
        said = f"depends on axioms: [{', '.join(axioms)}]" if axioms else "does not depend on any axioms"
        command.notes.append(
            Note("information", f"'{constant.name}' {said}", command.start, parser.last_end())
        )


def _starts_command(token: Token) -> bool:
    if token.kind in ("end", "doc"):
        return True
    if token.kind == "keyword":
        return token.text in COMMANDS or token.text.startswith("#")
    return token.text == "@["


# ---- Imports
# A module of the project is elaborated from its source; Lean's own stand for what is built in.


_BUILT_IN = frozenset({"Init", "Prelude", "Lean", "Std", "Mathlib", "Batteries", "Aesop"})
EMPTY = Environment()


class ImportFailure(Exception):  # noqa: N818 - named by what happened
    """A module cannot be imported."""


class Range(NamedTuple):
    """The range of a declaration: lines from 1, columns in code points from 0, the end exclusive."""

    start: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Module:
    """One importable module; `path` is None for what is built in, whose declarations have no ranges."""

    name: str
    env: Environment
    imports: tuple[str, ...] = ()
    path: Path | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)


class Modules:
    """The modules of one project folder, each elaborated once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._done: dict[str, Module] = {}

    def environment(self, imports: Sequence[str]) -> Environment:
        """Return the environment that a file with these imports gets; one without any gets `Init`.

        Raises:
            ImportFailure: a file is missing, does not elaborate, or imports itself.
        """
        return self._joined(imports or ("Init",), ())

    def find(self, name: str) -> Module | None:
        """Return a module that has been imported, or is built in."""
        found = self._done.get(name)
        return found if found is not None else _built_in_modules().get(name)

    def closure(self, imports: Iterable[str]) -> list[str]:
        """Return the modules that these imports bring in, each once, a module after what it imports."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            module = self.find(name)
            if name not in found and module is not None:
                for inner in module.imports:
                    visit(inner)
                found[name] = None

        for name in imports:
            visit(name)
        return list(found)

    def _joined(self, imports: Sequence[str], chain: tuple[str, ...]) -> Environment:
        table = dict(initial_environment().table)
        for name in imports:
            for constant in self._module(name, chain).env.table.values():
                known = table.get(constant.name)
                if known is not None and known is not constant:
                    raise ImportFailure(
                        f"import {name} failed, environment already contains '{constant.name}' from {known.module}"
                    )
                table[constant.name] = constant
        return Environment(table)

    def _module(self, name: str, chain: tuple[str, ...]) -> Module:
        if name in chain:
            raise ImportFailure(f"import cycle: {' -> '.join([*chain, name])}")
        if name in self._done:
            return self._done[name]
        path = self.root.joinpath(*(part.strip("«»") for part in name.split("."))).with_suffix(".lean")
        if not path.is_file():
            if name.partition(".")[0] in _BUILT_IN:
                self._done[name] = _built_in_modules().get(name) or Module(
                    name, initial_environment(), ("Init",)
                )
                return self._done[name]
            raise ImportFailure(
                f"unknown module prefix '{name}': no file {path} (imports are resolved under --root)"
            )
        try:
            text = path.read_text("utf-8")
            header = read_header(text)
        except (OSError, UnicodeDecodeError) as error:
            raise ImportFailure(f"{path}: {error}") from error
        except ParseError as error:
            raise ImportFailure(f"{path}: {error.message}") from error
        env = self._joined(header.imports, (*chain, name))
        frontend = Frontend(env, module=name)
        for command in frontend.run(text, start=header.end):
            for note in command.notes:
                if note.severity == "error":
                    line = text.count("\n", 0, note.start) + 1
                    raise ImportFailure(f"import {name} failed: {path}:{line}: {note.text}")
        ranges = {constant: Range(*where) for constant, where in frontend.ranges.items()}
        self._done[name] = Module(name, frontend.env, header.imports or ("Init",), path.resolve(), ranges)
        return self._done[name]


@cache
def _built_in_modules() -> Mapping[str, Module]:
    """Return `Init` and the modules that the built-in constants say they come from."""
    env = initial_environment()
    names = sorted({constant.module for constant in env.table.values() if constant.module != "Init"})
    inner = {name: Module(name, env) for name in names}
    return {**inner, "Init": Module("Init", env, tuple(names))}


# ---- What kind of declaration each constant is, as `env.catalog` and `env.inspect` tell it


# inductive type -> (number of parameters, of indices, its constructors with their numbers of fields)
_INDUCTIVE: Mapping[str, tuple[int, int, Mapping[str, int]]] = {
    "True": (0, 0, {"True.intro": 0}),
    "False": (0, 0, {}),
    "And": (2, 0, {"And.intro": 2}),
    "Or": (2, 0, {"Or.inl": 1, "Or.inr": 1}),
    "Iff": (2, 0, {"Iff.intro": 2}),
    "Eq": (2, 1, {"Eq.refl": 0}),
    "Exists": (2, 0, {"Exists.intro": 2}),
    "Nat": (0, 0, {"Nat.zero": 0, "Nat.succ": 1}),
}
_CONSTRUCTORS = {ctor: kind for kind, (_, _, ctors) in _INDUCTIVE.items() for ctor in ctors}
_LETTERS = {
    "axiom": "a",
    "definition": "d",
    "theorem": "t",
    "inductive": "i",
    "constructor": "c",
    "recursor": "r",
}


def kind_of(constant: Constant) -> str:
    """Return one of the words that `symbol` has a letter for."""
    name = constant.name
    if name in _INDUCTIVE:
        return "inductive"
    if name in _CONSTRUCTORS:
        return "constructor"
    if name == "Nat.rec":
        return "recursor"
    if constant.value is None and name in constant.axioms:
        return "axiom"
    return "theorem" if constant.is_theorem else "definition"


def structure(name: str) -> Json:
    """Return what `env.inspect` says of an inductive type or a constructor; nothing of anything else."""
    if name in _INDUCTIVE:
        parameters, indices, ctors = _INDUCTIVE[name]
        info: Json = {
            "numParams": parameters,
            "numIndices": indices,
            "all": [name],
            "ctors": list(ctors),
            "isRec": name == "Nat",
            "isReflexive": False,
            "isNested": False,
        }
        return {"inductInfo": info}
    if name in _CONSTRUCTORS:
        kind = _CONSTRUCTORS[name]
        parameters, _, ctors = _INDUCTIVE[kind]
        made: Json = {
            "induct": kind,
            "cidx": list(ctors).index(name),
            "numParams": parameters,
            "numFields": ctors[name],
        }
        return {"constructorInfo": made}
    return {}


# ---- `frontend.track`: does a second text keep what a first one specifies?


def conformity_failure(base: Environment, source: Frontend, result: Frontend) -> str | None:
    """Return why `result` does not conform to `source`, None when it does; both started from `base`."""
    wanted = _made(base, source)
    given = _made(base, result)
    for name, constant in given.items():
        if failure := _of_one(wanted.get(name), constant):
            return failure
        if name in wanted and (name in source.noncomputable) != (name in result.noncomputable):
            return f"Must not modify computability on {name}"
    if missing := [name for name in wanted if name not in given]:
        return f"[{', '.join(missing)}] not accounted for"
    return _replay_failure(base, given)


def _made(base: Environment, frontend: Frontend) -> dict[str, Constant]:
    return {name: constant for name, constant in frontend.env.table.items() if base.get(name) is None}


def _of_one(wanted: Constant | None, given: Constant) -> str | None:
    name = given.name
    if has_sorry(given.type):
        return f"Definition type has sorry: {name}"
    if given.value is not None and has_sorry(given.value):
        return f"Definition value has sorry: {name}"
    if wanted is None:
        return f"Adding axiom is not allowed: {name}" if kind_of(given) == "axiom" else None
    if kind_of(wanted) != kind_of(given) or not _same(wanted.type, given.type):
        return f"Type clash of {name}"
    if wanted.value is None or given.value is None or has_sorry(wanted.value):
        return None
    return None if _same(wanted.value, given.value) else f"Definition clash of {name}"


def _same(left: Term, right: Term) -> bool:
    """Compare up to the names of bound variables; whether they are implicit does matter."""
    match left, right:
        case (Pi(_, a, x, how), Pi(_, b, y, also)) | (Lam(_, a, x, how), Lam(_, b, y, also)):
            return how == also and _same(a, b) and _same(x, y)
        case App(f, x), App(g, y):
            return _same(f, g) and _same(x, y)
        case (Decide(x), Decide(y)) | (Sorry(x), Sorry(y)):
            return _same(x, y)
        case _:
            return left == right


def _replay_failure(base: Environment, made: dict[str, Constant]) -> str | None:
    """Add the constants to the base again, through the kernel."""
    env = base
    for constant in made.values():
        try:
            if constant.value is None:
                env = env.assume(constant.name, constant.type)
            else:
                env = env.define(constant.name, constant.type, constant.value, is_theorem=constant.is_theorem)
        except KernelError as error:
            return f"(kernel) {constant.name}: {error}"
    return None
