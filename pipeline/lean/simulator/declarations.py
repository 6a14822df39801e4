"""Elaborate declarations: theorems, definitions, examples and axioms, and what is left of them to prove.

Whatever gets into the environment goes through the kernel first.
"""

from __future__ import annotations

from typing import Literal

from pipeline.lean.simulator.elaborator import Elaborator
from pipeline.lean.simulator.kernel import Environment, check
from pipeline.lean.simulator.meta import LeanError, Meta, outside
from pipeline.lean.simulator.printer import Printer
from pipeline.lean.simulator.scope import Scope, Session
from pipeline.lean.simulator.syntax import Binder, Stx
from pipeline.lean.simulator.tactic_parser import Parser
from pipeline.lean.simulator.terms import (
    FVar,
    MVar,
    Sorry,
    Term,
    constants,
    fvars,
    has_mvar,
    has_sorry,
    nodes,
)
from pipeline.lean.simulator.units import Command, Note, SectionFrame, SorryTarget


class Declarations:
    """The environment and the scope of one text, and how its declarations change them."""

    def __init__(
        self,
        env: Environment,
        *,
        module: str = "",
        distil: Literal["", "keep", "ignore", "units"] = "",
        deadline_s: float | None = None,
        sorry_text: str = "declaration uses `sorry`",
        records: bool = False,
    ) -> None:
        """Start with a fresh scope.

        `records`: commands keep a record of each tactic that ran, which costs more than running it.

        `distil`: what becomes of declarations with sorrys. "keep" and "ignore" make search targets, with the
        proof as it is or with the whole statement as the goal; "units" makes one target for each command.
        """
        self.env = env
        self.module = module
        self.scope = Scope()
        self.variables: tuple[Binder, ...] = ()
        self.frames: list[SectionFrame] = []
        self.distil = distil
        self.deadline_s = deadline_s
        self.sorry_text = sorry_text
        self.records = records
        self.sorried: set[str] = set()
        self.targets: list[SorryTarget] = []
        # name -> (line, column) of the declaration's start and end
        self.ranges: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
        self.noncomputable: set[str] = set()

    def _session(self, *, holes_for_sorry: bool = False) -> Session:
        return Session(self.scope, holes_for_sorry, deadline_s=self.deadline_s)

    def _elaborator(self, session: Session) -> Elaborator:
        return Elaborator(Meta(self.env), session)

    def declare(self, parser: Parser, command: Command, *, private: bool) -> None:
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
            self._axiom(name, name_stx, binders, type_stx, command)
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

    def _axiom(
        self, name: str, name_stx: Stx, binders: tuple[Binder, ...], type_stx: Stx, command: Command
    ) -> None:
        elaborator = self._elaborator(self._session())
        bound = elaborator.bind((*self.variables, *binders))
        statement = elaborator.finished(elaborator.type(type_stx))
        bound = _used(elaborator.meta, bound, statement, len(bound) - _count(binders))
        statement = elaborator.finished(elaborator.close(bound, statement, pi=True))
        self.env = self.env.assume(name, statement, module=self.module)
        command.new_constants.append(name)
        if has_sorry(statement):
            self._warn_of_sorry(name, name_stx, command)

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
        session = self._session(holes_for_sorry=self.distil in ("keep", "units"))
        session.invocations = command.invocations if self.records else None
        session.sorry_spans = command.sorries
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
        if self.distil in ("keep", "ignore") and self.sorried & {
            *constants(closed_type),
            *constants(closed_value),
        }:
            raise outside("`frontend.distil` of a declaration that mentions an earlier one with a sorry")
        if self._distilled(session, kind, meta, closed_type, closed_value, command):
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
            self._warn_of_sorry("" if kind == "example" else name, name_stx, command)

    def _warn_of_sorry(self, name: str, name_stx: Stx, command: Command) -> None:
        """Say that a declaration holds a sorry; an example has no name to remember."""
        if name:
            self.sorried.add(name)
        command.notes.append(Note("warning", self.sorry_text, name_stx.start, name_stx.end, "hasSorry"))

    def _distilled(
        self, session: Session, kind: str, meta: Meta, closed_type: Term, closed_value: Term, command: Command
    ) -> bool:
        """Record a search target; True when the value has holes where its sorrys were."""
        if session.holes_for_sorry and session.sorries:
            root = meta.hole(closed_type, (), is_goal=True)
            meta.assign(root, closed_value)
            # What a tactic that was undone left behind is in no part of the value.
            inside = {node.id for node in nodes(meta.instantiate(closed_value)) if isinstance(node, MVar)}
            kept = [
                (goal, span)
                for goal, span in zip(session.sorries, session.sorry_spans, strict=True)
                if goal.id in inside
            ]
            target = SorryTarget(
                meta.copy(),
                root,
                closed_type,
                tuple(goal for goal, _ in kept),
                tuple(span for _, span in kept),
            )
            if self.distil == "units":
                command.target = target
            elif kind != "example":
                self.targets.append(target)
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
