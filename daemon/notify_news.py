"""What there is to tell: from events of the log to items that people can read, and to the message that holds them.

Pure but for the view that it asks. What the simulator did is told only where the settings want it, under a kind of its
own, and is marked wherever it appears; a proof that does not count as verified any more is not told as one.
"""

from __future__ import annotations

import json
import platform
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from daemon.notify_channels import Message
from store.domain.identity import event_id
from store.log.envelope import StoredEvent
from store.view.queries import basic as queries

SCHEMA = 1
SIMULATED = "simulated"
"""Among the kinds that a channel tells of: also what the simulator is the source of."""

_KIND_OF = {
    "proof_verified": "proof_verified",
    "proof_checked": "proof_verified",
    "checkpoint_promoted": "model_promoted",
    "repository_failing": "repository_failing",
}
TYPES = tuple(_KIND_OF)
"""The types of the events that may be told."""

MOST_TOGETHER = 100
"""Items in a message; the others are in the next one."""


@dataclass(frozen=True, slots=True)
class Item:
    """One event as it is told. `id` and `seq` are the event's, `text` is a line for people, `about` the details."""

    id: str
    seq: int
    kind: str
    recorded_at: str
    simulated: bool
    text: str
    about: dict[str, Any]


def wanted(event: StoredEvent, kinds: Mapping[str, int]) -> bool:
    """Whether an event of `TYPES` is to be told to somebody who asked for these kinds, each behind its position."""
    simulated = bool(event.data.get("simulated"))
    if event.type == "proof_checked" and not simulated:
        return False  # what Lean could judge only in part is no news yet
    asked = (_KIND_OF[event.type], SIMULATED) if simulated else (_KIND_OF[event.type],)
    return all(kind in kinds and event.seq > kinds[kind] for kind in asked)


def described(database: sqlite3.Connection, events: Sequence[StoredEvent]) -> list[Item]:
    """Return the items for these events, without those that are true no more."""
    items = []
    for event in events:
        match event.type:
            case "proof_verified" | "proof_checked":
                item = _proof(database, event)
            case "checkpoint_promoted":
                item = _promotion(event)
            case _:
                item = _failing(event)
        if item is not None:
            items.append(item)
    return items


def message(items: Sequence[Item]) -> Message:
    """Return the message that tells these items; the same items have the same id."""
    ids = [item.id for item in items]
    identity = ids[0] if len(ids) == 1 else event_id("notification", *ids)
    kinds = Counter(item.kind for item in items)
    body = {
        "schema": SCHEMA,
        "id": identity,
        "host": platform.node(),
        "text": items[0].text if len(items) == 1 else _summary(items, kinds),
        "simulated": any(item.simulated for item in items),
        "counts": dict(kinds),
        "events": [asdict(item) for item in items],
    }
    return Message(id=identity, body=json.dumps(body, ensure_ascii=False).encode())


_WORDS = {
    "proof_verified": "proof verified",
    "proof_checked": "proof accepted by the simulator (SIMULATED, no proof at all)",
    "model_promoted": "model promoted",
    "repository_failing": "repository failing",
}


def _summary(items: Sequence[Item], kinds: Counter[str]) -> str:
    counted = ", ".join(f"{number} x {_WORDS[kind]}" for kind, number in kinds.items())
    return f"{counted}. The first: {items[0].text}"


def _proof(database: sqlite3.Connection, event: StoredEvent) -> Item | None:
    data = event.data
    proof = next(
        (row for row in queries.proofs_by_prefix(database, data["proof"]) if row.proof == data["proof"]), None
    )
    if proof is None:
        return None
    verified = event.type == "proof_verified"
    if verified and (proof.state != "verified" or proof.simulated):
        return None
    if not verified and not (proof.simulated and proof.state == "candidate"):
        return None
    where = f"{proof.declaration} in {proof.repository} ({proof.path})"
    return _item(
        event,
        kind="proof_verified" if verified else "proof_checked",
        simulated=not verified,
        text=f"proof verified: {where}; unsorry proofs show {proof.proof}"
        if verified
        else f"SIMULATED, no proof at all: the simulator accepted {where}; unsorry proofs show {proof.proof}",
        about={
            name: getattr(proof, name)
            for name in (
                "proof", "sorry", "repository", "branch", "sha", "path", "declaration", "prover", "rung", "axioms",
                "patch_sha256",
            )
        },
    )  # fmt: skip


def _promotion(event: StoredEvent) -> Item:
    data = event.data
    simulated = bool(data.get("simulated"))
    mark = "SIMULATED: " if simulated else ""
    return _item(
        event,
        kind="model_promoted",
        simulated=simulated,
        text=f"{mark}{data['model']} {data['checkpoint']} is in use: {data['reason']}",
        about={name: data[name] for name in ("model", "checkpoint", "previous", "reason")},
    )


def _failing(event: StoredEvent) -> Item:
    data = event.data
    return _item(
        event,
        kind="repository_failing",
        simulated=False,
        text=f"{data['repository']} has failed since {data['since']}: {data['reason']} -> {data['remedy']}",
        about={name: data[name] for name in ("repository", "since", "problem", "reason", "remedy")},
    )


def _item(event: StoredEvent, *, kind: str, simulated: bool, text: str, about: dict[str, Any]) -> Item:
    return Item(
        id=event.event_id,
        seq=event.seq,
        kind=kind,
        recorded_at=event.recorded_at,
        simulated=simulated,
        text=_harmless(text),
        about=about,
    )


_ORDERS = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "\uff20"})


def _harmless(text: str) -> str:
    """One printable line, in which a chat program finds nobody to call and nothing to follow.

    Names of declarations are whatever a watched repository likes; the exact ones are in `about`.
    """
    line = " ".join(text.split()).translate(_ORDERS)
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in line)
