"""The library in `experiments/library`: its lemmas, and the theorems held out of it.

Lemmas come in commits, a quarter of them in each, by the hash of their names. A retriever learns a lemma from
its goal, in Lean's words, and from the lemmas named in its proof. `HeldOut.lean` is never compiled here and
nothing of it is learned.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.lean.source.scanner import scan_source
from pipeline.models.retriever.finder import Place
from store.domain.keywords import THEOREM_KINDS

COMMITS = 4
SOURCES = Path(__file__).with_name("library")
HELD_OUT = "HeldOut.lean"
_FILES = ("Logic.lean", "Naturals.lean", "Options.lean", "Lists.lean", "Orders.lean")
"""In the order of their imports."""
_LEANS_OWN = ("Init/Logic.lean", "Init/Simp.lean", "Init/Nat.lean")
"""Files of Lean's library with theorems as premises."""
_WORD = re.compile(r"[^\W\d][\w.'?!₂]*")


@dataclass(frozen=True, slots=True)
class Theorem:
    """A theorem of a file, with its proof as people wrote it."""

    path: str
    name: str
    statement: str
    code: str
    proof: str
    start: tuple[int, int]
    end: tuple[int, int]
    by_simp: bool

    @property
    def place(self) -> Place:
        return Place(self.path, self.start)

    @property
    def commit(self) -> int:
        """The number of its commit, from 0."""
        return hashlib.sha256(self.name.encode()).digest()[0] % COMMITS

    def asked(self, proof: Sequence[str] = ("sorry",)) -> str:
        """Return the whole theorem under a name of its own, proved by lines of tactics."""
        return f"theorem {self.name}_asked {self.statement} := by\n  " + "\n  ".join(proof)


class Library:
    """The library below a toolchain of Lean."""

    def __init__(self, toolchain: Path) -> None:
        self._toolchain = toolchain
        own = toolchain / "lib" / "lean"
        read = {path: theorems_of(own / path, path) for path in _LEANS_OWN}
        self.lemmas: list[Theorem] = []
        for path in _FILES:
            read[path] = theorems_of(SOURCES / path, path)
            self.lemmas += read[path]
        self.premises: Mapping[str, Sequence[Theorem]] = read
        self.held_out = theorems_of(SOURCES / HELD_OUT, HELD_OUT)

    @property
    def imports(self) -> tuple[str, ...]:
        return (_FILES[-1].removesuffix(".lean"),)

    def build(self, folder: Path) -> None:
        """Compile the files into a project's folder, once.

        Raises:
            subprocess.CalledProcessError: Lean refuses one.
        """
        built = folder / ".lake" / "build" / "lib" / "lean"
        if built.exists():
            return
        beside = folder / ".building"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for path in _FILES:
            target = beside / Path(path).with_suffix(".olean")
            command: list[str | Path] = [self._toolchain / "bin" / "lean", "-o", target, SOURCES / path]
            subprocess.run(command, check=True, env={"LEAN_PATH": str(beside)}, stdout=subprocess.PIPE)
        built.parent.mkdir(parents=True)
        beside.rename(built)

    @cached_property
    def _by_name(self) -> dict[str, Theorem]:
        return {one.name: one for each in self.premises.values() for one in each}

    def named(self, theorem: Theorem, text: str) -> tuple[Theorem, ...]:
        """Return the lemmas named in a proof of a theorem, by Lean's lookup in its namespace."""
        spaces = [*_around(theorem.name), ""]
        result = {}
        for word in _WORD.findall(text):
            parts = word.removeprefix("_root_.").split(".")
            heads = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
            names = (f"{space}{head}" for head in heads for space in spaces)
            name = next((name for name in names if name in self._by_name), None)
            if name is not None and name != theorem.name:
                result[name] = self._by_name[name]
        return tuple(result.values())

    def texts(self) -> list[str]:
        """Return the statements for a tokenizer."""
        return [one.code for each in self.premises.values() for one in each]

    def write(self, folder: Path, learned: Collection[tuple[Theorem, str, str]]) -> None:
        """Write a dataset in LeanDojo's format of theorems, each with its goal and a proof of it."""
        (folder / "random").mkdir(parents=True)
        lines, before = [], list[str]()
        for path in (*self.premises, HELD_OUT):
            premises = [_premise(one) for one in self.premises.get(path, ())]
            lines.append(json.dumps({"path": path, "imports": before[-1:], "premises": premises}))
            before.append(path)
        (folder / "corpus.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        traced = [self._theorem_record(*one) for one in learned if self.named(one[0], one[2])]
        for split, content in (("train", traced), ("val", []), ("test", [])):
            (folder / "random" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")

    def _theorem_record(self, theorem: Theorem, state: str, proof: str) -> dict[str, Any]:
        uses = [
            {
                "full_name": one.name,
                "def_path": one.path,
                "def_pos": list(one.start),
                "def_end_pos": list(one.end),
            }
            for one in self.named(theorem, proof)
        ]
        marked = " ".join(f"<a>{use['full_name']}</a>" for use in uses)
        step = {
            "tactic": proof,
            "annotated_tactic": [marked, uses],
            "state_before": state,
            "state_after": "no goals",
        }
        return {
            "url": "https://example.org/library",
            "commit": "a" * 40,
            "file_path": theorem.path,
            "full_name": theorem.name,
            "theorem_statement": None,
            "start": list(theorem.start),
            "end": list(theorem.end),
            "traced_tactics": [step],
        }


def theorems_of(file: Path, path: str) -> list[Theorem]:
    """Return the theorems of a file, in its order."""
    data = file.read_bytes()
    result = []
    for declaration in scan_source(data, path=path).declarations:
        if declaration.kind not in THEOREM_KINDS:
            continue
        text = data[declaration.byte_start : declaration.byte_end].decode()
        before, _, proof = text.partition(":=")
        # A binder may have a value: none of these files has one.
        result.append(
            Theorem(
                path=path,
                name=declaration.name,
                statement=declaration.statement,
                code=f"theorem {declaration.name} {declaration.statement}",
                proof=proof.strip().removeprefix("by").strip(),
                start=(declaration.line, declaration.column + 1),
                end=(declaration.end_line, declaration.end_column + 1),
                by_simp="@[simp]" in before,
            )
        )
    return result


def _around(name: str) -> list[str]:
    parts = name.split(".")[:-1]
    return [".".join(parts[:end]) + "." for end in range(len(parts), 0, -1)]


def _premise(one: Theorem) -> dict[str, Any]:
    return {
        "full_name": one.name,
        "code": one.code,
        "start": list(one.start),
        "end": list(one.end),
        "kind": "commanddeclaration",
    }
