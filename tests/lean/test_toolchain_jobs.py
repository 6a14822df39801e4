"""Jobs and the build of the REPL that they run: held while a job lives, and refused where it only stands in for Lean.

Every kind of job that starts Lean or lake is run here as the daemon runs it, as a process of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.kinds import KINDS as JOB_KINDS
from pipeline.jobs.kinds import Kind
from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.pool import PoolLimits
from pipeline.lean.toolchain.standins import MARK, SWITCH, is_stand_in
from pipeline.lean.toolchain.toolchains import ToolchainBusyError, ToolchainError, Toolchains, parse_version
from store.domain.identity import git_blob
from tests.support.daemon import warm
from tests.support.gate import Case, GateProject
from tests.support.lean.credulous import make_credulous
from tests.support.lean.toolchain import STANDS_IN, make_toolchain, write_repl
from tests.support.lean.toolchain_build import write_build
from tests.support.specs import raw_spec
from tests.support.trace import Workshop

VERSION = parse_version("v4.21.0")
KINDS: tuple[Kind, ...] = ("trace", "prove", "check", "build")
LEAN_TEXT = "theorem mine : True := by\n  sorry\n"


class Site:
    """A cache of builds, and a spec for each kind of job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = Toolchains(folder / "cache" / "toolchains")
        self.started, self.goes_on = folder / "started", folder / "goes-on"

    def waiting_build(self) -> LeanBackend:
        """A build whose REPL and lake tell that they run, and wait."""
        script = (
            f"#!/bin/sh\ntouch {self.started}\nwhile ! [ -e {self.goes_on} ]; do sleep 0.05; done\nexit 1\n"
        )
        made = write_build(self.cache.folder, "v4.21.0", home=self.folder / "elan", repl=script)
        lake = Path(made.sysroot, "bin", "lake")
        lake.write_text(script)
        lake.chmod(0o755)
        return self.chosen()

    def chosen(self, *, repl: str = "", toolchain: str = "v4.21.0") -> LeanBackend:
        leans = find_leans(backend="auto", repl=repl, sandbox="none", toolchains=self.cache.folder)
        return leans.for_toolchain(toolchain)

    def parameters(self, kind: Kind, lean: LeanBackend) -> dict[str, Any]:
        if kind == "trace":
            workshop = Workshop(self.folder / "trace", lean)
            workshop.commit({"Demo.lean": LEAN_TEXT})
            parameters = workshop.parameters()
            workshop.close()
            return parameters
        if kind == "check":
            court = GateProject(self.folder / "check")
            proof = court.found(
                Case("trivial", file="theorem mine : True := by\n  HOLE\n", declaration="mine"),
            )
            (court.project / "lakefile.toml").unlink()
            return {"worktree": court.project, "lean": lean, "proof": proof}
        worktree = self.folder / kind
        worktree.mkdir()
        (worktree / "Demo.lean").write_text(LEAN_TEXT)
        common = {
            "repository": "local/x/demo",
            "branch": "main",
            "sha": "a" * 40,
            "worktree": str(worktree),
            "lean": lean,
        }
        if kind == "build":
            (worktree / "lakefile.toml").write_text('name = "demo"\n')
            (worktree / "lean-toolchain").write_text(lean.toolchain + "\n")
            bounds = {"timeout_s": 60, "memory_bytes": 2**30, "disk_bytes": 2**28}
            return {**common, **bounds, "cache": str(self.folder / "cache"), "hosts": [], "modules": []}
        start = LEAN_TEXT.index("sorry")
        sorry = {
            "sorry": "s" * 16, "path": "Demo.lean", "blob": git_blob(LEAN_TEXT.encode(), like="0" * 40),
            "byte_start": start, "byte_end": start + 5, "declaration": "mine", "kind": "theorem", "ordinal": 0,
        }  # fmt: skip
        budget = {"seconds": 5, "nodes": 10, "tactic_timeout_s": 5}
        return {
            **common, "limits": PoolLimits(), "rung": {"number": 0}, "budget": budget, "budget_key": "small",
            "parallel": 1, "sorries": [sorry],
        }  # fmt: skip

    @contextmanager
    def job(self, kind: Kind, lean: LeanBackend, *, stand_ins: bool) -> Iterator[subprocess.Popen[bytes]]:
        """Start the job, with the tests' switch in its environment or not; it is ended with the block."""
        folder = self.folder / f"job-{kind}"
        folder.mkdir()
        spec_file = raw_spec(kind, self.parameters(kind, lean), folder).write()
        environment = {name: value for name, value in os.environ.items() if name != SWITCH}
        if stand_ins:
            environment[SWITCH] = "1"
        module = JOB_KINDS[kind].module
        with warm.launch(
            module, spec_file, folder=folder, errors=folder / "stderr", environment=environment
        ) as process:
            try:
                yield process
            finally:
                self.goes_on.touch()
                process.kill()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_sandbox_can_be_made_nothing_of_a_repository_runs(
    site: Site, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bwrap may be there and forbidden to make namespaces. That is no fault of the commit, which is tried again."""
    lean = dataclasses.replace(site.waiting_build(), sandbox="bubblewrap")
    broken = site.folder / "programs" / "bwrap"
    broken.parent.mkdir()
    broken.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n", "utf-8"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    with site.job(kind, lean, stand_ins=True) as process:
        said, _ = process.communicate(timeout=60)
    last = json.loads(said.splitlines()[-1])

    assert (last["line"], last["reason"], last["deterministic"]) == ("failure", "sandbox_missing", False)
    assert "No permissions" in last["message"]
    assert not site.started.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_job_keeps_its_build_from_being_removed(site: Site, kind: Kind) -> None:
    lean = site.waiting_build()
    with site.job(kind, lean, stand_ins=False) as process:
        wait_for(site.started, process)
        with pytest.raises(ToolchainBusyError, match=rf"is used by process {process.pid};"):
            site.cache.remove(VERSION)
        assert site.cache.users(VERSION) == (process.pid,)
        process.kill()
        process.wait(30)
        assert site.cache.remove(VERSION).version == VERSION


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_whose_build_was_removed_since_it_was_planned_fails_and_names_the_remedy(
    site: Site, kind: Kind
) -> None:
    lean = site.waiting_build()
    site.cache.remove(VERSION)
    with site.job(kind, lean, stand_ins=False) as process:
        failure = ended(process)
    assert (failure["reason"], failure["deterministic"]) == ("toolchain_missing", False)
    assert "everlean toolchain install v4.21.0" in failure["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_job_works_with_a_stand_in_outside_of_the_tests(site: Site, kind: Kind) -> None:
    repl = site.folder / "pantograph-repl"
    tools = make_toolchain(site.folder)
    write_repl(repl, tools.sysroot)
    lean = LeanBackend(
        "pantograph", (str(repl),), "made by hand", tools.toolchain, sandbox="none", sysroot=str(tools.sysroot),
    )  # fmt: skip
    with site.job(kind, lean, stand_ins=False) as process:
        failure = ended(process)
    assert failure["reason"] == "toolchain_missing"
    assert f"{repl}: a stand-in for tests, not Lean" in failure["message"]


def test_a_stand_in_behind_another_script_gives_itself_away_by_its_version(
    site: Site, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = site.folder / "tools" / "bin" / "unremarkable"
    hidden.parent.mkdir(parents=True)
    hidden.write_text(f"#!/bin/sh\necho 'everlean-simulator 0.1 ({MARK})'\n")
    wrapper = site.folder / "repl"
    wrapper.write_text(f'#!/bin/sh\nexec {hidden} "$@"\n')
    for path in (hidden, wrapper):
        path.chmod(0o755)
    monkeypatch.delenv(SWITCH)
    assert not is_stand_in(wrapper)
    lean = LeanBackend(
        "pantograph", (str(wrapper),), "", "", sandbox="bubblewrap" if sandbox == "bubblewrap" else "none",
        sysroot=str(site.folder / "tools"),
    )  # fmt: skip
    with (
        pytest.raises(ToolchainError, match=r"repl: a stand-in for tests, not Lean.*everlean-simulator"),
        lean.in_use(),
    ):
        pytest.fail("what is not Lean must not be used")


def test_stand_ins_are_found_in_every_place_where_a_repl_is_looked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = make_toolchain(site.folder)
    beside = site.folder / "beside"
    write_repl(beside / "pantograph-repl", tools.sysroot)
    (beside / "lean-toolchain").write_text(tools.toolchain)
    bundled = site.folder / "site" / "pantograph" / "pantograph-repl"
    write_repl(bundled, tools.sysroot)
    (bundled.parent / "__init__.py").touch()
    write_build(site.cache.folder, "v4.21.0", home=tools.home, repl=bundled.read_text())
    monkeypatch.setenv("PATH", f"{beside}:{os.environ['PATH']}")
    assert site.chosen().kind == "pantograph"

    monkeypatch.delenv(SWITCH)
    assert "not Lean" in site.chosen().detail
    (cached,) = site.cache.installed()
    assert "not Lean" in cached.problem
    with pytest.raises(ToolchainError, match="not Lean"), site.cache.in_use(VERSION):
        pytest.fail("what is not Lean must not be used")
    site.cache.remove(VERSION)
    monkeypatch.setattr(sys, "path", [str(site.folder / "site"), *sys.path])
    for repl in ("", str(beside / "pantograph-repl")):
        chosen = site.chosen(repl=repl)
        assert chosen.kind == "none"
        assert (
            str(beside)
            in find_leans(
                backend="auto", repl=repl, sandbox="none", toolchains=site.cache.folder
            ).summary.detail
        )


def test_a_real_repl_beside_a_stand_in_for_lake_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = make_toolchain(site.folder)
    write_build(site.cache.folder, "v4.21.0", home=tools.home, repl="#!/bin/sh\nexit 1\n")
    assert site.chosen().kind == "pantograph"
    monkeypatch.delenv(SWITCH)
    assert f"{tools.lean}: a stand-in" in site.chosen().detail


def test_every_program_that_stands_in_for_lean_can_be_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.lean.simulator import VERSION as SIMULATOR

    assert MARK in STANDS_IN
    assert MARK in SIMULATOR
    tools = make_toolchain(site.folder, leanchecker=True)
    write_repl(site.folder / "repl", tools.sysroot)
    credulous = make_credulous(site.folder / "credulous").sysroot
    programs = [
        site.folder / "repl",
        *tools.bin.iterdir(),
        *(tools.sysroot / "bin").iterdir(),
        *(credulous / "bin").iterdir(),
    ]
    assert len(programs) > 8
    assert [program for program in programs if not is_stand_in(program)] == []
    assert not is_stand_in(Path("/bin/sh"))
    assert not is_stand_in(site.folder / "nothing")


def ended(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The last line of a job that failed and asked for no event."""
    said, _ = process.communicate(timeout=60)
    lines = [json.loads(line) for line in said.splitlines()]
    assert process.returncode == 1
    assert [line["line"] for line in lines if line["line"] not in ("progress", "failure")] == []
    assert lines[-1]["line"] == "failure"
    last: dict[str, Any] = lines[-1]
    return last


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the job ended with {process.returncode} or took too long")
        time.sleep(0.02)
