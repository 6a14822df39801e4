"""The trace job on a real history, from commit to database: its record, how complete it is, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from daemon.cli.verbs import repos
from pipeline.jobs.known import known_to_trace
from pipeline.lean.backend import LeanBackend
from store.documents.repositories import Head, described_repositories
from store.documents.sorries import describe_sorries
from store.leandojo.exporting import export_leandojo
from store.leandojo.reading import import_leandojo
from store.view import queries, trace_queries
from store.view.rebuild import verify
from tests.support.trace import ALONE, BASE, FILES, IMPORTED, KEY, Workshop, lean_itself
from tests.support.trace_rows import theorems_of_trace
from tests.support.views import sorry_steps


@pytest.fixture(scope="module")
def traced(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """The repository, traced once; not to be changed."""
    workshop = Workshop(tmp_path_factory.mktemp("traced"), lean_itself(real_lean))
    workshop.commit(FILES)
    workshop.build(*IMPORTED)
    assert workshop.trace().returncode == 0
    yield workshop
    workshop.close()


@pytest.fixture
def workshop(real_lean: Path, tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path, lean_itself(real_lean))
    yield made
    made.close()


def test_a_traced_theorem_is_leandojo_s_record(traced: Workshop) -> None:
    twice = traced.theorem("twice")
    assert twice.statement == "theorem twice (p q : Prop) (h : p ∧ q) : p ∧ q :="
    assert (twice.start, twice.end) == ((4, 1), (7, 8))
    have, exact = twice.tactics
    assert have.tactic == "have g := swap p q h"
    assert have.annotated == "have g := <a>swap</a> p q h"
    (use,) = have.premises
    assert (use.full_name, use.def_path, use.def_pos, use.def_end_pos) == (
        "Base.swap", "Base.lean", (11, 9), (11, 13),
    )  # fmt: skip
    assert exact.annotated == "exact <a>Base.swap</a> q\n    p g".replace("\n    ", "\n  ")
    assert have.state_before == "p q : Prop\nh : p ∧ q\n⊢ p ∧ q"
    assert have.state_after == exact.state_before
    assert exact.state_after == "no goals"


def test_goals_are_parted_by_an_empty_line_and_inner_steps_come_after_the_outer_one(traced: Workshop) -> None:
    constructor, first, second = traced.theorem("Base.swap").tactics
    assert constructor.state_after.split("\n\n") == [
        "case left\np q : Prop\nh : p ∧ q\n⊢ q",
        "case right\np q : Prop\nh : p ∧ q\n⊢ p",
    ]
    assert (first.tactic, second.tactic) == ("exact h.2", "exact h.1")
    assert first.constants == ("And.right",)
    outer, *inner = traced.theorem("cases_of").tactics
    assert outer.tactic == "cases h with\n| inl h => exact h\n| inr h => exact h"
    assert [step.tactic for step in inner] == ["exact h", "exact h"]


def test_a_proof_by_a_term_keeps_its_premises(traced: Workshop) -> None:
    by_term = traced.theorem("by_term")
    assert by_term.tactics == ()
    sites = {use.full_name: use.site for use in by_term.premises}
    assert sites["Base.swap"] == ("Base.lean", (11, 9), (11, 13))
    assert sites["Base.both"] == ("Base.lean", (16, 9), (16, 13))
    (of_lean,) = (use.site for use in traced.theorem("Base.swap").premises if use.full_name == "And.right")
    assert of_lean is not None
    assert of_lean[0] == ".lake/packages/lean4/src/lean/Init/Base.lean"
    (row,) = (row for row in theorems_of_trace(traced.db, traced.newest.trace) if row.full_name == "by_term")
    kept = traced.db.execute(
        "SELECT full_name FROM theorem_premises WHERE content = ? AND theorem = ?", (row.content, row.index)
    )
    assert {name for (name,) in kept} == {*sites}


def test_the_corpus_has_every_declaration_and_the_imports(traced: Workshop) -> None:
    base, mid = traced.file("Base.lean"), traced.file("Mid.lean")
    assert (base.imports, mid.imports) == ((), ("Base.lean",))
    assert [(item.full_name, item.kind) for item in base.premises] == [
        ("Base.dozen", "commanddeclaration"),
        ("Base.swap", "commanddeclaration"),
        ("Base.both", "commanddeclaration"),
    ]
    dozen, swap, _ = base.premises
    assert (dozen.code, dozen.start, dozen.end) == ("def dozen : Nat := 12", (7, 1), (8, 22))
    assert swap.code == "theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p"


def test_a_trace_names_its_lean_and_its_tracer(traced: Workshop) -> None:
    assert (traced.newest.lean_version, traced.newest.tracer) == ("v4.35.0", "everlean")


def test_leandojo_s_own_keys_and_no_others_are_exported_and_can_be_imported(
    traced: Workshop, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with traced.log.reader() as reader:
        export_leandojo(out, log=reader, view=traced.db)
    records = [item for path in (out / "random").glob("*.json") for item in json.loads(path.read_text())]
    # As LeanDojo sorts them: what has no step that says "sorry" is proven; a sorry in a term is known here, too.
    (repository,) = json.loads((out / "dynamic_database.json").read_text())["repositories"]
    processed = datetime.fromisoformat(repository["metadata"]["date_processed"])
    assert processed < datetime.max, "it can be compared with LeanDojo's times, which have no zone"  # noqa: DTZ901
    unproved = {item["full_name"] for item in repository["sorry_theorems_unproved"]}
    assert unproved == {"open_one", "open_term", "given_away"}
    keys = {
        "url", "commit", "file_path", "full_name", "theorem_statement", "start", "end", "traced_tactics",
    }  # fmt: skip
    assert records
    assert all(set(record) == keys for record in records)
    steps = [step for record in records for step in record["traced_tactics"]]
    assert all(set(step) == {"tactic", "annotated_tactic", "state_before", "state_after"} for step in steps)
    (twice,) = (record for record in records if record["full_name"] == "twice")
    assert twice["traced_tactics"][0]["annotated_tactic"] == [
        "have g := <a>swap</a> p q h",
        [{"full_name": "Base.swap", "def_path": "Base.lean", "def_pos": [11, 9], "def_end_pos": [11, 13]}],
    ]
    corpus = [json.loads(line) for line in (out / "corpus.jsonl").read_text().splitlines()]
    assert [item["path"] for item in corpus].index("Base.lean") < [item["path"] for item in corpus].index(
        "Mid.lean"
    )
    import_leandojo(
        out / "dynamic_database.json",
        events_db=tmp_path / "events.db",
        database_db=tmp_path / "database.db",
        stage=tmp_path / "stage",
    )
    with closing(queries.connect(tmp_path / "database.db")) as other:
        (again,) = trace_queries.traces(other)
        assert (again.n_theorems, again.n_tactics) == (traced.newest.n_theorems, traced.newest.n_tactics)


def test_the_measure_counts_what_there_is_and_what_the_trace_has(traced: Workshop) -> None:
    (measure,) = trace_queries.newest_measures(traced.db)
    assert (measure.files_seen, measure.files_traced) == (4, 4)
    assert (measure.theorems_seen, measure.theorems_traced) == (10, 10)
    assert measure.tactics_seen == measure.tactics_traced == traced.newest.n_tactics
    assert measure.gaps == {}


def test_a_sorry_is_shown_with_its_goal(traced: Workshop) -> None:
    shown = describe_sorries(traced.db, queries.sorries(traced.db, repository=KEY))
    assert {item.declaration: item.goal.goal for item in shown if item.goal}[
        "given_away"
    ] == "p : Prop\n⊢ p → p"


def test_every_open_sorry_has_its_goal(traced: Workshop) -> None:
    rows = {row.sorry: row for row in queries.sorries(traced.db, repository=KEY)}
    goals = {rows[item.sorry].declaration: item.goal for item in trace_queries.sorry_goals(traced.db)}
    assert goals == {
        "open_one": "case left\np : Prop\nhp : p\n⊢ p",
        "open_term": "p q : Prop\nf : p → q\nhp : p\n⊢ q",
        "given_away": "p : Prop\n⊢ p → p",
    }
    steps = [step for step in sorry_steps(traced.db) if step.step == "stated"]
    assert len(steps) == 3
    said = "goal: "
    assert all(step.detail.startswith(said) for step in steps)


def test_what_lean_refuses_is_a_gap_with_its_reason_and_repos_tells(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.commit(
        {
            "Wrong.lean": "theorem wrong : True ∧ True := by\n  nonsense\n\ntheorem right : True := trivial\n",
            "Orphan.lean": "import Nowhere\n\ntheorem orphan : True := trivial\n",
        }
    )
    (workshop.tree / "Bytes.lean").write_bytes(b"theorem bytes : True := trivial -- \xff\n")
    workshop.commit({})
    outcome = workshop.trace()
    gaps = {gap.path: gap for gap in trace_queries.gaps_of_trace(workshop.db, workshop.newest.trace)}
    wrong = [
        gap
        for gap in trace_queries.gaps_of_trace(workshop.db, workshop.newest.trace)
        if gap.kind == "elaboration"
    ]
    assert [(gap.path, gap.declaration) for gap in wrong] == [("Wrong.lean", "wrong")]
    assert [item.full_name for item in workshop.file("Wrong.lean").theorems] == ["right"]
    assert gaps["Orphan.lean"].kind == "file"
    assert "its imports fail" in gaps["Orphan.lean"].reason
    assert gaps["Bytes.lean"].reason == "byte 35 is not valid UTF-8"
    assert outcome.summary["failed"] == 2
    repos.listing(described_repositories(workshop.db, gaps=True), running=False).show()
    said = capsys.readouterr().out
    assert "trace of 1 of 3 files, 1 of 3 theorems" in said
    assert "  file: Bytes.lean: byte 35 is not valid UTF-8" in said
    (brief,) = described_repositories(workshop.db)
    assert brief.traces[0].gaps is None
    repos.listing([brief], running=False).show()
    assert "--gaps lists them" in capsys.readouterr().out
    gone = Head(KEY, "main", "deleted", workshop.sha, workshop.sha, None, [], [], None, [], 0)
    repos.listing([replace(brief, heads=[gone])], running=False).show()
    assert "trace of" not in capsys.readouterr().out, "a branch that is no more is in --json only"


def test_a_goal_that_changes_under_an_unchanged_text_is_told(workshop: Workshop) -> None:
    user = (
        "import Lemma\n\ntheorem user (p : Prop) (h : p) : p ∧ p := by\n  have g := lemma_of p h\n  sorry\n"
    )
    lemma = "theorem lemma_of (p : Prop) (h : p) : p ∧ True := ⟨h, trivial⟩\n"
    workshop.commit({"Lemma.lean": lemma, "User.lean": user})
    workshop.build("Lemma.lean")
    (first,) = workshop.trace().of("sorry_stated")
    assert first["goal"] == "p : Prop\nh : p\ng : p ∧ True\n⊢ p ∧ p"
    assert (first["before"], first["same_text"]) == (None, False)
    workshop.commit({"Lemma.lean": "theorem lemma_of (p : Prop) (h : p) : p ∨ p := Or.inl h\n"})
    workshop.build("Lemma.lean")
    (second,) = workshop.trace().of("sorry_stated")
    assert second["before"] == first["goal"]
    assert second["goal"] == "p : Prop\nh : p\ng : p ∨ p\n⊢ p ∧ p"
    assert second["same_text"]
    detail = [step.detail for step in sorry_steps(workshop.db) if step.step == "stated"][-1]
    assert detail.endswith("its own text is the same")
    workshop.commit({"User.lean": user.replace("(h : p) : p ∧ p", "(h : p) : p ∧ True")})
    (third,) = workshop.trace().of("sorry_stated")
    assert not third["same_text"]


def test_the_database_is_what_a_rebuild_makes_of_the_log(traced: Workshop) -> None:
    report = verify(traced.root / "events.db", traced.root / "database.db")
    assert report.ok, report
    assert all(report.rows[name] > 0 for name in ("trace_measures", "sorry_goals", "theorem_premises"))


def test_a_job_without_lean_or_with_half_a_spec_says_what_is_missing(workshop: Workshop) -> None:
    workshop.commit({"A.lean": ALONE})
    nothing = LeanBackend("none", (), "switched off", "", sandbox="none")
    assert workshop.trace(lean=nothing).last["reason"] == "no_lean"
    broken = workshop.trace(known={"files": {"A.lean": {}}})
    assert (broken.last["reason"], broken.last["deterministic"]) == ("bad_spec", True)
    repl = LeanBackend("pantograph", ("/bin/true",), "a REPL at /bin/true", "", sandbox="none")
    alone = workshop.trace(lean=repl).last
    assert alone["reason"] == "toolchain_missing"
    assert "traced by Lean itself" in alone["message"]
    assert "elan toolchain install" in alone["remedy"]
    assert trace_queries.traces(workshop.db) == []


def test_a_project_below_the_root_is_traced_on_a_line_of_its_own_under_the_repository_s_paths(
    workshop: Workshop,
) -> None:
    own = {f"lean/{path}": text for path, text in FILES.items()}
    workshop.commit(
        {
            **own,
            "lean/lakefile.toml": "",
            "lean/doc/lakefile.toml": "",
            "lean/doc/D.lean": BASE,
            "E.lean": BASE,
        }
    )
    known = known_to_trace(workshop.db, repository=KEY, branch="main", project="lean")
    assert known.line == "branch:main:lean"
    workshop.build(*IMPORTED, folder="lean")
    outcome = workshop.trace(known=known, folder="lean", without=["doc"])
    assert outcome.returncode == 0, outcome.last
    lean_files = {path for path in own if path.endswith(".lean")}
    assert outcome.traced == lean_files, "neither the project below nor what lies in none"
    (use,) = workshop.theorem("twice").tactics[0].premises
    assert (use.full_name, use.def_path) == ("Base.swap", "lean/Base.lean")
    assert workshop.file("lean/Mid.lean").imports == ("lean/Base.lean",)
    (brief,) = described_repositories(workshop.db)
    assert [(one.branch, one.project, one.sha) for one in brief.traces] == [("main", "lean", workshop.sha)]
    later = known_to_trace(workshop.db, repository=KEY, branch="main", project="lean")
    again = workshop.trace(known=later, folder="lean", without=["doc"])
    assert again.summary["traced"] == 0
    other = workshop.trace(
        known=known_to_trace(workshop.db, repository=KEY, branch="main", project="lean/doc"),
        folder="lean/doc",
    )
    assert other.traced == {"lean/doc/D.lean"}
    assert [one.project for one in described_repositories(workshop.db)[0].traces] == ["lean", "lean/doc"]
    found = trace_queries.trace_of_branch(workshop.db, KEY, "main")
    assert found is not None
    assert found.line == "branch:main:lean/doc"
