"""The parser of terms and patterns, with Lean's rule that layout ends a term inside a tactic block.

Kinds of term nodes: ident, number, hole, synthetic (`?_`), sorry, prop, type, app (args[0] applied to the rest),
named (text := args[0]), fun (binders, args[0]), alternatives (`fun | …`, `match`: args are alt nodes; a match has
its discriminant in front), alt (pattern, body), forall, exists, arrow, op (text, two args), not, anonymous,
projection (text of args[0]), dotted (`.inl`), by (args[0] a block), show, have, ascription, explicit (`@f`),
nomatch, calc (args are calc_step nodes: relation, proof). `let` is read as `have`. Kinds of patterns: var,
wild, rfl, tuple, alternatives, typed; constructor patterns are app nodes.
Tactics are in `tactic_parser.py`, which extends this class.
"""

from __future__ import annotations

from pipeline.lean.simulator.syntax import Binder, ParseError, Stx, Token, plain_name, tokenize, words
from pipeline.lean.simulator.terms import Info

# Binding strengths: (of the operator, of its right operand); higher binds closer.
OPERATORS: dict[str, tuple[int, int]] = {
    "↔": (20, 21), "→": (25, 25), "∨": (30, 30), "∧": (35, 35),
    "=": (50, 51), "≠": (50, 51), "<": (50, 51), "≤": (50, 51), ">": (50, 51), "≥": (50, 51),
    "+": (65, 66), "-": (65, 66), "*": (70, 71), "/": (70, 71), "%": (70, 71), "^": (75, 75), "▸": (75, 75),
}  # fmt: skip
NON_ASSOCIATIVE = frozenset(words("↔ = ≠ < ≤ > ≥"))
_ASCII = {"->": "→", "<->": "↔", "/\\": "∧", "\\/": "∨", "<=": "≤", ">=": "≥", "$": "<|", "<-": "←"}
_BRACKETS: dict[str, tuple[str, Info]] = {
    "(": (")", "explicit"),
    "{": ("}", "implicit"),
    "⦃": ("⦄", "implicit"),
}
_ARGUMENTS = frozenset(words("( ⟨ _ ? @ Prop Type Sort sorry fun λ by ‹"))  # what an argument may begin with
MAX_DEPTH = 120


class TermParser:
    """A recursive-descent parser over one text's tokens."""

    def __init__(self, text: str, tokens: tuple[Token, ...] | None = None) -> None:
        self.text = text
        self.tokens = tokenize(text) if tokens is None else tokens
        self.index = 0
        self.column = -1  # a token that begins a line at or left of it ends the term
        self.depth = 0

    # ---- tokens

    def raw(self) -> Token:
        return self.tokens[self.index]

    def peek(self) -> Token:
        """Return the next token, or the end where the layout ends the term."""
        token = self.tokens[self.index]
        if token.first and token.column <= self.column:
            return Token("end", "", token.start, token.start, token.column, first=True, glued=False)
        return token

    def symbol(self) -> str:
        """Return the next token's text in its usual spelling, if it is no identifier or literal."""
        token = self.peek()
        return _ASCII.get(token.text, token.text) if token.kind in ("symbol", "keyword") else ""

    def advance(self) -> Token:
        token = self.tokens[self.index]
        self.index += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        if self.symbol() == text:
            self.index += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        if self.symbol() != text:
            raise self.unexpected(f"expected '{text}'")
        return self.advance()

    def unexpected(self, expected: str) -> ParseError:
        token = self.peek()
        if token.kind == "broken":
            return ParseError(token.text, token.start)
        what = "end of input" if token.kind == "end" else f"token '{token.text}'"
        return ParseError(f"unexpected {what}; {expected}", token.start)

    def last_end(self) -> int:
        return self.tokens[self.index - 1].end if self.index else 0

    def node(
        self, kind: str, start: int, *args: Stx, text: str = "", binders: tuple[Binder, ...] = ()
    ) -> Stx:
        return Stx(kind, start, self.last_end(), text, args, binders)

    def identifier(self) -> Stx:
        token = self.peek()
        if token.kind != "ident":
            raise self.unexpected("expected identifier")
        self.index += 1
        return Stx("ident", token.start, token.end, plain_name(token.text))

    # ---- terms

    def term(self, strength: int = 0) -> Stx:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ParseError("simulator: the text is nested too deeply", self.peek().start)
        try:
            return self._operators(strength)
        finally:
            self.depth -= 1

    def _operators(self, strength: int) -> Stx:
        start = self.peek().start
        left = self._leading()
        while True:
            op = self.symbol()
            if op == "<|" and strength == 0:
                self.advance()
                left = self.node("app", start, left, self.term())
                continue
            if op == "|>" and strength == 0:
                self.advance()
                left = self.node("app", start, self.term(1), left)
                continue
            power = OPERATORS.get(op)
            if power is None or power[0] < max(strength, 1):
                return left
            self.advance()
            right = self.term(power[1])
            left = self.node("arrow" if op == "→" else "op", start, left, right, text=op)
            if op in NON_ASSOCIATIVE:
                strength = (
                    max(strength, power[0] + 1)
                    if OPERATORS.get(self.symbol(), (0, 0))[0] == power[0]
                    else strength
                )

    def _leading(self) -> Stx:
        start, op = self.peek().start, self.symbol()
        match op:
            case "¬":
                self.advance()
                return self.node("not", start, self.term(40))
            case "∀" | "forall" | "∃":
                self.advance()
                binders = self.binders()
                self.expect(",")
                return self.node("exists" if op == "∃" else "forall", start, self.term(), binders=binders)
            case "(" | "{" | "⦃" if (binder := self._arrow_binder()) is not None:
                return self.node("forall", start, self.term(25), binders=(binder,))
        return self._application()

    def _arrow_binder(self) -> Binder | None:
        """Read `(h : p) →`; None, and nothing read, when it is something else."""
        before = self.index
        try:
            binder = self._bracketed_binder()
            if binder.type is not None and self.accept("→"):
                return binder
        except ParseError:
            pass
        self.index = before
        return None

    def _application(self) -> Stx:
        start = self.peek().start
        head = self._postfix()
        args: list[Stx] = []
        while self._starts_argument():
            args.append(self._argument())
        return self.node("app", start, head, *args) if args else head

    def _starts_argument(self) -> bool:
        token = self.peek()
        if token.kind in ("ident", "number", "string"):
            return True
        if self.symbol() == "." and not token.glued:
            return self.tokens[self.index + 1].kind == "ident" and self.tokens[self.index + 1].glued
        return self.symbol() in _ARGUMENTS

    def _argument(self) -> Stx:
        start = self.peek().start
        following = self.tokens[self.index + 1 : self.index + 3]
        if (
            self.symbol() == "("
            and [t.text for t in following[1:]] == [":="]
            and following[0].kind == "ident"
        ):
            self.advance()
            name = self.identifier()
            self.expect(":=")
            value = self.term()
            self.expect(")")
            return self.node("named", start, value, text=name.text)
        return self._postfix()

    def _postfix(self) -> Stx:
        start = self.peek().start
        atom = self._atom()
        while True:
            token = self.peek()
            if self.symbol() != "." or not token.glued or not self.tokens[self.index + 1].glued:
                return atom
            self.advance()
            field = self.advance()
            if field.kind not in ("ident", "number"):
                raise ParseError("expected a field name after '.'", field.start)
            atom = self.node("projection", start, atom, text=field.text)

    def _atom(self) -> Stx:  # noqa: C901 - one case per kind of atom
        token, start = self.peek(), self.peek().start
        if token.kind == "ident":
            return self.identifier()
        if token.kind == "number":
            self.advance()
            return self.node("number", start, text=token.text)
        match self.symbol():
            case "_":
                self.advance()
                return self.node("hole", start)
            case "sorry":
                self.advance()
                return self.node("sorry", start)
            case "Prop" | "Type" | "Sort" as sort:
                self.advance()
                return self.node(sort.lower(), start)
            case "?":
                self.advance()
                name = "" if self.accept("_") else self.identifier().text
                return self.node("synthetic", start, text=name)
            case "@":
                self.advance()
                return self.node("explicit", start, self.identifier())
            case ".":
                self.advance()
                return self.node("dotted", start, text=self.identifier().text)
            case "(":
                return self._parenthesised()
            case "⟨":
                self.advance()
                parts = self.sequence_until("⟩")
                return self.node("anonymous", start, *parts)
            case "‹":
                self.advance()
                inner = self.term()
                self.expect("›")
                return self.node("assumed", start, inner)
            case _ if token.kind == "string":
                self.advance()
                return self.node("string", start, text=token.text)
            case "fun" | "λ":
                self.advance()
                return self._fun(start)
            case "match":
                self.advance()
                subject = self.term()
                self.expect("with")
                return self.node("match", start, subject, *self._alternatives())
            case "nomatch":
                self.advance()
                return self.node("nomatch", start, self.term())
            case "by":
                self.advance()
                return self.node("by", start, self.block())
            case "show":
                return self._show()
            case "have" | "let":
                return self._have()
            case "calc":
                self.advance()
                return self.calc(start)
        raise self.unexpected("expected term")

    def block(self) -> Stx:
        """Read a tactic block; only the parser with tactics can."""
        raise self.unexpected("expected term")

    def calc(self, start: int) -> Stx:  # noqa: ARG002 - what it takes is settled here
        """Read the steps of a `calc`; only the parser with tactics can, because its layout is a block's."""
        raise self.unexpected("expected term")

    def _parenthesised(self) -> Stx:
        start = self.advance().start
        inner = self.term()
        if self.accept(":"):
            inner = self.node("ascription", start, inner, self.term())
        if self.symbol() != ")":
            raise self.unexpected("expected ')'")
        self.advance()
        # The parentheses count as part of the node's range, nothing else.
        return Stx(inner.kind, start, self.last_end(), inner.text, inner.args, inner.binders)

    def sequence_until(self, closing: str) -> list[Stx]:
        parts: list[Stx] = []
        while not self.accept(closing):
            parts.append(self.term())
            if not self.accept(",") and self.symbol() != closing:
                raise self.unexpected(f"expected ',' or '{closing}'")
        return parts

    def _fun(self, start: int) -> Stx:
        if self.symbol() == "|":
            return self.node("fun_match", start, *self._alternatives())
        binders = self.binders(patterns=True)
        if not self.accept("=>"):
            self.expect("↦")
        return self.node("fun", start, self.term(), binders=binders)

    def _alternatives(self) -> list[Stx]:
        found: list[Stx] = []
        while self.raw().text == "|":
            start = self.advance().start
            pattern = self.term()
            self.expect("=>")
            found.append(self.node("alt", start, pattern, self.term()))
        if not found:
            raise self.unexpected("expected '|'")
        return found

    def _show(self) -> Stx:
        start = self.advance().start
        kind = self.term()
        if self.symbol() == "by":
            return self.node("show", start, kind, self.term())
        self.expect("from")
        return self.node("show", start, kind, self.term())

    def _have(self) -> Stx:
        start = self.advance().start
        head, kind, value = self.have_parts()
        self.accept(";")
        return self.node("have", start, head, kind, value, self.term())

    def have_parts(self) -> tuple[Stx, Stx, Stx]:
        """Read `h : T := e`, `: T := e`, `h := e`, `⟨a, b⟩ := e`; a missing type is a hole, a name `this`."""
        token = self.peek()
        if self.symbol() == "⟨":
            head = self.term(max(OPERATORS["="][0], 51))
        elif token.kind == "ident":
            head = self.identifier()
        else:
            head = Stx("ident", token.start, token.start, "this")
        binders = self.binders(required=False) if self.symbol() in _BRACKETS else ()
        kind = self.term() if self.accept(":") else Stx("hole", token.start, token.start)
        if binders and kind.kind != "hole":
            kind = Stx("forall", kind.start, kind.end, "", (kind,), binders)
        if self.symbol() in (":=", "from"):
            self.advance()
            value = self.term()
            if binders:
                value = Stx("fun", value.start, value.end, "", (value,), binders)
        else:
            value = Stx("missing", token.start, token.start)
        return head, kind, value

    # ---- binders

    def binders(self, *, patterns: bool = False, required: bool = True) -> tuple[Binder, ...]:
        """Read binder groups, as after `∀`, `fun` and a declaration's name."""
        found: list[Binder] = []
        while True:
            token = self.peek()
            if self.symbol() in _BRACKETS:
                found.append(self._bracketed_binder())
            elif patterns and self.symbol() == "⟨":
                found.append(Binder((self._atom(),), None))
            elif (token.kind == "ident" or self.symbol() == "_") and required:
                names = [self._binder_name()]
                while self.peek().kind == "ident" or self.symbol() == "_":
                    names.append(self._binder_name())
                kind = self.term() if self.accept(":") else None
                found.append(Binder(tuple(names), kind))
            elif self.symbol() == "[":
                raise ParseError("simulator: outside its logic: instance binders", token.start)
            else:
                break
        if required and not found:
            raise self.unexpected("expected binder")
        return tuple(found)

    def _binder_name(self) -> Stx:
        if self.symbol() == "_":
            token = self.advance()
            return Stx("hole", token.start, token.end)
        return self.identifier()

    def _bracketed_binder(self) -> Binder:
        closing, info = _BRACKETS[self.symbol()]
        self.advance()
        names = [self._binder_name()]
        while self.peek().kind == "ident" or self.symbol() == "_":
            names.append(self._binder_name())
        kind = self.term() if self.accept(":") else None
        self.expect(closing)
        return Binder(tuple(names), kind, info)
