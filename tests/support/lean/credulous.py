"""A toolchain that says yes: `lake`, `lean` and `leanchecker` that find nothing wrong with any text. No Lean at all.

    tools = make_credulous(tmp_path)                       # …/bin/{lake,lean,leanchecker}
    tools.believe(Rule("native_decide", axioms=("Lean.ofReduceBool",)))

With it a test shows which of the gate's own checks refuses a text when Lean would not. A `Rule` makes it answer as
the real Lean would, for the one thing that only Lean can know, wherever its pattern is found in a file: an error, the
warning of a sorry, axioms, another type, other constants, a refused replay. A built module's `.olean` is its source and
what the scanner reads in it, so that the answers follow what was built and not what lies in the worktree.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.lean import scripts
from tests.support.lean.credulous_programs import ASKED, PROGRAMS, RULES, SCANS, scan

TOOLCHAIN = "leanprover/lean4:v4.34.1"
BOTH_TEXTS = ("declaration uses 'sorry'", "declaration uses `sorry`")


@dataclass(frozen=True, slots=True)
class Rule:
    """What is true of a file in which the regex `pattern` is found (`""`: of every file).

    Of the declarations in which the pattern is found `sorry` is the text of the warning that it uses one. Of the file:
    `build` is an error, `made` are further constants that it declares, `axioms` what the asked constant rests on,
    `sorried` those below it that use sorryAx and `native` those that have compiled code believed; `type` what its type
    is written out as; `replay` the kernel's refusal; `printed` what `#print axioms` says instead, as raw output with
    FILE and CONSTANT for their names; `questions` an exit status with which our own script ends and `lean` the version
    that it says; `elsewhere` a folder of the project that it builds into, `writes` a file (relative to the project)
    that building it leaves behind, `home` the module that declares its axioms; `closure` is the statement in the export
    with all that the proof rests on, `proof` the proof there, `holds` the library's constants there, each with the
    value `forges` where somebody forged it. `constants`: the library itself does not answer.
    """

    pattern: str = ""
    sorry: str | None = None
    axioms: tuple[str, ...] | None = None
    sorried: tuple[str, ...] = ()
    type: str | None = None
    made: tuple[str, ...] = ()
    replay: str | None = None
    printed: str | None = None
    questions: int = 0
    build: str | None = None
    native: tuple[str, ...] = ()
    lean: str | None = None
    elsewhere: str | None = None
    writes: str | None = None
    home: str | None = None
    closure: str | None = None
    proof: str | None = None
    holds: tuple[str, ...] = ()
    forges: str | None = None
    constants: bool = False


@dataclass(frozen=True, slots=True)
class Credulous:
    """The toolchain's folder."""

    sysroot: Path

    def believe(self, *rules: Rule) -> None:
        """Replace the rules; the first that fits gives each answer."""
        (self.sysroot / RULES).write_text(json.dumps([asdict(rule) for rule in rules]), "utf-8")

    def asked(self) -> list[dict[str, Any]]:
        """Return the questions about the library's constants so far."""
        file = self.sysroot / ASKED
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def read(self, *texts: str) -> None:
        """Scan these texts here, so that no program has to load the scanner for them."""
        (self.sysroot / SCANS).write_text(json.dumps({text: scan(text) for text in texts}), "utf-8")


def make_credulous(folder: Path, *, leanchecker: bool = True) -> Credulous:
    """Write the programs into `folder`/bin; without any rule."""
    for name in PROGRAMS:
        if name == "leanchecker" and not leanchecker:
            continue
        compiles = '[ "$1" = -o ] && exec touch "$2"' if name == "lean" else ""
        scripts.write(folder / "bin" / name, f"{__name__}_programs", name, str(folder), first=compiles)
    for module in ("Init", "Init/Core", "Init/Prelude"):
        file = folder / "lib" / "lean" / f"{module}.olean"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    tools = Credulous(folder)
    tools.believe()
    tools.read()
    return tools
