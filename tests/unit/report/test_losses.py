"""The losses of trainings, on the page of the models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from sqlite3 import Connection

from pipeline.models.curve import Curve
from pipeline.report.models import MOST_CURVES
from pipeline.report.page import NAMES, render
from store.errors import LogError
from store.events.base import BlobRef, EventBody
from tests.support.models import checkpoint_saved
from tests.support.pages import read

Fill = Callable[..., Connection]
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def trained(
    checkpoint: str,
    *losses: float,
) -> tuple[EventBody, dict[str, bytes]]:
    """Return the end of a training with this curve, and its payload by hash."""
    curve = Curve(
        {"step": step, "loss": loss, "learning_rate": 0.001} for step, loss in enumerate(losses, start=1)
    )
    payload = json.dumps(curve.as_json()).encode()
    name = hashlib.sha256(payload).hexdigest()
    reference = BlobRef(sha256=name, size_bytes=len(payload))
    return checkpoint_saved(checkpoint, curve=reference), {name: payload}


def test_the_losses_of_a_model_s_newest_trainings_are_drawn_and_told(view_of: Fill) -> None:
    many = [trained(f"k{number}", 4.0, 1.0 + number, 2.0 + number) for number in range(10)]
    payloads = {name: payload for _, held in many for name, payload in held.items()}
    view = view_of([("model:retriever", body) for body, _ in many], payloads.values())
    pages = render(view, made_at=WHEN, blob=payloads.__getitem__)
    rows = read(pages.html["models.html"]).table("Losses of the retriever")
    assert [row[0] for row in rows] == [f"k{number}" for number in range(10 - MOST_CURVES, 10)]
    assert rows[-1] == ["k9", "100", "4", "4", "11", "learning_rate 0.001", ""]
    assert "2 older ones are left out" in pages.html["models.html"]
    assert NAMES.fullmatch("retriever-losses.svg")
    drawn = pages.pictures["retriever-losses.svg"]
    assert "k8: 9 at 34 %, 10 at 100 %" not in drawn  # the first third is the first step
    assert "k8: 4 at 34 %, 10 at 100 %" in drawn
    assert "k9: " in drawn


def test_a_training_of_an_earlier_version_has_no_losses_and_no_section(view_of: Fill) -> None:
    view = view_of([("model:retriever", checkpoint_saved("k0"))])
    assert "Losses" not in render(view, made_at=WHEN).html["models.html"]


def test_a_curve_that_cannot_be_read_costs_itself_alone(view_of: Fill) -> None:
    (good, payloads), (bad, others) = trained("k0", 3.0, 2.0), trained("k1", 5.0)
    lines = [("model:retriever", good), ("model:retriever", bad)]
    view = view_of(lines, [*payloads.values(), *others.values()])

    def blob(name: str) -> bytes:
        if name not in payloads:
            raise LogError(f"{name} is damaged")
        return payloads[name]

    first, second = read(render(view, made_at=WHEN, blob=blob).html["models.html"]).table(
        "Losses of the retriever"
    )
    assert (first[0], first[4], first[6]) == ("k0", "2", "")
    assert second[0] == "k1"
    assert "is damaged" in second[6]
    (missing, _) = read(render(view, made_at=WHEN).html["models.html"]).table("Losses of the retriever")
    assert "in the log, which cannot be read" in missing[6]
