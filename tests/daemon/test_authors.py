"""Who wrote each sorry and when, out of real git repositories: at first sight, later, and where git cannot say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import Any, TypeVar

import pytest

from daemon.polling import authors as module
from daemon.polling.git_process import GitProcess
from daemon.polling.past import Past
from pipeline.jobs.mirror import Mirror
from pipeline.lean.source.scanner import read_file
from store.domain.identity import pull_request_of, sorry_id
from store.events.scans import SorryOpened
from store.log.envelope import NewEvent
from store.sqlite import connect_readonly
from store.view import queries
from store.view.rows import SorryRow
from tests.support.daemon.deployment import HISTORY, Deployment, Parts
from tests.support.daemon.remote import Remote
from tests.support.events import commit_scanned, place

Answer = TypeVar("Answer")
ALPHA = "theorem alpha : 1 = 1 := by\n  sorry\n"
DONE = "".join(f"theorem done{n} : {n} = {n} :=\n  rfl\n\n" for n in range(9))
BETA = "theorem beta : 2 = 2 := by\n  sorry\n"


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    remote = deployment.remote("demo")
    remote.serve_partially()
    deployment.write(repos=[remote.path], extra=HISTORY)
    return remote


async def see(parts: Parts) -> None:
    """Poll, and record the sorries of the tip as a scan does."""
    await parts.poller.poll(parts.repo)
    (branch,) = await parts.store.ask(queries.branches)
    sorries = {row.sorry for row in await parts.store.ask(queries.sorries)}
    about = {"repository": parts.repo.key, "branch": branch.branch, "sha": branch.tip}
    bodies: list[Any] = []
    with Mirror(parts.poller.mirror(parts.repo.key)) as mirror:
        for file in [one for one in mirror.files(branch.tip) if one.path.endswith(".lean")]:
            data = mirror.read(file.blob, most_bytes=10**6)
            assert isinstance(data, bytes)
            scan = read_file(data, path=file.path).scan
            for one in scan.sorries:
                spot = place(scan, one, blob=file.blob)
                sorry = sorry_id(parts.repo.key, spot.declaration, spot.statement_hash, spot.ordinal)
                if sorry not in sorries:
                    bodies.append(SorryOpened(**about, sorry=sorry, place=spot, reopened=False))
    bodies.append(commit_scanned(branch.tip, base=branch.scanned).model_copy(update=about))
    await parts.store.append([NewEvent(f"repository:{parts.repo.key}", body) for body in bodies])


def past_of(parts: Parts) -> Past:
    return Past(store=parts.store, git=parts.git, mirror=parts.poller.mirror, context=parts.context)


def asked(deployment: Deployment) -> dict[str, SorryRow]:
    """See the remote as it is now, ask git until it has answered; return the sorries by declaration."""

    async def go(parts: Parts) -> dict[str, SorryRow]:
        await see(parts)
        await past_of(parts).look()
        return {row.declaration: row for row in await parts.store.ask(queries.sorries)}

    return deployment.with_parts(go)


def written(row: SorryRow) -> tuple[str | None, str, str, int | None]:
    return (row.written_sha, row.written_by, (row.written_at or "")[:10], row.pull_request)


def merge(remote: Remote, subject: str, files: Mapping[str, str], **commit: str) -> str:
    """Commit on a branch of its own, and merge it into main with a commit of this subject; return the first."""
    remote.git("switch", "--quiet", "-c", "topic")
    sha = remote.commit("the work", files, **commit)
    remote.git("switch", "--quiet", "main")
    remote.git("merge", "--quiet", "--no-ff", "-m", subject, "topic", date="2026-02-01T00:00:00Z")
    remote.git("branch", "--quiet", "-d", "topic")
    return sha


def test_at_first_sight_git_says_who_wrote_each_sorry_and_when(
    deployment: Deployment, remote: Remote
) -> None:
    first = remote.commit("a (#7)", {"A.lean": ALPHA}, author="Ada", date="2024-03-01T00:00:00Z")
    second = remote.commit("b", {"A.lean": ALPHA + BETA}, author="Bob", date="2025-04-01T00:00:00Z")
    remote.commit("text above, deeper", {"A.lean": "-- a\n" + (ALPHA + BETA).replace("  s", "    s")})
    remote.git("mv", "A.lean", "B.lean")
    moved = (remote.path / "B.lean").read_text() + "-- and some text below\n"
    remote.commit("renamed and changed", {"B.lean": moved, "C.lean": "-- c\n"}, author="Cy")
    result = asked(deployment)
    assert written(result["alpha"]) == (first, "Ada", "2024-03-01", 7)
    assert written(result["beta"]) == (second, "Bob", "2025-04-01", None)


def test_a_date_before_git_was_there_is_no_date(deployment: Deployment, remote: Remote) -> None:
    remote.commit("first", {"A.lean": ALPHA}, author="Ada", date="1970-01-02T00:00:00Z")
    remote.commit("second", {"B.lean": BETA}, author="Bob", date="2025-04-01T00:00:00Z")
    result = asked(deployment)
    assert (result["alpha"].written_by, result["alpha"].written_at) == ("Ada", None)
    assert result["beta"].written_at is not None


def test_a_move_within_a_file_is_nobody_s_work(deployment: Deployment, remote: Remote) -> None:
    sha = remote.commit("first", {"A.lean": ALPHA + DONE}, author="Ada", date="2024-03-01T00:00:00Z")
    remote.commit("moved", {"A.lean": DONE + ALPHA}, author="Bob")
    assert written(asked(deployment)["alpha"]) == (sha, "Ada", "2024-03-01", None)


def test_what_a_merge_brought_has_its_author_and_the_number_of_the_merge(
    deployment: Deployment, remote: Remote
) -> None:
    remote.commit("first")
    subject = "Merge pull request #12 from bob/topic"
    before = merge(remote, subject, {"A.lean": ALPHA}, author="Bob", date="2025-04-01T00:00:00Z")
    assert written(asked(deployment)["alpha"]) == (before, "Bob", "2025-04-01", 12)
    later = merge(remote, "Merge branch 'topic'", {"B.lean": BETA}, author="Cy", date="2026-01-03T00:00:00Z")
    assert written(asked(deployment)["beta"]) == (later, "Cy", "2026-01-03", None)


def test_a_later_sorry_is_of_the_commit_that_brought_it_without_a_look_at_its_file(
    deployment: Deployment, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.commit("first", {"A.lean": "-- a\n"})
    asked(deployment)
    ran = count_git(monkeypatch)
    sha = remote.commit("b (#8) (#9)", {"A.lean": BETA}, author="Bob", date="2025-04-01T00:00:00Z")
    assert written(asked(deployment)["beta"]) == (sha, "Bob", "2025-04-01", 9)
    assert ran["blame"] == 0


def count_git(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the processes of git, by command."""
    ran: Counter[str] = Counter()
    run = GitProcess._try

    async def counting(self: GitProcess, *arguments: str, **given: Any) -> Any:
        ran[arguments[0]] += 1
        return await run(self, *arguments, **given)

    monkeypatch.setattr(GitProcess, "_try", counting)
    return ran


def test_the_history_of_a_folder_that_was_renamed_comes_in_two_requests(
    deployment: Deployment, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"theorem t{number} : 1 = 1 := by\n  sorry\n\n-- the end\n" for number in range(12)]

    def files(folder: str, first: str) -> dict[str, str]:
        return {f"{folder}/F{number}.lean": f"{first}{text}" for number, text in enumerate(texts)}

    remote.commit("first", files("Old", ""), author="Ada", date="2024-03-01T00:00:00Z")
    for turn in range(3):
        remote.commit(f"c{turn}", files("Old", f"-- {turn}\n"))
    remote.git("mv", "Old", "New")
    remote.commit("renamed and changed", files("New", "-- new\n"))

    async def go(parts: Parts) -> tuple[Counter[str], int]:
        await see(parts)
        packs = parts.poller.mirror(parts.repo.key) / "objects" / "pack"
        ran, before = count_git(monkeypatch), len([*packs.glob("*.pack")])
        await past_of(parts).look()
        return ran, len([*packs.glob("*.pack")]) - before

    ran, fetched = deployment.with_parts(go)
    assert ran == {"log": 4, "rev-list": 2, "fetch": 1, "blame": 12}
    assert fetched == 2, "what went with the rename, and all versions"
    with closing(connect_readonly(deployment.settings().paths.database_db)) as view:
        assert {(row.written_by, row.written_at) for row in queries.sorries(view)} == {
            ("Ada", "2024-03-01T00:00:00.000000Z")
        }
        assert queries.unwritten_repositories(view) == []


def test_a_file_with_too_many_versions_is_not_fetched_and_the_reason_is_recorded(
    deployment: Deployment, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_VERSIONS", 2)
    for turn in range(4):
        remote.commit(f"c{turn}", {"A.lean": f"-- {turn}\n{ALPHA}"}, author="Ada")
    remote.commit("b", {"B.lean": BETA}, author="Bob", date="2025-04-01T00:00:00Z")
    result = asked(deployment)
    assert written(result["alpha"]) == ("", "", "", None)
    assert result["beta"].written_by == "Bob"
    reasons = [event.data["reason"] for event in deployment.events("sorry_written")]
    assert sorted(reasons) == ["", "its file has more than 20,000 earlier versions"]


HOSTILE = {
    "a name of control characters": ("E\x1b[31mv\u202e\x07e", "E�[31mv��e"),
    "a name without end": ("E" * 100_000, "E" * 199 + "…"),
}


@pytest.mark.parametrize(("name", "shown"), HOSTILE.values(), ids=list(HOSTILE))
def test_names_and_subjects_of_strangers_are_bounded_and_cleaned(
    deployment: Deployment, remote: Remote, name: str, shown: str
) -> None:
    subject = "s" * 1_000_000 + " (#99999999999)"
    remote.git("config", "user.name", name)
    (remote.path / "message").write_text(subject)
    (remote.path / "*.lean").write_text(ALPHA)
    remote.git("add", "*.lean")
    remote.git("-c", f"user.name={name}", "commit", "--quiet", "-F", "message", date="2099-01-01T00:00:00Z",
               author=name)  # fmt: skip
    remote.commit("next", {"B.lean": BETA})
    row = asked(deployment)["alpha"]
    assert (row.written_by, row.pull_request) == (shown, None)
    assert row.written_at is not None
    assert row.written_at < "2099", "no author's clock is ahead of ours"
    (event,) = [one for one in deployment.events("sorry_written") if one.data["author"] == shown]
    assert len(str(event.data)) < 1000


SUBJECTS = {
    "feat: a thing (#123)": 123,
    "[Merged by Bors] - feat: x (#4)": 4,
    "Merge pull request #5 from a/b": 5,
    "fixes #6": None,
    "(#7) at the beginning": None,
    "a number without end (#12345678901)": None,
    "": None,
}


@pytest.mark.parametrize(("subject", "number"), SUBJECTS.items())
def test_the_number_of_a_pull_request_stands_at_a_subjects_end(subject: str, number: int | None) -> None:
    assert pull_request_of(subject) == number


def test_nothing_is_asked_where_the_setting_says_so(deployment: Deployment, remote: Remote) -> None:
    deployment.write(repos=[remote.path])
    remote.commit("first", {"A.lean": ALPHA})
    assert asked(deployment)["alpha"].written_sha is None
    assert deployment.events("sorry_written") == []


def test_what_a_remote_does_not_give_is_asked_again_later(deployment: Deployment, remote: Remote) -> None:
    remote.commit("first", {"A.lean": "-- 1\n" + ALPHA}, author="Ada")
    remote.commit("second", {"A.lean": "-- 2\n" + ALPHA})

    async def go(parts: Parts) -> list[str | None]:
        await see(parts)
        away = remote.path.with_name("away")
        remote.path.rename(away)
        patient, answers = past_of(parts), []
        for turn in (patient, patient, past_of(parts)):
            await turn.look()
            answers += [row.written_sha for row in await parts.store.ask(queries.sorries)]
            if turn is patient and away.exists():
                away.rename(remote.path)
        return answers

    answers = deployment.with_parts(go)
    assert answers[:2] == [None, None], "the second time it is too early to ask"
    assert answers[2]


def test_a_daemon_says_who_wrote_what_it_finds(deployment: Deployment, remote: Remote) -> None:
    sha = remote.commit("a (#7)", {"A.lean": ALPHA}, author="Ada", date="2024-03-01T00:00:00Z")
    hasty = "import daemon.polling.past as past\npast._PAUSE_S = 0.1"
    with deployment.daemon(prelude=hasty):
        deployment.wait_for(lambda: deployment.events("sorry_written"), what="the author of a sorry")
    (event,) = deployment.events("sorry_written")
    assert (event.data["sha"], event.data["author"], event.data["pull_request"]) == (sha, "Ada", 7)
    assert "example.org" not in str(event.data), "names, and no addresses"
