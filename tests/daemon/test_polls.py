"""Polls of real git repositories: what each change of a remote becomes in the log."""

from __future__ import annotations

import shlex
import shutil

import pytest

from store.log.envelope import StoredEvent
from tests.support.daemon.deployment import Deployment, Parts
from tests.support.daemon.remote import Remote


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    remote = deployment.remote("demo")
    deployment.write(repos=[remote.path])
    return remote


def fact(event: StoredEvent) -> str:
    """An event in words: its type, what it is about, and what is special about that."""
    data = event.data
    words = [event.type, str(data.get("subject") or data.get("branch") or data.get("problem") or "")]
    words += ["(baseline)"] * bool(data.get("baseline")) + ["(merge)"] * (len(data.get("parents", ())) > 1)
    words += ["(no base)"] * (event.type == "branch_rewritten" and data["base"] is None)
    return " ".join(filter(None, words))


STORIES = {
    "later commits are told one by one, oldest first": """
        commit first; poll; commit second; commit third; poll
        => branch_created main; commit_observed first (baseline); commit_observed second; commit_observed third""",
    "an unchanged remote is no event": """
        commit first; poll; poll; poll
        => branch_created main; commit_observed first (baseline)""",
    "of a merge the first parents are told": """
        commit first; poll; checkout -b side; commit theirs; checkout main; commit ours; merge --no-ff -m both side;
        poll
        => branch_created main; commit_observed first (baseline); commit_observed ours; commit_observed both (merge)""",
    "a force-push is told each time, back and forth": """
        commit base; commit one; tag one; poll; reset --hard HEAD~1; commit two; tag two; poll; reset --hard one;
        poll; reset --hard two; poll
        => branch_created main; commit_observed one (baseline); branch_rewritten main; commit_observed two;
        branch_rewritten main; commit_observed one; branch_rewritten main; commit_observed two""",
    "of a branch that is set back the old tip is told again": """
        commit kept; commit taken-back; poll; reset --hard HEAD~1; poll
        => branch_created main; commit_observed taken-back (baseline); branch_rewritten main; commit_observed kept""",
    "an unrelated history has no base": """
        commit first-life; poll; checkout --orphan second; commit second-life; branch -M second main; poll
        => branch_created main; commit_observed first-life (baseline); branch_rewritten main (no base);
        commit_observed second-life (baseline)""",
    "a branch that was deleted and comes back is no baseline": """
        commit first; branch topic; watch main topic; poll; branch -D topic; poll; commit second; branch topic; poll
        => branch_created main; commit_observed first (baseline); branch_created topic; commit_observed first
        (baseline); branch_deleted topic; commit_observed second; branch_created topic; commit_observed second""",
    "branches are chosen by name and by glob": """
        commit first; branch release/1; branch private; watch main release/*; poll
        => branch_created main; commit_observed first (baseline); branch_created release/1; commit_observed first
        (baseline)""",
    "a new branch below the name of a deleted one is no obstacle": """
        commit first; branch a; watch a*; poll; branch -D a; branch a/b; poll
        => branch_created a; commit_observed first (baseline); branch_deleted a; branch_created a/b; commit_observed
        first (baseline)""",
    "an odd but legal name is only a name": """
        commit first; update-ref refs/heads/--upload-pack=touch HEAD; update-ref refs/heads/été/«x» HEAD; watch
        *; poll
        => branch_created --upload-pack=touch; commit_observed first (baseline); branch_created main;
        commit_observed first (baseline); branch_created été/«x»; commit_observed first (baseline)""",
    "an empty repository begins with its first commit": """
        poll; commit first; poll
        => repository_failed empty; repository_recovered; branch_created main; commit_observed first (baseline)""",
    "a lost mirror is fetched again and nothing is told twice": """
        commit first; poll; lose; poll; commit second; poll
        => branch_created main; commit_observed first (baseline); commit_observed second""",
    "a vanished remote is one event and its recovery another": """
        commit first; poll; vanish; poll; poll; return; commit second; poll
        => branch_created main; commit_observed first (baseline); repository_failed gone; repository_recovered;
        commit_observed second""",
    "another default branch is followed, and the former one is watched no more": """
        commit first; poll; checkout -b trunk; commit on-trunk; poll
        => branch_created main; commit_observed first (baseline); branch_unwatched main; branch_created trunk;
        commit_observed on-trunk (baseline)""",
    "a default branch that is renamed is followed": """
        commit first; poll; branch -M main trunk; poll; commit second; poll
        => branch_created main; commit_observed first (baseline); branch_deleted main; branch_created trunk;
        commit_observed first (baseline); commit_observed second""",
    "a branch that leaves the watchlist is unwatched once and can come back": """
        commit first; branch topic; watch main topic; poll; watch main; poll; poll; watch main topic; poll; watch
        main; poll
        => branch_created main; commit_observed first (baseline); branch_created topic; commit_observed first
        (baseline); branch_unwatched topic; branch_created topic; commit_observed first (baseline);
        branch_unwatched topic""",
    "patterns that match nothing any more end the watch and are then complained of": """
        commit first; poll; watch nix; poll; poll
        => branch_created main; commit_observed first (baseline); branch_unwatched main; repository_failed invalid""",
    "a HEAD that leads nowhere says nothing of the branch that was watched": """
        commit first; branch other; poll; symbolic-ref HEAD refs/heads/nowhere; poll
        => branch_created main; commit_observed first (baseline); repository_failed invalid""",
    "commits that are years old and pushed today are told": """
        commit first; poll; commit on-a-plane 2019-01-01; commit before-there-was-git 1970-01-02; poll
        => branch_created main; commit_observed first (baseline); commit_observed on-a-plane; commit_observed
        before-there-was-git""",
    "a branch of old commits that is pushed late is a new branch": """
        commit base 2018-01-01; branch old; commit later; watch *; poll; checkout -b late old; commit then 2018-01-02;
        poll
        => branch_created main; commit_observed later (baseline); branch_created old; commit_observed base (baseline);
        branch_created late; commit_observed then (baseline)""",
    "an old side branch that the default branch is set on to is told commit by commit": """
        commit base; poll; checkout -b side; commit one 2017-01-01; commit two 2016-01-01; checkout main; merge
        --ff-only side; poll
        => branch_created main; commit_observed base (baseline); commit_observed one; commit_observed two""",
}
"""What happens to a remote, and what its polls record, each of a daemon that was just started. The steps are git's
commands but for these: `commit` takes a subject and a day, `watch` the patterns of the watchlist's entry, `lose` is
about the mirror, `vanish` and `return` about the remote."""


@pytest.mark.parametrize("story", STORIES)
def test_what_happens_to_a_remote_is_told_in_the_log(
    deployment: Deployment, remote: Remote, story: str
) -> None:
    steps, expected = (part.split(";") for part in STORIES[story].split("=>"))
    away = remote.path.with_name("elsewhere")
    for step in steps:
        match shlex.split(step):
            case ["poll"]:
                deployment.poll()
            case ["commit", subject, *days]:
                remote.commit(subject, date="".join(f"{day}T00:00:00Z" for day in days))
            case ["watch", *patterns]:
                named = ", ".join(f'"{pattern}"' for pattern in patterns)
                deployment.write(repos=[remote.path], entry=f"branches = [{named}]")
            case ["lose"]:
                shutil.rmtree(deployment.mirror())
            case ["vanish"]:
                remote.path.rename(away)
            case ["return"]:
                away.rename(remote.path)
            case ["checkout" | "merge" | "reset" as command, *words]:
                remote.git(command, "--quiet", *words)
            case command:
                remote.git(*command)
    lines = [fact(event) for event in deployment.events() if event.type != "repository_watched"]
    assert lines == [" ".join(one.split()) for one in expected]


def test_a_first_sight_says_who_wrote_the_tip_and_when(deployment: Deployment, remote: Remote) -> None:
    remote.commit("first")
    tip = remote.commit("second")
    polled = deployment.poll()
    created, observed = deployment.events("branch_created", "commit_observed")
    assert created.data["is_default"] is True
    assert observed.data["sha"] == created.data["tip"] == tip
    assert (observed.data["author"], observed.data["committed_at"]) == ("Ada", "2026-01-02T03:04:05Z")
    assert (polled.outcome, polled.commits) == ("changed", 1)
    assert deployment.poll().outcome == "unchanged"


def test_a_rebase_names_what_it_dropped_which_stays_readable(deployment: Deployment, remote: Remote) -> None:
    base = remote.commit("base")
    remote.git("checkout", "--quiet", "-b", "topic")
    old = [remote.commit("topic one"), remote.commit("topic two")]
    deployment.write(repos=[remote.path], entry='branches = ["topic"]')
    deployment.poll()
    remote.git("checkout", "--quiet", "main")
    remote.commit("main went on")
    remote.git("checkout", "--quiet", "topic")
    remote.git("rebase", "--quiet", "main")
    deployment.poll()
    (rewritten,) = deployment.events("branch_rewritten")
    assert (rewritten.data["base"], rewritten.data["dropped"]) == (base, old[::-1])
    assert (rewritten.data["old"], rewritten.data["new"]) == (old[1], remote.git("rev-parse", "topic"))
    observed = [event.data["subject"] for event in deployment.events("commit_observed")[1:]]
    assert observed == ["main went on", "topic one", "topic two"]

    async def kept(parts: Parts) -> bool:
        await parts.git._run("gc", "--quiet", "--prune=now", mirror=deployment.mirror())
        return await parts.git.has_commit(deployment.mirror(), old[1])

    assert deployment.with_parts(kept)


@pytest.mark.parametrize(
    ("name", "outcome", "said"),
    [
        ("nowhere", "not_found", "no repository is there"),
        ("demo", "empty", "push a first commit"),
        ("other", "invalid", "main"),
    ],
)
def test_what_cannot_be_watched_is_said_with_its_remedy(
    deployment: Deployment, remote: Remote, name: str, outcome: str, said: str
) -> None:
    deployment.remote("other").commit("first")
    deployment.write(repos=[remote.path.with_name(name)], entry='branches = ["master"]')
    assert deployment.poll().outcome == outcome
    (failed,) = deployment.events("repository_failed")
    assert said in failed.data["remedy"]


def test_repeated_failures_are_asked_less_and_less_often_also_across_restarts(deployment: Deployment) -> None:
    deployment.write(repos=[deployment.folder / "remotes" / "nowhere"], every="60s")
    waits = [deployment.poll().wait_s for _ in range(9)]
    assert 90 < waits[0] < 150
    assert 380 < waits[2] < 580
    assert 2800 < waits[8] < 4400


def test_hooks_of_the_mirror_do_not_run(deployment: Deployment, remote: Remote) -> None:
    remote.commit("first")
    deployment.poll()
    hooks = deployment.mirror() / "hooks"
    hooks.mkdir(exist_ok=True)
    hook = hooks / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {deployment.folder}/ran\n", encoding="utf-8")
    hook.chmod(0o755)
    remote.commit("second")
    assert deployment.poll().commits == 1
    assert not (deployment.folder / "ran").exists()
