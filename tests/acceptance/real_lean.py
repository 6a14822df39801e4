"""`make acceptance`: the whole loop with elan, lake and Lean themselves, for each version of Lean that is asked for.

    python -m tests.acceptance.real_lean --newest 3 --candidate --mathlib

Installs a toolchain, makes a small project and one that requires Mathlib, and has the daemon watch, build, trace,
search and check them, all through the public command line. Each step has a time limit, a file with everything that it
said, and a verdict of its own: held, failed, timed out, or not reached with what it needs. A table of them is printed,
and written with the output to the folder `--out`, in which everything lies that this makes: elan's toolchains too,
unless `--elan-home` names where they are. Exit status: 0 if no step failed, 1 if one did, 69 where a program is missing
(then nothing was changed), 2 if the command line is wrong.
"""

# ruff: noqa: T201 - a program prints
from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.gate.lake_checks import KERNEL_BOUNDS
from pipeline.gate.questions import ask_exactly, asked_exactly
from pipeline.gate.second_kernel import AUTO, BUNDLED_SINCE, find_kernels, judge_export
from pipeline.gate.vouched import Library, UnknownError
from pipeline.lean.backend import LeanBackend, Sandbox
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.build.trees import remove_tree
from pipeline.lean.client.process import built_folders
from pipeline.lean.sandbox.command import bubblewrap_problem
from pipeline.lean.toolchain.versions import VersionError, is_at_most, parse_version
from pipeline.trace.program import ask, compiled
from tests.acceptance.real_lean_projects import MATHLIB, PROJECTS, Project, requiring_mathlib
from tests.acceptance.real_lean_site import (
    ROOT,
    NotHeldError,
    OutOfReachError,
    Result,
    Site,
    Step,
    last,
    make,
    stop_daemon,
    written,
)

EX_UNAVAILABLE = 69
RELEASES = "https://api.github.com/repos/leanprover/lean4/releases?per_page=100"
MARKER = ".everlean-acceptance"
NEEDS_LEAN = "elan_lean"
FIRST_WITH_MODULES = "v4.22.0"
ROW = tuple(f"v4.{minor}.0" for minor in (9, 15, 19, 20, 22, 24, 26, 28, 31, 33, 34, 35))
"""Versions between which what our Lean programs call has changed."""
OF_THE_ROW = ("machine", "toolchain", "lean", "kernels", "programs")
INSTALL = {
    "elan": "curl -sSf https://elan.lean-lang.org/elan-init.sh | sh -s -- -y --default-toolchain none",
    "git": "apt install git",
    "curl": "apt install curl",
    "bwrap": "apt install bubblewrap",
}
_STABLE = re.compile(r"v4\.(\d+)\.(\d+)")
_CANDIDATE = re.compile(r"v4\.(\d+)\.(\d+)-rc(\d+)")
_SORRY = re.compile(r"declaration uses .?sorry")

# ---- steps that need no daemon


def machine(site: Site) -> str:
    """Say what this machine is, and whether a sandbox can be made."""
    said = [site.run(program, "--version")[1].partition("\n")[0] for program in INSTALL]
    site.run("df", "-h", site.folder)
    site.run("free", "-m")
    if problem := bubblewrap_problem():
        raise NotHeldError(f"no sandbox: {problem}")
    return f"{'; '.join(said)}; {shutil.disk_usage(site.folder).free / 2**30:.0f} GiB free"


def toolchain(site: Site) -> str:
    there = (site.sysroot / "bin" / "lean").is_file()
    if not there:
        site.must("elan", "toolchain", "install", site.toolchain)
        site.lean()
    extras = [name for name in ("lake", "leanchecker") if (site.sysroot / "bin" / name).exists()]
    how = "was there" if there else "installed"
    return f"{site.sysroot.name} {how}, with {', '.join(extras) or 'neither lake nor leanchecker'}"


def lean(site: Site) -> str:
    said = site.must(site.lean(), "--version").strip()
    if f"version {site.version.removeprefix('v')}," not in said:
        raise NotHeldError(f"it says that it is another one: {said}")
    return said.splitlines()[0]


def programs(site: Site, sandbox: Sandbox = "bubblewrap") -> str:
    """Have our Lean programs compiled and asked: the gate's about a module, the tracer's about two files.

    One of these is a `module`, and imports all of another.
    """
    compiler = site.lean()
    project = site.folder / "programs"
    built = project / ".lake/build/lib/lean/Demo"
    built.mkdir(parents=True, exist_ok=True)
    modern = is_at_most(FIRST_WITH_MODULES, site.toolchain)
    own = {"Tiny": "theorem tiny (p q : Prop) (h : p ∧ q) : q ∧ p := sorry\n"}
    if modern:
        own["Own"] = "module\nprivate theorem inner (p : Prop) (h : p) : p := h\n"
    (project / "Demo").mkdir(exist_ok=True)
    # The first Leans with modules ask for this.
    option = "weak.experimental.module"
    (project / "lakefile.toml").write_text(f'name = "demo"\n[leanOptions]\n{option} = true\n', "utf-8")
    for name, text in own.items():
        (project / "Demo" / f"{name}.lean").write_text(text, "utf-8")
        words = (f"-D{option}=true", "-o", built / f"{name}.olean", f"Demo/{name}.lean")
        site.must(compiler, *words, cwd=project)
    runner = LakeRunner(site.sysroot / "bin" / "lake", site.sysroot, sandbox, project)
    answer = ask_exactly(runner, module="Demo.Tiny", declaration="tiny")
    if isinstance(answer, str):
        raise NotHeldError(answer)
    if (answer.lean, answer.sorried) != (site.version.removeprefix("v"), ("tiny",)):
        raise NotHeldError(f"Questions.lean answers for Lean {answer.lean}; by sorry: {answer.sorried}")
    texts = {
        "Plain": "import Demo.Tiny\ntheorem plain (p q : Prop) (h : p) : p ∨ q := by\n  exact Or.inl h\n"
    }
    if modern:
        texts["Modern"] = (
            "module\nimport all Demo.Own\n"
            "theorem modern (p q : Prop) (h : p) : p ∨ q := by\n  exact Or.inl (inner p h)\n"
        )
    backend = LeanBackend(
        "server", (str(compiler),), "", site.toolchain, sandbox=sandbox, sysroot=str(site.sysroot)
    )
    asyncio.run(_traced_alone(backend, project, texts))
    return f"Questions.lean and Trace.lean answer, about {', '.join(texts)} too"


async def _traced_alone(lean: LeanBackend, project: Path, texts: Mapping[str, str]) -> None:
    """Hold that the tracer tells of each file one step, and where what it cites is declared."""
    program = await compiled(lean, memory_bytes=None, limit_s=120)
    for name, text in texts.items():
        answer = await ask(
            lean, program, project=project, path=f"Demo/{name}.lean", data=text.encode(), memory_bytes=None,
            limit_s=120,
        )  # fmt: skip
        errors = [one.data for command in answer.commands for one in command.errors]
        steps_told = sum(len(command.tactics) for command in answer.commands)
        if errors or steps_told != 1:
            raise NotHeldError(f"Trace.lean tells {steps_told} steps of {name}; {errors}")
        if answer.homes.get("Or.inl", ("", None))[1] is None:
            raise NotHeldError(f"Trace.lean does not tell of {name} where Or.inl is declared")


def kernels(site: Site, sandbox: Sandbox = "bubblewrap") -> str:
    """Have each kernel that the toolchain brings judge a proof, and a wrong proof of the same."""
    compiler = site.lean()
    project = site.folder / "kernels"
    built = project / ".lake/build/lib/lean"
    built.mkdir(parents=True, exist_ok=True)
    (project / "Tiny.lean").write_text(
        "theorem tiny (p q : Prop) (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩\n", "utf-8"
    )
    site.must(compiler, "-o", built / "Tiny.olean", "Tiny.lean", cwd=project)
    runner = LakeRunner(site.sysroot / "bin" / "lake", site.sysroot, sandbox, project)
    panel = find_kernels(AUTO, runner, toolchain=site.toolchain)
    brought = [one for one in panel.kernels if one.bundled]
    site.need(brought, f"a toolchain that brings kernels, from {BUNDLED_SINCE[0]} on")
    with asked_exactly(runner, module="Tiny", declaration="tiny", scope="closure") as found:
        if isinstance(found, str):
            raise NotHeldError(found)
        _, export = found
        wrong = export.with_name("wrong.ndjson")
        wrong.write_text(with_a_wrong_proof(export.read_text("utf-8")), "utf-8")
        bad = [panel.lacking] if panel.lacking else []
        for one in brought:
            for file, word in ((export, "accepted"), (wrong, "refused")):
                judged = judge_export(one, file, axioms=(), runner=runner, bounds=KERNEL_BOUNDS)
                site.say(f"{one.name}, {file.name}: {judged.word} {judged.why}")
                if judged.word != word:
                    bad.append(f"{one.name} on {file.name}: {judged.word}, not {word}: {judged.why}")
    if bad:
        raise NotHeldError("; ".join(bad))
    return f"{', '.join(one.name for one in brought)} accept a proof and refuse a wrong one"


def with_a_wrong_proof(export: str) -> str:
    """Return an export whose last theorem has its own statement as its proof, which is none."""
    lines = export.splitlines()
    last = max(at for at, line in enumerate(lines) if line.startswith('{"thm"'))
    record = json.loads(lines[last])
    record["thm"]["value"] = record["thm"]["type"]
    lines[last] = json.dumps(record, separators=(",", ":"))
    return "\n".join([*lines, ""])


def marked_tests(site: Site) -> str:
    """Run the project's own tests that ask for a toolchain, with this toolchain on PATH."""
    site.lean()
    status, _ = site.run(sys.executable, "-c", "import pytest, pytest_timeout")
    site.need(status == 0, "pytest and pytest-timeout in this Python")
    marked = (file for file in (ROOT / "tests").rglob("test_*.py") if NEEDS_LEAN in file.read_text("utf-8"))
    path = {"PATH": f"{site.sysroot / 'bin'}:{os.environ['PATH']}"}
    options = (
        "-p",
        "no:cacheprovider",
        "-m",
        f"{NEEDS_LEAN} and not slow",
        f"--basetemp={site.folder / 'pytest'}",
    )
    status, said = site.run(sys.executable, "-m", "pytest", *options, *sorted(marked), environment=path)
    skipped = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)", said, re.MULTILINE)
    if status != 0:
        failed = re.findall(r"^(?:FAILED|ERROR) \S*?::(\S+)", said, re.MULTILINE)
        raise NotHeldError(f"{', '.join(failed) or last(said)}")
    site.need(" passed" in said, f"what the tests skip for: {'; '.join(sorted(set(skipped))) or last(said)}")
    return last(said).strip("= ")


def latency(site: Site) -> str:
    """Measure searches through the language server."""
    site.lean()
    figures = site.folder / "latency.json"
    site.must(
        *(sys.executable, ROOT / "benchmarks" / "lean.py", "--only", "search", "--quick", "--json", figures)
    )
    rows = json.loads(figures.read_text("utf-8"))["rows"]
    what = f"a tactic, server {site.version}, "
    found = [row for row in rows if row["what"].startswith(what) and "own library" not in row["what"]]
    if not found:
        raise NotHeldError(f"no figure for {site.version}")
    return f"{found[0]['value']:.1f} {found[0]['unit']} a tactic (median of few)"


# ---- the steps of a project


def project_made(site: Site, project: Project) -> str:
    """Write the project's files and commit them."""
    folder = site.place(project) / "repository"
    if folder.exists():
        raise OutOfReachError(f"needs a new folder: {folder} is there from an earlier run")
    files = {**project.files, "lean-toolchain": f"{site.toolchain}\n", ".gitignore": "/.lake/\n"}
    if project.requires_mathlib:
        files |= _mathlib(site)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    site.must("git", "init", "--quiet", "--initial-branch=main", cwd=folder)
    site.must("git", "-c", "core.autocrlf=false", "add", "--all", cwd=folder)
    site.must("git", *who, "commit", "--quiet", "-m", "A project with sorries", cwd=folder)
    return f"{len(files)} files, {len(project.sorries)} sorries"


def _mathlib(site: Site) -> dict[str, str]:
    """Return lakefile and manifest for the commit that Mathlib tagged for this version of Lean."""
    said = site.must("git", "ls-remote", "--tags", MATHLIB, f"refs/tags/{site.version}*")
    tags = {name: commit for commit, _, name in (line.partition("\t") for line in said.splitlines())}
    name = f"refs/tags/{site.version}"
    commit = tags.get(f"{name}^{{}}") or tags.get(name)
    site.need(commit, f"a tag {site.version} of Mathlib")
    assert commit is not None
    raw = MATHLIB.replace("github.com", "raw.githubusercontent.com")
    theirs = site.must("curl", "-fsSL", f"{raw}/{commit}/lean-toolchain").strip()
    site.need(theirs == site.toolchain, f"a Mathlib for {site.toolchain}; its tag is for {theirs}")
    manifest = site.must("curl", "-fsSL", f"{raw}/{commit}/lake-manifest.json")
    return requiring_mathlib(site.version, commit, manifest)


def plain_build(site: Site, project: Project) -> str:
    """Build a clone with lake as people do: what fails here is no fault of the daemon."""
    site.lean()
    return _green(site, _clone(site, project, "plain") / project.folder, remaining=len(project.sorries))


def doctor(site: Site, project: Project) -> str:
    status, document = site.everlean(project, "doctor")
    if document is None:
        raise NotHeldError(f"`everlean doctor` ended with {status} and no answer")
    bad = [one for one in document["checks"] if one["verdict"] == "missing" and one["essential"]]
    if bad or status != 0:
        missing = "; ".join(f"{one['name']}: {one['detail']}" for one in bad)
        raise NotHeldError(f"`everlean doctor` ended with {status}: {missing}")
    about = [one["detail"] for one in document["checks"] if "lean" in one["name"].lower()]
    return "; ".join(about) or "nothing essential is missing"


def watched(site: Site, project: Project) -> str:
    """Have the daemon scan the commit, and compare the sorries that it finds with those that are there."""
    sha = _sha(site, project)

    def scanned() -> bool:
        heads = [head for one in site.asked(project, "repos")["repositories"] for head in one["heads"]]
        return any(head["scanned"] == sha for head in heads)

    site.work_off(project, scanned, "the scan")
    found = {
        one["declaration"]: one["path"] for one in site.asked(project, "sorries", quiet=False)["sorries"]
    }
    wrong = sorted(set(found.items()) ^ set(project.sorries.items()))
    if wrong:
        raise NotHeldError(f"sorries found or expected, and not both: {wrong}")
    _, examined = site.everlean(project, "doctor", quiet=False)
    checks = {one["name"]: one for one in (examined or {}).get("checks", ())}
    lean = checks.get(f"lean {site.version}")
    if lean is not None and lean["verdict"] == "missing":
        raise NotHeldError(f"nothing runs {site.version}: {lean['detail']}")
    runs = "nothing that it says yet" if lean is None else lean["detail"]
    return f"{len(found)} sorries in {len(set(found.values()))} files; run by {runs}"


def built(site: Site, project: Project) -> str:
    site.lean()
    site.work_off(project, lambda: _ended(site, project, "build"), "the build")
    job = _succeeded(site, project, "build")
    if lacking := job["summary"]["modules_failed"]:
        raise NotHeldError(f"without {', '.join(lacking)}: {'; '.join(job['summary']['first_errors'])}")
    cache = job["summary"].get("cache")
    return f"{job['seconds']:.0f} s, {job['summary']['bytes'] / 2**20:.1f} MiB" + f"; cache: {cache}" * bool(
        cache
    )


def traced(site: Site, project: Project) -> str:
    site.lean()
    site.need(_ended(site, project, "build", "succeeded"), f"a build (the step {project.name}-build)")
    site.work_off(project, lambda: _ended(site, project, "trace"), "the trace")
    _succeeded(site, project, "trace")
    rows = site.asked(project, "repos", "--gaps", quiet=False)["repositories"]
    (found,) = [trace for row in rows for trace in row["traces"]]
    files, theorems = found["files_traced"], found["theorems_traced"]
    told = f"{files} of {found['files_seen']} files, {theorems} of {project.theorems} theorems"
    if files < found["files_seen"] or theorems < project.theorems:
        gaps = [f"{gap['path']} {gap['declaration']}: {gap['reason']}" for gap in found["gaps"]]
        raise NotHeldError(f"{told}; {'; '.join(gaps[:5])}")
    return f"{told}, {found['tactics_traced']} tactics; gaps: {found['lacking'] or 'none'}"


def searched(site: Site, project: Project) -> str:
    """Have every sorry searched: what can be proved has a proof, what is false has none that a check let pass."""
    site.lean()
    site.need(_ended(site, project, "build", "succeeded"), f"a build (the step {project.name}-build)")

    def tried() -> bool:
        return all(one["tried"] for one in site.rows(project, "sorries"))

    site.work_off(project, tried, "the search")
    sorries = {one["declaration"]: one for one in site.asked(project, "sorries", quiet=False)["sorries"]}
    proofs = {
        one["declaration"]: one for one in site.asked(project, "proofs", "--all", quiet=False)["proofs"]
    }
    for name, proof in proofs.items():
        site.say(f"{name}: {proof['replacement']!r}")
    _tell_jobs(site, project, "prove")
    if none := sorted(set(project.provable) - set(proofs)):
        for name in none:
            site.everlean(project, "sorries", "show", sorries[name]["sorry"]) if name in sorries else None
        why = {
            name: (sorries[name]["tried"] or {}).get("outcome", "not tried")
            for name in none
            if name in sorries
        }
        raise NotHeldError(f"no proof for {', '.join(f'{name} ({how})' for name, how in why.items())}")
    false = {name: (sorries[name]["tried"] or {}).get("outcome", "not tried") for name in project.false}
    return f"{len(project.provable)} proofs; false: {false}"


def checked(site: Site, project: Project) -> str:
    """Have every proof judged."""
    site.lean()
    _proofs(site, project)

    def judged() -> bool:
        return all(one["checked_at"] for one in site.rows(project, "proofs", "--all"))

    site.work_off(project, judged, "the checks")
    site.asked(project, "proofs", "--all", quiet=False)
    _tell_jobs(site, project, "check")
    checker = (site.sysroot / "bin" / "leanchecker").exists()
    return grades(project, _proofs(site, project), checker=checker)


def grades(project: Project, proofs: Sequence[dict[str, Any]], *, checker: bool) -> str:
    """Hold that each proof is verified, by a kernel's replay where there is a checker, and that nothing false is."""
    state = {one["declaration"]: one["state"] for one in proofs if one["state"] != "rejected"}
    if proved := {name: state[name] for name in project.false if name in state}:
        raise NotHeldError(f"FALSE STATEMENTS HAVE PROOFS: {proved}")
    bad: dict[str, list[str]] = {}
    for one in proofs:
        if one["state"] != "verified" and one["declaration"] in project.provable:
            not_made = [each for each in one["checks"] if each["verdict"] == "not_checked"]
            why = one["reason"] or "; ".join(f"{each['step']}: {each['evidence']}" for each in not_made)
            bad.setdefault(f"{one['label']}: {why}", []).append(one["declaration"])
    if bad:
        raise NotHeldError("; ".join(f"{', '.join(names)}: {why}" for why, names in bad.items()))
    verified = [one for one in proofs if one["state"] == "verified"]
    counts = Counter(f"{one['grade']} by {one['kernel'] or 'no kernel'}" for one in verified)
    told = "; ".join(f"{count} verified, {grade}" for grade, count in counts.items())
    if checker and any(one["grade"] == "L0" for one in verified):
        raise NotHeldError(f"the toolchain has a leanchecker, and not all is replayed: {told}")
    return told


def patched(site: Site, project: Project) -> str:
    """Apply every patch to a clone, and build that with lake: it is green, and those sorries are gone."""
    site.lean()
    proofs = [one for one in _proofs(site, project) if one["patch_sha256"] and one["state"] != "rejected"]
    site.need(proofs, "a proof with a patch")
    folder = _clone(site, project, "patched")
    built = folder / project.folder
    before, _ = site.run(site.sysroot / "bin" / "lake", "build", cwd=built)
    filled = {one["declaration"]: one for one in proofs}
    for name, proof in filled.items():
        patch = site.place(project) / f"{name}.patch"
        text = site.asked(project, "proofs", "patch", proof["proof"])["patch"]
        patch.write_bytes(text.encode())
        site.must("git", "apply", "--verbose", patch, cwd=folder)
    told = f"{len(filled)} patches applied"
    if before != 0:
        raise NotHeldError(f"{told}, but lake build is red without them (the step {project.name}-lake)")
    return f"{told}; {_green(site, built, remaining=len(project.sorries) - len(filled))}"


def closure(site: Site, project: Project, sandbox: Sandbox = "bubblewrap") -> str:
    """Write a theorem with all that it rests on, compare the library's constants, and have Lean's kernels judge it."""
    site.lean()
    assert project.deep is not None
    module, theorem = project.deep
    folder = _clone(site, project, "closure") / project.folder
    site.must(site.sysroot / "bin" / "lake", "build", cwd=folder)
    packages = folder / ".lake" / "packages"
    seen = (packages.resolve(),) if packages.is_dir() else ()
    runner = LakeRunner(site.sysroot / "bin" / "lake", site.sysroot, sandbox, folder, readable=seen)
    panel = find_kernels(AUTO, runner, toolchain=site.toolchain)
    began = time.monotonic()
    with asked_exactly(runner, module=module, declaration=theorem, scope="closure") as found:
        if isinstance(found, str):
            raise NotHeldError(found)
        whole, export = found
        told = (
            f"{theorem}: {len(whole.export.declared)} constants, {export.stat().st_size / 2**20:.0f} MiB,"
            f" {time.monotonic() - began:.0f} s"
        )
        bad, axioms = [], sorted(".".join(name) for name in whole.export.axioms)
        began = time.monotonic()
        built = [one.resolve() for one in built_folders(folder)]
        those = [one for one in built if one.is_relative_to(packages.resolve())]
        library = Library(runner, (site.sysroot / "lib" / "lean", *those))
        try:
            differs = library.differs(whole, whole, imports=("Init",))
        except UnknownError as error:
            differs = str(error)
        site.say(f"the library's constants: {differs or 'the same'}, {time.monotonic() - began:.0f} s")
        if differs is not None:
            bad.append(differs)
        for one in panel.kernels:
            began = time.monotonic()
            judged = judge_export(one, export, axioms=axioms, runner=runner, bounds=KERNEL_BOUNDS)
            site.say(f"{one.name}: {judged.word} {judged.why}, {time.monotonic() - began:.0f} s")
            if judged.word != "accepted":
                bad.append(f"{one.name}: {judged.word}: {judged.why}")
    if bad:
        raise NotHeldError("; ".join([told, *bad]))
    return (
        f"{told}; accepted by {', '.join(one.name for one in panel.kernels) or 'no kernel: it brings none'}"
    )


def database(site: Site, project: Project) -> str:
    """Rebuild the view beside the live one and compare, check the log, and ask for the health."""
    site.need(
        (site.place(project) / "state" / "events.db").exists(), f"a log (the step {project.name}-watch)"
    )
    for words in (("db", "verify"), ("db", "check")):
        status, document = site.everlean(project, *words)
        if status != 0:
            raise NotHeldError(f"`everlean {' '.join(words)}` ended with {status}: {document}")
    site.watch(project)
    status = site.asked(project, "status", quiet=False)
    problems = [
        f"{one['code']}: {one['message']}" for one in status["problems"] if one["severity"] == "error"
    ]
    if problems and not all(one.startswith("daemon_") for one in problems):
        raise NotHeldError("; ".join(problems))
    return f"{status['log']['position']} events; {status['summary']}"


def _clone(site: Site, project: Project, name: str) -> Path:
    """Clone the project to a new folder; a project with packages gets those that the daemon fetched."""
    source = site.repository(project)
    folder = site.place(project) / name
    remove_tree(folder)
    site.must("git", "-c", "core.autocrlf=false", "clone", "--quiet", source, folder)
    if project.requires_mathlib:
        fetched = sorted((site.folder / "cache" / "dependencies").glob("[!.]*/packages"))
        site.need(fetched, f"Mathlib (the step {project.name}-build)")
        (folder / ".lake").mkdir()
        (folder / ".lake" / "packages").symlink_to(fetched[0])
    return folder


def _green(site: Site, folder: Path, *, remaining: int) -> str:
    """Build with lake; it has no error, and as many declarations use a sorry as are left."""
    said = site.must(site.sysroot / "bin" / "lake", "build", cwd=folder)
    left = len(_SORRY.findall(said))
    if left != remaining:
        raise NotHeldError(f"lake names {left} declarations with a sorry, not {remaining}")
    return f"lake build is green, in which {left} declarations have a sorry"


def _log(site: Site, project: Project) -> None:
    """End the step where no daemon has recorded anything yet."""
    there = (site.place(project) / "state" / "database.db").exists()
    site.need(there, f"a log (the step {project.name}-watch)")


def _sha(site: Site, project: Project) -> str:
    return site.must("git", "rev-parse", "HEAD", cwd=site.repository(project)).strip()


def _ended(site: Site, project: Project, kind: str, *states: str) -> bool:
    """Return whether the newest job of a kind has ended, in one of these states."""
    _log(site, project)
    jobs = site.jobs(project, kind)
    return bool(jobs) and jobs[0]["state"] in (states or ("succeeded", "failed", "cancelled"))


def _succeeded(site: Site, project: Project, kind: str) -> dict[str, Any]:
    """Return the newest job of a kind, which has to have succeeded."""
    jobs = site.jobs(project, kind)
    if not jobs:
        queued = [one["describes"] for one in site.asked(project, "status")["jobs"]["queued"]]
        waits = site.asked(project, "status")["problems"]
        raise NotHeldError(f"no {kind} was begun; queued: {queued}; {[one['message'] for one in waits]}")
    _tell_jobs(site, project, kind)
    if jobs[0]["state"] != "succeeded":
        raise NotHeldError(f"the {kind} {jobs[0]['state']}: {jobs[0]['reason']}: {jobs[0]['message']}")
    return jobs[0]


def _tell_jobs(site: Site, project: Project, kind: str) -> None:
    """Put all jobs of a kind into the output, with what they wrote."""
    for job in site.jobs(project, kind):
        site.say(json.dumps(job, indent=1, ensure_ascii=False))
        site.everlean(project, "jobs", "logs", job["job"])


def _proofs(site: Site, project: Project) -> list[dict[str, Any]]:
    """Return the proofs, of which there have to be some."""
    _log(site, project)
    proofs = site.rows(project, "proofs", "--all")
    site.need(proofs, f"a proof (the step {project.name}-search)")
    return proofs


# ---- all steps, and the command line


def steps(projects: Iterable[Project]) -> list[Step]:
    """Return the steps in their order: name, time limit in seconds, work."""
    found = [
        Step("machine", 60, machine),
        Step("toolchain", 900, toolchain),
        Step("lean", 60, lean),
        Step("kernels", 300, kernels),
        Step("programs", 300, programs),
        Step("tests", 900, marked_tests),
        Step("latency", 600, latency),
    ]
    for project in projects:
        large, small = project.requires_mathlib, bool(project.folder)
        some = 150.0 if small else 600.0
        parts: list[tuple[str, float, Callable[[Site, Project], str]]] = [
            ("project", 120, project_made),
            *([] if large else [("lake", some, plain_build)]),
            ("doctor", 60, doctor),
            ("watch", 120, watched),
            ("build", 5400 if large else some, built),
            ("trace", 1800 if large else 1.5 * some, traced),
            ("search", 900 if large else some, searched),
            ("check", 1800 if large else some, checked),
            ("patches", 900 if large else some, patched),
            *([("closure", 900.0, closure)] if project.deep else []),
            ("database", 120, database),
        ]
        for name, seconds, work in parts:
            found.append(Step(f"{project.name}-{name}", seconds, _of(work, project)))
    return found


def _of(work: Callable[[Site, Project], str], project: Project) -> Callable[[Site], str]:
    return lambda site: work(site, project)


CONFIG = """# Made by `make acceptance`. What is not here has its default.
[daemon]
state_dir = "state"
cache_dir = "../cache"
runtime_dir = "run"

[poll]

[lean]
as_root = true # this machine was made for it

[train]
enabled = false

[[repos]]
url = "./repository"
every = "5s"
"""


def prepare(out: Path, versions: Sequence[str], elan_home: Path | None, *, again: bool) -> list[Site]:
    """Make a folder for each version. What an earlier run made goes, but for toolchains, or all stays (`again`)."""
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()
    sites = []
    for version in versions:
        folder = out / version
        for project in PROJECTS:
            stop_daemon(folder / project.name / "state" / "daemon.lock")
        for old in folder.iterdir() if folder.is_dir() and not again else ():
            if old.name != "elan":
                remove_tree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        site = Site(version, folder, elan_home or folder / "elan")
        for made in (site.folder / "home", site.elan_home):
            made.mkdir(parents=True, exist_ok=True)
        for project in PROJECTS:
            site.place(project).mkdir(exist_ok=True)
            site.config(project).write_text(CONFIG, "utf-8")
        sites.append(site)
    return sites


def perform(
    sites: Sequence[Site],
    chosen: Sequence[Step],
    out: Path,
    about: Sequence[str],
    before: Iterable[Result] = (),
) -> list[Result]:
    """Make every step for every version, one line each; the table is on the disk after each step.

    It begins with the results from before, which are returned too.
    """
    results = [*before]
    for site in sites:
        try:
            for number, step in enumerate(chosen, start=1):
                print(f"[{number}/{len(chosen)}] {site.version} {step.name} … ", end="", flush=True)
                results.append(result := make(site, step))
                print(f"{result.verdict}, {result.seconds:.1f} s: {result.reason}", flush=True)
                written(results, about, out)
        finally:
            site.stop_all()
    return results


def missing() -> list[str]:
    """Return what is not installed and is needed, each with how to install it."""
    return [f"{name} is not on PATH: {how}" for name, how in INSTALL.items() if shutil.which(name) is None]


def choose(releases: Sequence[dict[str, Any]], newest: int, *, candidate: bool) -> list[str]:
    """Return the newest releases, one for each minor version, and the candidate if it is newer than all of them."""
    names = [str(one["tag_name"]) for one in releases if not one.get("draft")]
    stable = sorted((int(one[1]), int(one[2])) for name in names if (one := _STABLE.fullmatch(name)))
    by_minor = dict(stable)
    chosen = [f"v4.{minor}.{by_minor[minor]}" for minor in sorted(by_minor, reverse=True)[:newest]]
    ahead = [(int(one[1]), int(one[2]), int(one[3])) for name in names if (one := _CANDIDATE.fullmatch(name))]
    if candidate and ahead and (not stable or max(ahead)[:2] > stable[-1]):
        chosen.append("v4.{}.{}-rc{}".format(*max(ahead)))
    return chosen


def releases_of_lean() -> list[dict[str, Any]]:
    """Ask GitHub for Lean's releases."""
    token = os.environ.get("GITHUB_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(RELEASES, headers=headers), timeout=60) as answer:
        return list(json.load(answer))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m tests.acceptance.real_lean", description=__doc__.splitlines()[0]
    )
    found.add_argument(
        "--lean", action="append", default=[], metavar="V", help="a version, such as v4.35.0; may be repeated"
    )
    found.add_argument(
        "--newest",
        type=int,
        default=0,
        metavar="N",
        help="the newest release of each of the N newest minor versions, by GitHub's list",
    )
    found.add_argument(
        "--candidate", action="store_true", help="the release candidate that is newer than those"
    )
    found.add_argument(
        "--row", action="store_true", help=f"before all else our Lean programs alone on {', '.join(ROW)}"
    )
    found.add_argument("--list", action="store_true", help="print the versions as JSON and do nothing")
    found.add_argument(
        "--mathlib", action="store_true", help="also the project that requires Mathlib (10 GB)"
    )
    found.add_argument(
        "--out", type=Path, default=Path("acceptance-run"), metavar="FOLDER", help="where everything goes"
    )
    found.add_argument(
        "--elan-home",
        type=Path,
        metavar="FOLDER",
        help="elan's toolchains, such as ~/.elan; default: in --out",
    )
    found.add_argument(
        "--step",
        action="append",
        default=[],
        metavar="NAME",
        help="only this step, in what an earlier run left; may be repeated",
    )
    found.add_argument("--limit", type=float, metavar="SECONDS", help="no step may take longer than this")
    return found


def _about() -> list[str]:
    """Say which everlean this is, when, and on what."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    describe = ("git", "describe", "--always", "--dirty")
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return [
        f"everlean {version} ({commit or 'no commit'}), {when}",
        f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} processors",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    known = steps(one for one in PROJECTS if options.mathlib or not one.requires_mathlib)
    if unknown := set(options.step) - {step.name for step in known}:
        parser().error(
            f"--step {', '.join(sorted(unknown))}: there are {', '.join(step.name for step in known)}"
        )
    try:
        versions = [str(parse_version(one)) for one in options.lean]
        if options.newest or options.candidate:
            versions += choose(releases_of_lean(), options.newest, candidate=options.candidate)
    except VersionError as error:
        parser().error(f"--lean {error}")
    except OSError as error:
        print(f"{RELEASES}: {error}; name the versions by --lean", file=sys.stderr)
        return EX_UNAVAILABLE
    if options.list:
        print(json.dumps(versions))
        return 0
    if not versions:
        parser().error("name a version: --lean v4.35.0, or --newest 1")
    if lacking := missing():
        print("\n".join(["`make acceptance` needs what is not here:", *lacking]), file=sys.stderr)
        return EX_UNAVAILABLE
    out = options.out.absolute()
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        parser().error(f"--out {out}: exists and was not made by this; name another folder")
    elan_home = options.elan_home.expanduser().absolute() if options.elan_home else None
    chosen = [step for step in known if not options.step or step.name in options.step]
    if options.limit:
        chosen = [Step(step.name, min(step.seconds, options.limit), step.work) for step in chosen]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the daemon is stopped
    row = [one for one in ROW if one not in versions] if options.row else []
    sites = prepare(out, [*row, *versions], elan_home, again=bool(options.step))
    about = _about()
    alone = [step for step in chosen if step.name in OF_THE_ROW]
    results = perform(sites[: len(row)], alone, out, about)
    results = perform(sites[len(row) :], chosen, out, about, results)
    print("\n" + written(results, about, out))
    print(f"Everything that the steps said is in {out}.")
    return 1 if any(one.verdict in ("failed", "timed out") for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
