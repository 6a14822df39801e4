"""A second kernel: a program that is not Lean's, which judges the export of a proof with all that the proof rests on.

It reads the export alone and nothing that the project built, in the sandbox, without a network. Its exit status is its
word, as those of the Lean Kernel Arena have it: 0 accepts, 2 declines (it does not know something in the export), any
other refuses. A program with `nanoda` in its name gets the path of a configuration, as nanoda reads it; any other gets
the path of the export.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.lean.build.lake import Bounds, LakeRunner

NANODA = "nanoda_bin"
AUTO, OFF = "auto", "off"
_ASKED = Bounds(timeout_s=20.0, memory_bytes=2**30, processes=64)
_VERSION = re.compile(r"[\w.-]{1,40} v?\d[\w.+-]{0,40}")
_DECLINED = 2

Word = Literal["accepted", "refused", "could not"]


@dataclass(frozen=True, slots=True)
class SecondKernel:
    """A program and what it says of itself.

    `name` is its name with its version, for the evidence; `configured`: it takes a configuration, as nanoda does.
    """

    program: Path
    name: str
    configured: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """What a second kernel said, with the reason where it did not accept."""

    word: Word
    why: str


def find_second_kernel(setting: str, runner: LakeRunner) -> SecondKernel | str:
    """Return the program that `[lean] second_kernel` means, or one sentence on why there is none.

    `auto` is nanoda: the toolchain's own, or the one on PATH. A name is looked up on PATH.
    """
    if setting == OFF:
        return 'switched off: [lean] second_kernel = "off"'
    own = runner.program.with_name(NANODA)
    if setting == AUTO:
        found = str(own) if own.is_file() else shutil.which(NANODA)
        missing = f"no {NANODA} in the toolchain or on PATH"
    else:
        found = shutil.which(setting)
        missing = f"{setting}, which [lean] second_kernel names, is no program here"
    if found is None:
        return missing
    program = Path(found).resolve()
    if program.is_relative_to(runner.project.resolve()):
        return f"{program} lies in the project that it would judge"
    # By the name that was asked for: behind a link a program may have another.
    return SecondKernel(program, _named(program, runner), "nanoda" in Path(found).name)


def judge_export(
    kernel: SecondKernel, export: Path, *, axioms: Sequence[str], runner: LakeRunner, bounds: Bounds
) -> Judged:
    """Have the kernel judge an export. `axioms` are those that it may hold."""
    given = export
    if kernel.configured:
        given = export.with_name("nanoda.json")
        given.write_text(_configuration(export, axioms), "utf-8")
    asking = runner.with_(readable=(kernel.program,), writable=(), environment={})
    ran = asking.execute((str(kernel.program), str(given)), bounds=bounds)
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
    asking = runner.with_(readable=(program,), writable=(), environment={})
    ran = asking.execute((str(program), "--help"), bounds=_ASKED)
    first = ran.output.strip().partition("\n")[0]
    found = _VERSION.fullmatch(first) if ran.ok else None
    return found[0] if found else program.name
