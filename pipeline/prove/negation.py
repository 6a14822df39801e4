"""Whether a theorem with a sorry is false as stated: its negation is tried, within a small budget.

The statement is read off the goal, as Lean prints it, and what Lean prints is not always what it reads. So Lean has to
agree twice: that the theorem, sorry and all, is a proof of what was read; and in the end that the theorem and the proof
of the negation together give False. The theorem itself is not there while its negation is searched for. A proof counts
only where Lean says what it rests on, and that is nothing but what the gate lets a proof rest on: from another sorry,
or from an axiom of the project, anything follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pipeline.gate.lake_checks import ALLOWED_AXIOMS, read_axioms
from pipeline.lean.client.messages import Goal, Unit
from pipeline.lean.client.repl import ReplDied, ReplRefused
from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Script
from pipeline.prove.proposing import Proposer
from pipeline.prove.scoring import Scoring
from pipeline.prove.search import Budget, Search

NODES, CALLS, SHARE_OF_SECONDS, MOST_SECONDS = 16, 200, 0.2, 10.0
"""The budget: so many states and tactics, and this share of the sorry's own seconds."""

_NAME = "unsorry_negation"
_PRINTED = re.compile(r"\A'(.+)' d(?:epends on|oes not depend on any) axioms")
_WRITABLE = re.compile(r"[^\W\d][\w'!?₀-₉]*")


class Stated(Protocol):
    """What is asked of a declaration: `declaration.Declaration`."""

    @property
    def name(self) -> str: ...

    def framed_for_distil(self) -> str: ...

    def beside(self, text: str) -> str: ...


async def disprove(
    session: Session,
    declaration: Stated,
    goal: Goal,
    *,
    proposer: Proposer,
    scoring: Scoring | None,
    budget: Budget,
    seed: int = 0,
) -> tuple[str, ...] | None:
    """Return the tactics of a proof that the declaration cannot be proved as it stands; None where none is found.

    Args:
        session: at the declaration's place in its file.
        declaration: a theorem, all of whose proof is one sorry.
        goal: the sorry's.
        proposer, scoring, seed: as for a search of the goal itself.
        budget: what that search had.

    Raises:
        ReplError: there is no process to be had (see `Session`).
    """
    claim = closed(goal)
    if claim is None:
        return None
    theorem = declaration.framed_for_distil()
    if not await _taken(session, f"{theorem}\nexample : {claim} := @{declaration.name}\n"):
        return None
    few = replace(
        budget,
        nodes=min(budget.nodes, NODES),
        seconds=min(SHARE_OF_SECONDS * budget.seconds, MOST_SECONDS),
        calls=CALLS,
    )
    try:
        states = await session.distil(declaration.beside(f"theorem {_NAME} : ¬({claim}) := by\n  sorry\n"))
    except ReplRefused:
        return None
    if len(states) != 1 or len(states[0].goals) != 1:
        session.release(states)
        return None
    search = Search(session, proposer, budget=few, scoring=scoring, seed=seed)
    result = await search.run(states[0])
    session.release(states)
    if result.script is None or not await _contradicts(
        session, theorem, declaration.name, claim, result.script
    ):
        return None
    return result.script.tactics


def closed(goal: Goal) -> str | None:
    """Return the goal as a proposition without hypotheses; None where it cannot be written as one."""
    binders = []
    for variable in goal.vars:
        if variable.value is not None or variable.type is None:
            return None
        kind = variable.type.render()
        if variable.inaccessible and variable.user_name.startswith("inst"):
            binders.append(f"[{kind}]")
        elif variable.inaccessible or not _WRITABLE.fullmatch(variable.user_name):
            return None
        else:
            binders.append(f"({variable.user_name} : {kind})")
    claim = goal.target.render()
    text = f"∀ {' '.join(binders)}, {claim}" if binders else claim
    return None if "✝" in text or "?" in text else text


async def _contradicts(session: Session, theorem: str, name: str, claim: str, script: Script) -> bool:
    bracketed = f"({script.inline()})".replace("\n", "\n ").split("\n")
    for lines in (script.block(), bracketed):
        proof = "\n".join(f"  {line}" for line in lines)
        refuted = f"theorem {_NAME} : ¬({claim}) := by\n{proof}\n\n#print axioms {_NAME}\n"
        text = f"{refuted}\nexample : False := {_NAME} @{name}\n"
        if await _taken(session, f"{theorem}\n{text}", sound=_NAME):
            return True
    return False


async def _taken(session: Session, text: str, *, sound: str = "") -> bool:
    """Say whether Lean takes a text; `sound` names what of it must rest on allowed axioms alone."""
    try:
        units = await session.process(text)
    except (ReplDied, ReplRefused):
        return False
    if any(unit.errors for unit in units):
        return False
    return not sound or _is_sound(units, sound)


def _is_sound(units: Sequence[Unit], name: str) -> bool:
    """Say whether Lean said once what a theorem rests on, and all of it is allowed; namespaces may stand before it."""
    said = [message.data for unit in units for message in unit.messages if not message.is_error]
    found = [
        axioms
        for text in said
        for named in _PRINTED.findall(text)
        if named.rpartition(".")[2] == name and not isinstance(axioms := read_axioms(text, named), str)
    ]
    return len(found) == 1 and ALLOWED_AXIOMS.issuperset(found[0])
