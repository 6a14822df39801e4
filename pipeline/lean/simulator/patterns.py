"""Pattern matching on proofs: `match`, `fun ⟨a, b⟩`, `rcases`, `obtain`, all as one matrix of rows and columns.

A column is a value with its type; a row is one pattern for each column and what to do when it matches.
Patterns come in the syntax of terms (`Or.inl h`, `⟨a, b⟩`) and of rcases (`a | b`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pipeline.lean.simulator.elaboration import Elaborator
from pipeline.lean.simulator.meta import LeanError, outside
from pipeline.lean.simulator.scope import extend, without
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.terms import Const, FVar, Term, apply, spine

# value, its type, and whether it is a hypothesis made here (which may be renamed and dropped)
Column = tuple[Term, Term, bool]
_PARTS = {"And": ("left", "right"), "Iff": ("mp", "mpr")}
_HOLE = Stx("hole", 0, 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One alternative: a pattern for each column, and the continuation that builds the result."""

    patterns: tuple[Stx, ...]
    body: Callable[[], Term]


def match(elab: Elaborator, columns: Sequence[Column], rows: Sequence[Row], target: Term) -> Term:
    """Return a term of type `target` by cases on the columns; the rows' bodies run in extended contexts."""
    elab.session.burn()
    if not columns:
        if not rows:
            raise LeanError("missing cases")
        return rows[0].body()
    value, kind, fresh = columns[0]
    if rows and _is_name(rows[0].patterns[0]):
        return _bind(elab, columns, rows[0], target)
    shape = elab.meta.whnf(kind)
    head, args = spine(shape)
    name = head.name if isinstance(head, Const) else ""
    if rows and rows[0].patterns[0].kind == "pattern_typed":
        pattern = rows[0].patterns[0]
        if not elab.meta.unify(kind, elab.type(pattern.args[1])):
            raise LeanError("the pattern's type is not the value's", (pattern.start, pattern.end))
        return match(
            elab, columns, [replace(rows[0], patterns=(pattern.args[0], *rows[0].patterns[1:]))], target
        )
    if name in _PARTS:
        left, right = _PARTS[name]
        first, second = (
            apply(Const(f"{name}.{left}"), *args, value),
            apply(Const(f"{name}.{right}"), *args, value),
        )
        return _split_pair(elab, columns, rows, target, [(first, left), (second, right)])
    if name == "Exists":
        return _split_exists(elab, columns, rows, target, args)
    if name == "Or":
        return _split_or(elab, columns, rows, target, args)
    if name == "False":
        return apply(Const("False.elim"), target, value)
    if name == "True":
        _drop(elab, value, fresh)
        return match(elab, columns[1:], [replace(row, patterns=row.patterns[1:]) for row in rows], target)
    raise outside(f"cases on\n  {elab.show(kind)}")


def _is_name(pattern: Stx) -> bool:
    """Say whether a pattern only names the value (a constructor without arguments does not)."""
    if pattern.kind == "hole":
        return True
    return pattern.kind == "ident" and pattern.text not in ("rfl", "True.intro", "trivial")


def _bind(elab: Elaborator, columns: Sequence[Column], row: Row, target: Term) -> Term:
    value, kind, fresh = columns[0]
    pattern = row.patterns[0]
    rest = replace(row, patterns=row.patterns[1:])
    if pattern.kind == "hole":
        return match(elab, columns[1:], [rest], target)
    outer = elab.context
    if fresh and isinstance(value, FVar):
        elab.context = extend(
            tuple(local for local in outer if local.fvar != value.id), value.id, pattern.text
        )
        result = match(elab, columns[1:], [rest], target)
    else:
        local = elab.with_local(pattern.text, kind)
        inner = match(elab, columns[1:], [rest], target)
        result = apply(elab.meta.bind(local, pattern.text, inner), value)
    elab.context = outer
    return result


def _drop(elab: Elaborator, value: Term, fresh: bool) -> None:
    if fresh and isinstance(value, FVar):
        elab.context = without(elab.meta, elab.context, value.id)


def _split_pair(
    elab: Elaborator,
    columns: Sequence[Column],
    rows: Sequence[Row],
    target: Term,
    parts: list[tuple[Term, str]],
) -> Term:
    value, _, fresh = columns[0]
    outer = elab.context
    _drop(elab, value, fresh)
    locals_: list[tuple[FVar, str, Term]] = []
    for part, name in parts:
        kind = elab.meta.instantiate(elab.meta.infer(part))
        locals_.append((elab.with_local(f"{name}✝", kind), name, part))
    inner_columns = [(local, elab.meta.locals[local.id], True) for local, _, _ in locals_]
    inner = match(elab, [*inner_columns, *columns[1:]], [_open_tuple(row, 2) for row in rows], target)
    elab.context = outer
    for local, name, _ in reversed(locals_):
        inner = elab.meta.bind(local, name, inner)
    return apply(inner, *(part for _, _, part in locals_))


def _split_exists(
    elab: Elaborator, columns: Sequence[Column], rows: Sequence[Row], target: Term, args: list[Term]
) -> Term:
    value, _, fresh = columns[0]
    outer = elab.context
    _drop(elab, value, fresh)
    witness = elab.with_local("w✝", args[0])
    fact_kind = elab.meta.shallow(apply(args[1], witness))
    fact = elab.with_local("h✝", fact_kind)
    inner_columns: list[Column] = [(witness, args[0], True), (fact, fact_kind, True)]
    inner = match(elab, [*inner_columns, *columns[1:]], [_open_tuple(row, 2) for row in rows], target)
    elab.context = outer
    inner = elab.meta.bind(witness, "w", elab.meta.bind(fact, "h", inner))
    return apply(Const("Exists.elim"), args[0], args[1], target, value, inner)


def _open_tuple(row: Row, count: int) -> Row:
    """Replace the first pattern by its parts: ⟨a, b, c⟩ is ⟨a, ⟨b, c⟩⟩."""
    pattern, *rest = row.patterns
    if pattern.kind in ("hole", "ident"):
        if pattern.kind == "ident" and pattern.text != "rfl":
            raise outside(
                "a name for a value that another alternative takes apart", (pattern.start, pattern.end)
            )
        parts: tuple[Stx, ...] = (_HOLE,) * count
    elif pattern.kind in ("anonymous", "pattern_tuple"):
        parts = pattern.args
    elif pattern.kind == "app" and pattern.args[0].kind in ("ident", "dotted"):
        parts = pattern.args[1:]
    else:
        raise LeanError("invalid pattern: a tuple is expected", (pattern.start, pattern.end))
    if len(parts) > count:
        parts = (*parts[: count - 1], Stx(pattern.kind, pattern.start, pattern.end, "", parts[count - 1 :]))
    if len(parts) < count:
        parts = (*parts, *(_HOLE,) * (count - len(parts)))
    return replace(row, patterns=(*parts, *rest))


def _split_or(
    elab: Elaborator, columns: Sequence[Column], rows: Sequence[Row], target: Term, args: list[Term]
) -> Term:
    value, _, fresh = columns[0]
    outer = elab.context
    branches: list[Term] = []
    for side, kind in zip(("inl", "inr"), args, strict=True):
        chosen = [opened for row in rows if (opened := _open_side(row, side)) is not None]
        if not chosen:
            raise LeanError(f"missing cases:\nOr.{side} _")
        elab.context = outer
        _drop(elab, value, fresh)
        local = elab.with_local("h✝", kind)
        inner = match(elab, [(local, kind, True), *columns[1:]], chosen, target)
        branches.append(elab.meta.bind(local, "h", inner))
    elab.context = outer
    return apply(Const("Or.elim"), *args, target, value, *branches)


def _open_side(row: Row, side: str) -> Row | None:
    pattern, *rest = row.patterns
    match pattern.kind:
        case "hole":
            inner = _HOLE
        case "pattern_or":
            left, *others = pattern.args
            right = others[0] if len(others) == 1 else replace(pattern, args=tuple(others))
            inner = left if side == "inl" else right
        case "pattern_tuple" if len(pattern.args) == 1:
            return _open_side(replace(row, patterns=(pattern.args[0], *rest)), side)
        case "app" if len(pattern.args) == 2 and pattern.args[0].text.rpartition(".")[2] in ("inl", "inr"):
            if pattern.args[0].text.rpartition(".")[2] != side:
                return None
            inner = pattern.args[1]
        case _:
            raise LeanError("invalid pattern: an alternative is expected", (pattern.start, pattern.end))
    return replace(row, patterns=(inner, *rest))
