"""The build job as the daemon runs it: a process, real git packages, a stand-in lake in the real sandbox."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.build import work
from pipeline.jobs.protocol import JobError, JobSpec, Reporter
from pipeline.jobs.specs import BuildSpec
from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.build import build_cache, dependencies
from pipeline.lean.build.build_cache import BuildKey
from pipeline.lean.build.dependencies import GitFailedError, fetch_package
from pipeline.lean.sandbox.network import Gateway, Rules
from pipeline.lean.source.manifest import read_manifest
from tests.support.daemon import warm
from tests.support.daemon.remote import git
from tests.support.lean.toolchain import StandIn, make_toolchain
from tests.support.specs import raw_spec

REPOSITORY = "github.com/ada/demo"
pytestmark = pytest.mark.usefixtures("bubblewrap")


@dataclass(frozen=True)
class Ended:
    """What a job said: its last line, and the data of its events."""

    last: dict[str, Any]
    events: list[dict[str, Any]]
    progress: list[dict[str, Any]]

    @property
    def summary(self) -> dict[str, Any]:
        assert self.last["line"] == "result", self.last
        return dict(self.last["summary"])

    @property
    def reason(self) -> str:
        assert self.last["line"] == "failure", self.last
        return str(self.last["reason"])


@dataclass(frozen=True)
class BuildFolder:
    """A folder with a cache, a toolchain, and worktrees to build."""

    folder: Path
    tools: StandIn

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def lean(self) -> LeanBackend:
        return LeanBackend(
            kind="pantograph",
            argv=("/usr/bin/false",),
            detail="a stand-in",
            toolchain=self.tools.toolchain,
            sandbox="bubblewrap",
            sysroot=str(self.tools.sysroot),
        )

    def worktree(self, name: str, files: dict[str, str]) -> Path:
        """Make a checkout; a lakefile and the toolchain's name are there unless `files` says otherwise."""
        folder = self.folder / name
        usual = {"lakefile.toml": 'name = "demo"\n', "lean-toolchain": self.tools.toolchain + "\n"}
        for path, text in {**usual, **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        return folder

    def package(self, name: str, files: dict[str, str]) -> dict[str, Any]:
        """Make a git repository and return its entry of a manifest."""
        folder = self.folder / f"{name}.git-source"
        for path, text in {"lakefile.toml": f'name = "{name}"\n', **files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        git(folder.parent, "init", "--quiet", str(folder))
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "one")
        return {
            "type": "git",
            "name": name,
            "url": folder.as_uri(),
            "rev": git(folder, "rev-parse", "HEAD"),
            "inputRev": "main",
        }

    def spec(self, worktree: Path, sha: str = "a" * 40, **changes: Any) -> Path:
        """Write what the daemon would give the job; return the attempt's folder."""
        attempt = self.folder / f"attempt-{worktree.name}-{len(list(self.folder.glob('attempt-*')))}"
        attempt.mkdir()
        parameters = {
            "repository": REPOSITORY,
            "branch": "main",
            "sha": sha,
            "worktree": str(worktree),
            "lean": self.lean,
            "cache": str(self.cache),
            "timeout_s": 60,
            "memory_bytes": 2**30,
            "disk_bytes": 2**28,
            "hosts": ["github.com"],
            "modules": [],
            "schemes": ["https", "file"],
            **changes,
        }
        raw_spec("build", parameters, attempt).write()
        return attempt

    def build(self, worktree: Path, sha: str = "a" * 40, *, process: bool = False, **changes: Any) -> Ended:
        attempt = self.spec(worktree, sha, **changes)
        lines = [json.loads(line) for line in self._run(attempt, process=process).splitlines()]
        return Ended(
            lines[-1],
            [event["data"] for line in lines if line["line"] == "events" for event in line["events"]],
            [line for line in lines if line["line"] == "progress"],
        )

    def job(self, attempt: Path) -> subprocess.Popen[bytes]:
        """Start the job as the daemon does."""
        return warm.launch(
            "pipeline.build", attempt / "spec.json", folder=attempt, errors=attempt / "stderr.log"
        )

    def _run(self, attempt: Path, *, process: bool) -> str:
        """Run the job as the daemon does, or (quicker) its work in this process; return what it printed."""
        if process:
            with self.job(attempt) as job:
                said, _ = job.communicate(timeout=60)
            assert said, (attempt / "stderr.log").read_text("utf-8")
            return said.decode()
        spec = JobSpec.read(attempt / "spec.json")
        out = io.StringIO()
        reporter = Reporter(spec, out)
        try:
            reporter.result(work(spec.of(BuildSpec), reporter))
        except JobError as error:
            reporter.failure(error)
        return out.getvalue()


@pytest.fixture(scope="module")
def tools(python_in_usr: None, tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return make_toolchain(tmp_path_factory.mktemp("tools"))


@pytest.fixture
def yard(tmp_path: Path, tools: StandIn) -> BuildFolder:
    return BuildFolder(tmp_path, tools)


TWO = {"Demo/Basic.lean": "theorem a : True := trivial\n", "Demo.lean": "import Demo.Basic\n"}


def manifest(*entries: dict[str, Any]) -> str:
    return json.dumps({"version": "1.1.0", "packagesDir": ".lake/packages", "packages": list(entries)})


def test_a_project_is_built_and_a_job_gets_the_build(yard: BuildFolder) -> None:
    ended = yard.build(yard.worktree("one", TWO), process=True)
    fresh = yard.worktree("two", TWO)

    assert ended.summary["modules_failed"] == []
    assert [(event["sha"], event["toolchain"], event["dependencies"]) for event in ended.events] == [
        ("a" * 40, yard.tools.toolchain, "")
    ]
    assert ended.progress[-1]["total"] == 2
    assert build_cache.present(yard.cache) == {BuildKey(REPOSITORY, "a" * 40)}
    with build_cache.attach(fresh, yard.cache, BuildKey(REPOSITORY, "a" * 40)) as attached:
        assert attached.packages is None
        assert (fresh / ".lake/build/lib/lean/Demo/Basic.olean").is_file()


def test_packages_are_fetched_at_their_revision_and_lie_read_only_in_the_cache(yard: BuildFolder) -> None:
    entry = yard.package("helper", {"Helper.lean": "theorem h : True := trivial\n"})
    source = yard.folder / "helper.git-source"
    (source / "Helper.lean").write_text("theorem later : True := trivial\n", "utf-8")
    git(source, "commit", "--quiet", "-am", "two")
    ended = yard.build(yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry)}))
    key = ended.summary["dependencies"]
    packages = yard.cache / "dependencies" / key / "packages"

    assert ended.events[0]["dependencies"] == key
    assert (packages / "helper/Helper.lean").read_text("utf-8") == "theorem h : True := trivial\n"
    assert (packages / "helper/Helper.lean").stat().st_mode & 0o222 == 0
    fresh = yard.worktree("two", {})
    with build_cache.attach(fresh, yard.cache, BuildKey(REPOSITORY, "a" * 40)):
        assert (fresh / ".lake" / "packages").readlink() == packages


@pytest.mark.parametrize(
    ("line", "trusted"), [("main", True), ("a tag", True), ("a fork's", False), ("somebody else's", False)]
)
def test_packages_are_trusted_only_at_a_commit_that_lean_s_own_organisations_published(
    yard: BuildFolder, monkeypatch: pytest.MonkeyPatch, line: str, trusted: bool
) -> None:
    """A forge gives any fork's commit under the URL of the repository."""
    entry = yard.package("helper", {"Helper.lean": ""})
    source = yard.folder / "helper.git-source"
    git(source, "checkout", "--quiet", "-b", "other")
    (source / "Helper.lean").write_text("-- evil\n", "utf-8")
    git(source, "commit", "--quiet", "-am", "two")
    if line != "main":
        entry |= {"rev": git(source, "rev-parse", "HEAD"), "inputRev": "v1"}
    if line == "a tag":
        git(source, "tag", "v1")
    git(source, "checkout", "--quiet", "-")
    if line != "somebody else's":
        monkeypatch.setattr(dependencies, "OF_LEAN", ("file://",))
    ended = yard.build(yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry)}))
    made = dependencies.read_dependencies(yard.cache, ended.summary["dependencies"])
    assert made is not None
    assert made.trusted is trusted


def test_the_same_manifest_is_fetched_once(yard: BuildFolder) -> None:
    entry = yard.package("helper", {"Helper.lean": ""})
    files = {**TWO, "lake-manifest.json": manifest(entry)}
    first = yard.build(yard.worktree("one", files))
    (yard.folder / "helper.git-source").rename(yard.folder / "gone")
    second = yard.build(yard.worktree("two", files), sha="b" * 40)

    assert first.summary["dependencies"] == second.summary["dependencies"]


def test_two_jobs_at_once_fetch_once(yard: BuildFolder) -> None:
    entry = yard.package("helper", {"Helper.lean": ""})
    files = {**TWO, "lake-manifest.json": manifest(entry)}
    trees = [yard.worktree(name, files) for name in ("one", "two")]
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(yard.build, trees, ("a" * 40, "b" * 40)))

    steps = [line["note"] for one in ended for line in one.progress if line["note"].startswith("package ")]
    assert len(steps) == 1
    assert {one.summary["dependencies"] for one in ended} == {ended[0].summary["dependencies"]}


def test_the_projects_own_lakefile_does_not_run_where_packages_are_written(yard: BuildFolder) -> None:
    """What lies in the cache is shared with every project that has the same manifest."""
    entry = yard.package("helper", {"Helper.lean": "theorem h : True := trivial\n"})
    attack = "#! run echo bad > .lake/packages/helper/Helper.lean || true\n"
    lakefile = f'name = "demo"\n{attack}'
    ended = yard.build(
        yard.worktree("one", {**TWO, "lakefile.toml": lakefile, "lake-manifest.json": manifest(entry)})
    )
    packages = yard.cache / "dependencies" / ended.summary["dependencies"] / "packages"

    assert (packages / "helper/Helper.lean").read_text("utf-8") == "theorem h : True := trivial\n"


def test_mathlibs_cache_program_is_asked_where_a_package_brings_it(yard: BuildFolder) -> None:
    entry = yard.package("mathlib", {"Mathlib.lean": "", "Cache/Main.lean": ""})
    ended = yard.build(yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry)}))
    packages = yard.cache / "dependencies" / ended.summary["dependencies"] / "packages"

    assert ended.summary["cache"] == "fetched"
    assert (packages / "mathlib/.lake/build/lib/lean/Mathlib.olean").is_file()


@pytest.mark.parametrize("lakefile", ["lakefile.lean", "lakefile.toml"])
def test_what_a_package_has_in_its_releases_is_fetched_while_there_is_a_network(
    yard: BuildFolder, lakefile: str
) -> None:
    text = {
        "lakefile.lean": "package widgets where\n  preferReleaseBuild := true\n",
        "lakefile.toml": 'name = "widgets"\npreferReleaseBuild = true\n',
    }[lakefile]
    entry = yard.package("widgets", {"Widgets.lean": "", lakefile: text}) | {"configFile": lakefile}
    plain = yard.package("plain", {"Plain.lean": "", "lakefile.toml": 'name = "plain"\n'})
    ended = yard.build(yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry, plain)}))
    packages = yard.cache / "dependencies" / ended.summary["dependencies"] / "packages"
    steps = [line["note"] for line in ended.progress]
    assert steps.index("released files of widgets") < steps.index("building @widgets @plain")
    assert "released files of plain" not in steps
    assert ended.summary["cache"] == ""
    assert (packages / "widgets/.lake/build/lib/lean/Released.olean").is_file()


def test_a_package_that_cannot_be_reached_is_tried_again(yard: BuildFolder) -> None:
    entry = yard.package("helper", {"Helper.lean": ""}) | {"rev": "c" * 40}
    ended = yard.build(yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry)}))

    assert ended.reason == "dependencies_unreachable"
    assert not ended.last["deterministic"]
    assert "helper" in ended.last["message"]
    assert not list((yard.cache / "dependencies").glob("[!.]*"))


def test_a_package_of_a_host_that_is_not_allowed_is_refused(yard: BuildFolder) -> None:
    entry = {"type": "git", "name": "x", "url": "https://evil.example/x", "rev": "c" * 40}
    ended = yard.build(yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry)}))

    assert ended.reason == "dependency_refused"
    assert ended.last["deterministic"]
    assert "not on the list" in ended.last["message"]


def test_a_local_url_is_refused_unless_asked_for(yard: BuildFolder) -> None:
    entry = yard.package("helper", {"Helper.lean": ""})
    tree = yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry)})

    assert yard.build(tree, schemes=["https"]).reason == "manifest_refused"


def test_a_build_in_which_some_modules_fail_is_kept_and_says_which(yard: BuildFolder) -> None:
    files = {
        "Demo/Good.lean": "theorem g : True := trivial\n",
        "Demo/Bad.lean": "--! error unknown identifier 'foo'\n",
        "Demo/Behind.lean": "import Demo.Bad\n",
    }
    ended = yard.build(yard.worktree("one", files))

    assert ended.summary["modules_failed"] == ["Demo.Bad", "Demo.Behind"]
    assert ended.events[0]["modules_failed"] == ["Demo.Bad", "Demo.Behind"]
    assert ended.summary["first_errors"] == ["Demo/Bad.lean:1:0: unknown identifier 'foo'"]
    fresh = yard.worktree("two", {})
    with build_cache.attach(fresh, yard.cache, BuildKey(REPOSITORY, "a" * 40)):
        found = {path.stem for path in (fresh / ".lake/build").rglob("*.olean")}
    assert found == {"Good"}


def test_a_build_in_which_nothing_is_built_fails_for_good(yard: BuildFolder) -> None:
    ended = yard.build(yard.worktree("one", {"Demo.lean": "--! error unknown identifier 'foo'\n"}))

    assert ended.reason == "build_failed"
    assert ended.last["deterministic"]
    assert "Demo.lean:1:0: unknown identifier 'foo'" in ended.last["message"]
    assert build_cache.present(yard.cache) == set()


def test_a_lakefile_that_fails_says_what_it_said(yard: BuildFolder) -> None:
    ended = yard.build(yard.worktree("one", {**TWO, "lakefile.toml": "#! run echo no such thing; exit 3\n"}))

    assert ended.reason == "build_failed"
    assert "no such thing" in ended.last["message"]


def test_a_module_that_is_beyond_its_package_s_default_targets_is_told_from_an_author_s_fault(
    yard: BuildFolder,
) -> None:
    said = "error: permission denied  file: .lake/packages/m/.lake/build/lib/Archive.olean.hash"
    files = {**TWO, "lakefile.toml": f"#! run echo '{said}'; exit 3\n"}
    ended = yard.build(yard.worktree("one", files))
    assert ended.last["remedy"].startswith("only the default targets of a package are built here")


def committed(
    yard: BuildFolder, name: str, files: dict[str, str], *, on: Path | None = None
) -> tuple[Path, str]:
    """Make a checkout as the daemon does, of a commit on top of another checkout's; return it and its sha."""
    if on is None:
        git(yard.folder, "init", "--quiet", name)
    else:
        git(yard.folder, "clone", "--quiet", str(on), name)
    folder = yard.worktree(name, files)
    git(folder, "add", "--", *files, "lakefile.toml", "lean-toolchain")
    git(folder, "commit", "--quiet", "-m", name)
    return folder, git(folder, "rev-parse", "HEAD")


OTHER = {**TWO, "Demo/Other.lean": "theorem o : True := trivial\n"}


def test_the_next_build_starts_from_what_is_still_valid(yard: BuildFolder) -> None:
    one, first = committed(yard, "one", OTHER)
    yard.build(one, sha=first)
    two, second = committed(yard, "two", {"Demo/Basic.lean": "theorem b : True := trivial\n"}, on=one)
    ended = yard.build(two, sha=second)

    assert ended.summary["seeded_with"] == first
    built = [line["note"] for line in ended.progress if "Built" in line["note"]]
    assert [note.split()[-1] for note in built] == ["Demo.Basic", "Demo"]


def test_nothing_stale_is_left_where_a_later_build_fails(yard: BuildFolder) -> None:
    one, first = committed(yard, "one", OTHER)
    yard.build(one, sha=first)
    two, second = committed(yard, "two", {"Demo/Basic.lean": "--! error no\n"}, on=one)
    ended = yard.build(two, sha=second)
    fresh = yard.worktree("three", {})

    assert ended.summary["seeded_with"] == first
    assert ended.summary["modules_failed"] == ["Demo", "Demo.Basic"]
    with build_cache.attach(fresh, yard.cache, BuildKey(REPOSITORY, second)):
        assert {path.stem for path in (fresh / ".lake/build").rglob("*.olean")} == {"Other"}


def test_what_a_branch_has_forged_does_not_get_into_the_builds_of_others(yard: BuildFolder) -> None:
    """Code that lake elaborates can write every compiled file; no one has merged this one's."""
    base, _ = committed(yard, "base", OTHER)
    forge = (
        "--! run mkdir -p .lake/build/lib/lean/Demo; echo forged > .lake/build/lib/lean/Demo/Other.olean\n"
    )
    evil, branch = committed(yard, "evil", {"Demo/Late.lean": f"import Demo.Other\n{forge}"}, on=base)
    main, tip = committed(yard, "main", {"Demo/New.lean": "theorem n : True := trivial\n"}, on=base)
    yard.build(evil, sha=branch)
    ended = yard.build(main, sha=tip)
    built = {
        commit: (yard.cache / "builds/github.com+ada+demo" / commit / "build/lib/lean/Demo/Other.olean")
        for commit in (branch, tip)
    }

    assert built[branch].read_text("utf-8") == "forged\n"
    assert ended.summary["seeded_with"] == ""
    assert "forged" not in built[tip].read_text("utf-8")


def test_files_with_the_strangest_names_are_built_beside(yard: BuildFolder) -> None:
    names = "b'\\xff' * 251 + b'.txt', b'\\n', b'-rf', b' ', b'a\\x1b[2J'"
    run = f"python3 -c \"import os; [open(b'.lake/build/' + n, 'w').close() for n in ({names})]\""
    ended = yard.build(yard.worktree("one", {**TWO, "Demo.lean": f"import Demo.Basic\n--! run {run}\n"}))

    assert ended.summary["modules_failed"] == []
    kept = yard.cache / "builds/github.com+ada+demo" / ("a" * 40) / "build"
    assert {b"\xff" * 251 + b".txt", b"\n", b"-rf", b" ", b"a\x1b[2J", b"lib"} <= {
        os.fsencode(path.name) for path in kept.iterdir()
    }


def test_a_build_that_starts_processes_without_end_is_ended_and_named(
    yard: BuildFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.build.MOST_PROCESSES", 30)
    run = "for i in $(seq 60); do sleep 100 & done; wait"
    ended = yard.build(yard.worktree("one", {"Demo.lean": f"--! run {run}\n"}))

    assert (ended.reason, ended.last["deterministic"]) == ("build_too_many_processes", True)


@pytest.mark.parametrize("target", ["/etc/hostname", "/nowhere/secret", "lakefile.toml"])
def test_a_manifest_that_is_a_link_is_neither_read_nor_written_through(
    yard: BuildFolder, target: str
) -> None:
    tree = yard.worktree("one", TWO)
    aim = yard.folder / "outside.json" if target == "/nowhere/secret" else Path(target)
    (tree / "lake-manifest.json").symlink_to(aim)

    assert yard.build(tree).reason == "manifest_refused"
    assert not (yard.folder / "outside.json").exists()


def test_a_lean_toolchain_file_of_any_size_or_content_makes_a_short_message(yard: BuildFolder) -> None:
    tree = yard.worktree("one", TWO)
    (tree / "lean-toolchain").write_bytes(b"\xff\x00v4.21.0\x1b[2J; rm -rf /\n" * 200_000)
    ended = yard.build(tree)

    assert ended.reason == "toolchain_missing"
    assert len(ended.last["message"]) < 1000


def test_compiled_files_that_a_repository_brings_are_not_believed(yard: BuildFolder) -> None:
    tree = yard.worktree("one", {**TWO, ".lake/build/lib/lean/Forged.olean": "forged"})
    yard.build(tree)
    fresh = yard.worktree("two", {".lake/build/lib/lean/Forged.olean": "forged"})

    with build_cache.attach(fresh, yard.cache, BuildKey(REPOSITORY, "a" * 40)):
        assert not list((fresh / ".lake").rglob("Forged*"))


def test_links_that_a_build_makes_do_not_get_into_the_cache(yard: BuildFolder) -> None:
    secret = yard.folder / "secret"
    secret.write_text("s3cret", "utf-8")
    out = ".lake/build/lib/lean"
    attack = f"--! run mkdir -p {out}; ln -s {secret} {out}/Leak.olean; mkfifo .lake/build/f"
    yard.build(yard.worktree("one", {**TWO, "Demo.lean": f"import Demo.Basic\n{attack}\n"}))
    stored = list((yard.cache / "builds").rglob("*"))

    assert [path for path in stored if path.is_symlink() or path.is_fifo()] == []
    assert any(path.name == "Demo.olean" for path in stored)


@pytest.mark.parametrize(
    ("run", "changes", "reason"),
    [
        ("sleep 1000", {"timeout_s": 0.7}, "build_timeout"),
        ("yes 0123456789 | head -c 300000000 > .lake/big", {"disk_bytes": 2**24}, "build_too_large"),
        (
            "python3 -c 'x = bytearray(2**30)' || exec python3 -c 'x = bytearray(2**30)'",
            {"memory_bytes": 2**28},
            "build_out_of_memory",
        ),
    ],
)
def test_a_build_past_a_limit_is_ended_and_named(
    yard: BuildFolder, run: str, changes: dict[str, Any], reason: str
) -> None:
    ended = yard.build(yard.worktree("one", {"Demo.lean": f"--! run {run}\n"}), **changes)

    assert (ended.reason, ended.last["deterministic"]) == (reason, True)
    assert ended.last["remedy"].startswith("raise [build] ")


def test_a_manifest_that_is_not_there_is_named_only_where_one_is_needed(yard: BuildFolder) -> None:
    lakefile = 'name = "demo"\n[[require]]\nname = "mathlib"\n'
    ended = yard.build(yard.worktree("one", {**TWO, "lakefile.toml": lakefile}))

    assert (ended.reason, ended.last["deterministic"]) == ("manifest_missing", True)


def test_another_toolchain_is_not_used_in_place_of_the_projects(yard: BuildFolder) -> None:
    ended = yard.build(yard.worktree("one", {**TWO, "lean-toolchain": "leanprover/lean4:v4.99.0\n"}))

    assert (ended.reason, ended.last["deterministic"]) == ("toolchain_missing", False)
    assert "elan toolchain install leanprover/lean4:v4.99.0" in ended.last["remedy"]


def test_a_build_has_no_network_and_sees_no_home(yard: BuildFolder) -> None:
    attack = (
        '--! run test ! -e /root -o -z "$(ls -A /root)" && ! ls /etc/shadow 2>/dev/null'
        ' && test "$(wc -l < /proc/net/dev)" = 3'
    )
    ended = yard.build(yard.worktree("one", {"Demo.lean": f"{attack}\n"}))

    assert ended.summary["modules_failed"] == []


def test_the_sources_cannot_be_changed_by_the_build(yard: BuildFolder) -> None:
    ended = yard.build(yard.worktree("one", {"Demo.lean": "--! run ! touch Demo.lean 2>/dev/null\n"}))

    assert ended.summary["modules_failed"] == []


def test_parameters_that_are_none_are_refused(yard: BuildFolder) -> None:
    assert yard.build(yard.worktree("one", TWO), sha="../../etc").reason == "bad_spec"
    assert yard.build(yard.worktree("two", TWO), modules=["--help"]).reason == "bad_spec"


def test_where_the_settings_say_no_sandbox_it_builds_too(yard: BuildFolder) -> None:
    entry = yard.package("mathlib", {"Mathlib.lean": "", "Cache/Main.lean": ""})
    lean = dataclasses.replace(yard.lean, sandbox="none")
    tree = yard.worktree("one", {**TWO, "lake-manifest.json": manifest(entry)})
    ended = yard.build(tree, lean=lean)

    assert ended.summary["modules_failed"] == []
    assert ended.summary["cache"] == "fetched"


@pytest.mark.parametrize(
    "at", ["package mathlib", "compiled files", "building @mathlib", "Built Demo.Basic", "Built Demo"]
)
def test_a_job_that_is_killed_at_any_step_leaves_nothing_half_done(yard: BuildFolder, at: str) -> None:
    entry = yard.package("mathlib", {"Mathlib.lean": "", "Cache/Main.lean": ""})
    files = {**TWO, "lake-manifest.json": manifest(entry)}
    with yard.job(yard.spec(yard.worktree("one", files))) as job:
        assert job.stdout is not None
        for line in job.stdout:
            if at in json.loads(line).get("note", ""):
                job.kill()
                break
        job.wait()
    whole = list((yard.cache / "dependencies").glob("[!.]*"))
    deadline = (
        time.monotonic() + 10
    )  # a child that has not become another program yet holds the locks for a moment
    while True:
        swept = build_cache.sweep(yard.cache, 2**40)
        left = {path.name for path in yard.cache.glob("*/.*") if path.is_dir()}
        if not left or time.monotonic() > deadline:
            break
    ended = yard.build(yard.worktree("two", files))

    assert job.returncode == -signal.SIGKILL
    assert build_cache.present(yard.cache) == {BuildKey(REPOSITORY, "a" * 40)}
    assert swept.removed_builds == ()
    assert [path for path in whole if not (path / "dependency.json").is_file()] == []
    assert len(whole) == at.startswith("Built")
    assert left == set()
    assert ended.summary["modules_failed"] == []


def test_git_has_no_way_round_the_proxy(tmp_path: Path) -> None:
    rules = Rules(("allowed.example",), private_addresses=True)

    async def nowhere(_host: str, _port: int) -> Sequence[str]:
        return ("127.0.0.1",)

    def fetch(host: str) -> None:
        package = read_manifest(
            manifest({"type": "git", "name": "x", "url": f"https://{host}/x", "rev": "c" * 40}).encode()
        ).packages[0]
        with pytest.raises(GitFailedError):
            fetch_package(package, tmp_path / host, proxy=gateway.url, timeout_s=20)

    with Gateway(rules, tcp=True, resolver=nowhere) as gateway:
        fetch("allowed.example")
        fetch("evil.example")

    asked = {refusal.target: refusal.reason for refusal in gateway.refusals}
    assert asked["evil.example:443"] == "not on the list of hosts"
    assert asked["allowed.example:443"] == "no connection"  # nothing listens there; it was asked for


@pytest.mark.usefixtures("network")
def test_a_host_of_the_internet_is_reached_through_the_gateway() -> None:
    with Gateway(Rules(("github.com",)), tcp=True) as gateway:
        proxied = {"https_proxy": gateway.url, "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "ls-remote", "--exit-code", "https://github.com/leanprover/lean4", "HEAD"]
        done = subprocess.run(command, env=proxied, capture_output=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert gateway.passed == ("github.com:443",)


@pytest.mark.usefixtures("elan_lean")
def test_a_real_lake_builds_a_project_in_the_sandbox(tmp_path: Path) -> None:
    lean = find_leans(backend="auto", repl="", sandbox="bubblewrap").builds[0]
    yard = BuildFolder(tmp_path, StandIn(tmp_path, lean.toolchain, Path(lean.sysroot)))
    lakefile = 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n'
    files = {"lakefile.toml": lakefile, "Demo.lean": "import Demo.A\nimport Demo.B\n"}
    files |= {"Demo/A.lean": "theorem a : 1 + 1 = 2 := rfl\n", "Demo/B.lean": "theorem b : 1 = 2 := rfl\n"}
    ended = yard.build(yard.worktree("one", files), lean=lean, memory_bytes=2**32, process=True)

    assert ended.summary["modules_failed"] == ["Demo", "Demo.B"]
    fresh = yard.worktree("two", {})
    with build_cache.attach(fresh, yard.cache, BuildKey(REPOSITORY, "a" * 40)):
        assert {path.stem for path in (fresh / ".lake/build").rglob("*.olean")} == {"A"}


def below(yard: BuildFolder, name: str, folder: str, files: dict[str, str]) -> Path:
    """Make a checkout with a Lake project in a folder of it, whose toolchain is named at the root."""
    worktree = yard.worktree(name, {f"{folder}/{path}": text for path, text in files.items()})
    (worktree / "lakefile.toml").rename(worktree / folder / "lakefile.toml")
    return worktree


def test_a_project_below_the_root_is_built_there_with_the_toolchain_above(yard: BuildFolder) -> None:
    worktree = below(yard, "one", "lean/four", TWO)
    ended = yard.build(worktree, folder="lean/four")
    assert ended.summary["modules_failed"] == []
    assert [(event["project"], event["toolchain"]) for event in ended.events] == [
        ("lean/four", yard.tools.toolchain)
    ]
    assert not (worktree / ".lake").exists(), "the root is no project"
    fresh = below(yard, "two", "lean/four", TWO)
    with build_cache.attach(fresh, yard.cache, BuildKey(REPOSITORY, "a" * 40, "lean/four")):
        assert (fresh / "lean/four/.lake/build/lib/lean/Demo/Basic.olean").is_file()
    again = yard.build(fresh, "b" * 40)
    assert again.reason == "lakefile_missing"
    assert "its top folder" in again.last["remedy"]


def test_a_project_that_requires_one_beside_it_says_so(yard: BuildFolder) -> None:
    entry = {"type": "path", "name": "other", "dir": "../other"}
    ended = yard.build(
        below(yard, "one", "lean", {**TWO, "lake-manifest.json": manifest(entry)}), folder="lean"
    )
    assert ended.reason == "manifest_refused"
    assert "its project lean: lake-manifest.json: package other: dir" in ended.last["message"]


def test_a_folder_that_the_commit_has_not_is_no_project(yard: BuildFolder) -> None:
    ended = yard.build(yard.worktree("one", TWO), folder="lean")
    assert (ended.reason, ended.last["deterministic"]) == ("no_project", True)
