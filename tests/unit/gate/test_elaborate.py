"""What Lean says of the commands of the file without and with a proof, and why that is not "plus a proof".

Commands of libraries, which no scanner knows, show here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.gate.elaborate import Compiled
from pipeline.lean.client.messages import Message, Unit

START = 15
"""Where the sorry stands: in the second of three commands, which grows by 5 bytes."""
BEFORE = (
    Unit(0, 10, new_constants=("a",)),
    Unit(10, 30, new_constants=("mine",)),
    Unit(30, 40, new_constants=("c",)),
)
AFTER = (BEFORE[0], replace(BEFORE[1], byte_end=35), replace(BEFORE[2], byte_start=35, byte_end=45))


def complaint(after: tuple[Unit, ...], before: tuple[Unit, ...] = BEFORE) -> str | None:
    return Compiled(before, after, START, 5).complaint("mine")


def message(severity: str, text: str) -> Message:
    place = {"line": 3, "column": 4}
    raw = {"fileName": "x", "pos": place, "endPos": None, "severity": severity, "data": text, "kind": "k"}
    return Message.from_json({"keepFullRange": False, "isSilent": False, "caption": "", **raw})


def with_message(severity: str, text: str) -> tuple[Unit, ...]:
    return (AFTER[0], replace(AFTER[1], messages=(message(severity, text),)), AFTER[2])


def test_the_same_commands_with_one_longer_are_the_file_plus_a_proof() -> None:
    assert complaint(AFTER) is None
    assert Compiled(BEFORE, AFTER, START, 5).made == {"mine"}
    assert Compiled(BEFORE, AFTER, START, 5).declared == {"a", "mine", "c"}


OTHERS = {
    "a command more, of a library": (
        *AFTER[:2],
        Unit(35, 38, new_constants=()),
        replace(AFTER[2], byte_start=38),
    ),
    "a command less": AFTER[:2],
    "a proof that ends early": (AFTER[0], replace(AFTER[1], byte_end=33), replace(AFTER[2], byte_start=33)),
    "an earlier command that grew": (
        replace(AFTER[0], byte_end=12),
        replace(AFTER[1], byte_start=12),
        AFTER[2],
    ),
    "a constant more, in its own command": (
        AFTER[0],
        replace(AFTER[1], new_constants=("mine", "x")),
        AFTER[2],
    ),
    "a constant more, in another": (AFTER[0], AFTER[1], replace(AFTER[2], new_constants=("c", "x"))),
    "a constant less": (AFTER[0], replace(AFTER[1], new_constants=()), AFTER[2]),
    "constants that are not told": (AFTER[0], replace(AFTER[1], new_constants=None), AFTER[2]),
    "an error": with_message("error", "unsolved goals"),
    "a sorry in one text": with_message("warning", "declaration uses 'sorry'"),
    "a sorry in the other": with_message("warning", "declaration uses `sorry`"),
}


@pytest.mark.parametrize("after", OTHERS.values(), ids=OTHERS.keys())
def test_anything_else_is_complained_of(after: tuple[Unit, ...]) -> None:
    assert complaint(after)


def test_a_warning_is_nothing_to_complain_of() -> None:
    assert complaint(with_message("warning", "unused variable")) is None


def test_an_error_that_the_file_has_anyway_covers_one_of_its_kind_and_no_more() -> None:
    known = message("error", "unsolved goals")
    before = (BEFORE[0], BEFORE[1], replace(BEFORE[2], messages=(known,)))
    same = (AFTER[0], AFTER[1], replace(AFTER[2], messages=(known,)))
    more = (AFTER[0], replace(AFTER[1], messages=(known,)), replace(AFTER[2], messages=(known,)))
    assert complaint(same, before) is None
    assert Compiled(before, same, START, 5).broken == "3:4: unsolved goals"
    assert "unsolved goals" in (complaint(more, before) or "")


def test_a_proof_in_no_command_is_complained_of() -> None:
    assert (
        Compiled(BEFORE[:1], BEFORE[:1], START, 5).complaint("mine")
        == "Lean sees no command at the proof's place"
    )
