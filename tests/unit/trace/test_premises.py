"""What a proof uses is asked of Lean; what Lean does not say is a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from pipeline.lean.client.messages import Unit
from pipeline.lean.client.repl import Repl, ReplRefused
from pipeline.trace.file import constants_used, proofs
from pipeline.trace.source import FileSource
from store.domain.records import TraceGap

TEXT = b"theorem one (p q : Prop) (h : p \xe2\x88\xa7 q) : q := h.2\n"


def used(said: Mapping[str, tuple[str, ...]]) -> tuple[list[str], list[TraceGap]]:
    """Return what is made of a Lean that knows these constants and what each one uses."""

    class Knows:
        async def env_inspect(self, name: str, **_: Any) -> Any:
            if name not in said:
                raise ReplRefused("index", f"Symbol not found {name}", command="env.inspect")
            return SimpleNamespace(value_dependency=said[name])

    source = FileSource.read("A.lean", TEXT)
    (proof,) = proofs(source, [Unit(0, len(TEXT), new_constants=("one",), invocations=())])
    return asyncio.run(constants_used(cast("Repl", Knows()), proof))


def test_what_lean_split_off_a_proof_counts_with_it() -> None:
    found = used({"one": ("And.right", "one.match_1"), "one.match_1": ("And.casesOn", "one")})
    assert found == (["And.right", "And.casesOn"], [])


def test_a_constant_that_lean_does_not_know_leaves_a_gap_with_its_reason() -> None:
    names, (gap,) = used({})
    assert (names, gap.kind, gap.declaration) == ([], "premises", "one")
    assert "did not say what one uses: " in gap.reason
    assert "Symbol not found one" in gap.reason
    names, (gap,) = used({"one": ("And.right", "one.match_1")})
    assert names == ["And.right"]
    assert "what one.match_1 uses" in gap.reason


def test_a_proof_in_very_many_parts_is_not_asked_about_to_the_end_and_says_so() -> None:
    parts = {f"one.part_{n}": ("True.intro",) for n in range(100)}
    names, (gap,) = used({"one": tuple(parts), **parts})
    assert names == ["True.intro"]
    assert "more than 64 constants" in gap.reason
