"""The parser of tactic blocks, on top of the parser of terms.

A tactic node's kind is `tactic` with its name in `text`; what `args` holds is said in `_SHAPES` and the functions
below. A block is a node of kind `block`. A word that no shape knows is "unknown tactic", as in Lean.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.lean.simulator.parser import TermParser
from pipeline.lean.simulator.syntax import ParseError, Stx, words

NONE, TERM, NAMES, PATTERNS, RULES, BLOCK, MAYBE_TERM = (
    "none",
    "term",
    "names",
    "patterns",
    "rules",
    "block",
    "maybe",
)
_SHAPES = {
    **dict.fromkeys(
        words(
            "assumption constructor left right trivial contradiction exfalso rfl decide omega skip tauto done symm"
            " and_intros simp_all nofun"
        ),
        NONE,
    ),
    **dict.fromkeys(words("exact apply refine exists change sleep"), TERM),
    **dict.fromkeys(words("intros rename_i clear revert subst unfold"), NAMES),
    **dict.fromkeys(("intro", "rintro"), PATTERNS),
    **dict.fromkeys(("rw", "rewrite", "simp", "simpa"), RULES),
    **dict.fromkeys(words("try all_goals any_goals repeat solve focus"), BLOCK),
    "by_contra": MAYBE_TERM,
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

    def calc(self, start: int) -> Stx:
        """Read `a = b := proof` and the steps below it, `_ = c := proof`, that stand in one column."""
        steps: list[Stx] = []
        outer, first = self.column, self.raw()
        following = first.column
        while self.raw().kind != "end":
            token = self.raw()
            if steps and not (token.first and token.column == following and token.text == "_"):
                break
            self.column = max(outer, token.column - 1)
            relation = self.term()
            self.expect(":=")
            self.column = max(outer, token.column)
            steps.append(self.node("calc_step", token.start, relation, self.term()))
            if len(steps) == 1 and self.raw().column > outer:
                following = self.raw().column
        self.column = outer
        if not steps:
            raise self.unexpected("expected a step of `calc`")
        return self.node("calc", start, *steps)

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
            case "maybe":
                return [self.term()] if self._starts_argument() else []
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
            case "block":
                return [self.block()]
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
        using = [self.term()] if self.accept("using") else []
        return [self.node("rules", start, *rules), self._location(), *using]

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

    def _read_suffices(self, start: int) -> Stx:
        token = self.peek()
        named = token.kind == "ident" and self.tokens[self.index + 1].text == ":"
        name = self.identifier() if named else Stx("ident", token.start, token.start, "this")
        if named:
            self.expect(":")
        kind = self.term()
        if self.symbol() == "by":
            return self.node("tactic", start, name, kind, self.term(), text="suffices")
        if self.accept("from"):
            return self.node("tactic", start, name, kind, self.term(), text="suffices")
        return self.node("tactic", start, name, kind, text="suffices")

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

    def _read_case(self, start: int) -> Stx:
        tag = self._binder_name()
        names = []
        while self.peek().kind == "ident" or self.symbol() == "_":
            names.append(self._binder_name())
        self.expect("=>")
        return self.node("tactic", start, tag, self.block(), *names, text="case")

    def _read_next(self, start: int) -> Stx:
        tag = Stx("hole", start, start)
        names = []
        while self.peek().kind == "ident" or self.symbol() == "_":
            names.append(self._binder_name())
        self.expect("=>")
        return self.node("tactic", start, tag, self.block(), *names, text="case")

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

    def _read_by_cases(self, start: int) -> Stx:
        named = self.peek().kind == "ident" and self.tokens[self.index + 1].text == ":"
        name = self.identifier() if named else Stx("ident", start, start, "h✝")
        if named:
            self.expect(":")
        return self.node("tactic", start, name, self.term(), text="by_cases")

    def _read_specialize(self, start: int) -> Stx:
        return self.node("tactic", start, self.term(), text="specialize")

    def _read_match(self, start: int) -> Stx:
        subject = self.term()
        self.expect("with")
        alternatives: list[Stx] = []
        while self.raw().text == "|":
            bar = self.advance()
            pattern = self.term()
            self.expect("=>")
            alternatives.append(self.node("tactic_alt", bar.start, pattern, self.block()))
        if not alternatives:
            raise self.unexpected("expected '|'")
        return self.node("tactic", start, subject, *alternatives, text="match")

    def _read_calc(self, start: int) -> Stx:
        return self.node("tactic", start, self.calc(start), text="exact")

    def _read_nomatch(self, start: int) -> Stx:
        return self.node("tactic", start, self.node("nomatch", start, self.term()), text="exact")


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
