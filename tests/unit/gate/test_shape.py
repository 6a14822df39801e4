from __future__ import annotations

import pytest

from pipeline.gate.source_checks import in_its_place

FILE = b"namespace N\n\ntheorem a : p := sorry\n\ntheorem b : q := h\n\nend N\n"


def test_a_changed_proof_is_the_same_shape() -> None:
    assert in_its_place(FILE, FILE.replace(b"sorry", b"by\n  intro h\n  exact h")) == ()


@pytest.mark.parametrize(
    "text",
    [
        b"h\n\ntheorem c : False := h",
        b"h\nend N\nnamespace N",
        b"h\n@[simp]",
        b"h /-",
        b"h\n\nlocal instance : X := y",
        b"h\nset_option debug.skipKernelTC true",
        b"h\n#eval 1",
    ],
)
def test_text_that_adds_or_swallows_commands_is_another_shape(text: bytes) -> None:
    assert in_its_place(FILE, FILE.replace(b"sorry", text))


def test_a_change_of_a_second_command_shows() -> None:
    other = FILE.replace(b"sorry", b"h").replace(b": q := h", b": r := h")
    assert in_its_place(FILE, other) == ("2 commands changed where one should",)
