"""The reading verbs: tables for people, documents for programs."""

from __future__ import annotations

import os
import pty
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from store.domain.identity import slug
from store.events.projects import Project
from store.events.proofs import AttemptFinished, ProofFound
from store.events.repositories import CommitObserved
from store.events.scans import CommitScanned, SorryMoved, SorryOpened, SorryWritten
from store.events.traces import SorryStated
from tests.support.state_folder import (
    CANDIDATE,
    COMMAND,
    OTHER_SORRY,
    PATCH,
    PROOF,
    REPOSITORY,
    SORRY,
    TIP,
    StateFolder,
    environment,
    sorry_place,
)

READING = (
    ["status"], ["repos"], ["sorries"], ["sorries", "list"], ["sorries", "show", SORRY], ["theorems"], ["proofs"],
    ["proofs", "list"], ["proofs", "show", PROOF], ["proofs", "patch", PROOF], ["jobs"], ["jobs", "list"],
    ["jobs", "show", "prove-1111"], ["db", "verify"], ["db", "check"], ["config", "check"], ["config", "show"],
    ["version"],
)  # fmt: skip


def test_a_reading_verb_says_that_the_daemon_is_down(filled: StateFolder) -> None:
    for verb in ("repos", "sorries", "theorems", "proofs", "jobs"):
        assert "the daemon is not running" in filled.everlean(verb).err
        assert filled.everlean(verb, "--json").json["daemon"] == {"running": False, "pid": None}
    assert "the daemon is not running" in filled.everlean("events").err


def test_a_sorry_shows_place_declaration_statement_state_and_history(filled: StateFolder) -> None:
    rows = {row["sorry"]: row for row in filled.everlean("sorries", "--json").json["sorries"]}
    row = rows[SORRY]
    assert (row["path"], row["line"], row["column"]) == ("Demo.lean", 14, 2)
    assert (row["declaration"], row["statement"], row["state"]) == ("Demo.alpha", ": ∀ x, x = x", "verified")
    assert [step["step"] for step in row["history"]] == ["opened", "moved", "verified"]
    head, repository, file, *lines = filled.everlean("sorries", "--all").out.splitlines()
    assert head.split() == ["ID", "LINE", "STATE", "DECLARATION", "STATEMENT", "TRIED", "SINCE"]
    assert (repository, file) == (f"{REPOSITORY} (main)", "  Demo.lean")
    assert lines[0].split()[:4] == [SORRY[:8], "14", "verified", "Demo.alpha"]


def test_open_and_disproved_sorries_are_listed_and_how_many_are_left_out_is_said(filled: StateFolder) -> None:
    lines = filled.everlean("sorries").out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("    5")] == [OTHER_SORRY[:8]]
    assert lines[-1] == "1 sorry; 1 verified (--all lists them)"


def attempt(outcome: str, **changes: Any) -> AttemptFinished:
    options = {
        "repository": REPOSITORY, "branch": "main", "sha": "a" * 40, "sorry": OTHER_SORRY, "blob": "b" * 40,
        "prover": "tactics", "rung": 0, "model": "", "seed": 0, "budget": "b", "outcome": outcome, "detail": "d",
        "best": "1 of 1 goal left after 1 tactic: ⊢ False", "goals_left": 1, "nodes": 7, "repl_calls": 9,
        "seconds": 0.5, "prompt_tokens": 0, "completion_tokens": 0, "usd": None, "tree": None, "job": "prove-1111",
    }  # fmt: skip
    return AttemptFinished.model_validate(options | changes)


def test_a_disproved_sorry_has_a_state_of_its_own_for_the_text_that_was_tried(filled: StateFolder) -> None:
    def listed(state: str) -> list[tuple[str, str, bool]]:
        rows = filled.everlean("sorries", "--state", state, "--json").json["sorries"]
        return [(row["sorry"], row["state"], row["disproved"]) for row in rows]

    stream = f"repository:{REPOSITORY}"
    filled.add(stream, attempt("disproved", blob="c" * 40))
    filled.write()
    assert listed("open") == [(OTHER_SORRY, "open", False)], "that was an earlier text of the file"
    filled.add(stream, attempt("disproved"))
    filled.write()
    assert (listed("open"), listed("disproved")) == ([], [(OTHER_SORRY, "open", True)])
    assert "disproved" in filled.everlean("sorries").out
    said = filled.everlean("sorries", "show", OTHER_SORRY).out
    assert said.splitlines()[0] == (
        f"{OTHER_SORRY}  disproved: the statement is false as it stands, by a proof of its negation"
    )
    assert "goal left" not in said + filled.everlean("sorries").out, "nothing is nearly done"
    assert filled.everlean("status", "--json").json["disproved"] == 1
    assert "1 of the open disproved: false as they stand" in filled.everlean("status").out


def test_tables_fit_80_columns(filled: StateFolder) -> None:
    long = replace(
        sorry_place("Filter.Tendsto.limit_unique_of_hausdorff_and_bounded", line=12345),
        path="Analysis/Topology/Separation/Basic.lean", statement=": " + "α → " * 60,
    )  # fmt: skip
    filled.add(f"repository:{REPOSITORY}", SorryOpened(
        repository=REPOSITORY, branch="main", sha="a" * 40, sorry="5b5b5b5b" + "1" * 8, place=long, reopened=False,
    ))  # fmt: skip
    filled.add(f"repository:{REPOSITORY}", attempt("exhausted"))
    filled.write()
    for verb in ("sorries", "repos", "theorems", "jobs", "proofs"):
        lines = filled.everlean(verb, env={"COLUMNS": "80"}).out.splitlines()
        assert max(map(len, lines)) <= 80, verb
        if verb == "repos":
            assert lines[0].split()[-2:] == ["NEXT", "TIP"]
            assert all(line[lines[0].index("NEXT")] == "-" for line in lines[1:3]), (
                "none, the daemon is stopped"
            )
    assert OTHER_SORRY[:12] in filled.everlean("sorries", env={"COLUMNS": "60"}).out
    ids = [
        line.split()[0] for line in filled.everlean("sorries").out.splitlines() if line.startswith("    5")
    ]
    assert sorted(ids) == ["5b5b5b5b1111", "5b5b5b5b5b5b"], "no two of a table are the same"


def test_a_sorry_is_shown_as_it_is_written_with_its_goal_the_lines_around_it_and_its_address(
    filled: StateFolder,
) -> None:
    lines = [f"-- line {number}" for number in range(1, 30)]
    lines[14:20] = [
        "/-- Turns *and* around;",
        "  see ``Demo``. -/",
        "theorem Demo.beta (p q : Prop)",
        "    (h : p ∧ q) :",
        "    q ∧ p := by",
        "  sorry",
    ]
    at_sorry = len("\n".join(lines[:19]).encode()) + 3
    mirror = filled.state / "cache" / "mirrors" / f"{slug(REPOSITORY)}.git"
    subprocess.run(["git", "init", "-q", "--bare", mirror], check=True)
    written = subprocess.run(
        ["git", "--git-dir", mirror, "hash-object", "-w", "--stdin"],
        input="\n".join(lines), capture_output=True, text=True, check=True,
    )  # fmt: skip
    moved = replace(sorry_place("Demo.beta", line=20), blob=written.stdout.strip(), byte_start=at_sorry)
    filled.add(f"repository:{REPOSITORY}", SorryMoved(
        repository=REPOSITORY, branch="main", sha="a" * 40, sorry=OTHER_SORRY, place=moved, what=("line",),
    ))  # fmt: skip
    filled.add(f"repository:{REPOSITORY}", SorryStated(
        repository=REPOSITORY, branch="main", sha="a" * 40, sorry=OTHER_SORRY, statement_hash="2" * 16,
        context_hash="3" * 16, goal="p q : Prop\nh : p ∧ q\n⊢ q ∧ p", before=None, same_text=True,
    ))  # fmt: skip
    filled.write()
    news = filled.everlean("sorries", "--since", "1d").out
    assert OTHER_SORRY[:8] not in news, "that Lean says a goal, or a line moves, is no news"
    assert "  by Lean, in no commit\n" in news
    said = filled.everlean("sorries", "show", OTHER_SORRY).out.splitlines()
    at = next(number for number, line in enumerate(said) if line.startswith("  goal "))
    column = said[at].index("p q : Prop")
    assert [line[column:] for line in said[at : at + 3]] == ["p q : Prop", "h : p ∧ q", "⊢ q ∧ p"]
    assert not any(line[:column].strip() for line in said[at + 1 : at + 3])
    source = said[said.index("source") + 1 : said.index("history")]
    assert source == [f"  {'>' if n == 20 else ' '} {n:>5}  {lines[n - 1]}" for n in range(16, 25)]
    assert "".join(said).count(" moved ") == 0, "within its file"
    at = next(number for number, line in enumerate(said) if line.startswith("  about "))
    assert [line[column:] for line in said[at : at + 5]] == [
        "Turns *and* around;", "see ``Demo``.", "theorem Demo.beta (p q : Prop)", "    (h : p ∧ q) :", "    q ∧ p",
    ]  # fmt: skip
    assert filled.everlean("report", "--out", "out").code == 0
    (page,) = (filled.root / "out").glob("sorries-*.html")
    html = page.read_text(encoding="utf-8")
    assert "Turns *and* around;\nsee ``Demo``." in html
    assert "theorem Demo.beta (p q : Prop)\n    (h : p ∧ q) :\n    q ∧ p</bdi>" in html
    assert any(line.endswith(f"https://{REPOSITORY}/blob/{'a' * 40}/Demo.lean#L20") for line in said)


def test_what_a_paused_daemon_sees_late_has_the_time_of_its_commit(filled: StateFolder) -> None:
    made, later = datetime.now(UTC) - timedelta(days=5, hours=2), "c0" * 8
    about = {"repository": REPOSITORY, "branch": "main", "sha": "d" * 40}
    filled.add(f"repository:{REPOSITORY}", CommitObserved(
        **about, parents=(), author="B", committed_at=made, subject="later (#9)", baseline=False,
    ))  # fmt: skip
    place = sorry_place("Demo.later", line=30)
    filled.add(f"repository:{REPOSITORY}", SorryOpened(**about, sorry=later, place=place, reopened=False))
    filled.write()
    news = filled.everlean("sorries", "--since", "7d", "--json").json["changes"]
    assert [(one["subject"], one["author"], one["sorries"]) for one in news] == [("later (#9)", "B", [later])]
    address = f"https://{REPOSITORY}/commit/{'d' * 40}"
    headings = filled.everlean("sorries", "--since", "7d").out.partition(later[:8])[0].splitlines()
    assert headings[-3:] == ["  dddddddddd later (#9) (B, 5d ago)", f"    {address}", "    "]
    assert later[:8] not in filled.everlean("sorries", "--since", "4d").out
    shown = filled.everlean("sorries", "show", later).out
    (line,) = [one for one in shown.splitlines() if one.startswith("  5d ago     opened   dddddddddd  ")]
    assert "Demo.later (B, #9) (seen " in line
    assert "(seen " not in filled.everlean("sorries", "show", SORRY).out, "it was seen at once"


def test_a_sorry_is_shown_with_who_wrote_it_and_when(filled: StateFolder) -> None:
    filled.add(f"repository:{REPOSITORY}", SorryWritten(
        repository=REPOSITORY, branch="main", sorry=OTHER_SORRY, sha="e" * 40, author="Ada",
        authored_at=datetime(2024, 3, 1, tzinfo=UTC), pull_request=7, reason="",
    ))  # fmt: skip
    filled.write()
    assert (
        "since        2024-03-01, Ada in eeeeeeeeee, #7\n"
        in filled.everlean("sorries", "show", OTHER_SORRY).out
    )
    assert "d, Ada\n" in filled.everlean("sorries", env={"COLUMNS": "200"}).out
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert f"since        {today}, or earlier\n" in filled.everlean("sorries", "show", SORRY).out


def test_sorries_are_filtered_by_state_and_repository(filled: StateFolder) -> None:
    for options, expected in (
        (["--state", "open"], [OTHER_SORRY]),
        (["--state", "filled"], []),
        (["--repo", REPOSITORY], [SORRY, OTHER_SORRY]),
        (["--repo", "demo/one"], [SORRY, OTHER_SORRY]),
        (["--repo", "one", "--state", "verified"], [SORRY]),
    ):
        sorries = filled.everlean("sorries", *options, "--json").json["sorries"]
        assert sorted(row["sorry"] for row in sorries) == sorted(expected), options
    wrong = filled.everlean("sorries", "--repo", "two")
    assert (wrong.code, wrong.out) == (1, "")
    assert "everlean repos" in wrong.err
    assert filled.everlean("sorries", "--state", "opne").code == 2


def test_an_ambiguous_or_unknown_id_is_an_error_that_says_so(filled: StateFolder) -> None:
    several = filled.everlean("proofs", "show", "d")
    assert several.code == 1
    assert PROOF in several.err
    assert CANDIDATE in several.err
    none = filled.everlean("proofs", "show", "zz")
    assert none.code == 1
    assert "everlean proofs" in none.err
    assert filled.everlean("proofs", "show", "d0", "--json").json["proof"]["proof"] == PROOF
    nothing = filled.everlean("sorries", "show", "%")
    assert (nothing.code, "`everlean sorries` lists them" in nothing.err) == (1, True)
    assert filled.everlean("jobs", "show", "prove-").code == 1


def test_a_patch_is_printed_as_the_mail_that_git_takes(filled: StateFolder) -> None:
    answer = filled.everlean("proofs", "patch", PROOF)
    assert "\nFrom: everlean <everlean@localhost>\nSubject: [PATCH] prove Demo.alpha\n" in answer.out
    assert answer.out.endswith(PATCH.removeprefix("Evidence\n\n"))
    assert answer.out == filled.everlean("proofs", "patch", PROOF, "--json").json["patch"]


def test_a_proof_without_a_patch_says_why(filled: StateFolder) -> None:
    filled.add("proof:ee", ProofFound(
        proof="ee" * 8, sorry=SORRY, repository=REPOSITORY, branch="main", sha="a" * 40, path="Demo.lean",
        blob="b" * 40, byte_start=1, byte_end=6, declaration="Demo.alpha", declaration_text_hash="1" * 16,
        replacement="simp", parts=(), tactics=("simp",), prover="tactics", rung=0, toolchain="", job="j",
    ))  # fmt: skip
    filled.write()
    answer = filled.everlean("proofs", "patch", "ee")
    assert answer.code == 1
    assert "has no patch, it is candidate" in answer.err


def test_jobs_logs_prints_what_the_job_wrote(filled: StateFolder) -> None:
    log = filled.state / "jobs" / "prove-1111" / "1" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"line one\n\x1b[31mred \xff\n")
    assert filled.everlean("jobs", "logs", "prove-1").out == "line one\n�[31mred �\n"
    assert filled.everlean("jobs", "logs", "prove-1", "--json").json["text"].startswith("line one")
    (filled.state / "jobs" / "prove-1111" / "1" / "stderr.log").write_bytes(b"")
    silent = filled.everlean("jobs", "logs", "prove-1")
    assert (silent.code, silent.out) == (0, "")
    assert (
        "attempt 1 of job prove-1111 (succeeded) wrote nothing; `everlean jobs show prove-1111`" in silent.err
    )
    missing = filled.everlean("jobs", "logs", "prove-2")
    assert missing.code == 1
    assert "No such file or directory; job prove-2222 has attempts 1 to 1" in missing.err


def test_text_of_a_repository_cannot_reach_the_terminal_as_control_characters(filled: StateFolder) -> None:
    answer = filled.everlean("events", "--type", "commit_observed")
    assert "first �[31mred" in answer.out


def on_a_terminal(folder: StateFolder, env: dict[str, str], *arguments: str) -> str:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [str(COMMAND), *arguments], stdout=follower, stderr=subprocess.DEVNULL,
        env={**env, "EVERLEAN_CONFIG": str(folder.config)}, cwd=folder.root,
    ) as process:  # fmt: skip
        os.close(follower)
        out = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # Linux: EIO once the last writer has closed the terminal
                break
            if not chunk:
                break
            out += chunk
        process.wait(timeout=30)
    os.close(leader)
    return out.decode()


def test_colour_is_for_terminals_and_no_color_is_honoured(filled: StateFolder) -> None:
    env = {name: value for name, value in environment(filled.root).items() if name != "NO_COLOR"}
    env["TERM"] = "xterm"
    shown = on_a_terminal(filled, {**env, "COLUMNS": "20"}, "sorries", "--since", "1d")
    assert "\x1b[1m  by Lean, in no\r\n    commit\x1b[0m" in shown
    assert "\x1b[" not in on_a_terminal(filled, {**env, "NO_COLOR": "1"}, "status")


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_terminal_of_any_width_breaks_lines_between_words(filled: StateFolder, width: int) -> None:
    env = {**environment(filled.root), "TERM": "dumb", "COLUMNS": str(width)}
    for arguments in (("status",), ("sorries", "show", SORRY)):
        shown = on_a_terminal(filled, env, *arguments)
        longest = max(filled.everlean(*arguments).out.split(), key=len)
        assert max(map(len, shown.splitlines())) <= max(width, len(longest) + width // 2)
        assert longest in shown.split(), "no word is broken"


def test_settings_are_shown_on_a_terminal_as_they_are_copied_from_it(filled: StateFolder) -> None:
    env = {**environment(filled.root), "TERM": "dumb", "COLUMNS": "40"}
    piped = filled.everlean("config", "show").out
    assert on_a_terminal(filled, env, "config", "show").splitlines() == piped.splitlines()


def test_reading_changes_nothing_in_the_state_folder(filled: StateFolder) -> None:
    def contents() -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in filled.state.iterdir()
            if path.is_file() and not path.name.endswith(("-shm", "-wal"))
        }

    before = contents()
    for verb in READING:
        answer = filled.everlean(*verb)
        assert (answer.code, "\x1b" in answer.out) == (3 if verb == ["status"] else 0, False), answer.err
    assert contents() == before


def test_nothing_recorded_yet_is_said_with_the_remedy(folder: StateFolder) -> None:
    for verb in ("repos", "sorries", "theorems", "proofs", "jobs", "events"):
        answer = folder.everlean(verb)
        assert (answer.code, answer.out) == (1, "")
        assert "everlean run" in answer.err


def test_a_sorry_that_is_there_by_design_is_shown_with_that_mark(filled: StateFolder) -> None:
    filled.add(f"repository:{REPOSITORY}", CommitScanned(
        repository=REPOSITORY, branch="main", sha=TIP, base=None, include=("**/*.lean",), exclude=(),
        projects=(Project("", "", ""),), files_scanned=1, files_removed=0, files_failed=0, seconds=0.1,
        challenges=("Demo",),
    ))  # fmt: skip
    filled.write()
    assert "open, by design (challenge)" in filled.everlean("sorries").out
    rows = filled.everlean("sorries", "--all", "--json").json["sorries"]
    assert {row["by_design"] for row in rows} == {"challenge"}
    assert filled.everlean("report", "--out", "pages").code == 0
    pages = "".join(page.read_text("utf-8") for page in (filled.root / "pages").rglob("*.html"))
    assert pages.count("open, by design (challenge)") == sum(row["state"] == "open" for row in rows)
