"""Polls of real git repositories: what each change of a remote becomes in the log."""

from __future__ import annotations

import asyncio
import shutil

from daemon.polling.poller import PollResult
from daemon.settings import Settings
from store.log.envelope import StoredEvent
from store.view import queries
from tests.support.daemon.deployment import Deployment


def poll(deployment: Deployment, times: int = 1) -> PollResult:
    async def go() -> PollResult:
        async with deployment.opened() as parts:
            for _ in range(times):
                polled = await parts.poller.poll(parts.repo)
            return polled

    return asyncio.run(go())


def facts(deployment: Deployment) -> list[tuple[str, str]]:
    """Every event but the watchlist's: type and what it is about."""
    return [(event.type, about(event)) for event in deployment.events() if event.type != "repository_watched"]


def about(event: StoredEvent) -> str:
    return str(event.data.get("subject") or event.data.get("branch") or event.data.get("problem") or "")


def test_a_first_sight_records_the_branch_and_its_tip_as_a_baseline(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    tip = remote.commit("second")
    deployment.write(repos=[remote.path])
    polled = poll(deployment)
    assert facts(deployment) == [("branch_created", "main"), ("commit_observed", "second")]
    created, observed = deployment.events("branch_created", "commit_observed")
    assert created.data["is_default"] is True
    assert observed.data["baseline"] is True
    assert observed.data["sha"] == created.data["tip"] == tip
    assert observed.data["author"] == "Ada"
    assert (polled.outcome, polled.commits) == ("changed", 1)


def test_an_unchanged_remote_leads_to_no_event_at_all(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path])
    poll(deployment)
    before = len(deployment.events())
    assert poll(deployment, times=3).outcome == "unchanged"
    assert len(deployment.events()) == before


def test_later_commits_are_recorded_one_by_one_oldest_first(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path])
    poll(deployment)
    for name in ("second", "third", "fourth"):
        remote.commit(name)
    assert poll(deployment).commits == 3
    assert facts(deployment)[-3:] == [("commit_observed", name) for name in ("second", "third", "fourth")]
    assert [event.data["baseline"] for event in deployment.events("commit_observed")] == [
        True,
        False,
        False,
        False,
    ]


def test_of_a_merge_only_the_first_parents_are_recorded(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path])
    poll(deployment)
    remote.git("checkout", "--quiet", "-b", "side")
    remote.commit("side work")
    remote.git("checkout", "--quiet", "main")
    remote.commit("main work")
    remote.git("merge", "--quiet", "--no-ff", "-m", "merged", "side")
    poll(deployment)
    assert facts(deployment)[-2:] == [("commit_observed", "main work"), ("commit_observed", "merged")]
    assert len(deployment.events("commit_observed")[-1].data["parents"]) == 2


def test_a_force_push_names_its_base_and_what_it_dropped(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    base = remote.commit("base")
    deployment.write(repos=[remote.path])
    poll(deployment)
    dropped = [remote.commit("lost one"), remote.commit("lost two")]
    poll(deployment)
    remote.reset(base)
    new = remote.commit("instead")
    poll(deployment)
    (rewritten,) = deployment.events("branch_rewritten")
    assert rewritten.data["base"] == base
    assert rewritten.data["dropped"] == dropped[::-1]
    assert (rewritten.data["old"], rewritten.data["new"]) == (dropped[1], new)
    assert facts(deployment)[-1] == ("commit_observed", "instead")


def test_a_force_push_back_and_forth_is_recorded_each_time(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("base")
    one = remote.commit("one")
    deployment.write(repos=[remote.path])
    poll(deployment)
    remote.reset("HEAD~1")
    two = remote.commit("two")
    for target in (two, one, two, one):
        remote.reset(target)
        poll(deployment)
    assert [event.data["new"] for event in deployment.events("branch_rewritten")] == [two, one, two, one]
    assert [about(event) for event in deployment.events("commit_observed")] == [
        "one",
        "two",
        "one",
        "two",
        "one",
    ]


def test_a_branch_that_is_set_back_has_its_old_tip_observed_again(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("kept")
    remote.commit("taken back")
    deployment.write(repos=[remote.path])
    poll(deployment)
    remote.reset("HEAD~1")
    poll(deployment)
    assert facts(deployment)[-2:] == [("branch_rewritten", "main"), ("commit_observed", "kept")]


def test_what_a_force_push_dropped_stays_readable_in_the_mirror(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("base")
    lost = remote.commit("lost")
    deployment.write(repos=[remote.path])
    poll(deployment)
    remote.reset("HEAD~1")
    remote.commit("instead")
    poll(deployment)

    async def kept() -> bool:
        async with deployment.opened() as parts:
            mirror = parts.poller.mirror(parts.repo.key)
            await parts.git._run("gc", "--quiet", "--prune=now", mirror=mirror)
            return await parts.git.has_commit(mirror, lost)

    assert asyncio.run(kept())


def test_a_deleted_branch_and_its_return_are_facts_of_their_own(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    remote.git("branch", "topic")
    deployment.write(repos=[remote.path], entry='branches = ["main", "topic"]')
    poll(deployment)
    remote.git("branch", "-D", "topic")
    poll(deployment)
    assert facts(deployment)[-1] == ("branch_deleted", "topic")
    remote.commit("second")
    remote.git("branch", "topic")
    poll(deployment)
    assert facts(deployment)[-3:] == [
        ("commit_observed", "second"),
        ("branch_created", "topic"),
        ("commit_observed", "second"),
    ]
    assert deployment.events("commit_observed")[-1].data["baseline"] is False


def test_branches_are_chosen_by_name_and_by_glob(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    for name in ("release/1", "release/2", "private"):
        remote.git("branch", name)
    deployment.write(repos=[remote.path], entry='branches = ["main", "release/*"]')
    poll(deployment)
    assert [event.data["branch"] for event in deployment.events("branch_created")] == [
        "main",
        "release/1",
        "release/2",
    ]


def test_a_new_branch_below_the_name_of_a_deleted_one_is_no_obstacle(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    remote.git("branch", "a")
    deployment.write(repos=[remote.path], entry='branches = ["*"]')
    poll(deployment)
    remote.git("branch", "-D", "a")
    remote.git("branch", "a/b")
    poll(deployment)
    assert [about(event) for event in deployment.events("branch_deleted", "branch_created")] == [
        "a",
        "main",
        "a",
        "a/b",
    ]


def test_a_vanished_remote_is_one_event_and_its_recovery_another(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path])
    poll(deployment)
    remote.path.rename(remote.path.with_name("elsewhere"))
    polled = poll(deployment, times=3)
    assert polled.outcome == "gone"
    assert [event.type for event in deployment.events()][-1] == "repository_failed"
    assert len(deployment.events("repository_failed")) == 1
    failed = deployment.events("repository_failed")[0].data
    assert failed["problem"] == "gone"
    assert str(remote.path) in failed["reason"]
    assert failed["remedy"]
    remote.path.with_name("elsewhere").rename(remote.path)
    remote.commit("second")
    poll(deployment)
    assert facts(deployment)[-2:] == [("repository_recovered", ""), ("commit_observed", "second")]


def test_a_path_that_never_was_a_repository_is_not_found_and_not_called_gone(deployment: Deployment) -> None:
    deployment.write(repos=[deployment.folder / "remotes" / "nowhere"])
    assert poll(deployment).outcome == "not_found"
    (failed,) = deployment.events("repository_failed")
    assert "no repository is there" in failed.data["remedy"]


def test_repeated_failures_are_asked_less_and_less_often_also_across_restarts(deployment: Deployment) -> None:
    deployment.write(repos=[deployment.folder / "remotes" / "nowhere"], every="60s")
    waits = [poll(deployment).wait_s for _ in range(9)]
    assert 90 < waits[0] < 150
    assert 380 < waits[2] < 580
    assert 2800 < waits[8] < 4400


def test_an_empty_repository_is_a_state_that_ends_with_its_first_commit(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    deployment.write(repos=[remote.path])
    assert poll(deployment).outcome == "empty"
    remote.commit("first")
    poll(deployment)
    assert facts(deployment) == [
        ("repository_failed", "empty"),
        ("repository_recovered", ""),
        ("branch_created", "main"),
        ("commit_observed", "first"),
    ]


def test_patterns_that_match_nothing_name_what_there_is(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path], entry='branches = ["master"]')
    assert poll(deployment).outcome == "invalid"
    assert "main" in deployment.events("repository_failed")[0].data["remedy"]


def test_an_odd_but_legal_branch_name_is_only_a_name(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    sha = remote.commit("first")
    remote.git("update-ref", "refs/heads/--upload-pack=touch", sha)
    remote.git("update-ref", "refs/heads/été/«x»", sha)
    deployment.write(repos=[remote.path], entry='branches = ["*"]')
    poll(deployment)
    assert {event.data["branch"] for event in deployment.events("branch_created")} == {
        "main",
        "--upload-pack=touch",
        "été/«x»",
    }


def test_a_lost_mirror_is_fetched_again_and_nothing_is_recorded_twice(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    settings = deployment.write(repos=[remote.path])
    poll(deployment)
    shutil.rmtree(settings.paths.mirrors)
    assert poll(deployment).outcome == "unchanged"
    remote.commit("second")
    assert poll(deployment).commits == 1
    assert [about(event) for event in deployment.events("commit_observed")] == ["first", "second"]


def test_c10_a_fetch_that_was_never_recorded_is_recorded_by_the_next_poll(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path])
    poll(deployment)
    remote.commit("second")

    async def killed_between_fetch_and_append() -> None:
        async with deployment.opened() as parts:
            mirror = parts.poller.mirror(parts.repo.key)
            await parts.git.fetch(mirror, parts.repo.url, branches=["main"])

    asyncio.run(killed_between_fetch_and_append())
    assert poll(deployment).commits == 1
    assert facts(deployment)[-1] == ("commit_observed", "second")


def test_a_changed_default_branch_is_followed(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path])
    poll(deployment)
    remote.git("checkout", "--quiet", "-b", "trunk")
    remote.commit("on trunk")
    poll(deployment)
    assert [(e.data["branch"], e.data["is_default"]) for e in deployment.events("branch_created")] == [
        ("main", True),
        ("trunk", True),
    ]


def test_hooks_of_the_mirror_do_not_run(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    settings = deployment.write(repos=[remote.path])
    poll(deployment)
    mirror = next(settings.paths.mirrors.iterdir())
    hooks = mirror / "hooks"
    hooks.mkdir(exist_ok=True)
    hook = hooks / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {deployment.folder}/ran\n", encoding="utf-8")
    hook.chmod(0o755)
    remote.commit("second")
    assert poll(deployment).commits == 1
    assert not (deployment.folder / "ran").exists()


def test_the_poll_state_is_remembered_beside_the_log(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    settings = deployment.write(repos=[remote.path])
    poll(deployment)
    view = queries.connect(settings.paths.database_db)
    (row,) = queries.repositories(view)
    view.close()
    assert row.poll_outcome == "changed"
    assert row.next_due_at is not None
    assert row.checked_at is not None
    assert row.next_due_at > row.checked_at


def branch_states(deployment: Deployment, settings: Settings) -> dict[str, str]:
    view = queries.connect(settings.paths.database_db)
    try:
        return {row.branch: row.state for row in queries.branches(view)}
    finally:
        view.close()


def test_a_branch_that_leaves_the_watchlist_is_unwatched_once_and_can_come_back(
    deployment: Deployment,
) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    remote.git("branch", "topic")
    deployment.write(repos=[remote.path], entry='branches = ["main", "topic"]')
    poll(deployment)
    settings = deployment.write(repos=[remote.path], entry='branches = ["main"]')
    poll(deployment, times=2)
    assert facts(deployment)[-1] == ("branch_unwatched", "topic")
    assert len(deployment.events("branch_unwatched")) == 1
    assert branch_states(deployment, settings) == {"main": "live", "topic": "unwatched"}
    deployment.write(repos=[remote.path], entry='branches = ["main", "topic"]')
    poll(deployment)
    assert facts(deployment)[-2:] == [("branch_created", "topic"), ("commit_observed", "first")]
    deployment.write(repos=[remote.path], entry='branches = ["main"]')
    poll(deployment)
    assert len(deployment.events("branch_unwatched")) == 2


def test_the_former_default_branch_is_unwatched_while_it_still_exists(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    settings = deployment.write(repos=[remote.path])
    poll(deployment)
    remote.git("checkout", "--quiet", "-b", "trunk")
    poll(deployment)
    assert branch_states(deployment, settings) == {"main": "unwatched", "trunk": "live"}


def test_patterns_that_match_nothing_any_more_end_the_watch_and_are_then_complained_of(
    deployment: Deployment,
) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    deployment.write(repos=[remote.path])
    poll(deployment)
    deployment.write(repos=[remote.path], entry='branches = ["nix"]')
    poll(deployment)
    assert facts(deployment)[-1] == ("branch_unwatched", "main")
    assert poll(deployment).outcome == "invalid"


def test_a_head_that_leads_nowhere_says_nothing_of_the_branch_that_was_watched(
    deployment: Deployment,
) -> None:
    remote = deployment.remote("demo")
    remote.commit("first")
    remote.git("branch", "other")
    settings = deployment.write(repos=[remote.path])
    poll(deployment)
    remote.git("symbolic-ref", "HEAD", "refs/heads/nowhere")
    assert poll(deployment).outcome == "invalid"
    assert branch_states(deployment, settings) == {"main": "live"}


def test_a_lost_mirror_is_there_again_after_a_poll_that_finds_nothing_new(deployment: Deployment) -> None:
    remote = deployment.remote("demo")
    tip = remote.commit("first")
    settings = deployment.write(repos=[remote.path])
    poll(deployment)
    shutil.rmtree(settings.paths.mirrors)

    async def readable() -> bool:
        async with deployment.opened() as parts:
            await parts.poller.poll(parts.repo)
            return await parts.git.has_commit(parts.poller.mirror(parts.repo.key), tip)

    assert asyncio.run(readable())
    assert len(deployment.events("commit_observed")) == 1
