"""Elaborate a file's commands: what `frontend.process` and `frontend.distil` do.

One `Unit` per top-level command, with its range in UTF-8 bytes, its messages and the constants it made. Errors
do not stop a file: the next command goes on with the environment as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from pipeline.lean.simulator.elaborator import Elaborator
from pipeline.lean.simulator.kernel import Constant, Environment, KernelError, check
from pipeline.lean.simulator.meta import LeanError, Meta, outside
from pipeline.lean.simulator.printer import Printer
from pipeline.lean.simulator.scope import Scope, Session
from pipeline.lean.simulator.syntax import COMMANDS, Binder, ParseError, Stx, Token, plain_name, tokenize
from pipeline.lean.simulator.tactic_parser import Parser
from pipeline.lean.simulator.terms import FVar, MVar, Sorry, Term, fvars, has_mvar, has_sorry, nodes

_MODIFIERS = frozenset(
    ("private", "protected", "noncomputable", "unsafe", "partial", "local", "scoped", "public")
)
_DECLARATIONS = frozenset(("theorem", "lemma", "def", "abbrev", "example", "axiom"))
Severity = Literal["information", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Note:
    """One message, with its range in code points of the file."""

    severity: Severity
    text: str
    start: int
    end: int
    kind: str = "[anonymous]"


@dataclass(slots=True)
class Command:
    """What became of one top-level command; `start`/`end` are code points."""

    start: int
    end: int = 0
    notes: list[Note] = field(default_factory=list)
    new_constants: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SectionFrame:
    """What `end` gives back."""

    kind: Literal["namespace", "section"]
    name: str
    scope: Scope
    variables: tuple[Binder, ...]


@dataclass(frozen=True, slots=True)
class SorryTarget:
    """A declaration with sorrys, ready for search: its goals, in a `Meta` whose `root` they fill."""

    meta: Meta
    root: MVar
    root_type: Term
    goals: tuple[MVar, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """The imports of a file, and where its commands start."""

    imports: tuple[str, ...]
    end: int


def read_header(text: str) -> Header:
    """Read the imports; a module docstring does not belong to the header."""
    tokens = tokenize(text)
    index = 0
    imports: list[str] = []
    while True:
        start = index
        while tokens[index].text in ("public", "meta"):
            index += 1
        if tokens[index].text != "import":
            return Header(tuple(imports), tokens[start].start)
        index += 1
        while tokens[index].text in ("all", "runtime"):
            index += 1
        if tokens[index].kind != "ident":
            raise ParseError("expected a module name", tokens[index].start)
        imports.append(plain_name(tokens[index].text))
        index += 1


class Frontend:
    """Elaborates the commands of one text."""

    def __init__(
        self,
        env: Environment,
        *,
        module: str = "",
        distil: Literal["", "keep", "ignore"] = "",
        deadline_s: float | None = None,
    ) -> None:
        self.env = env
        self.module = module
        self.scope = Scope()
        self.variables: tuple[Binder, ...] = ()
        self.frames: list[SectionFrame] = []
        self.distil = distil
        self.deadline_s = deadline_s
        self.targets: list[SorryTarget] = []

    def run(self, text: str, *, start: int = 0) -> list[Command]:
        """Process all commands from the code point `start` on."""
        try:
            tokens = tuple(token for token in tokenize(text) if token.start >= start)
        except ParseError as error:
            note = Note("error", error.message, error.offset, min(error.offset + 1, len(text)))
            return [Command(start, len(text), [note])]
        commands: list[Command] = []
        index = 0
        while tokens[index].kind != "end":
            command = Command(tokens[index].start)
            index = self._one(text, tokens, index, command)
            commands.append(command)
        for command, following in itertools.pairwise(commands):
            command.end = following.start
        if commands:
            commands[-1].end = len(text)
        return commands

    def _one(self, text: str, tokens: tuple[Token, ...], index: int, command: Command) -> int:
        parser = Parser(text, tokens)
        parser.index = index
        try:
            self._command(parser, command)
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
        except RecursionError:
            text_ = "maximum recursion depth has been reached (simulator)"
            command.notes.append(Note("error", text_, command.start, command.start + 1))
        position = max(parser.index, index + 1) if parser.index == index else parser.index
        while not _starts_command(tokens[position]):
            position += 1
        return position

    # ---- commands

    def _command(self, parser: Parser, command: Command) -> None:
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
            self._declaration(parser, command, private="private" in modifiers)
            return
        method: Callable[[Parser, Command], None] | None = (
            getattr(self, f"_cmd_{token.text.lstrip('#')}", None)
            if token.text.lstrip("#").isidentifier()
            else None
        )
        if method is None:
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

    def _cmd_check(self, parser: Parser, command: Command) -> None:
        elaborator = self._elaborator(self._session())
        stx = parser.term()
        term = elaborator.finished(elaborator.term(stx, None), allow_holes=True)
        shown = f"{elaborator.show(term)} : {elaborator.show(elaborator.meta.infer(term))}"
        command.notes.append(Note("information", shown, command.start, parser.last_end()))

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

    def _session(self, *, holes_for_sorry: bool = False) -> Session:
        return Session(self.scope, holes_for_sorry, deadline_s=self.deadline_s)

    def _elaborator(self, session: Session) -> Elaborator:
        return Elaborator(Meta(self.env), session)

    # ---- declarations

    def _declaration(self, parser: Parser, command: Command, *, private: bool) -> None:
        keyword = parser.advance()
        kind = keyword.text
        anonymous = Stx("ident", keyword.start, keyword.end, "_example")
        name_stx = anonymous if kind == "example" else parser.identifier()
        binders = parser.binders(required=False)
        type_stx = parser.term() if parser.accept(":") else None
        value_stx: Stx | None = None
        if kind != "axiom":
            if parser.raw().text == "|":
                raise outside("declarations by equations", (parser.raw().start, parser.raw().end))
            parser.expect(":=")
            value_stx = parser.term()
            if parser.raw().text in ("where", "termination_by", "decreasing_by"):
                raise outside(f"`{parser.raw().text}`", (parser.raw().start, parser.raw().end))
        elif type_stx is None:
            raise parser.unexpected("expected ':'")
        name = self._full_name(name_stx.text, private=private)
        if kind != "example" and self.env.get(name) is not None:
            raise LeanError(f"'{name}' has already been declared", (name_stx.start, name_stx.end))
        if kind == "axiom":
            assert type_stx is not None
            self._axiom(name, binders, type_stx, command)
            return
        assert value_stx is not None
        self._define(kind, name, name_stx, binders, type_stx, value_stx, command)

    def _full_name(self, name: str, *, private: bool) -> str:
        if name.startswith("_root_."):
            return name.removeprefix("_root_.")
        full = f"{self.scope.namespace}.{name}".lstrip(".")
        # Lean mangles private names with the module; inside one file the plain name is what can be used.
        del private
        return full

    def _axiom(self, name: str, binders: tuple[Binder, ...], type_stx: Stx, command: Command) -> None:
        elaborator = self._elaborator(self._session())
        bound = elaborator.bind((*self.variables, *binders))
        statement = elaborator.finished(elaborator.type(type_stx))
        bound = _used(elaborator.meta, bound, statement, len(bound) - _count(binders))
        statement = elaborator.finished(elaborator.close(bound, statement, pi=True))
        check(self.env, Sorry(statement), statement)
        self.env = self.env.with_builtin(
            Constant(name, statement, is_theorem=True, axioms=frozenset((name,)), module=self.module)
        )
        command.new_constants.append(name)

    def _define(
        self,
        kind: str,
        name: str,
        name_stx: Stx,
        binders: tuple[Binder, ...],
        type_stx: Stx | None,
        value_stx: Stx,
        command: Command,
    ) -> None:
        session = self._session(holes_for_sorry=self.distil == "keep")
        elaborator = self._elaborator(session)
        meta = elaborator.meta
        bound = elaborator.bind((*self.variables, *binders))
        own = len(bound) - _count(binders)
        if type_stx is None:
            if kind in ("theorem", "lemma"):
                raise LeanError("a theorem needs its statement", (name_stx.start, name_stx.end))
            value = elaborator.finished(
                elaborator.term(value_stx, None), span=(value_stx.start, value_stx.end)
            )
            statement = meta.instantiate(meta.infer(value))
        else:
            statement = elaborator.finished(elaborator.type(type_stx), span=(type_stx.start, type_stx.end))
            is_theorem = kind in ("theorem", "lemma") or (kind == "example" and meta.is_prop(statement))
            if is_theorem and own:
                # A theorem's variables are those of its statement: the proof cannot pull in more.
                bound = _used(meta, bound, statement, own)
                kept = {local.id for _, local, _ in bound}
                elaborator.context = tuple(local for local in elaborator.context if local.fvar in kept)
                own = len(bound) - _count(binders)
            value = elaborator.term(value_stx, statement)
            value = elaborator.finished(value, span=(value_stx.start, value_stx.end))
        if kind in ("theorem", "lemma") and not meta.is_prop(statement):
            shown = Printer(meta, elaborator.context).show(statement)
            raise LeanError(f"type of theorem '{name}' is not a proposition\n  {shown}")
        if not (kind in ("theorem", "lemma") and own):
            bound = _used(meta, bound, (statement, value), own)
        closed_type = elaborator.finished(elaborator.close(bound, statement, pi=True))
        if has_mvar(closed_type):
            raise LeanError("failed to infer the statement's type", (name_stx.start, name_stx.end))
        is_prop = meta.is_prop(closed_type)
        closed_value = meta.instantiate(elaborator.close(bound, value, pi=False))
        if self._distilled(session, kind, meta, closed_type, closed_value):
            closed_value = _with_sorrys(meta, closed_value)
        uses_sorry = has_sorry(closed_value) or has_sorry(closed_type)
        if kind == "example":
            check(self.env, closed_value, closed_type)
        else:
            self.env = self.env.define(
                name, closed_type, closed_value, is_theorem=is_prop, module=self.module
            )
            command.new_constants.append(name)
        if uses_sorry:
            text = "declaration uses `sorry`"
            command.notes.append(Note("warning", text, name_stx.start, name_stx.end, "hasSorry"))

    def _distilled(
        self, session: Session, kind: str, meta: Meta, closed_type: Term, closed_value: Term
    ) -> bool:
        """Record a search target; True when the value has holes where its sorrys were."""
        if self.distil == "keep" and session.sorries:
            if kind != "example":
                root = meta.hole(closed_type, (), is_goal=True)
                meta.assign(root, closed_value)
                goals = tuple(goal for goal in session.sorries if goal.id not in meta.values)
                twin = meta.copy()
                self.targets.append(SorryTarget(twin, root, closed_type, goals))
            return True
        if self.distil == "ignore" and has_sorry(closed_value) and kind != "example":
            fresh = Meta(self.env)
            root = fresh.hole(closed_type, (), is_goal=True)
            self.targets.append(SorryTarget(fresh, root, closed_type, (root,)))
        return False


def _with_sorrys(meta: Meta, value: Term) -> Term:
    """Fill the holes that stand for sorrys with sorry, so that later declarations can use this one."""
    twin = meta.copy()
    while has_mvar(value):
        for node in list(nodes(value)):
            if isinstance(node, MVar) and node.id not in twin.values:
                twin.assign(node, Sorry(twin.instantiate(twin.holes[node.id].type)))
        value = twin.instantiate(value)
    return value


def _starts_command(token: Token) -> bool:
    if token.kind in ("end", "doc"):
        return True
    if token.kind == "keyword":
        return token.text in COMMANDS or token.text.startswith("#")
    return token.text == "@["


def _count(binders: tuple[Binder, ...]) -> int:
    return sum(len(binder.names) for binder in binders)


def _used(
    meta: Meta, bound: list[tuple[str, FVar, bool]], terms: Term | tuple[Term, ...], variables: int
) -> list[tuple[str, FVar, bool]]:
    """Drop the section variables (the first `variables`) that nothing mentions."""
    wanted: set[int] = set()
    for term in terms if isinstance(terms, tuple) else (terms,):
        wanted |= fvars(meta.instantiate(term))
    for index, (_, local, _) in reversed(list(enumerate(bound))):
        if index >= variables or local.id in wanted:
            wanted |= {local.id} | fvars(meta.instantiate(meta.locals[local.id]))
    return [entry for index, entry in enumerate(bound) if index >= variables or entry[1].id in wanted]


def byte_offsets(text: str) -> Callable[[int], int]:
    """Return the function from code points to UTF-8 bytes."""
    if text.isascii():
        return lambda offset: offset
    table = [0]
    for char in text:
        table.append(table[-1] + len(char.encode("utf-8", "surrogatepass")))
    return lambda offset: table[offset]


def line_starts(text: str) -> Iterator[int]:
    """Yield the code points where lines begin."""
    yield 0
    for index, char in enumerate(text):
        if char == "\n":
            yield index + 1
