"""Elaborate a file's commands: what `frontend.process` and `frontend.distil` do.

One `Command` per top-level command, with its range, its messages and the constants it made. Errors do not stop a
file: the next command goes on with the environment as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from pipeline.lean.simulator.declarations import Declarations
from pipeline.lean.simulator.kernel import Exhausted, KernelError
from pipeline.lean.simulator.meta import LeanError, outside
from pipeline.lean.simulator.syntax import COMMANDS, ParseError, Token, all_tokens
from pipeline.lean.simulator.tactic_parser import Parser
from pipeline.lean.simulator.units import Command, Note, SectionFrame

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


def _starts_command(token: Token) -> bool:
    if token.kind in ("end", "doc"):
        return True
    if token.kind == "keyword":
        return token.text in COMMANDS or token.text.startswith("#")
    return token.text == "@["
