"""The parser of terms and patterns, with Lean's rule that layout ends a term inside a tactic block.

Kinds of term nodes: ident, number, hole, synthetic (`?_`), sorry, prop, type, app (args[0] applied to the rest),
named (text := args[0]), fun (binders, args[0]), alternatives (`fun | …`, `match`: args are alt nodes; a match has
its discriminant in front), alt (pattern, body), forall, exists, arrow, op (text, two args), not, anonymous,
projection (text of args[0]), dotted (`.inl`), by (args[0] a block), show, have, ascription, explicit (`@f`),
nomatch, calc (args are calc_step nodes: relation, proof). `let` is read as `have`. Kinds of patterns: var,
wild, rfl, tuple, alternatives, typed; constructor patterns are app nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.lean.simulator.terms import Binder, Info, ParseError, Stx, Token, plain_name, tokenize, words

# Binding strengths: (of the operator, of its right operand); higher binds closer.
OPERATORS: dict[str, tuple[int, int]] = {
    "↔": (20, 21), "→": (25, 25), "∨": (30, 30), "∧": (35, 35),
    "=": (50, 51), "≠": (50, 51), "<": (50, 51), "≤": (50, 51), ">": (50, 51), "≥": (50, 51),
    "+": (65, 66), "-": (65, 66), "*": (70, 71), "/": (70, 71), "%": (70, 71), "^": (75, 75),
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
            case "by":
                self.advance()
                return self.node("by", start, self.block())
        raise self.unexpected("expected term")

    def block(self) -> Stx:
        """Read a tactic block; only the parser with tactics can."""
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
        binders = self.binders(patterns=True)
        if not self.accept("=>"):
            self.expect("↦")
        return self.node("fun", start, self.term(), binders=binders)

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


# ---- The parser of tactic blocks, on top of the parser of terms
# A tactic node's kind is `tactic` with its name in `text`; what `args` holds is said in `_SHAPES` and the functions
# below. A block is a node of kind `block`. A word that no shape knows is "unknown tactic", as in Lean.


NONE, TERM, NAMES, PATTERNS, RULES = "none", "term", "names", "patterns", "rules"
_SHAPES = {
    **dict.fromkeys(
        words(
            "assumption constructor left right trivial contradiction exfalso rfl decide omega skip tauto simp_all"
        ),
        NONE,
    ),
    **dict.fromkeys(words("exact apply refine change"), TERM),
    **dict.fromkeys(words("intros revert subst"), NAMES),
    **dict.fromkeys(("intro", "rintro"), PATTERNS),
    **dict.fromkeys(("rw", "rewrite", "simp"), RULES),
}


class Parser(TermParser):
    """Terms and tactics."""

    def block(self) -> Stx:
        """Read `tac; tac` or one tactic per line at one column."""
        token = self.peek()
        if token.kind == "end":
            raise self.unexpected("expected tactic")
        outer, self.column = self.column, token.column
        # The first token begins the block whatever its column, so look at it raw once.
        tactics = [self._chain(first=True)]
        while True:
            raw = self.raw()
            if raw.text == ";" and raw.kind == "symbol":
                self.advance()
                if self.raw().kind == "end":
                    break
                tactics.append(self._chain(first=True))
            elif raw.first and raw.column == self.column and raw.kind != "end" and not self._closes(raw.text):
                tactics.append(self._chain(first=True))
            else:
                break
        self.column = outer
        return self.node("block", token.start, *tactics)

    def one_tactic(self) -> Stx:
        """Read the first tactic of a text, up to the next line at its column, and leave the rest."""
        outer, self.column = self.column, self.peek().column
        tactic = self._chain(first=True)
        self.column = outer
        return tactic

    @staticmethod
    def _closes(text: str) -> bool:
        return text in (")", "⟩", "|", "]", "<;>")

    def _chain(self, *, first: bool) -> Stx:
        start = self.raw().start
        left = self._tactic(first=first)
        while self.raw().text == "<;>":
            self.advance()
            left = self.node("then_all", start, left, self._tactic(first=False))
        return left

    def _tactic(self, *, first: bool) -> Stx:
        token = self.raw() if first else self.peek()
        start, word = token.start, token.text
        self.depth += 1
        try:
            if self.depth > 100:
                raise ParseError("simulator: the tactics are nested too deeply", start)
            if word in ("·", "."):
                self.index += 1
                return self.node("focus", start, self._inner_block(token.column))
            if word == "(":
                self.index += 1
                inner = self.block()
                self.expect(")")
                return self.node("group", start, inner)
            if token.kind == "end":
                raise ParseError("unexpected end of input; expected tactic", start)
            shape = _SHAPES.get(word)
            special = getattr(self, f"_read_{word}", None) if shape is None and word.isidentifier() else None
            if shape is None and special is None:
                raise ParseError(
                    f"unknown tactic '{word}'" if token.kind == "ident" else "unknown tactic", start
                )
            self.index += 1
            if special is not None:
                reader: Callable[[int], Stx] = special
                return reader(start)
            return self.node("tactic", start, *self._shaped(shape or NONE), text=word)
        finally:
            self.depth -= 1

    def _inner_block(self, column: int) -> Stx:
        outer, self.column = self.column, max(self.column, column)
        try:
            return self.block()
        finally:
            self.column = outer

    def _shaped(self, shape: str) -> list[Stx]:
        match shape:
            case "term":
                return [self.term()]
            case "names":
                names = []
                while self.peek().kind == "ident" or self.symbol() == "_":
                    names.append(self._binder_name())
                return names
            case "patterns":
                patterns = []
                while self.peek().kind == "ident" or self.symbol() in ("_", "⟨", "(", "rfl"):
                    patterns.append(self._atomic_pattern())
                return patterns
            case "rules":
                return self._rules()
            case _:
                return []

    # ---- rewriting rules and places

    def _rules(self) -> list[Stx]:
        start = self.peek().start
        only = self.peek().text == "only"
        if only:
            self.advance()
        rules: list[Stx] = []
        if self.accept("["):
            while not self.accept("]"):
                at = self.peek().start
                if self.accept("*"):
                    rules.append(self.node("star", at))
                else:
                    back = self.accept("←")
                    rules.append(self.node("back" if back else "rule", at, self.term()))
                if not self.accept(",") and self.symbol() != "]":
                    raise self.unexpected("expected ',' or ']'")
        return [self.node("rules", start, *rules), self._location()]

    def _location(self) -> Stx:
        start = self.peek().start
        if not self.accept("at"):
            return Stx("location", start, start)
        names: list[Stx] = []
        while self.peek().kind == "ident" or self.symbol() in ("⊢", "*"):
            token = self.advance()
            names.append(Stx("ident", token.start, token.end, token.text))
        if not names:
            raise self.unexpected("expected a hypothesis")
        return self.node("location", start, *names)

    # ---- patterns

    def pattern(self) -> Stx:
        """Read `⟨a, b⟩`, `a | b`, `_`, `rfl`, a name."""
        start = self.peek().start
        parts = [self._atomic_pattern()]
        while self.raw().text == "|":
            self.advance()
            parts.append(self._atomic_pattern())
        return parts[0] if len(parts) == 1 else self.node("pattern_or", start, *parts)

    def _atomic_pattern(self) -> Stx:
        start = self.peek().start
        if self.accept("⟨"):
            parts: list[Stx] = []
            while not self.accept("⟩"):
                parts.append(self.pattern())
                if not self.accept(",") and self.symbol() != "⟩":
                    raise self.unexpected("expected ',' or '⟩'")
            return self.node("pattern_tuple", start, *parts)
        if self.accept("("):
            inner = self.pattern()
            if self.accept(":"):
                inner = self.node("pattern_typed", start, inner, self.term())
            self.expect(")")
            return inner
        if self.accept("_") or self.accept("-"):
            return self.node("hole", start)
        return self.identifier()

    # ---- tactics with a grammar of their own

    def _read_sorry(self, start: int) -> Stx:
        return self.node("tactic", start, text="sorry")

    _read_admit = _read_sorry

    def _read_have(self, start: int) -> Stx:
        return self.node("tactic", start, *self.have_parts(), text="have")

    def _read_show(self, start: int) -> Stx:
        kind = self.term()
        if self.accept("from"):
            return self.node("tactic", start, kind, self.term(), text="show")
        if self.symbol() == "by":
            return self.node("tactic", start, kind, self.term(), text="show")
        return self.node("tactic", start, kind, text="show")

    def _read_obtain(self, start: int) -> Stx:
        pattern = self.pattern()
        if self.accept(":"):
            pattern = self.node("pattern_typed", start, pattern, self.term())
        self.expect(":=")
        return self.node("tactic", start, self.term(), pattern, text="rcases")

    def _read_rcases(self, start: int) -> Stx:
        subject = self.term()
        pattern = self.pattern() if self.accept("with") else Stx("hole", start, start)
        return self.node("tactic", start, subject, pattern, text="rcases")

    def _read_cases(self, start: int) -> Stx:
        return self._eliminate(start, "cases")

    def _read_induction(self, start: int) -> Stx:
        return self._eliminate(start, "induction")

    def _eliminate(self, start: int, word: str) -> Stx:
        subject = self.term()
        alternatives: list[Stx] = []
        if self.accept("with"):
            while self.raw().text == "|":
                alternatives.append(self._case_alternative())
            if not alternatives:
                raise self.unexpected("expected '|'")
        return self.node("tactic", start, subject, *alternatives, text=word)

    def _case_alternative(self) -> Stx:
        bar = self.advance()
        name = Stx("ident", bar.start, bar.start, "_") if self.accept("_") else self.identifier()
        names = []
        while self.peek().kind == "ident" or self.symbol() == "_":
            names.append(self._binder_name())
        self.expect("=>")
        return self.node("alternative", bar.start, self.block(), *names, text=name.text)

    def _read_first(self, start: int) -> Stx:
        choices: list[Stx] = []
        while self.raw().text == "|":
            self.advance()
            choices.append(self._choice())
        if not choices:
            raise self.unexpected("expected '|'")
        return self.node("tactic", start, *choices, text="first")

    def _choice(self) -> Stx:
        start = self.raw().start
        tactics = [self._chain(first=True)]
        while self.raw().text == ";":
            self.advance()
            tactics.append(self._chain(first=True))
        return self.node("block", start, *tactics)


def parse_tactics(text: str) -> Stx:
    """Parse a whole text as one tactic block.

    Raises:
        ParseError: it is none; text left over is an error too.
    """
    parser = Parser(text)
    parser.column = -1
    block = parser.block()
    if parser.raw().kind != "end":
        raise ParseError("Cannot parse as one tactic block", parser.raw().start)
    return block


def parse_term(text: str) -> Stx:
    """Parse a whole text as one term."""
    parser = Parser(text)
    term = parser.term()
    if parser.raw().kind != "end":
        raise parser.unexpected("expected end of input")
    return term
