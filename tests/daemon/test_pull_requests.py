"""`everlean proofs pr`, against the shipped server that behaves like GitHub's, with real git repositories behind it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from daemon.cli.app import build
from daemon.http.control import ControlServer
from daemon.place.lock import DaemonLock
from daemon.results.pull_requests import PullRequests, PullRequestStateError, record
from daemon.settings import Settings
from daemon.state.store_service import StoreService
from store.domain.identity import git_blob, slug
from store.events.base import EventBody
from store.events.places import SorryPlace
from store.events.proofs import AttemptFinished, CheckedVersion, ProofFound, ProofVerified, PullRequestOpened
from store.events.repositories import RepositoryIdentified, RepositoryReplaced
from store.log.envelope import NewEvent
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.github import Failure, GitHubServer
from tests.support.daemon.remote import Remote
from tests.support.events import ALL_PASSED, attempt, digest, proof_rejected, stage, watched
from tests.support.models import checkpoint_saved

TOKEN = "ghp_thisIsASecretOfTheTest0123456789"
NAME = "remotes/demo"
KEY = f"local/{NAME}"
PATH = "Demo/Basic.lean"
PROOF = "d0" * 8
FILE = "-- a file\ntheorem one : 1 = 1 := by\n  sorry\n\ntheorem two : 2 = 2 := by\n  rfl\n"
PATCH = b"A proof of one\n\nToolchain: leanprover/lean4:v4.21.0\n\ndiff --git a/x b/x\n"
BRANCH = f"everlean/one-{PROOF}"


@dataclass
class World:
    """A watched repository on a forge, a proof of its sorry in the log, and the command."""

    deployment: Deployment
    github: GitHubServer
    remote: Remote
    sha: str
    settings: Settings
    found: ProofFound
    others: list[NewEvent] = field(default_factory=list)

    def configure(
        self, entry: str = "pull_requests = true", extra: str = "", *, watched: bool = True
    ) -> None:
        self.settings = self.deployment.write(
            repos=[self.remote.path] if watched else [],
            entry=entry,
            extra=f'[github]\napi_url = "{self.github.url}"\nlocal_repositories = true\n{extra}',
        )

    def tell(self, *bodies: EventBody) -> None:
        """Record events, those of the proof in its stream."""
        _, blobs = stage(self.deployment.folder / "stage", PATCH)
        events = [NewEvent(f"proof:{PROOF}", body) for body in bodies]

        self.settings.paths.state.mkdir(exist_ok=True)

        async def go() -> None:
            store = await StoreService.open(self.settings.paths)
            try:
                await store.append(events, blobs=blobs)
            finally:
                await store.close()

        asyncio.run(go())

    def pr(self, *arguments: str) -> Result:
        return everlean(self.deployment, "proofs", "pr", PROOF[:6], *arguments)

    def refused(self, *arguments: str) -> str:
        result = self.pr(*arguments)
        assert result.exit_code != 0, result.output
        assert self.opened == [], "recorded, and not opened"
        assert TOKEN not in str(result.exception)
        return str(result.exception)

    @property
    def opened(self) -> list[dict[str, Any]]:
        """What the log says of pull requests."""
        return [event.data for event in self.deployment.events("pull_request_opened")]

    @property
    def pulls(self) -> list[dict[str, Any]]:
        return self.github.pulls(NAME)


def everlean(deployment: Deployment, *arguments: str) -> Result:
    return CliRunner().invoke(build(("proofs",)), [*arguments, "--config", str(deployment.config)])


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", TOKEN)
    monkeypatch.setattr(PullRequests.__init__, "__kwdefaults__", {"fork_wait_s": 60.0, "fork_every_s": 0.01})


@pytest.fixture
def github() -> Iterator[GitHubServer]:
    with GitHubServer(token=TOKEN) as server:
        yield server


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A remote with a sorry; made once, as it takes git and SQLite a while."""
    folder = tmp_path_factory.mktemp("template")
    remote = Deployment(folder).remote("demo")
    remote.commit("first", {PATH: FILE, "README.md": "demo\n"})
    remote.git("commit", "--quiet", "--amend", "--no-edit", "--author", "Ada <Ada@Example.org>")
    return folder


@pytest.fixture(scope="module")
def told(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with a log that has a verified proof."""
    folder = tmp_path_factory.mktemp("told") / "deployment"
    shutil.copytree(template, folder)
    with GitHubServer() as server:
        result = world_at(folder, server)
        result.tell(result.found, verified(result.found))
    return folder


@pytest.fixture
def world(told: Path, tmp_path: Path, github: GitHubServer) -> World:
    shutil.copytree(told, tmp_path / "deployment")
    return world_at(tmp_path / "deployment", github)


@pytest.fixture
def unproved(template: Path, tmp_path: Path, github: GitHubServer) -> World:
    """One whose log says nothing yet."""
    shutil.copytree(template, tmp_path / "deployment")
    return world_at(tmp_path / "deployment", github)


@pytest.fixture
def foreign(told: Path, tmp_path: Path, github: GitHubServer) -> World:
    """One to whose repository the token may not push."""
    shutil.copytree(told, tmp_path / "deployment")
    return world_at(tmp_path / "deployment", github, may_push=False)


def world_at(folder: Path, github: GitHubServer, *, may_push: bool = True) -> World:
    deployment = Deployment(folder)
    remote = Remote.at(folder / "remotes" / "demo")
    sha = remote.git("rev-parse", "main")
    github.add(NAME, remote.path, may_push=may_push)
    start = FILE.index("sorry")
    result = ProofFound(
        proof=PROOF, sorry="5a" * 8, repository=KEY, branch="main", sha=sha, path=PATH,
        blob=git_blob(FILE.encode(), like=sha), byte_start=start, byte_end=start + 5, declaration="one",
        declaration_text_hash="1" * 16, replacement="rfl", parts=(), tactics=("rfl",), prover="generator", rung=2,
        toolchain="leanprover/lean4:v4.21.0", job="prove-1",
    )  # fmt: skip
    world = World(deployment, github, remote, sha, deployment.write(repos=[]), result)
    world.configure()
    return world


def verified(found: ProofFound, **changes: Any) -> ProofVerified:
    body = ProofVerified(
        proof=PROOF, sorry="5a" * 8, checks=ALL_PASSED, not_checked=(), axioms=("propext",),
        grade="L1", kernel="leanchecker",
        version=CheckedVersion(sha=found.sha, blob=found.blob, byte_start=found.byte_start), patch=digest(PATCH),
        job="check-1", toolchain=found.toolchain, material=None,
    )  # fmt: skip
    return body.model_copy(update=changes)


def searched(found: ProofFound) -> AttemptFinished:
    """The attempt behind the proof."""
    shared = found.model_dump(include={"sorry", "blob", "repository", "sha", "prover", "rung", "job"})
    place = SorryPlace(
        path=PATH, blob=found.blob, line=3, column=2, byte_start=0, byte_end=5, declaration="one", kind="theorem",
        statement="", statement_hash="2" * 16, ordinal=0, token="sorry", mode="tactic", context_hash="3" * 16,
    )  # fmt: skip
    result = attempt(found.sorry, place, commit=found.sha)
    more = {"model": "tactics-3", "seed": 7, "usd": 0.0125, "prompt_tokens": 900, "completion_tokens": 100}
    return AttemptFinished.model_validate(result.model_dump() | shared | more)


# --- what goes well -------------------------------------------------------------------------------------------


def test_a_verified_proof_becomes_one_commit_on_a_branch_and_a_pull_request(world: World) -> None:
    saved = checkpoint_saved("tactics-3", model="tactics")
    world.tell(searched(world.found), saved)
    result = world.pr()
    assert result.exit_code == 0, result.exception
    (pull,) = world.pulls
    assert f"- weights: `sha256:{saved.weights}`" in pull["body"]
    assert pull["html_url"] in result.output
    assert (pull["base"]["ref"], pull["head"]["label"]) == ("main", f"remotes:{BRANCH}")
    assert world.remote.git("rev-parse", f"{BRANCH}^") == world.sha
    assert world.remote.git("diff", "--name-only", "main", BRANCH) == PATH
    after = world.remote.git("show", f"{BRANCH}:{PATH}")
    assert after + "\n" == FILE.replace("sorry", "rfl")
    for evidence in (
        "found by a program", "- Lean: `leanprover/lean4:v4.21.0`", "- found by: `generator, rung 2, with ",
        "- model: `tactics-3`", "- seed: `7`", "- axioms: `propext`", "1,000 tokens", "$0.0125", "`compile`: passed",
        "- kernel: `L1: kernel replayed all, by leanchecker; no second kernel`",
        "opt_out_authors", world.sha,
    ):  # fmt: skip
        assert evidence in pull["body"]
    (event,) = world.deployment.events("pull_request_opened")
    assert (event.stream, event.data) == (
        f"proof:{PROOF}",
        {
            "proof": PROOF, "repository": KEY, "number": 1, "url": pull["html_url"], "branch": f"remotes:{BRANCH}",
            "head": world.remote.git("rev-parse", BRANCH), "base": world.sha,
        },
    )  # fmt: skip
    assert pull["html_url"] in everlean(world.deployment, "proofs", "show", PROOF).output


def test_a_second_call_asks_nothing_and_says_where_it_is(world: World) -> None:
    world.pr()
    before = len(world.github.requests)
    again = world.pr("--json")
    assert (json.loads(again.stdout)["outcome"], len(world.github.requests)) == ("recorded", before)
    assert (len(world.opened), len(world.pulls)) == (1, 1)


def test_without_push_rights_it_comes_from_a_fork_that_is_waited_for(foreign: World) -> None:
    world, github = foreign, foreign.github
    github.fork_ready_after = 2
    assert world.pr().exit_code == 0
    (pull,) = world.pulls
    assert pull["head"]["label"] == f"proposer:{BRANCH}"
    assert "everlean" not in world.remote.git("branch", "--list", "everlean/*")


def test_an_old_fork_is_brought_forward_and_one_with_commits_of_its_own_is_left_alone(foreign: World) -> None:
    world, github = foreign, foreign.github
    github.failures = [Failure("POST", "/pulls", 500)]
    assert "500" in world.refused()
    world.remote.commit("later", {"Other.lean": "-- new\n"})
    fork = Remote.at(world.deployment.folder / "remotes" / "demo-of-proposer.git")
    ours = fork.git("commit-tree", "main^{tree}", "-p", "main", "-m", "ours")
    before = fork.git("rev-parse", "main")
    fork.git("update-ref", "refs/heads/main", ours)
    tip = world.remote.git("rev-parse", "main")
    version = CheckedVersion(sha=tip, blob=world.found.blob, byte_start=world.found.byte_start)
    world.tell(verified(world.found, version=version))
    assert "has 1 commits that remotes/demo has not" in world.refused()
    assert fork.git("rev-parse", "main") == ours
    fork.git("update-ref", "refs/heads/main", before)
    assert world.pr().exit_code == 0
    # The branch of the first try was on the older tip.
    assert fork.git("rev-parse", f"{BRANCH}^") == world.remote.git("rev-parse", "main")
    assert len(world.pulls) == 1


def test_a_fork_that_never_appears_is_an_error_that_says_to_come_back(
    foreign: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PullRequests.__init__, "__kwdefaults__", {"fork_wait_s": 0.3, "fork_every_s": 0.01})
    world, github = foreign, foreign.github
    github.fork_ready_after = 10_000
    assert "run the same command again then" in world.refused()


def test_a_dry_run_shows_it_all_and_writes_nothing(world: World) -> None:
    result = world.pr("--dry-run")
    assert result.exit_code == 0, result.exception
    for line in ("would open a pull request to remotes/demo main by a branch there", "-  sorry", "+  rfl"):
        assert line in result.output
    document = json.loads(world.pr("--dry-run", "--json").stdout)
    assert (document["outcome"], document["branch"], document["base"]) == (
        "dry_run",
        f"remotes:{BRANCH}",
        world.sha,
    )
    assert (world.github.made("POST", "PATCH"), world.opened) == ([], [])


def test_checked_again_where_the_branch_has_gone_on_it_is_proposed_there(world: World) -> None:
    text = "-- one line more\n" + FILE.replace("2 = 2", "3 = 3")
    world.remote.commit("later", {PATH: text})
    tip = world.remote.git("rev-parse", "main")
    blob = git_blob(text.encode(), like=tip)
    world.tell(
        verified(world.found, version=CheckedVersion(sha=tip, blob=blob, byte_start=text.index("sorry")))
    )
    assert world.pr().exit_code == 0
    (pull,) = world.pulls
    assert f"- checked at: `{tip}`" in pull["body"]
    after = world.remote.git("show", f"{BRANCH}:{PATH}")
    assert "one line more" in after
    assert after.endswith("3 = 3 := by\n  rfl")
    assert "sorry" not in after


def test_only_a_replay_of_all_that_it_rests_on_is_called_verified(world: World) -> None:
    world.tell(verified(world.found, grade="L0", kernel=""))
    assert world.pr().exit_code == 0
    (pull,) = world.pulls
    said = pull["title"] + pull["body"] + world.remote.git("log", "-1", "--format=%B", BRANCH)
    assert "verified" not in said
    assert "accepted by Lean" in said


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({PATH: FILE.replace("1 = 1", "1 = 1 + 0")}, "where no Lean has checked it"),
        ({"Demo/Imported.lean": "def one := 2\n"}, "where no Lean has checked it"),
        ({"lean-toolchain": "leanprover/lean4:v4.29.0\n"}, "where no Lean has checked it"),
        ({"README.md": "another one\n"}, "where no Lean has checked it"),
        (None, "is not there any more"),
    ],
    ids=["the file", "what it imports", "the toolchain", "anything", "the file is gone"],
)
def test_on_a_tip_where_it_was_not_checked_nothing_is_proposed(
    world: World, changed: dict[str, str] | None, said: str
) -> None:
    if changed is None:
        world.remote.git("rm", "--quiet", PATH)
    world.remote.commit("later", changed or {"Other.lean": ""})
    message = world.refused()
    assert said in message
    assert "after its next poll" in message
    assert world.github.made("POST", "PATCH") == []


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("", "pull_requests = true below its url"),
        ("pull_requests = true\nopt_out = true", "has opted out"),
        ('pull_requests = true\nexercises = ["Demo/**"]', "is an exercise"),
    ],
)
def test_without_consent_no_one_is_asked_anything(world: World, entry: str, said: str) -> None:
    world.configure(entry)
    assert said in world.refused()
    world.configure(watched=False)
    assert "is not in the watchlist" in world.refused()
    assert world.github.requests == []


def test_who_agreed_is_not_who_owns_the_repository_after_it_was_handed_over(world: World) -> None:
    world.github.rename(NAME, "heirs/demo")
    assert "belongs to others now, as heirs/demo" in world.refused()
    assert world.github.made("POST", "PATCH") == []


def test_another_repository_under_the_same_name_is_proposed_nothing(world: World) -> None:
    key = KEY
    world.tell(
        watched(repository=key), RepositoryIdentified(repository=key, forge_id=101, private=False, by="")
    )
    assert "is another repository by now, with number 1000 in place of 101" in world.refused()
    reason, remedy = "another has its name", "everlean repos accept"
    world.tell(RepositoryReplaced(repository=key, before=101, forge_id=1000, reason=reason, remedy=remedy))
    asked = len(world.github.requests)
    assert f"{reason}; {remedy}" in world.refused()
    assert len(world.github.requests) == asked
    world.tell(RepositoryIdentified(repository=key, forge_id=1000, private=False, by="ada"))
    assert world.github.made("POST", "PATCH") == []


def test_only_what_lean_verified_is_proposed(unproved: World) -> None:
    world, github = unproved, unproved.github
    world.tell(world.found)
    assert "is candidate, and only what Lean verified" in world.refused()
    # A row that says more than the log does is believed by nobody.
    view = world.deployment.settings().paths.database_db
    with closing(sqlite3.connect(view)) as database, database:
        database.execute("UPDATE proofs SET state = 'verified'")
    assert "the view has it otherwise than the log" in world.refused()
    with closing(sqlite3.connect(view)) as database, database:
        database.execute("UPDATE proofs SET state = 'candidate'")
    world.tell(proof_rejected(world.found, conditional_on=("aa" * 8,)))
    assert "rests on sorries that are still open" in world.refused()
    assert github.requests == []


@pytest.mark.parametrize(
    ("authors", "refused"),
    [("ADA@example.org", True), ("ada", True), ("Bob", False), ("bob@example.org", False)],
)
def test_an_author_who_opted_out_is_left_alone_by_name_or_address(
    world: World, authors: str, refused: bool
) -> None:
    world.configure(extra=f'[prove]\nopt_out_authors = ["{authors}"]')
    assert "who wrote the lines is not known" in world.refused()
    mirror = world.settings.paths.mirrors / f"{slug(KEY)}.git"
    mirror.parent.mkdir(parents=True)
    world.remote.git("clone", "--quiet", "--bare", ".", str(mirror))
    if refused:
        assert "lines 3 to 3" in (said := world.refused())
        assert "last touched by Ada, who is in [prove] opt_out_authors" in said
        assert world.github.made("POST", "PATCH") == []
    else:
        assert world.pr().exit_code == 0


def test_without_a_token_or_the_forge_s_api_there_is_no_pull_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settings = world.deployment.write(repos=[world.remote.path], entry="pull_requests = true")
    assert "is not on the forge of https://api.github.com" in world.refused()
    monkeypatch.delenv("EVERLEAN_GITHUB_TOKEN")
    assert "no GitHub token is configured" in world.refused()


# --- what goes wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("ending", ["/git/blobs", "/git/trees", "/git/commits", "/git/refs", "/pulls"])
def test_a_try_that_failed_anywhere_is_gone_on_with(world: World, ending: str, done: bool) -> None:
    world.github.failures = [Failure("POST", ending, 502, done=done)]
    assert "answered 502 (made to fail); try again later" in world.refused()
    assert world.pr().exit_code == 0
    assert (len(world.pulls), len(world.opened)) == (1, 1)
    assert world.opened[0]["head"] == world.remote.git("rev-parse", BRANCH)
    assert world.remote.git("rev-list", "--count", f"main..{BRANCH}") == "1"


@pytest.mark.parametrize("ending", ["/user", "/repos/remotes/demo", "/git/ref/heads/main"])
def test_a_question_that_fails_leaves_nothing_behind(world: World, ending: str) -> None:
    world.github.failures = [Failure("GET", ending, 500)]
    assert "answered 500" in world.refused()
    assert world.github.made("POST", "PATCH") == []
    assert world.pr().exit_code == 0


@pytest.mark.parametrize(
    ("status", "message", "remedy"),
    [
        (401, "Bad credentials", "make a new one and name it in [github] token_file"),
        (403, "Resource not accessible", "write access to contents and pull requests"),
        (403, "You have exceeded a secondary rate limit", "wait a few minutes"),
        (404, "Not Found", "the token may not see it or write there"),
        (422, "Validation Failed", "see what it says"),
    ],
)
def test_a_refusal_names_the_reason_and_the_remedy(
    world: World, status: int, message: str, remedy: str
) -> None:
    world.github.failures = [Failure("POST", "/pulls", status, message=message)]
    said = world.refused()
    assert f"the pull request of remotes:{BRANCH} to remotes/demo" in said
    assert f"answered {status} ({message})" in said
    assert remedy in said


def test_a_used_up_limit_and_a_server_that_is_not_there_are_told_apart(world: World) -> None:
    world.github.remaining = 0
    assert "rate limit is used up until" in (said := world.refused())
    assert "tries again" not in said
    world.github.remaining = None
    world.configure(extra="")
    config = world.deployment.config
    config.write_text(config.read_text().replace(world.github.url, "http://127.0.0.1:1"))
    assert "whether it was done is not known" in world.refused()


def test_a_pull_request_that_people_closed_is_found_and_not_opened_again(world: World) -> None:
    world.github.failures = [Failure("POST", "/pulls", 502, done=True)]
    world.refused()
    world.pulls[0]["state"] = "closed"
    world.remote.commit("later", {PATH: FILE.replace("sorry", "decide")})
    assert "no second one is opened" in world.pr().output
    assert (len(world.pulls), world.opened[0]["url"]) == (1, world.pulls[0]["html_url"])


def test_a_branch_of_another_user_with_our_name_is_not_touched(world: World) -> None:
    world.remote.git("branch", BRANCH)
    assert "does not hold this proof; rename or delete it" in world.refused()
    assert world.remote.git("rev-parse", BRANCH) == world.sha


# --- the record -----------------------------------------------------------------------------------------------


def test_a_running_daemon_records_it(world: World) -> None:
    async def go() -> Result:
        paths = world.settings.paths
        lock = DaemonLock.acquire(paths.lock)
        store = await StoreService.open(paths)
        # The routes of this test call the store alone.
        nothing = SimpleNamespace(text=None, now=None)
        parts: Any = SimpleNamespace(store=store, metrics=nothing, page=nothing, desk=None, claims=None)
        control = await ControlServer.start(paths.socket, parts)
        try:
            return await asyncio.to_thread(world.pr)
        finally:
            await control.stop()
            await store.close()
            lock.release()

    result = asyncio.run(go())
    assert result.exit_code == 0, result.exception
    assert (len(world.opened), world.deployment.events("pull_request_opened")[0].actor) == (1, "control")


def test_what_cannot_be_recorded_is_told_with_its_address_and_recorded_by_the_next_call(world: World) -> None:
    lock = DaemonLock.acquire(world.settings.paths.lock)
    try:
        said = world.refused()
    finally:
        lock.release()
    assert f"{world.pulls[0]['html_url']}: is there, and could not be recorded" in said
    assert world.pr().exit_code == 0
    assert (len(world.pulls), len(world.opened)) == (1, 1)


def test_another_command_at_work_keeps_it_from_beginning(world: World) -> None:
    lock = DaemonLock.acquire(world.settings.paths.lock, purpose="everlean import")
    try:
        assert "everlean import is at work" in world.refused()
    finally:
        lock.release()
    assert world.github.requests == []


async def test_a_proof_has_one_pull_request_and_an_unknown_one_has_none(world: World) -> None:
    opened = PullRequestOpened(
        proof=PROOF, repository=KEY, number=1, url="https://example.org/1", branch="a:b", head="1" * 40, base="2" * 40
    )  # fmt: skip
    store = await StoreService.open(world.settings.paths)
    try:
        for _ in range(2):
            await record(store, opened)
        with pytest.raises(PullRequestStateError, match="another pull request is recorded"):
            await record(store, opened.model_copy(update={"number": 2}))
        with pytest.raises(PullRequestStateError, match="not of elsewhere"):
            await record(store, opened.model_copy(update={"repository": "elsewhere"}))
        with pytest.raises(KeyError):
            await record(store, opened.model_copy(update={"proof": "none"}))
    finally:
        await store.close()
    assert len(world.opened) == 1
