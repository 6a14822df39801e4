"""`frontend.track`: does a second text keep what a first one specifies?"""

from __future__ import annotations

from pipeline.lean.simulator.constants import kind_of
from pipeline.lean.simulator.frontend import Frontend
from pipeline.lean.simulator.kernel import Constant, Environment, KernelError
from pipeline.lean.simulator.terms import App, Decide, Lam, Pi, Sorry, Term, has_sorry


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
