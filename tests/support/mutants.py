"""`make mutants`: which small faults in the rooms that must not err the tests notice.

mutmut makes the faults: another comparison, constant or operator, an argument left out, a value that is None. A sample
of each room is run, chosen by hash, so that two commits share the mutants of what they have in common. A mutant is
killed by a test that reached its function in its own process; what only other processes reach has `no tests`.
`[tool.mutmut]` of pyproject.toml says which tests run.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name

ROOMS = {
    "gate": "pipeline/gate/*.py",
    "log": "store/log/*.py",
    "matching": "store/domain/matching.py",
    "splice": "pipeline/lean/source/splice.py",
    "promotion": "store/promotion.py",
    "planning": "daemon/planning/*.py",
}


def mutants_of(file: Path) -> list[str]:
    """Return the names of a file's mutants, without those that differ in a string only: most are words for people."""
    made = mutate_file_contents(str(file), file.read_text(encoding="utf-8"))
    functions = {
        node.name: _without_words(node)
        for node in ast.walk(ast.parse(made.code))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return [
        get_mutant_name(file, name)
        for name in made.mutant_names
        if functions[name] != functions[f"{mangled_name_from_mutant_name(name)}__mutmut_orig"]
    ]


def _without_words(function: ast.AST) -> str:
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.name = ""
    return ast.dump(function)


def sample(room: str, count: int, seed: str) -> dict[str, Path]:
    """Return mutants of a room and the file of each: the first ones by hash."""
    files = {name: file for file in sorted(Path().glob(ROOMS[room])) for name in mutants_of(file)}
    chosen = sorted(files, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:count]
    return {name: files[name] for name in chosen}


def main() -> None:
    """Run the samples and print a table of the rooms, then each mutant that lives, as a patch of its function."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", choices=ROOMS, action="append", help="only this room; may be repeated")
    parser.add_argument("--count", type=int, default=25, help="mutants a room")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    samples = {room: sample(room, given.count, given.seed) for room in given.room or ROOMS}
    names = [name for chosen in samples.values() for name in chosen]
    run = [sys.executable, "-m", "mutmut", "run", "--max-children", str(given.processes), *names]
    if subprocess.run(run, check=False, stdout=sys.stderr).returncode:
        sys.exit("mutmut could not run; what it said is above")
    codes: dict[str, int | None] = {}
    for file in {file for chosen in samples.values() for file in chosen.values()}:
        codes |= json.loads(Path("mutants", f"{file}.meta").read_text(encoding="utf-8"))["exit_code_by_key"]
    for room, chosen in samples.items():
        found = Counter(status_by_exit_code[codes[name]] for name in chosen)
        lost = ", ".join(f"{count} {status}" for status, count in sorted(found.items()) if status != "killed")
        print(f"{room:10} {found['killed']:3} of {len(chosen):3} killed" + (f"; {lost}" if lost else ""))
    for chosen in samples.values():
        for name, file in chosen.items():
            if (status := status_by_exit_code[codes[name]]) != "killed":
                print(f"\n{name}: {status}\n{get_diff_for_mutant(name, path=file)}")


if __name__ == "__main__":
    main()
