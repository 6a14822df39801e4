"""A second kernel: a program that judges the export of a proof with all that the proof rests on.

It reads the export alone and nothing that the project built, in the sandbox, without a network. Its exit status is its
word, as those of the Lean Kernel Arena have it: 0 accepts, 2 declines (it does not know something in the export), any
other refuses. A program with `nanoda` in its name gets the path of a configuration, as nanoda reads it; the toolchain's
`leanchecker` gets the export by `--from-export` (lean4#15050), which is Lean's own kernel once more; any other program
gets the path of the export.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pipeline.lean.build.lake import Bounds, LakeRunner
from store.log.envelope import utc_text

NANODA = "nanoda_bin"
LEANCHECKER = "leanchecker"
_FROM_EXPORT = "--from-export"
AUTO, OFF = "auto", "off"
_ASKED = Bounds(timeout_s=20.0, memory_bytes=2**30, processes=64)
_VERSION = re.compile(r"[\w.-]{1,40} v?\d[\w.+-]{0,40}")
_DECLINED = 2

Word = Literal["accepted", "refused", "could not"]


@dataclass(frozen=True, slots=True)
class SecondKernel:
    """A program and what it says of itself.

    `name` is its name with its version, for the evidence; `takes`: nanoda's configuration, or the export, with or
    without an option.
    """

    program: Path
    name: str
    takes: Literal["configuration", "option", "path"]

    @property
    def is_lean_s(self) -> bool:
        """Return whether it is Lean's own kernel."""
        return self.takes == "option"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a second kernel said, with the reason where it did not accept."""

    word: Word
    why: str


def find_second_kernel(setting: str, runner: LakeRunner) -> SecondKernel | str:
    """Return the program that `[lean] second_kernel` means, or one sentence on why there is none.

    `auto` is nanoda, the toolchain's own or the one on PATH; without it the toolchain's leanchecker, where that one
    takes an export. A name is looked up on PATH.
    """
    if setting == OFF:
        return 'switched off: [lean] second_kernel = "off"'
    own = runner.program.with_name(NANODA)
    if setting == AUTO:
        found = str(own) if own.is_file() else shutil.which(NANODA)
        missing = f"no {NANODA} in the toolchain or on PATH"
        checker = own.with_name(LEANCHECKER)
        if found is None and checker.is_file() and _FROM_EXPORT in _help(checker, runner):
            return SecondKernel(checker, f"{LEANCHECKER} {_FROM_EXPORT}", "option")
    else:
        found = shutil.which(setting)
        missing = f"{setting}, which [lean] second_kernel names, is no program here"
    if found is None:
        return missing
    program = Path(found).resolve()
    if program.is_relative_to(runner.project.resolve()):
        return f"{program} lies in the project that it would judge"
    # By the name that was asked for: behind a link a program may have another.
    takes: Literal["configuration", "path"] = "configuration" if "nanoda" in Path(found).name else "path"
    return SecondKernel(program, _named(program, runner), takes)


def second_since(setting: str) -> str:
    """Return the modification time of the second kernel's program; "" if there is none."""
    found = None if setting == OFF else shutil.which(NANODA if setting == AUTO else setting)
    if found is None:
        return ""
    # Not when it was last written: what is unpacked or copied may keep that time of its maker's.
    return utc_text(datetime.fromtimestamp(Path(found).stat().st_ctime, UTC))


def judge_export(
    kernel: SecondKernel, export: Path, *, axioms: Sequence[str], runner: LakeRunner, bounds: Bounds
) -> Judged:
    """Have the kernel judge an export. `axioms` are those that it may hold."""
    given = export
    if kernel.takes == "configuration":
        given = export.with_name("nanoda.json")
        given.write_text(_configuration(export, axioms), "utf-8")
    asking = runner.with_(readable=(kernel.program,), writable=(), environment={})
    option = (_FROM_EXPORT,) if kernel.takes == "option" else ()
    ran = asking.execute((str(kernel.program), *option, str(given)), bounds=bounds)
    said = " ".join(ran.end(300).split())
    if ran.ok:
        return Judged("accepted", "")
    told = f"{ran.explain(bounds)}: {said or 'nothing'}"
    refused = ran.ending == "exited" and ran.status != _DECLINED
    return Judged("refused" if refused else "could not", told)


def _configuration(export: Path, axioms: Sequence[str]) -> str:
    return json.dumps(
        {
            "export_file_path": str(export),
            "use_stdin": False,
            "permitted_axioms": list(axioms),
            "unpermitted_axiom_hard_error": True,
            "nat_extension": True,
            "string_extension": True,
            "print_axioms": False,
            "print_success_message": True,
        }
    )


def _named(program: Path, runner: LakeRunner) -> str:
    """Return the program's name, with the version with which its help begins, where it does."""
    found = _VERSION.fullmatch(_help(program, runner).partition("\n")[0])
    return found[0] if found else program.name


def _help(program: Path, runner: LakeRunner) -> str:
    """Return what the program prints when it is asked for help; "" where that fails."""
    asking = runner.with_(readable=(program,), writable=(), environment={})
    ran = asking.execute((str(program), "--help"), bounds=_ASKED)
    return ran.output.strip() if ran.ok else ""
