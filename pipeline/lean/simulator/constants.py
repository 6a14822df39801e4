"""What kind of declaration each constant is, as `env.catalog` and `env.inspect` tell it."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.lean.simulator.kernel import Constant
from pipeline.lean.simulator.protocol import Json

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


def symbol(constant: Constant) -> str:
    """Return the name with its kind's letter in front."""
    return _LETTERS[kind_of(constant)] + constant.name


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
