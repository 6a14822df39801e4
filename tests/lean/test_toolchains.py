"""The cache of REPL builds: installing with real git and stand-in elan and lake, every way to fail, removing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.client.messages import TacticOk
from pipeline.lean.client.repl import Repl
from pipeline.lean.repl_install import Installed, Patience, install
from pipeline.lean.toolchain.standins import SWITCH
from pipeline.lean.toolchain.toolchains import (
    PANTOGRAPH,
    RECORD,
    REPL,
    Toolchain,
    ToolchainBusyError,
    ToolchainError,
    Toolchains,
    find_elan,
    known_releases,
    parse_version,
    sha256_of,
)
from tests.support.daemon.remote import Remote
from tests.support.lean.toolchain import make_elan
from tests.support.lean.toolchain_build import write_build

VERSION = parse_version("v4.21.0")
LAKEFILE = "import Lake\nopen Lake DSL\npackage pantograph\nlean_exe repl where\n  root := `Main\n"
_INSTALL = """
import sys
from pathlib import Path
from pipeline.lean.repl_install import install
from pipeline.lean.toolchain.toolchains import parse_version
from pipeline.lean.toolchain.toolchains import Toolchains

cache, revision, source = sys.argv[1:]
install(Toolchains(Path(cache)), parse_version("v4.21.0"), sandbox="none", revision=revision, source=source)
"""
MAIN = "def main : IO Unit := pure ()\n"


class Bench:
    """A machine with elan, a repository of Pantograph's source, and a cache."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.cache = Toolchains(folder / "cache" / "toolchains")
        self.remote = Remote(folder / "pantograph")
        self.sha = self.commit()
        self.said: list[str] = []
        monkeypatch.setenv("ELAN_HOME", str(folder / "elan"))
        monkeypatch.setenv("PATH", f"{folder / 'elan' / 'bin'}:{os.environ['PATH']}")

    def elan(self, *, offline: bool = False, releases: list[str] | None = None) -> None:
        make_elan(self.folder, offline=offline, releases=releases)

    def commit(self, *, toolchain: str = "leanprover/lean4:v4.21.0", main: str = MAIN, more: str = "") -> str:
        files = {"lean-toolchain": toolchain + "\n", "lakefile.lean": LAKEFILE + more, "Main.lean": main}
        return self.remote.commit("source", files)

    def install(
        self, *, sandbox: str = "none", sha: str | None = None, patience: Patience | None = None
    ) -> Installed:
        return install(
            self.cache,
            VERSION,
            sandbox="bubblewrap" if sandbox == "bubblewrap" else "none",
            revision=self.sha if sha is None else sha,
            source=f"file://{self.remote.path}",
            patience=patience,
            say=self.said.append,
        )

    def placed(self) -> Toolchain:
        """A build, without the work."""
        return write_build(self.cache.folder, "v4.21.0", home=self.folder / "elan")

    def lake(self, script: str) -> None:
        """Have this shell script for the lake of the toolchain."""
        folder = self.folder / "elan" / "toolchains" / VERSION.elan_folder / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("lean", "lake"):
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    def left(self) -> list[str]:
        """What an installation left in the cache, locks and logs aside."""
        if not self.cache.folder.is_dir():
            return []
        return sorted(
            path.name for path in self.cache.folder.iterdir() if path.name not in (".locks", ".logs")
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_an_installation_leaves_a_whole_build_and_nothing_else(bench: Bench) -> None:
    bench.elan()
    done = bench.install()

    assert done.made
    (found,) = bench.cache.installed()
    assert found == done.toolchain
    assert (found.problem, found.revision, found.version) == ("", bench.sha, VERSION)
    assert found.sysroot == str(bench.folder / "elan" / "toolchains" / "leanprover--lean4---v4.21.0")
    assert bench.left() == ["v4.21.0"]
    assert sorted(path.name for path in found.folder.iterdir()) == ["lean-toolchain", REPL, RECORD]
    record = json.loads((found.folder / RECORD).read_text("utf-8"))
    assert {file["name"]: file["sha256"] for file in record["files"]}[REPL] == sha256_of(found.repl)
    assert bench.cache.check(found) == ""


@pytest.mark.usefixtures("bubblewrap", "python_in_usr")
def test_every_step_runs_in_the_sandbox(bench: Bench) -> None:
    secret = bench.folder / "secret.txt"
    secret.write_text("s3cret")
    # What it writes outside of its folder is in the sandbox's own /tmp, and gone with it.
    attack = f"! cat {secret} && ! test -e /etc/passwd && (touch {bench.folder}/written || true)"
    bench.sha = bench.commit(more=f"--! run {attack}\n")
    bench.elan()

    assert bench.install(sandbox="bubblewrap").toolchain.problem == ""
    assert not (bench.folder / "written").exists()


@pytest.mark.usefixtures("bubblewrap", "python_in_usr")
def test_the_new_repl_is_what_the_backend_runs(bench: Bench) -> None:
    bench.elan()
    made = bench.install(sandbox="bubblewrap").toolchain
    backend = find_leans(
        backend="auto", repl="", sandbox="bubblewrap", toolchains=bench.cache.folder
    ).for_toolchain("leanprover/lean4:v4.21.0\n")

    assert (backend.kind, backend.argv, backend.sysroot) == ("pantograph", (str(made.repl),), made.sysroot)
    assert backend.build == str(made.folder)
    assert tells_true_from_false(backend, bench.folder / "pantograph")


def test_a_repl_that_says_it_is_not_lean_is_not_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH)
    bench.elan()
    with pytest.raises(
        ToolchainError, match=r"pantograph-repl: a stand-in for tests, not Lean.*nothing was installed"
    ):
        bench.install()
    assert bench.left() == []


def test_a_second_installation_finds_the_first(bench: Bench) -> None:
    bench.elan()
    first = bench.install()
    again = bench.install()

    assert (first.made, again.made) == (True, False)
    assert again.toolchain == first.toolchain


def test_an_installed_lean_is_not_installed_again(bench: Bench) -> None:
    bench.elan()
    bench.install()
    bench.cache.remove(VERSION)
    bench.said.clear()
    bench.install()

    assert not any("elan" in line for line in bench.said)


def test_without_git_the_error_comes_before_lean_is_fetched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.elan()
    monkeypatch.setenv("PATH", str(bench.folder / "elan" / "bin"))
    with pytest.raises(ToolchainError, match=r"git is not on PATH; install it"):
        bench.install()
    assert bench.said == []
    assert bench.left() == []


def test_a_disk_that_is_full_is_named_and_nothing_is_left(bench: Bench) -> None:
    bench.elan()
    big = bench.folder / "big"
    big.write_bytes(b"#!/bin/sh\n" + b"#" * 2**21)
    big.chmod(0o755)
    bench.lake(f"mkdir -p .lake/build/bin && ln {big} .lake/build/bin/repl")
    # No file can grow beyond 1 MiB: what is written behind that fails as on a full disk.
    limited = ["prlimit", "--fsize=1048576", sys.executable, "-c", _INSTALL]
    arguments = [str(bench.cache.folder), bench.sha, f"file://{bench.remote.path}"]
    done = subprocess.run([*limited, *arguments], capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "ToolchainError: v4.21.0: not installed: " in last
    assert "made/pantograph-repl: File too large; an installation needs some GiB below" in last
    assert bench.left() == []


def test_no_space_left_is_not_taken_for_a_build_that_wrote_too_much(bench: Bench) -> None:
    bench.lake("echo 'error: No space left on device'; exit 1")
    with pytest.raises(ToolchainError, match=rf"no space left on the disk of {bench.cache.folder} or"):
        bench.install()


def test_without_elan_the_error_says_where_to_get_it(bench: Bench) -> None:
    assert find_elan() is None
    with pytest.raises(ToolchainError, match=r"elan is not on PATH.*run `everlean setup`"):
        bench.install()
    assert bench.left() == []


def test_without_a_network_elans_own_words_are_shown(bench: Bench) -> None:
    bench.elan(offline=True)
    with pytest.raises(ToolchainError, match=r"elan could not install it \(exit status 1\)") as caught:
        bench.install()
    assert "Could not resolve host" in str(caught.value)
    assert bench.left() == []


def test_a_version_that_lean_never_released_is_elans_refusal(bench: Bench) -> None:
    bench.elan(releases=["leanprover/lean4:v4.20.0"])
    with pytest.raises(ToolchainError, match=r"no such release: 'v4.21.0'"):
        bench.install()


def test_a_broken_lean_that_elan_takes_for_whole_is_named(bench: Bench) -> None:
    bench.elan()
    (bench.folder / "elan" / "toolchains" / VERSION.elan_folder / "bin").mkdir(parents=True)
    with pytest.raises(ToolchainError, match=r"elan toolchain uninstall leanprover/lean4:v4\.21\.0"):
        bench.install()


def test_a_source_that_cannot_be_reached_is_gits_error(bench: Bench) -> None:
    bench.elan()
    empty = bench.folder / "empty"
    empty.mkdir()
    with pytest.raises(ToolchainError, match=r"git could not fetch it[\s\S]*empty"):
        install(bench.cache, VERSION, sandbox="none", revision=bench.sha, source=f"file://{empty}")
    assert bench.left() == []


@pytest.mark.usefixtures("bubblewrap", "python_in_usr")
def test_a_host_that_cannot_be_reached_leaves_nothing(bench: Bench) -> None:
    bench.elan()
    source = "https://nowhere.invalid/Pantograph.git"
    with pytest.raises(ToolchainError, match=r"git could not fetch it[\s\S]*refused: nowhere.invalid:443"):
        install(bench.cache, VERSION, sandbox="bubblewrap", revision=bench.sha, source=source)
    assert bench.left() == []


@pytest.mark.parametrize(
    "source",
    ["ext::sh -c date", "ssh://git@host/x", "-u", "/plain/path", "https://me:token@host/x", "file://x"],
)
def test_other_kinds_of_source_are_refused(bench: Bench, source: str) -> None:
    with pytest.raises(ToolchainError, match="--source"):
        install(bench.cache, VERSION, sandbox="none", revision=bench.sha, source=source)


def test_a_commit_that_is_not_there_is_an_error(bench: Bench) -> None:
    bench.elan()
    with pytest.raises(ToolchainError, match=r"has no commit"):
        bench.install(sha="0123456789" * 4)
    assert bench.left() == []


def test_a_commit_that_no_branch_points_to_is_found(bench: Bench) -> None:
    bench.elan()
    wanted = bench.sha
    bench.commit(toolchain="leanprover/lean4:v4.22.0")

    assert bench.install(sha=wanted).toolchain.revision == wanted


@pytest.mark.parametrize("revision", ["main", "757db11", "../x", "--upload-pack=x", "g" * 40])
def test_a_revision_has_to_be_a_full_commit_id(bench: Bench, revision: str) -> None:
    with pytest.raises(ToolchainError, match=r"--revision .*not a full commit id"):
        bench.install(sha=revision)


def test_a_source_for_another_lean_is_not_built(bench: Bench) -> None:
    bench.elan()
    sha = bench.commit(toolchain="leanprover/lean4:v4.22.0")
    with pytest.raises(ToolchainError, match=r"made for 'leanprover/lean4:v4.22.0'.*not built"):
        bench.install(sha=sha)
    assert not any("lake" in line for line in bench.said)
    assert bench.left() == []


def test_a_version_without_a_known_revision_lists_those_that_have_one(bench: Bench) -> None:
    with pytest.raises(ToolchainError, match=r"no revision.*v4\.21\.0.*--revision SHA.*lean4:v4\.5\.0"):
        install(bench.cache, parse_version("4.5.0"), sandbox="none")


def test_a_build_error_shows_the_end_of_the_output_and_keeps_the_rest(bench: Bench) -> None:
    bench.elan()
    noise = "--! run for i in $(seq 2000); do echo line $i; done\n--! error unknown identifier 'x'\n"
    sha = bench.commit(main=noise)
    with pytest.raises(ToolchainError, match=r"`lake build repl` failed \(exit status 1\)") as caught:
        bench.install(sha=sha)
    text = str(caught.value)
    assert "error: Main.lean:2:0: unknown identifier 'x'" in text
    assert "line 100\n" not in text
    assert "line 100\n" in (bench.cache.folder / ".logs" / "v4.21.0.log").read_text("utf-8")
    assert bench.left() == []


def test_a_build_that_hangs_is_ended(bench: Bench) -> None:
    bench.elan()
    sha = bench.commit(more="--! run sleep 1000\n")
    with pytest.raises(ToolchainError, match=r"no end after 0.5 s"):
        bench.install(sha=sha, patience=Patience(build_s=0.5))
    assert bench.left() == []


def test_a_build_that_dies_of_a_signal_is_said(bench: Bench) -> None:
    bench.elan()
    sha = bench.commit(more="--! run kill -9 $$\n")
    with pytest.raises(ToolchainError, match=r"ended by signal 9"):
        bench.install(sha=sha)
    assert bench.left() == []


def test_a_build_that_makes_no_repl_is_no_build_and_the_one_before_stays(bench: Bench) -> None:
    before = bench.placed()
    bench.lake("exit 0")
    with pytest.raises(ToolchainError, match=r"made no \.lake/build/bin/repl"):
        bench.install()
    assert bench.cache.installed() == (before,)


@pytest.mark.parametrize(
    ("repl", "problem"),
    [
        ("exit 3", "does not say its version"),
        ('[ "$1" = --version ] && echo 0.3 && exit; echo boom; exit 1', "does not start"),
        ('[ "$1" = --version ] && echo 0.3 && exit; echo ready.; cat', "did not open a goal"),
        ('[ "$1" = --version ] && echo 0.3 && exit; cat > /dev/null', "did not open a goal"),
    ],
)
def test_a_repl_that_does_not_work_is_not_kept(bench: Bench, repl: str, problem: str) -> None:
    program = bench.folder / "bad-repl"
    program.write_text(f"#!/bin/sh\n{repl}\n")
    program.chmod(0o755)
    bench.lake(f"mkdir -p .lake/build/bin && cp {program} .lake/build/bin/repl")
    with pytest.raises(ToolchainError, match=problem):
        bench.install()
    assert bench.left() == []


def test_an_installation_that_is_killed_leaves_nothing_and_the_next_one_works(bench: Bench) -> None:
    bench.elan()
    started, goes_on = bench.folder / "started", bench.folder / "goes-on"
    # Without a sandbox nothing ends lake with the one who started it, so it ends itself at the end of the test.
    wait = f"touch {started}; while ! [ -e {goes_on} ]; do sleep 0.1; done; exit 1"
    sha = bench.commit(more=f"--! run [ -e {started} ] || ({wait})\n")
    arguments = [str(bench.cache.folder), sha, f"file://{bench.remote.path}"]
    with subprocess.Popen([sys.executable, "-c", _INSTALL, *arguments], start_new_session=True) as process:
        _wait_for(started.exists)
        # Someone else who comes meanwhile is told who is at work.
        with pytest.raises(ToolchainBusyError, match=rf"process {process.pid} \(everlean toolchain install"):
            bench.install(sha=sha)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert bench.cache.installed() == ()
    assert bench.left() != []  # the folder that was being worked in
    assert bench.install(sha=sha).made
    assert bench.left() == ["v4.21.0"]
    goes_on.touch()


def test_a_build_that_was_changed_is_said_and_replaced_by_the_next_installation(bench: Bench) -> None:
    bench.elan()
    made = bench.install().toolchain
    made.repl.write_text("#!/bin/sh\necho ready.\n")

    (found,) = bench.cache.installed()
    assert "changed since it was built" in found.problem
    with pytest.raises(ToolchainError, match="changed since"), bench.cache.in_use(VERSION):
        pytest.fail("a damaged build must not be used")
    assert bench.install().made
    assert bench.cache.installed()[0].problem == ""


def test_a_change_that_keeps_size_and_time_is_found_by_the_full_check(bench: Bench) -> None:
    bench.elan()
    made = bench.install().toolchain
    before = made.repl.stat()
    text = made.repl.read_bytes()
    made.repl.write_bytes(text[:-1] + b"#")
    os.utime(made.repl, ns=(before.st_atime_ns, before.st_mtime_ns))

    (found,) = bench.cache.installed()
    assert found.problem == ""
    assert "not the file that was built" in bench.cache.check(found)
    assert bench.install().made


@pytest.mark.parametrize("record", ["", "{", "[]", '{"schema": 1}', '{"schema": 99}'])
def test_a_record_that_cannot_be_read_is_damage(bench: Bench, record: str) -> None:
    made = bench.placed()
    (made.folder / RECORD).write_text(record)

    (found,) = bench.cache.installed()
    assert RECORD in found.problem


def test_a_lean_that_was_taken_away_is_damage(bench: Bench) -> None:
    made = bench.placed()
    Path(made.sysroot, "bin", "lean").unlink()

    assert "the Lean that this build needs is gone" in bench.cache.installed()[0].problem


def test_a_build_in_use_is_not_removed(bench: Bench) -> None:
    made = bench.placed()
    with bench.cache.in_use(VERSION) as held:
        assert held == made
        with pytest.raises(ToolchainBusyError, match="is used by"):
            bench.cache.remove(VERSION)
        with bench.cache.in_use(VERSION):
            pass  # any number of users
    assert bench.cache.remove(VERSION) == made
    assert bench.left() == []


def test_a_build_in_use_is_not_replaced_and_that_is_said_before_the_work(bench: Bench) -> None:
    before = bench.placed()
    with bench.cache.in_use(VERSION), pytest.raises(ToolchainBusyError, match="is used by"):
        bench.install()
    assert bench.said == []
    assert bench.cache.installed() == (before,)


def test_a_backend_holds_the_build_that_it_runs(bench: Bench) -> None:
    bench.placed()
    leans = find_leans(backend="auto", repl="", sandbox="none", toolchains=bench.cache.folder)
    backend = leans.for_toolchain("leanprover/lean4:v4.21.0")
    with backend.in_use(), pytest.raises(ToolchainBusyError):
        bench.cache.remove(VERSION)
    bench.cache.remove(VERSION)
    with pytest.raises(ToolchainError, match="not installed"), backend.in_use():
        pytest.fail("there is nothing to use")


def test_only_what_an_installation_made_is_removed(bench: Bench) -> None:
    made = bench.placed()
    notes = made.folder / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(ToolchainError, match=r"notes\.txt.*move it elsewhere"):
        bench.cache.remove(VERSION)
    assert made.repl.exists()
    notes.unlink()
    bench.cache.remove(VERSION)
    assert Path(made.sysroot).is_dir()  # elan's folder is elan's


def test_removing_what_is_not_there_lists_what_is(bench: Bench) -> None:
    with pytest.raises(ToolchainError, match=r"not installed.*installed: none"):
        bench.cache.remove(VERSION)


def test_folders_that_are_no_builds_are_left_alone(bench: Bench) -> None:
    for name in ("notes", "4.21.0", "v4.9"):
        (bench.cache.folder / name).mkdir(parents=True)
    outside = bench.folder / "outside"
    outside.mkdir()
    (bench.cache.folder / "v4.22.0").symlink_to(outside)

    assert bench.cache.installed() == ()


def test_two_installations_at_once_make_one_build(bench: Bench) -> None:
    bench.elan()
    outcomes: list[str] = []

    def run() -> None:
        try:
            outcomes.append("made" if bench.install().made else "found")
        except ToolchainBusyError:
            outcomes.append("busy")

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("made") == 1
    assert bench.left() == ["v4.21.0"]


@pytest.mark.usefixtures("bubblewrap", "elan", "network", "users_settings")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("release", ["v4.21.0", known_releases()[-1]])
def test_a_real_version_is_built_and_proves_what_is_true_and_nothing_else(
    tmp_path: Path, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH)
    reached = subprocess.run(["git", "ls-remote", PANTOGRAPH, "HEAD"], capture_output=True, timeout=60)
    if reached.returncode != 0:
        pytest.skip(f"no network: {PANTOGRAPH} cannot be reached")
    cache = Toolchains(tmp_path / "toolchains")
    done = install(cache, parse_version(release), sandbox="bubblewrap")
    assert done.toolchain.says.startswith("0.3")
    assert not install(cache, parse_version(release), sandbox="bubblewrap").made

    leans = find_leans(backend="auto", repl="", sandbox="bubblewrap", toolchains=cache.folder)
    backend = next(build for build in leans.builds if build.build)
    assert backend.toolchain == parse_version(release).toolchain
    assert tells_true_from_false(backend, tmp_path)
    assert cache.remove(parse_version(release)).version.release == release


def tells_true_from_false(backend: LeanBackend, project: Path) -> bool:
    """Start the REPL as a job does, and try one term on a statement that it proves and on one that it does not."""

    async def ask() -> list[bool]:
        with backend.in_use():
            async with await Repl.start(backend, imports=("Init",), project=project) as repl:
                closed = []
                for statement in ("∀ p : Prop, p → p", "∀ p : Prop, p"):
                    state = await repl.goal_start(statement)
                    tried = await repl.goal_tactic(state, "exact fun _ h => h")
                    closed.append(isinstance(tried, TacticOk) and not tried.goals)
                return closed

    return asyncio.run(ask()) == [True, False]


def _wait_for(done: object, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if callable(done) and done():
            return
        time.sleep(0.02)
    pytest.fail(f"not within {seconds:g} s")
