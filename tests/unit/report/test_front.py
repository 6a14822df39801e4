"""The first screen and the pages of sorries: what a maintainer is told of a made-up week, in HTML and as a digest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from sqlite3 import Connection

import pytest

from pipeline.front import Front, digest, front
from pipeline.report.html import macro
from pipeline.report.layout import file_stem, sheets
from pipeline.report.page import render
from store.documents.status import describe_view
from store.domain.blueprint import Statement
from store.domain.identity import line_url
from store.domain.records import ConstantUse, TracedFile, TracedTheorem
from store.events.base import EventBody
from store.events.jobs import JobFailed, JobSucceeded
from store.events.places import SorryPlace
from store.events.repositories import CommitObserved, RepositoryFailed
from store.events.scans import SorryFilled, SorryMoved, SorryOpened, SorryWritten
from store.events.traces import FileTraced, SorryStated
from store.view import report_queries
from tests.support.events import (
    attempt,
    declaration,
    job_started,
    observed,
    place,
    proof_checked,
    proof_found,
    proof_verified,
    scanned,
    sha,
    watched,
)
from tests.support.events import digest as digest_of
from tests.support.pages import harmless, read
from tests.support.traced_repository import closing, head

Fill = Callable[..., Connection]
FORGE, LOCAL = "github.com/ada/logic", "local/ada/notes"
OLD, NEW = sha("old"), sha("new")
BEGAN = "2000-01-01T00:00:00.000000Z"
MADE_AT = datetime(2100, 1, 1, tzinfo=UTC)


def spot(name: str, *, text: str = "one") -> SorryPlace:
    scan = scanned("Logic/Basic.lean", [declaration(name, line=7)], with_sorry=[name])
    return place(scan, scan.sorries[0], blob=sha("blob", text))


def opened(sorry: str, name: str, *, commit: str = NEW, repository: str = FORGE) -> EventBody:
    life = {"repository": repository, "branch": "main", "sha": commit, "sorry": sorry}
    return SorryOpened(**life, place=spot(name), reopened=False)


def tried(sorry: str, name: str, outcome: str, **changes: object) -> EventBody:
    result = attempt(sorry, spot(name), commit=NEW, outcome=outcome)
    return result.model_copy(update={"repository": FORGE, **changes})


def of_forge(*bodies: EventBody) -> list[tuple[str, EventBody]]:
    return [(f"repository:{FORGE}", body) for body in bodies]


def begun() -> list[tuple[str, EventBody]]:
    """Two watched repositories, each with a first commit, and a commit after it in one."""
    lines: list[tuple[str, EventBody]] = []
    for name in (FORGE, LOCAL):
        earlier = {"repository": name, "committed_at": datetime(2025, 12, 1, tzinfo=UTC)}
        first = observed(OLD).model_copy(update=earlier)
        lines += [(f"repository:{name}", watched(repository=name)), (f"repository:{name}", first)]
    second: CommitObserved = observed(NEW, parent=OLD).model_copy(update={"repository": FORGE})
    return [*lines, *of_forge(second)]


def week() -> list[tuple[str, EventBody]]:
    """A sorry of each sort: there before, new, false, with a patch, filled; and two things that need somebody."""
    result = proof_found("proved", spot("Logic.proved"), commit=NEW).model_copy(update={"repository": FORGE})
    filled = SorryFilled(repository=FORGE, branch="main", sha=NEW, sorry="filled", by="people", proof=None)
    started = job_started("build-1").model_copy(update={"kind": "build", "repository": FORGE})
    failed = JobFailed(
        job="build-1", attempt=1, reason="toolchain", message="no toolchain v4.9.0", remedy="install it",
        deterministic=True, retry_at=None, seconds=1.0, peak_rss_bytes=None,
    )  # fmt: skip
    gone = RepositoryFailed(repository=LOCAL, problem="gone", reason="not found", remedy="remove the entry")
    return [
        *begun(),
        (f"repository:{LOCAL}", opened("aged", "Notes.aged", commit=OLD, repository=LOCAL)),
        (
            f"repository:{LOCAL}",
            SorryWritten(
                repository=LOCAL,
                branch="main",
                sorry="aged",
                sha=OLD,
                author="Ada",
                authored_at=datetime(2025, 3, 1, tzinfo=UTC),
                pull_request=None,
                reason="",
            ),
        ),
        *of_forge(
            opened("new", "Logic.new"),
            opened("false", "Logic.untrue"),
            opened("proved", "Logic.proved"),
            opened("filled", "Logic.filled"),
            tried("false", "Logic.untrue", "disproved"),
            tried("new", "Logic.new", "exhausted", best="2 goals left after intro h", goals_left=2),
            result,
            proof_verified(result),
            filled,
        ),
        ("job:build-1", started),
        ("job:build-1", failed),
        (f"repository:{LOCAL}", gone),
    ]


def screen(view: Connection) -> Front:
    problems = describe_view(view).problems
    return front(view, since=BEGAN, until="2100-01-01T00:00:00.000000Z", problems=problems)


def pages_of(view: Connection) -> Mapping[str, str]:
    since = datetime(2000, 1, 1, tzinfo=UTC)
    return render(view, made_at=MADE_AT, since=since, problems=describe_view(view).problems).html


def said(html: str) -> str:
    return " ".join("".join(read(html).words).split())


def test_the_first_screen_answers_what_a_maintainer_asks(view_of: Fill) -> None:
    view = view_of(week())
    text = said(pages_of(view)["index.html"])
    top, rest = text.split("Open sorries, by repository and file")
    ready = f"everlean proofs apply {screen(view).waiting.ready[0].proof.proof}, L0: no kernel replayed all"
    for words in (
        "3 sorries are open and 1 is verified in 2 of 2 watched repositories.",
        "4 new sorries; 1 filled by people; 1 was there when their branches were first read.",
        "Shown false Logic.untrue github.com/ada/logic Logic/Basic.lean:8",
        f"Patches ready Logic.proved github.com/ada/logic Logic/Basic.lean:8 {ready}",
        "Filled Logic.filled github.com/ada/logic Logic/Basic.lean:8 filled by people",
        ": toolchain: no toolchain v4.9.0 install it",
        "error: local/ada/notes: not found remove the entry",
        "Oldest Notes.aged local/ada/notes Logic/Basic.lean:8 since 2025-03-01, Ada",
    ):
        assert words in top, words
    assert "Logic.filled" in top.split(" New ")[1].split(" Filled ")[0], "it was new, and is gone again"
    assert "github.com/ada/logic 3 1 with a patch ready; 1 filled" in rest
    assert "local/ada/notes 1 gone: not found" in rest


def test_every_open_sorry_has_its_goal_what_was_tried_how_far_it_got_and_its_line(view_of: Fill) -> None:
    here = spot("Logic.new")
    stated = SorryStated(
        repository=FORGE, branch="main", sha=NEW, sorry="new", statement_hash=here.statement_hash,
        context_hash=here.context_hash, goal="h : p\n⊢ q", before=None, same_text=False,
    )  # fmt: skip
    pages = render(view_of([*week(), *of_forge(stated)]), made_at=MADE_AT).html
    page = pages[f"{file_stem(FORGE)}.html"]
    harmless(page)
    text = said(page)
    address = f"https://github.com/ada/logic/blob/{NEW}/Logic/Basic.lean#L8"
    assert page.count(f'<a href="{address}" rel="noreferrer">') == 3
    assert {"new", "false", "proved"} <= {value for _, name, value in read(page).attributes if name == "id"}
    assert ": exhausted; 2 goals left after intro h" in text
    assert "h : p ⊢ q Tried 1 time; the last by tactics, rung 0, " in text
    assert "Logic.untrue disproved" in text
    assert "1 of these has not been tried yet: those without a line that says otherwise." in text
    assert "goal left" not in text.split("Logic.untrue")[1].split("Logic.new")[0], "it is not nearly there"
    assert "Logic.proved verified" in text
    assert "everlean proofs apply" in text.split("Logic.proved verified")[1]
    assert "Without a goal from Lean you see the declaration." in text
    local = pages[f"{file_stem(LOCAL)}.html"]
    assert "theorem · line 8 · since" in said(local)
    assert "None of these has been tried yet." in said(local)
    assert 'rel="noreferrer"' not in local, "a local path has no address"


def test_what_lean_or_a_search_said_of_an_earlier_text_is_not_said_of_the_present_one(view_of: Fill) -> None:
    before = spot("Logic.untrue")
    stated = SorryStated(
        repository=FORGE, branch="main", sha=NEW, sorry="false", statement_hash=before.statement_hash,
        context_hash=before.context_hash, goal="⊢ the goal of before", before=None, same_text=False,
    )  # fmt: skip
    after = replace(spot("Logic.untrue", text="two"), context_hash="other")
    moved = SorryMoved(
        repository=FORGE, branch="main", sha=sha("newer"), sorry="false", place=after, what=("context",)
    )
    view = view_of([*week(), *of_forge(stated, moved)])
    assert screen(view).waiting.disproved == ()
    text = said(pages_of(view)[f"{file_stem(FORGE)}.html"])
    assert "the goal of before" not in text
    assert "Logic.untrue disproved" not in text


def test_what_was_accepted_and_not_verified_stands_on_the_first_screen_while_it_fits(view_of: Fill) -> None:
    names = ("new", "moved", "unseen")
    result = {
        name: proof_found(name, spot(f"Logic.{name}"), commit=NEW).model_copy(update={"repository": FORGE})
        for name in names
    }
    life = {"repository": FORGE, "branch": "main", "sha": sha("newer"), "sorry": "moved"}
    moved = SorryMoved(**life, place=spot("Logic.moved", text="another"), what=("context",))
    checked = [proof_checked(result[name]) for name in ("new", "moved")]
    told = of_forge(*(opened(name, f"Logic.{name}") for name in names), *result.values(), *checked, moved)
    view = view_of([*begun(), *told])
    (only,) = (one.proof for one in screen(view).waiting.candidates)
    assert only.proof == result["new"].proof
    where = "Logic.new github.com/ada/logic Logic/Basic.lean:8"
    index = said(pages_of(view)["index.html"])
    assert f"Accepted, not verified {where} everlean proofs show {only.proof}" in index
    lines = digest(screen(view))
    line = f"- Logic.new (github.com/ada/logic Logic/Basic.lean:8): everlean proofs show {only.proof}"
    assert lines[lines.index("Accepted, but not all of it could be checked:") + 1] == line


def test_a_digest_says_the_first_screen_in_lines(view_of: Fill) -> None:
    result = screen(view_of(week()))
    lines = digest(result)
    assert lines[0] == "3 sorries are open and 1 is verified in 2 of 2 watched repositories."
    changed = "4 new sorries, 1 filled by people and 1 was there when their branches were first read"
    assert lines[1] == f"From 2000-01-01 to 2100-01-01: {changed}."
    headings = [line for line in lines if line.endswith(":")]
    assert headings == [
        "Filled:",
        "New:",
        "False as they stand, since Lean accepted the negation:",
        "Verified, and ready to apply:",
        "The oldest:",
        "Needs your attention:",
    ]
    (ready,) = result.waiting.ready
    patch = f"everlean proofs apply {ready.proof.proof}, L0: no kernel replayed all"
    assert f"- Logic.proved (github.com/ada/logic Logic/Basic.lean:8): {patch}" in lines


def test_a_job_that_ended_well_afterwards_needs_no_one(view_of: Fill) -> None:
    again = job_started("build-2").model_copy(update={"kind": "build", "repository": FORGE})
    done = JobSucceeded(job="build-2", attempt=1, seconds=1.0, peak_rss_bytes=None, summary={})
    result = screen(view_of([*week(), ("job:build-2", again), ("job:build-2", done)]))
    assert "job_failed" not in [one.code for one in result.problems]


def test_sorries_are_laid_out_on_pages_of_a_bounded_number_and_the_rest_is_counted(view_of: Fill) -> None:
    lines = [*begun(), *of_forge(*(opened(f"{number:04}", f"Logic.n{number}") for number in range(7)))]
    (of,) = sheets(report_queries.sorries_here(view_of(lines)), most=5, on_a_sheet=2)
    assert [sheet.name for sheet in of.sheets] == [
        f"{file_stem(FORGE)}{number}.html" for number in ("", "-2", "-3")
    ]
    assert [sum(len(file.sorries) for file in sheet.files) for sheet in of.sheets] == [2, 2, 1]
    assert (of.sorries, of.left_out) == (7, 2)


def test_a_page_s_name_is_plain_whatever_the_repository_is_called_and_no_other_s() -> None:
    names = ["example.org/a/b", "example.org/a-b", "../../etc", "x" * 300, "local/שלום/<b>"]
    stems = [file_stem(name) for name in names]
    assert len(set(stems)) == len(names)
    for stem in stems:
        assert stem.replace("-", "").replace(".", "").isalnum()
        assert stem.isascii()
        assert len(stem) < 80


@pytest.mark.parametrize(
    ("repository", "address"),
    [
        ("github.com/a/b", "https://github.com/a/b/blob/abc/A%20b/C.lean#L3"),
        ("github.example.org/a/b", "https://github.example.org/a/b/blob/abc/A%20b/C.lean#L3"),
        ("gitlab.com/group/sub/b", "https://gitlab.com/group/sub/b/-/blob/abc/A%20b/C.lean#L3"),
        ("codeberg.org/a/b", "https://codeberg.org/a/b/src/commit/abc/A%20b/C.lean#L3"),
        ("example.org/a/b", ""),
        ("local/github.com/b", ""),
        ("github.com/a", ""),
    ],
)
def test_a_line_has_an_address_at_the_forges_that_are_known(repository: str, address: str) -> None:
    assert line_url(repository, "abc", "A b/C.lean", 3) == address


def test_the_sorries_on_which_most_rests_are_named_and_what_is_unknown_is_said(view_of: Fill) -> None:
    uses = {"Logic.root": (), "Logic.near": ("Logic.root",), "Logic.far": ("Logic.near",)}
    theorems = tuple(
        TracedTheorem(name, "", (line, 1), (line, 9), (), premises=tuple(map(ConstantUse, used)))
        for line, (name, used) in enumerate(uses.items(), 1)
    )
    file = TracedFile("Logic/Basic.lean", (), (), theorems)
    payload = json.dumps(file.as_json()).encode()
    result = head(NEW, repository=FORGE)
    traced = FileTraced(
        repository=FORGE, line=result.on, sha=NEW, path=file.path, error=None, n_theorems=3, n_premises=0, n_tactics=0,
        trace=digest_of(payload), key="",
    )  # fmt: skip
    told = of_forge(*(opened(name, f"Logic.{name}") for name in ("root", "near", "far", "new")))
    view = view_of([*begun(), *told, *of_forge(traced, closing(result, [file]))], [payload])
    made_of = render(view, made_at=MADE_AT)
    pages = made_of.html
    index = said(pages["index.html"])
    at = index.index("Most rests on")
    first = index.index("2 theorems rest on it", at)
    second = index.index("1 theorem rests on it", at)
    assert at < first < second
    (page,) = (said(html) for name, html in pages.items() if name.startswith(file_stem(FORGE)))
    assert "What rests on 1 of them is unknown: the trace does not name the declaration." in page
    assert f"0 theorems rest on it at {NEW[:9]}" in page
    plan = [
        Statement(["new"], ["Logic.new"], []),
        *(Statement([], [], ["new"]) for _ in range(4)),
        Statement([], ["Logic.root"], []),
    ]
    planned = render(view, made_at=MADE_AT, blueprints=lambda _repository, _sha: plan).html
    front_page = said(planned["index.html"])
    most = front_page[front_page.index("Most rests on") :]
    assert (
        most.index("Logic.new")
        < most.index("4 statements of the blueprint rest on it")
        < most.index("Logic.root")
    )
    assert "2 theorems and 0 statements of the blueprint rest on it" in most


@pytest.mark.parametrize(
    ("lines", "told"), [(200, ""), (201, "1 more of its lines is in the patch."), (203, "3 more")]
)
def test_of_a_long_patch_it_says_how_much_is_left_out(lines: int, told: str) -> None:
    shown = macro("diff", lines=["+x"] * lines)
    assert shown.count("<ins>") == 200
    assert told in said(shown)
    assert ("more" in said(shown)) == bool(told)
