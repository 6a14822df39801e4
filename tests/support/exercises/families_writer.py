"""Write exercises as a Lean repository: a library, solved theorems to learn from, open ones to prove.

The answers (which of the open ones are solvable, with their proofs) go to a file of their own, never into the
repository.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tests.support.exercises.families import NAMES, Exercise, generate
from tests.support.exercises.relations import Library

TOOLCHAIN = "leanprover/lean4:v4.21.0"


def repository(
    seed: int, difficulties: Sequence[int], n: int, *, families: tuple[str, ...] = NAMES
) -> tuple[dict[str, str], list[Exercise]]:
    """Return a repository's files by path, and the exercises that it leaves open.

    Each difficulty gives `n` solved theorems, `n` open solvable ones and `n // 2` open unsolvable ones; no open
    one has the statement of a solved one.
    """
    library = Library.generate(seed)
    solved: list[Exercise] = []
    left: list[Exercise] = []
    for difficulty in difficulties:
        right = generate(seed, difficulty, 2 * n, families=families, library=library)
        solved += right[0::2]
        left += right[1::2]
        if n // 2:
            left += generate(seed, difficulty, n // 2, solvable=False, families=families, library=library)
    # An unsolvable one must not be known by its name.
    left = [
        replace(e, name=f"open_{number}") for number, e in enumerate(sorted(left, key=lambda e: e.statement))
    ]
    head = "import Families.Library\n\n"
    files = {
        "lean-toolchain": f"{TOOLCHAIN}\n",
        "lakefile.toml": 'name = "families"\ndefaultTargets = ["Families"]\n\n[[lean_lib]]\nname = "Families"\n',
        "Families.lean": "import Families.Library\nimport Families.Solved\nimport Families.Open\n",
        "Families/Library.lean": library.source(),
        "Families/Solved.lean": head + "\n".join(e.source() for e in solved),
        "Families/Open.lean": head + "\n".join(e.source(proof="sorry") for e in left),
    }
    return files, left


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a repository folder; an existing file of another text is not overwritten."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.exercises.families", description="Write exercises as a Lean repository."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write; new or empty")
    parser.add_argument("--answers", type=Path, help="JSON Lines file for the open exercises' answers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--difficulty", type=int, nargs="+", default=[1, 2, 3], help="default: 1 2 3")
    parser.add_argument("--count", type=int, default=18, help="solved theorems for each difficulty")
    parser.add_argument("--families", nargs="+", choices=NAMES, default=list(NAMES))
    given = parser.parse_args(arguments)
    if given.out.exists() and (not given.out.is_dir() or any(given.out.iterdir())):
        parser.error(f"{given.out} exists and is no empty folder; name a new one")
    try:
        files, left = repository(given.seed, given.difficulty, given.count, families=tuple(given.families))
    except ValueError as error:
        parser.error(str(error))
    for path, text in files.items():
        target = given.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    if given.answers is not None:
        lines = [json.dumps(asdict(exercise), ensure_ascii=False) for exercise in left]
        given.answers.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"{given.out}: {len(files)} files, {len(left)} open theorems")  # noqa: T201 - a command's answer
    return 0
