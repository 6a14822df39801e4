"""What real repositories do: each case with real git, polled as the daemon does it."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from daemon.jobs.engine import Commit
from daemon.jobs.local import checkout
from daemon.polling.poller import PollResult
from pipeline.jobs.mirror import Mirror
from tests.support.daemon.deployment import Deployment, Parts
from tests.support.daemon.remote import Remote


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    remote = deployment.remote("demo")
    remote.serve_partially()
    deployment.write(repos=[remote.path])
    return remote


def check_out(deployment: Deployment, sha: str) -> dict[str, str]:
    """Return the files that a job's worktree of a commit has, by their paths."""

    async def read(parts: Parts) -> dict[str, str]:
        folder, paths = deployment.folder / "worktree", deployment.settings().paths
        async with checkout(folder, Commit(parts.repo.key, sha, built=False), git=parts.git, paths=paths):
            return {
                str(path.relative_to(folder)): path.read_text("utf-8")
                for path in folder.rglob("*")
                if path.is_file()
            }

    return deployment.with_parts(read)


# --- refs -------------------------------------------------------------------------------------------------------


def test_tags_are_no_branches_whatever_they_are_called(deployment: Deployment, remote: Remote) -> None:
    remote.commit("first")
    deployment.write(repos=[remote.path], entry='branches = ["*"]')
    deployment.poll()
    before = deployment.events()
    remote.git("tag", "v1")
    remote.git("tag", "-a", "-m", "annotated", "v2")
    remote.git("tag", "main")  # a tag with the name of the branch
    elsewhere = remote.git("commit-tree", "-m", "only tagged", "HEAD^{tree}")
    remote.git("tag", "v3", elsewhere)
    remote.git("tag", "--force", "v1", elsewhere)
    assert deployment.poll().outcome == "unchanged"
    remote.commit("second")
    deployment.poll()
    assert [event.data["subject"] for event in deployment.events()[len(before) :]] == ["second"]
    refs = remote_refs(deployment.mirror())
    assert not [ref for ref in refs if ref.startswith("refs/tags/")]
    there = deployment.with_parts(lambda parts: parts.git.has_commit(deployment.mirror(), elsewhere))
    assert not there


def remote_refs(mirror: Path) -> list[str]:
    return Remote.at(mirror).git("for-each-ref", "--format=%(refname)").splitlines()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP as it is: git reads such a remote's list of refs as it stands there."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def test_a_shallow_clone_is_refused_with_what_completes_it(deployment: Deployment, remote: Remote) -> None:
    for number in range(3):
        remote.commit(f"c{number}", {"A.lean": f"-- {number}\n"})
    clone = remote.path.with_name("clone")
    remote.git("clone", "--quiet", "--depth=1", f"file://{remote.path}", str(clone))
    Remote.at(clone).serve_partially()
    deployment.write(repos=[clone])
    deployment.poll()
    (failed,) = deployment.events("repository_failed")
    assert failed.data["problem"] == "invalid"
    assert failed.data["remedy"] == f"complete it: git -C {clone} fetch --unshallow"
    Remote.at(clone).git("fetch", "--quiet", "--unshallow")
    deployment.poll()
    (observed,) = deployment.events("commit_observed")
    assert observed.data["subject"] == "c2"


def test_malicious_names_in_a_remotes_list_of_refs_lead_nowhere(
    deployment: Deployment, remote: Remote
) -> None:
    sha = remote.commit("first")
    remote.git("update-server-info")
    listed = remote.path / ".git" / "info" / "refs"
    hostile = (
        "refs/heads/../../hooks/post-checkout",
        "refs/heads/--upload-pack=touch pwned",
        "refs/heads/a..b",
        "refs/heads/x.lock",
        "refs/heads/a b",
        "refs/heads/@{-1}",
        "refs/heads/" + "n" * 5000,
        "refs/everlean/keep/" + "0" * 40,
    )
    listed.write_text(
        "".join(f"{sha}\t{name}\n" for name in (*hostile, "refs/heads/main"))
        + "not-a-sha\trefs/heads/evil\n",
        encoding="utf-8",
    )
    deployment.write(repos=[remote.path], entry='branches = ["*"]')
    with served(remote.path / ".git") as url:

        async def polled(parts: Parts) -> PollResult:
            return await parts.poller.poll(parts.repo.model_copy(update={"url": url}))

        outcome = deployment.with_parts(polled).outcome
    assert outcome in ("changed", "unreachable")  # some versions of git refuse such a list as a whole
    assert {event.data["branch"] for event in deployment.events("branch_created")} <= {"main"}
    assert not list(deployment.folder.rglob("pwned"))
    assert not list(deployment.folder.rglob("hooks/post-checkout"))


# --- contents ---------------------------------------------------------------------------------------------------


def test_a_submodule_is_neither_fetched_nor_an_obstacle(deployment: Deployment, remote: Remote) -> None:
    library = deployment.remote("library")
    pinned = library.commit("secret of the library", {"Lib.lean": "theorem lib : True := trivial\n"})
    remote.commit("first", {"A.lean": "theorem a : True := trivial\n"})
    (remote.path / ".gitmodules").write_text(
        f'[submodule "lib"]\n\tpath = lib\n\turl = {library.path}\n', encoding="utf-8"
    )
    remote.git("update-index", "--add", "--cacheinfo", f"160000,{pinned},lib")
    (remote.path / "lib").mkdir()
    tip = remote.commit("with a submodule", {"B.lean": "theorem b : True := trivial\n"})
    assert deployment.poll().outcome == "changed"
    assert sorted(check_out(deployment, tip)) == [".gitmodules", "A.lean", "B.lean"]
    there = deployment.with_parts(lambda parts: parts.git.has_commit(deployment.mirror(), pinned))
    assert not there
    with Mirror(deployment.mirror()) as mirror:
        assert [file.path for file in mirror.files(tip)] == [".gitmodules", "A.lean", "B.lean"]


def test_a_pointer_of_lfs_stays_a_pointer_and_no_filter_runs(deployment: Deployment, remote: Remote) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 123456789\n"
    tip = remote.commit(
        "with lfs",
        {
            ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n*.lean filter=evil\n",
            ".lfsconfig": "[lfs]\n\turl = http://127.0.0.1:1/\n",
            "weights.bin": pointer,
            "A.lean": "theorem a : True := trivial\n",
        },
    )
    assert deployment.poll().outcome == "changed"
    files = check_out(deployment, tip)
    assert files["weights.bin"] == pointer
    assert "A.lean" in files


# --- partial mirrors --------------------------------------------------------------------------------------------


def missing_objects(mirror: Path) -> int:
    """How many objects the mirror's history cites and does not have."""
    listed = Remote.at(mirror).git("rev-list", "--all", "--objects", "--missing=print", "--no-object-names")
    return sum(line.startswith("?") for line in listed.splitlines())


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_first_fetch_brings_the_contents_of_the_tip_and_not_those_of_its_history(
    deployment: Deployment, remote: Remote
) -> None:
    for number in range(5):
        tip = remote.commit(f"c{number}", {"A.lean": f"-- {number}\n", f"B{number}.lean": f"-- b{number}\n"})
    deployment.poll()
    mirror = deployment.mirror()
    assert missing_objects(mirror) == 4  # A.lean as it was in the four commits before
    remote.path.rename(remote.path.with_name("gone"))  # what is there needs no remote
    with Mirror(mirror) as reading:
        texts = {file.path: reading.read(file.blob, most_bytes=1000) for file in reading.files(tip)}
    assert texts["A.lean"] == b"-- 4\n"
    assert len(texts) == 6
    assert check_out(deployment, tip)["B0.lean"] == "-- b0\n"


def test_what_a_commit_lacks_that_no_poll_saw_is_brought_when_it_is_checked_out(
    deployment: Deployment, remote: Remote
) -> None:
    earlier = remote.commit("first", {"A.lean": "-- first\n"})
    remote.commit("second", {"A.lean": "-- second\n"})
    deployment.poll()
    assert missing_objects(deployment.mirror()) == 1
    assert check_out(deployment, earlier)["A.lean"] == "-- first\n"


def test_every_commit_that_is_observed_is_complete_before_it_is_recorded(
    deployment: Deployment, remote: Remote
) -> None:
    remote.commit("first", {"A.lean": "-- 0\n"})
    deployment.poll()
    shas = [remote.commit(f"c{number}", {"A.lean": f"-- {number}\n"}) for number in (1, 2, 3)]
    remote.git("checkout", "--quiet", "-b", "other", "HEAD~2")
    deployment.write(repos=[remote.path], entry='branches = ["*"]')
    deployment.poll()
    remote.path.rename(remote.path.with_name("gone"))
    with Mirror(deployment.mirror()) as reading:
        for number, sha in enumerate(shas, start=1):
            assert [reading.read(file.blob, most_bytes=1000) for file in reading.files(sha)] == [
                f"-- {number}\n".encode()
            ]


def test_after_the_cache_was_deleted_what_waits_for_a_scan_is_complete_again(
    deployment: Deployment, remote: Remote
) -> None:
    remote.commit("first", {"A.lean": "-- 0\n"})
    deployment.poll()
    waiting = remote.commit("waits", {"A.lean": "-- 1\n"})
    remote.commit("tip", {"A.lean": "-- 2\n"})
    deployment.poll()
    shutil.rmtree(deployment.mirror())
    assert deployment.poll().outcome == "unchanged"
    remote.path.rename(remote.path.with_name("gone"))
    with Mirror(deployment.mirror()) as reading:
        assert [reading.read(file.blob, most_bytes=1000) for file in reading.files(waiting)] == [b"-- 1\n"]


def test_a_mirror_that_was_never_finished_is_finished_by_the_next_poll(
    deployment: Deployment, remote: Remote
) -> None:
    remote.commit("first", {"A.lean": "-- 0\n"})
    deployment.poll()
    waiting = remote.commit("waits", {"A.lean": "-- 1\n"})
    remote.commit("tip", {"A.lean": "-- 2\n"})
    deployment.poll()
    shutil.rmtree(deployment.mirror())

    async def cut_off(parts: Parts) -> None:
        # As when the daemon is killed between the fetch and the contents.
        mirror = deployment.mirror()
        await parts.git.ensure_mirror(mirror)
        tips = {"main": remote.git("rev-parse", "HEAD").strip()}
        await parts.git.fetch(mirror, str(remote.path), branches=tips)

    deployment.with_parts(cut_off)
    assert missing_objects(deployment.mirror()) > 0
    assert deployment.poll().outcome == "unchanged"
    remote.path.rename(remote.path.with_name("gone"))
    with Mirror(deployment.mirror()) as reading:
        assert [reading.read(file.blob, most_bytes=1000) for file in reading.files(waiting)] == [b"-- 1\n"]


def test_who_wrote_a_line_long_ago_is_found_though_the_mirror_lacks_the_old_contents(
    deployment: Deployment, remote: Remote
) -> None:
    remote.commit("first", {"A.lean": "-- one\n-- two\n"})
    for number in range(4):
        tip = remote.commit(f"c{number}", {"A.lean": f"-- one\n-- two\n-- {number}\n"})
    deployment.poll()
    assert missing_objects(deployment.mirror()) == 4

    async def authors(parts: Parts) -> frozenset[tuple[str, str]]:
        mirror = deployment.mirror()
        return await parts.git.last_authors(mirror, tip, "A.lean", first=1, last=2)

    assert deployment.with_parts(authors) == {("Ada", "ada@example.org")}


def test_whether_a_commit_is_there_is_answered_without_asking_the_remote(
    deployment: Deployment, remote: Remote
) -> None:
    """Git would fetch what a partial mirror lacks, with all its history, even when asked whether it is there."""
    remote.commit("first")
    deployment.poll()
    other = remote.commit("not fetched")
    there = deployment.with_parts(lambda parts: parts.git.has_commit(deployment.mirror(), other))
    assert not there


def sight_of_a_long_history(
    deployment: Deployment, remote: Remote, commits: int
) -> tuple[float, float, int, int]:
    """Poll a repository of so many commits; return seconds, the poller's growth in MiB, the mirror's and all bytes."""
    remote.import_history(commits, bytes_each=2000)

    async def first(parts: Parts) -> tuple[float, float]:
        process = psutil.Process()
        before, began = process.memory_info().rss, time.monotonic()
        polled = await parts.poller.poll(parts.repo)
        assert (polled.outcome, polled.commits) == ("changed", 1)
        return time.monotonic() - began, (process.memory_info().rss - before) / 2**20

    seconds, grown_mib = deployment.with_parts(first)
    return seconds, grown_mib, size_of(deployment.mirror()), size_of(remote.path / ".git")


def test_the_first_sight_of_a_long_history_does_not_bring_it(deployment: Deployment, remote: Remote) -> None:
    commits = 3000
    seconds, grown_mib, mirror_bytes, _ = sight_of_a_long_history(deployment, remote, commits)
    assert len(deployment.events("commit_observed")) == 1
    assert missing_objects(deployment.mirror()) == commits - 7
    assert grown_mib < 20
    assert seconds < 60
    assert mirror_bytes < commits * 500
    tip = remote.git("rev-parse", "main")
    assert sum(path.endswith(".lean") for path in check_out(deployment, tip)) == 7


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_first_sight_of_half_a_million_commits_is_bounded(deployment: Deployment, remote: Remote) -> None:
    commits = 500_000
    seconds, grown_mib, mirror_bytes, whole_bytes = sight_of_a_long_history(deployment, remote, commits)
    assert len(deployment.events("commit_observed")) == 1
    assert grown_mib < 50
    assert seconds < 600
    assert mirror_bytes < whole_bytes
    remote.git("update-ref", "refs/heads/main", remote.git("rev-parse", "main~3"))
    began = time.monotonic()
    assert deployment.poll().outcome == "changed"
    assert len(deployment.events("branch_rewritten")) == 1
    assert time.monotonic() - began < 60


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("bare", [True, False], ids=["bare", "with a worktree"])
def test_a_repository_of_another_user_is_read_where_the_settings_name_it_and_only_there(
    deployment: Deployment, bare: bool
) -> None:
    remote = deployment.remote("theirs")
    remote.commit("first")
    path = remote.path
    if bare:
        path = deployment.folder / "remotes" / "bare"
        subprocess.run(["git", "clone", "-q", "--bare", str(remote.path), str(path)], check=True)
    for one in [path, *path.rglob("*")]:
        os.lchown(one, 61234, 61234)
    deployment.write(repos=[path])
    refused = deployment.poll()
    assert refused.outcome == "other_owner"
    (failed,) = deployment.events("repository_failed")
    assert "safe_directories" in failed.data["remedy"]
    text = deployment.config.read_text("utf-8")
    named = text.replace("[poll]\n", f'[poll]\nsafe_directories = ["{path}"]\n')
    deployment.config.write_text(named, "utf-8")
    assert deployment.poll().outcome != "other_owner"
    assert [event.data["subject"] for event in deployment.events("commit_observed")] == ["first"]
