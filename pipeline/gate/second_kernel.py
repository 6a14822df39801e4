"""Kernels that judge the export of a proof with everything below it, besides the one that compiled it.

Each reads the export alone and nothing built by the project, in the sandbox, without a network. Lean 4.35 brings five
(lean4#14990 to #15153), and a `leanchecker` for exports; `lake check --paranoid` calls them with the same words. The
program of `[lean] second_kernel` answers by its exit status, as in the Lean Kernel Arena: 0 accepts, 2 declines (the
export has something it does not know), any other refuses. A program with `nanoda` in its name gets the path of a
configuration in nanoda's format, any other the path of the export.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pipeline.jobs.kinds import KINDS
from pipeline.lean.build.lake import Bounds, LakeRunner, Outcome
from pipeline.lean.toolchain.versions import VersionError, is_at_most, parse_version
from store.log.envelope import utc_text

NANODA = "nanoda_bin"
AUTO, OFF = "auto", "off"
BUNDLED_SINCE = ("v4.35.0-rc2", "nightly-2026-09-16")
"""The first toolchains with all of `BUNDLED`."""
_ASKED = Bounds(timeout_s=20.0, memory_bytes=2**30, processes=64)
_VERSION = re.compile(r"[\w.-]{1,40} v?\d[\w.+-]{0,40}")
_DECLINED = 2
_PANIC = "PANIC"

Word = Literal["accepted", "refused", "could not", "forged"]


@dataclass(frozen=True, slots=True)
class ExportKernel:
    """A program: its name with its version for the evidence, its command line, and the meaning of its answers.

    `option` stands before the path of the export, unless it reads a `configuration`. It `accepts` with exit status 0
    and these words ("": none are needed), and refuses with one of the statuses `refusals` (none: any but 0 and 2) and
    the words `refuses`. `aborts`: a panic of its runtime shall end it. `bundled`: the toolchain brings it.
    """

    program: Path
    name: str
    option: tuple[str, ...] = ()
    configuration: bool = False
    accepts: str = ""
    refuses: str = ""
    refusals: frozenset[int] = frozenset()
    aborts: bool = True
    bundled: bool = False


_FROM_EXPORT = ("--from-export",)
_ACCEPTS, _REFUSES = "Lean default kernel accepts the solution", "rejects the solution"
_ONE = frozenset({1})
BUNDLED = (
    ExportKernel(Path("leanchecker"), "", _FROM_EXPORT, accepts=_ACCEPTS, refuses=_REFUSES, refusals=_ONE),
    ExportKernel(
        Path("leanchecker-paranoid"), "", _FROM_EXPORT, accepts=_ACCEPTS, refuses=_REFUSES, refusals=_ONE
    ),
    # A panic would end it before its words of refusal.
    ExportKernel(
        Path("lean4lean"),
        "",
        ("--import",),
        accepts="checked [0-9]+ declarations",
        refusals=_ONE,
        aborts=False,
    ),
    ExportKernel(Path(NANODA), "", configuration=True),
    ExportKernel(Path("con-leche"), "", accepts="con-leche: accepted [0-9]+ declarations", refusals=_ONE),
    ExportKernel(Path("con-ron"), "", accepts="con-ron: accepted [0-9]+ declarations", refusals=_ONE),
)
"""The kernels of Lean 4.35, by the names of the programs; `find_kernels` adds place and version."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The kernels to judge an export; `whole` if all kernels of its Lean are among them.

    `lacking` names the missing ones for people ("": none).
    """

    kernels: tuple[ExportKernel, ...]
    whole: bool
    lacking: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel's verdict on an export, with the reason unless it accepted, and the key if it did.

    A `forged` export has another constant than Lean's own library; no kernel is asked about it.
    """

    word: Word
    why: str
    key: str = ""


def find_kernels(setting: str, runner: LakeRunner, *, toolchain: str) -> Panel:
    """Return the kernels of `[lean] second_kernel` for this toolchain.

    These are the toolchain's, and the program in the setting; by `auto`, for a toolchain without any, the nanoda in its
    folder or on PATH.
    """
    if setting == OFF:
        return Panel((), False, 'switched off: [lean] second_kernel = "off"')
    result, missing = _bundled(runner, toolchain)
    whole = bool(result) and not missing
    if setting == AUTO and result:
        return Panel(result, whole, missing)
    more = _named_by(setting, runner)
    if isinstance(more, str):
        return Panel(result, whole, "; ".join(filter(None, (missing, more))))
    return Panel((*result, more), whole, missing)


def _bundled(runner: LakeRunner, toolchain: str) -> tuple[tuple[ExportKernel, ...], str]:
    """Return a toolchain's kernels, and a text on the missing ones."""
    if not any(is_at_most(one, toolchain) for one in BUNDLED_SINCE):
        return (), ""
    release = release_of(toolchain)
    result, missing = [], []
    for one in BUNDLED:
        program = runner.program.with_name(str(one.program))
        if not program.is_file():
            missing.append(program.name)
            continue
        # Lean's own programs answer no question for a version: theirs is the toolchain's.
        words = (program.name, *(one.option if one.option == _FROM_EXPORT else ()))
        name = _named(program, runner) if one.configuration else f"{' '.join(words)} of {release}"
        result.append(replace(one, program=program, name=name, bundled=True))
    lacking = f"{release} lacks {', '.join(missing)}" if missing else ""
    return tuple(result), lacking


def release_of(toolchain: str) -> str:
    """Return the version of a toolchain's programs, as `v4.35.0`; the text itself if it has none."""
    try:
        return parse_version(toolchain).release
    except VersionError:
        return toolchain.strip()


def _named_by(setting: str, runner: LakeRunner) -> ExportKernel | str:
    """Return the program in a setting, a name looked up on PATH; a text is the reason of a failure."""
    own = runner.program.with_name(NANODA)
    if setting == AUTO:
        result = str(own) if own.is_file() else shutil.which(NANODA)
        missing = f"no {NANODA} in the toolchain or on PATH"
    else:
        result = shutil.which(setting)
        missing = f"{setting}, which [lean] second_kernel names, is no program here"
    if result is None:
        return missing
    program = Path(result).resolve()
    if program.is_relative_to(runner.project.resolve()):
        return f"{program} lies in the project that it would judge"
    # By the name in the setting: behind a link a program may have another.
    return ExportKernel(program, _named(program, runner), configuration="nanoda" in Path(result).name)


def second_since(setting: str) -> str:
    """Return the modification time of the second kernel's program; "" if there is none."""
    result = None if setting == OFF else shutil.which(NANODA if setting == AUTO else setting)
    if result is None:
        return ""
    # Not the time of its last writing: unpacked or copied files may keep their maker's.
    return utc_text(datetime.fromtimestamp(Path(result).stat().st_ctime, UTC))


def judge_export(
    kernel: ExportKernel, export: Path, *, axioms: Sequence[str], runner: LakeRunner, bounds: Bounds
) -> Judged:
    """Have the kernel judge an export. `axioms` are those it may hold."""
    given = export
    if kernel.configuration:
        given = export.with_name("nanoda.json")
        given.write_text(_configuration(export, axioms), "utf-8")
    environment = {"LEAN_ABORT_ON_PANIC": "1"} if kernel.bundled and kernel.aborts else {}
    asking = runner.with_(readable=(kernel.program,), writable=(), environment=environment)
    if bounds.memory_bytes is not None:
        # The job's limit in the settings, if that is more.
        own = resource.getrlimit(resource.RLIMIT_DATA)[0]
        bounds = replace(bounds, memory_bytes=max(bounds.memory_bytes, own))
    ran = asking.execute((str(kernel.program), *kernel.option, str(given)), bounds=bounds)
    text = f"{ran.explain(bounds)}: {' '.join(ran.end(300).split()) or 'nothing'}"
    if ran.ok:
        if re.search(kernel.accepts, ran.output) and not (kernel.bundled and _PANIC in ran.output):
            return Judged("accepted", "")
        return Judged("could not", f"it does not say that it accepts; {text}")
    refuses = ran.status in kernel.refusals if kernel.refusals else ran.status != _DECLINED
    # A name in a refusal may speak of memory too.
    worded = bool(kernel.refuses) and ran.status is not None
    refused = (ran.ending == "exited" or worded) and refuses and re.search(kernel.refuses, ran.output)
    if refused:
        return Judged("refused", text)
    return Judged("could not", f"{text}{memory_remedy(ran)}")


def memory_remedy(ran: Outcome) -> str:
    """Return the remedy if a kernel ran out of memory, with a semicolon before it; else ""."""
    return f"; {KINDS['check'].memory_remedy}" if ran.ending == "memory" else ""


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
    """Return the program's name, with the version its help begins with, if it does."""
    asking = runner.with_(readable=(program,), writable=(), environment={})
    ran = asking.execute((str(program), "--help"), bounds=_ASKED)
    result = _VERSION.fullmatch(ran.output.strip().partition("\n")[0]) if ran.ok else None
    return result[0] if result else program.name
