"""`everlean bump`: what a trial found, and its patches as mails that git takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon.cli.app import build, exit_code_of
from pipeline.gate.patch import file_diff
from store.domain.identity import git_blob, job_id
from store.events.bumps import Break, BumpAsked, BumpBuilt, BumpFinished, BumpTried, Mend
from store.events.jobs import JobFailed, JobStarted
from tests.support.bump import SHA
from tests.support.daemon.remote import git
from tests.support.reference import DOCS
from tests.support.state_folder import Answer, StateFolder, make_folder, watch

KEY = "github.com/ada/demo"
NEW = "leanprover/lean4:v4.35.0"
BEFORE, AFTER = "theorem a : True := by\n  exact old\n", "theorem a : True := by\n  exact new\n"
APP = build(("bump",))
ABOUT = {"repository": KEY, "branch": "main", "sha": SHA, "bump": "b1", "job": "bump-1"}
RAISES = {"toolchain": NEW, "package": "", "rev": ""}


def broken(name: str, kind: str, message: str) -> Break:
    return Break.model_validate(
        {
            "path": "A.lean",
            "line": 2,
            "declaration": name,
            "kind": kind,
            "reason": "unknown_name",
            "message": message,
            "follows": "a" if kind == "statement" else "",
        }
    )


def diff(path: str, before: str, after: str) -> str:
    data = before.encode(), after.encode()
    blobs = git_blob(data[0], like=SHA), git_blob(data[1], like=SHA)
    return file_diff(path, *data, blobs).decode()


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    folder = make_folder(tmp_path)
    watch(folder, KEY)
    return folder


def finish(folder: StateFolder) -> None:
    """Record a whole trial: two breaks, one of them mended."""
    stream = f"repository:{KEY}"
    one = broken("a", "proof", "Unknown identifier `old`")
    other = broken("b", "statement", "\x1b[2J\x07proved!")
    series = [
        {
            "title": f"Raise Lean to {NEW}",
            "message": "Left:\ndiff --git a/x b/x\n---\n+++ b",
            "diff": diff("lean-toolchain", "old\n", f"{NEW}\n"),
        },
        {
            "title": "Mend 1 proof in A.lean",
            "message": "a: renamed constants",
            "diff": diff("A.lean", BEFORE, AFTER),
        },
    ]
    tried = {
        "path": "A.lean",
        "declaration": "a",
        "number": 1,
        "how": "renamed constants",
        "text": "by\n  exact new",
    }
    mend = Mend(
        path="A.lean", declaration="a", how="renamed constants", verdict="verified", reason="", axioms=(),
        grade="L1", kernel="leanchecker", doubts=("lean4#14806",),
    )  # fmt: skip
    for body in (
        BumpAsked(repository=KEY, bump="b1", by="ada", **RAISES),
        BumpBuilt(**ABOUT, **RAISES, broken=(one, other), modules_failed=("A",)),
        BumpTried(**ABOUT, **tried, text_cut=False, verdict="verified", step="", reason="", seconds=1.0),
        BumpFinished(
            **ABOUT, **RAISES, mended=(mend,), left=(other,), modules_failed=("A",), tried=9, unrecorded=8, seconds=2.0,
            series=folder.blob(json.dumps(series).encode()),
        ),
    ):  # fmt: skip
        folder.add(stream, body)


def command(state: StateFolder, *words: str) -> Answer:
    result = CliRunner().invoke(APP, ["bump", *words], env={"EVERLEAN_CONFIG": str(state.config)})
    if isinstance(result.exception, Exception) and (code := exit_code_of(result.exception)) is not None:
        return Answer(int(code), result.stdout, f"{result.stderr}{result.exception}")
    return Answer(result.exit_code, result.stdout, result.stderr)


def test_a_trial_says_what_broke_what_is_mended_and_what_is_left(state: StateFolder) -> None:
    finish(state)
    state.write()
    said = command(state, "demo").out
    assert f"{KEY}: Lean to {NEW}, at aaaaaaaaaa" in said
    assert "finished: 2 breaks, 1 mended, 1 left; 9 texts tried, 8 of them too many for the log" in said
    assert "mended  A.lean  a  renamed constants; " in said
    assert "IN DOUBT: lean4#14806" in said
    assert "left    A.lean:2  b  statement" in said
    assert "(follows from a)" in said
    assert "\x1b" not in said
    assert "modules that fail with the patches applied: A" in said
    (trial,) = command(state, "demo", "--json").json["trials"]
    assert (trial["bump"], trial["by"], trial["tried"]) == ("b1", "ada", 9)
    assert [(one["declaration"], one["follows"]) for one in trial["left"]] == [("b", "a")]
    assert [(one["grade"], one["doubts"]) for one in trial["mended"]] == [("L1", ["lean4#14806"])]


def test_what_failed_is_shown_with_its_remedy_asked_for_or_not(state: StateFolder) -> None:
    request = {"repository": KEY, "by": "ada", "toolchain": NEW, "package": "base", "rev": SHA}
    state.add(f"repository:{KEY}", BumpAsked(bump="b2", **request))
    weekly = job_id("bump", KEY, "weekly")
    for job, what, retry_at in (
        (job_id("bump", KEY, "b2"), "asked for", None),
        (weekly, f"bump {KEY} aaaaaaaaaa: Lean to {NEW}", datetime(2100, 1, 1, tzinfo=UTC)),
    ):
        begun = JobStarted(job=job, kind="bump", attempt=1, repository=KEY, branch="main", sha=SHA,
                           describes=what)  # fmt: skip
        failed = JobFailed(job=job, attempt=1, reason="cannot_raise", message="\x1bno `require`\nmore",
                           remedy="write it", deterministic=retry_at is None, retry_at=retry_at, seconds=1.0,
                           peak_rss_bytes=None)  # fmt: skip
        for body in (begun, failed):
            state.add(f"job:{job}", body)
    state.write()
    first, second = command(state, "demo").out.split("\n\n")
    assert (
        f"Lean to {NEW}, base to aaaaaaaaaaaa, at aaaaaaaaaa\n  failed, cannot_raise: \ufffdno `require`\n"
        in first
    )
    assert "  write it\n  is not tried again by itself; `everlean jobs retry bump-" in first
    assert second.startswith(f"bump {KEY} aaaaaaaaaa: Lean to {NEW}\n  failed, cannot_raise")
    assert "is tried again by itself after 2100-01-01" in second
    result = {one["bump"]: one for one in command(state, "demo", "--json").json["failed"]}
    assert result["b2"]["remedy"] == "write it"
    assert result[None]["job"] == weekly


def test_git_am_takes_the_patches(state: StateFolder, tmp_path: Path) -> None:
    finish(state)
    state.write()
    said = command(state, "demo", "--out", str(tmp_path / "out"))
    assert said.code == 0, said.err
    patches = sorted((tmp_path / "out").glob("*.patch"))
    assert len(patches) == 2
    assert "1 left" in (tmp_path / "out" / "SUMMARY.txt").read_text()
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "A.lean").write_text(BEFORE)
    (clone / "lean-toolchain").write_text("old\n")
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-q", "-m", "one"],
        ["am", "-q", *map(str, patches)],
    ):
        git(clone, *words)
    assert git(clone, "log", "--format=%s").splitlines() == [
        "Mend 1 proof in A.lean",
        f"Raise Lean to {NEW}",
        "one",
    ]
    assert (clone / "A.lean").read_text() == AFTER
    assert (clone / "lean-toolchain").read_text() == f"{NEW}\n"
    again = command(state, "demo", "--out", str(tmp_path / "out"))
    assert again.code != 0
    assert "has patches already" in again.err


def test_without_a_finished_trial_there_are_no_patches(state: StateFolder, tmp_path: Path) -> None:
    state.write()
    assert "no bump of" in command(state, "demo").out
    said = command(state, "demo", "--out", str(tmp_path / "out"))
    assert said.code != 0
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [("--to", "no version"), ("--package", "base=main"), ("--to", "v4.35.0", "--out", "x")],
)
def test_what_is_no_target_is_refused(state: StateFolder, words: tuple[str, ...]) -> None:
    state.write()
    assert command(state, "demo", *words).code == 2


def test_a_trial_needs_the_running_daemon(state: StateFolder) -> None:
    state.write()
    said = command(state, "demo", "--to", "v4.35.0")
    assert said.code != 0
    assert "everlean run" in said.err


def test_the_page_s_commands_are_the_verb_s(state: StateFolder) -> None:
    finish(state)
    state.write()
    page = (DOCS / "bump.md").read_text("utf-8")
    lines = [
        line.removeprefix("$ everlean bump ")
        for line in page.splitlines()
        if line.startswith("$ everlean bump ")
    ]
    assert lines == [
        "REPO --to v4.35.0",
        "REPO --package NAME=COMMIT",
        "REPO --to v4.35.0 --package NAME=COMMIT",
        "REPO",
        "REPO --out patches",
    ]
    for line in lines:
        words = line.replace("COMMIT", SHA).replace("REPO", "demo").split()
        if "--out" in words:
            words[-1] = str(state.state / "patches-out")
        said = command(state, *words)
        # What asks for a trial ends where no daemon runs, and not before.
        assert said.code == 0 or "everlean run" in said.err
    assert len(page.split()) <= 500
