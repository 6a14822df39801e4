"""Goal states and environments as files: plain JSON, checked again when they are read.

Only what is not imported is written. Internal names stay as they are, so that a state that is read in the same
process is the same state; in another process the counter moves past them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.lean.simulator import kernel, terms
from pipeline.lean.simulator.kernel import Constant, Environment, KernelError
from pipeline.lean.simulator.meta import Hole, Local, Meta, reserve_ids
from pipeline.lean.simulator.protocol import Json
from pipeline.lean.simulator.states import Fragment, State
from pipeline.lean.simulator.terms import MVar, Sorry, Term, has_mvar

# kind of term -> the constructor, and what its parts are: a term (t), a whole number (n), a word (s), a truth (b)
_KINDS: Mapping[str, tuple[Callable[..., Term], str]] = {
    "Sort": (terms.Sort, "n"),
    "BVar": (terms.BVar, "n"),
    "FVar": (terms.FVar, "n"),
    "MVar": (terms.MVar, "n"),
    "Const": (terms.Const, "s"),
    "App": (terms.App, "tt"),
    "Lam": (terms.Lam, "stts"),
    "Pi": (terms.Pi, "stts"),
    "Bind": (terms.Bind, "bnstts"),
    "Lit": (terms.Lit, "n"),
    "Text": (terms.Text, "s"),
    "Decide": (terms.Decide, "t"),
    "Sorry": (terms.Sorry, "t"),
}
_PARTS: Mapping[str, type] = {"n": int, "s": str, "b": bool}


class NotSaved(Exception):  # noqa: N818 - named by what happened
    """The text is no saved state or environment, or one that does not fit here."""


def _written(term: Term) -> list[object]:
    return [type(term).__name__, *(_written(p) if type(p).__name__ in _KINDS else p for p in term.parts)]


def _read(value: object) -> Term:
    kind, *parts = value if isinstance(value, list) and value else [None]
    make, shape = _KINDS.get(kind, (None, "")) if isinstance(kind, str) else (None, "")
    if make is None or len(parts) != len(shape):
        raise NotSaved("a term was expected")
    return make(*(_part(part, letter) for part, letter in zip(parts, shape, strict=True)))


def _part(value: object, letter: str) -> object:
    if letter == "t":
        return _read(value)
    if type(value) is not _PARTS[letter]:  # `True` is no number, and no literal is 0.5
        raise NotSaved(f"a part of a term is {value!r}")
    return value


def _goal_numbers(goals: Sequence[MVar]) -> list[int]:
    return [goal.id for goal in goals]


def fingerprint(env: Environment) -> str:
    """Return a digest of the environment's constants: states belong to one environment."""
    import hashlib  # of OpenSSL: few ask for it, and each start would load it

    digest = hashlib.sha256()
    for name, constant in sorted(env.table.items()):
        digest.update(f"{name}\0{constant.type!r}\0{constant.value!r}\0".encode())
    return digest.hexdigest()


def state_text(state: State) -> str:
    """Return the file for a goal state."""
    meta = state.meta
    shown: Json = {
        "simulator": "goal state",
        "environment": fingerprint(meta.env),
        "holes": [
            [
                number,
                _written(hole.type),
                [[local.fvar, local.name] for local in hole.context],
                hole.tag,
                hole.is_goal,
            ]
            for number, hole in meta.holes.items()
        ],
        "values": [[number, _written(value)] for number, value in meta.values.items()],
        "locals": [[number, _written(kind)] for number, kind in meta.locals.items()],
        "goals": _goal_numbers(state.goals),
        "root": state.root.id,
        "dormant": _goal_numbers(state.dormant),
        "parents": _goal_numbers(state.parents),
        "fragments": [
            [number, f.kind, None if f.previous is None else _written(f.previous)]
            for number, f in state.fragments.items()
        ],
        "brokenRoot": state.broken_root,
        "hidesRoot": state.hides_root,
    }
    return json.dumps(shown, ensure_ascii=False)


def read_state(text: str, env: Environment) -> State:
    """Return the goal state of a file, after the kernel has looked at it.

    Raises:
        NotSaved: the text is none, the state belongs to another environment, or the kernel refuses it.
    """
    table = _table(text, "goal state")
    if table["environment"] != fingerprint(env):
        raise NotSaved("the goal state belongs to another environment than the present one")
    meta = Meta(env)
    try:
        for number, kind, context, tag, is_goal in table["holes"]:
            locals_ = tuple(Local(fvar, name) for fvar, name in context)
            meta.holes[number] = Hole(_read(kind), locals_, tag, is_goal)
        meta.values = {number: _read(value) for number, value in table["values"]}
        meta.locals = {number: _read(kind) for number, kind in table["locals"]}
        state = State(
            meta,
            tuple(map(MVar, table["goals"])),
            MVar(table["root"]),
            tuple(map(MVar, table["dormant"])),
            tuple(map(MVar, table["parents"])),
            {
                number: Fragment(kind, None if previous is None else _read(previous))
                for number, kind, previous in table["fragments"]
            },
            broken_root=table["brokenRoot"],
            hides_root=table["hidesRoot"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotSaved(f"no goal state: {error!r}") from None
    if min([*meta.holes, *meta.locals]) < 1:
        raise NotSaved("no goal state: an internal name is no positive number")
    reserve_ids(max([*meta.holes, *meta.locals]))
    try:
        _look_at(state)
    except KeyError as error:
        raise NotSaved(f"no goal state: it mentions {error}, which is not in it") from None
    except KernelError as error:
        raise NotSaved(f"the kernel refuses the state: {error}") from None
    return state


def _look_at(state: State) -> None:
    """Have the kernel check a state's statement, and its proof where that is complete.

    What is still open is checked when it is closed. As everywhere, a root that `have` has broken is no proof.
    """
    meta = state.meta
    for goal in (*state.goals, *state.dormant, *state.parents):
        meta.holes[goal.id]
    root = meta.holes[state.root.id]
    if root.context:
        raise KernelError("the root has hypotheses")
    kernel.check(meta.env, Sorry(root.type), root.type)
    proof = meta.instantiate(state.root)
    if not (state.broken_root or has_mvar(proof)):
        kernel.check(meta.env, proof, root.type)


def environment_text(imports: Sequence[str], env: Environment) -> str:
    """Return the file for an environment: its imports, and the constants that come from none of them."""
    made = [
        [
            constant.name,
            _written(constant.type),
            None if constant.value is None else _written(constant.value),
            constant.is_theorem,
        ]
        for constant in env.table.values()
        if not constant.module
    ]
    return json.dumps(
        {"simulator": "environment", "imports": list(imports), "constants": made}, ensure_ascii=False
    )


def read_environment(text: str) -> tuple[list[str], list[Constant]]:
    """Return the imports and the constants of a file; the kernel has yet to look at them.

    A constant without a value is an axiom. What axioms the others rest on is not in the file: whoever adds them
    finds it anew.

    Raises:
        NotSaved: the text is no environment.
    """
    table = _table(text, "environment")
    try:
        made = [
            Constant(name, _read(kind), None if value is None else _read(value), is_theorem=is_theorem)
            for name, kind, value, is_theorem in table["constants"]
        ]
        return list(table["imports"]), made
    except (KeyError, TypeError, ValueError) as error:
        raise NotSaved(f"no environment: {error!r}") from None


def _table(text: str, kind: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotSaved(f"no JSON: {error}") from None
    if not isinstance(table, dict) or table.get("simulator") != kind:
        raise NotSaved(f"no {kind} of the simulator")
    return table
