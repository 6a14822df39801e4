"""Generated exercises: the solvable ones are proved by their proofs, the others refuted by a truth table."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.lean.simulator.declarations import initial_environment
from pipeline.lean.simulator.frontend import Frontend, Modules
from pipeline.lean.simulator.kernel import Environment
from pipeline.lean.simulator.parser import parse_term
from pipeline.lean.simulator.server import Server
from pipeline.lean.simulator.terms import Stx
from tests.support.exercises.families import NAMES, Exercise, generate
from tests.support.exercises.families_repository import RepositorySize, revisions
from tests.support.exercises.families_writer import main, repository
from tests.support.exercises.relations import WORDS, Library

SEARCH = (
    "trivial", "assumption", "tauto", "simp", "decide", "omega", "constructor", "simp_all", "contradiction", "rfl",
)  # fmt: skip


def environment(text: str) -> Environment:
    frontend = Frontend(initial_environment())
    for command in frontend.run(text):
        assert command.notes == [], (text[command.start : command.end], command.notes)
    return frontend.env


@pytest.fixture(scope="module")
def library() -> Library:
    return Library.generate(5, lemmas=30)


@pytest.fixture(scope="module")
def library_env(library: Library) -> Environment:
    return environment(library.source())


def server_with(env: Environment) -> Server:
    return Server(Modules(Path()), env)


def closes(env: Environment, statement: str, tactic: str) -> bool:
    server = server_with(env)
    started = server.answer("goal.start", {"expr": statement})
    assert "stateId" in started, started
    reply = server.answer("goal.tactic", {"stateId": started["stateId"], "tactic": tactic})
    return reply.get("goals") == [] and reply["hasSorry"] is False


@pytest.mark.parametrize("difficulty", [1, 3])
def test_every_generated_proof_is_accepted(
    library: Library, library_env: Environment, difficulty: int
) -> None:
    for exercise in generate(5, difficulty, 18, library=library):
        assert exercise.proof is not None
        assert exercise.term is not None
        assert closes(library_env, exercise.statement, exercise.proof), exercise
        assert closes(library_env, exercise.statement, f"exact {exercise.term}"), exercise


# ---- truth tables of our own, over the parsed statement, so that nothing of the generator is believed


def value(stx: Stx, atoms: Mapping[str, bool], meanings: Mapping[str, Stx]) -> bool:
    """Evaluate a parsed proposition."""
    match stx.kind, stx.text, stx.args:
        case "ident", name, _:
            return {"True": True, "False": False}[name] if name in ("True", "False") else atoms[name]
        case "not", _, [inner]:
            return not value(inner, atoms, meanings)
        case "arrow", _, [left, right]:
            return not value(left, atoms, meanings) or value(right, atoms, meanings)
        case "op", op, [left, right]:
            a, b = value(left, atoms, meanings), value(right, atoms, meanings)
            return {"∧": a and b, "∨": a or b, "↔": a == b}[op]
        case "app", _, [head, *args]:
            own = dict(zip("pq", (value(arg, atoms, meanings) for arg in args), strict=True))
            return value(meanings[head.text], own, meanings)
    raise AssertionError(stx)


def number(stx: Stx) -> int:
    if stx.kind == "number":
        return int(stx.text)
    a, b = number(stx.args[0]), number(stx.args[1])
    return {"+": a + b, "-": max(0, a - b), "*": a * b}[stx.text]


def is_true(statement: str, library: Library) -> bool:
    """Return whether a statement holds, by truth table or by calculating."""
    stx = parse_term(statement)
    if stx.kind != "forall":
        a, b = number(stx.args[0]), number(stx.args[1])
        return {"=": a == b, "≠": a != b, "<": a < b, "≤": a <= b}[stx.text]
    names = [name.text for binder in stx.binders for name in binder.names]
    meanings = {}
    for line in library.source().split("def ")[1:]:
        name, _, rest = line.partition(" (p q : Prop) : Prop :=")
        meanings[name] = parse_term(rest.split("theorem")[0])
    rows = itertools.product((True, False), repeat=len(names))
    return all(value(stx.args[0], dict(zip(names, row, strict=True)), meanings) for row in rows)


@pytest.mark.parametrize("solvable", [True, False])
@pytest.mark.parametrize("difficulty", [1, 2, 4])
def test_a_truth_table_agrees_with_what_is_solvable(
    library: Library, difficulty: int, *, solvable: bool
) -> None:
    for exercise in generate(5, difficulty, 27, solvable=solvable, library=library):
        assert exercise.solvable is solvable
        assert (exercise.proof is None) is not solvable
        assert is_true(exercise.statement, library) is solvable, exercise


def test_no_search_tactic_closes_what_is_not_solvable(library: Library, library_env: Environment) -> None:
    for exercise in generate(5, 2, 18, solvable=False, library=library):
        for tactic in SEARCH:
            assert not closes(library_env, exercise.statement, f"intros\n{tactic}"), (exercise, tactic)


# ---- the lemma that a goal needs


def test_an_exercise_over_the_library_is_closed_by_its_lemma_and_by_no_other(
    library: Library, library_env: Environment
) -> None:
    for exercise in generate(5, 1, 8, families=("library",), library=library):
        (needed,) = exercise.premises
        works = [
            lemma.name
            for lemma in library.lemmas
            if closes(library_env, exercise.statement, f"intros\napply {lemma.name} <;> assumption")
        ]
        assert works == [needed]


def test_no_search_tactic_finds_a_library_proof(library: Library, library_env: Environment) -> None:
    for exercise in generate(5, 1, 8, families=("library",), library=library):
        for tactic in SEARCH:
            assert not closes(library_env, exercise.statement, f"intros\n{tactic}"), (exercise, tactic)


def test_a_harder_exercise_cites_more_lemmas(library: Library) -> None:
    for difficulty in (1, 3):
        for exercise in generate(5, difficulty, 5, families=("library",), library=library):
            assert exercise.proof is not None
            assert exercise.proof.count(":=") == difficulty


@pytest.mark.parametrize("family", NAMES)
def test_what_is_more_difficult_is_longer_in_every_family(library: Library, family: str) -> None:
    """The proof grows; of an equation, which is decided at once, the statement does."""
    lengths = []
    for difficulty in (1, 2, 4, 6):
        made = generate(5, difficulty, 4, families=(family,), library=library)
        texts = [one.statement if family == "arithmetic" else str(one.proof) for one in made]
        lengths.append(sum(map(len, texts)))
    assert lengths == sorted(set(lengths))


def test_what_is_called_classical_holds_in_no_other_way() -> None:
    for difficulty in (1, 2, 3):
        for exercise in generate(5, difficulty, 3, families=("classical",)):
            frontend = Frontend(initial_environment())
            frontend.run(exercise.source())
            constant = frontend.env.get(exercise.name)
            assert constant is not None
            assert "Classical.choice" in constant.axioms


def test_what_a_goal_says_decides_which_lemma_it_needs(library: Library) -> None:
    """The signal that a learner is to find: goals of the same words need the same lemma, others another one."""
    needed: dict[tuple[str, ...], set[str]] = {}
    for exercise in generate(5, 1, 30, families=("library",), library=library):
        words = tuple(
            word for word in exercise.statement.replace(",", "").split() if word in library.meanings
        )
        needed.setdefault(words, set()).update(exercise.premises)
    swapped = [lemmas for lemmas in needed.values() if len(lemmas) > 1]
    assert all({name.removesuffix("_swap") for name in lemmas} == {min(lemmas)} for lemmas in swapped)
    assert len({min(lemmas) for lemmas in needed.values()}) > 10


# ---- seeds and bad input


def test_the_seed_decides_everything() -> None:
    assert generate(3, 2, 12) == generate(3, 2, 12)
    assert generate(3, 2, 12) != generate(4, 2, 12)
    statements = [exercise.statement for exercise in generate(3, 2, 30)]
    assert len(set(statements)) == 30


def test_each_family_takes_its_turn() -> None:
    assert [exercise.family for exercise in generate(0, 2, 9)] == list(NAMES)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="difficulty is 0"):
        generate(0, 0, 1)
    with pytest.raises(ValueError, match="unknown family: nothing; there are chain"):
        generate(0, 1, 1, families=("nothing",))
    with pytest.raises(ValueError, match=r"only [0-9]+ different exercises of difficulty 1 here, not 60"):
        generate(0, 1, 60, families=("chain",))
    with pytest.raises(ValueError, match="relations is 99"):
        Library.generate(0, relations=99)


# ---- whole repositories


def test_a_repository_is_written_and_elaborates(tmp_path: Path) -> None:
    folder, answers = tmp_path / "repository", tmp_path / "answers.jsonl"
    assert (
        main(
            [
                "--out",
                str(folder),
                "--answers",
                str(answers),
                "--seed",
                "7",
                "--count",
                "4",
                "--difficulty",
                "1",
                "2",
            ]
        )
        == 0
    )

    modules = Modules(folder)
    assert modules.environment(["Families"]).get("open_0") is not None
    rows = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
    assert {row["solvable"] for row in rows} == {True, False}
    env = modules.environment(["Families.Library", "Families.Solved"])
    for row in rows[:20]:
        if row["solvable"]:
            assert closes(env, row["statement"], row["proof"])
    text = (folder / "Families" / "Open.lean").read_text("utf-8")
    assert text.count("sorry") == len(rows)


def test_an_open_theorem_is_not_among_the_solved_ones_and_its_name_gives_nothing_away() -> None:
    files, left = repository(7, [2], 9)

    for exercise in left:
        assert exercise.statement not in files["Families/Solved.lean"]
        assert exercise.name.startswith("open_")


def test_a_folder_with_files_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path)])
    assert "no empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_exercise_gives_its_source() -> None:
    exercise = Exercise("True", "t", "chain", 1, solvable=True, proof="trivial", term="True.intro")

    assert exercise.source() == "theorem t : True := by\n  trivial\n"
    assert exercise.source(proof="skip\nsorry") == "theorem t : True := by\n  skip\n  sorry\n"


# ---- repositories to learn from: a shared library, a private one, and theorems that cite both

SMALL = RepositorySize(
    theorems=24, per_file=10, shared_relations=5, shared_lemmas=8, relations=4, lemmas=8, difficulties=(1, 2)
)
CITED = re.compile(r"(?:exact|:=) ([a-z]+_of_[a-z_]+)")
STATED = re.compile(r"^theorem (t\d+_\d+) (.*) := by$", re.MULTILINE)


def declared(text: str) -> set[str]:
    return set(re.findall(r"^(?:def|theorem) (\S+)", text, re.MULTILINE))


def test_every_theorem_of_a_repository_and_of_its_later_commits_is_accepted() -> None:
    commits = revisions(3, "Nori", size=SMALL)
    next(commits)
    second = next(commits)
    frontend = Frontend(initial_environment())
    for path, text in second.items():  # in the order of their imports
        if path.endswith(".lean"):
            code = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
            for command in frontend.run(code):
                assert command.notes == [], (path, code[command.start : command.end], command.notes)
    assert all(frontend.env.get(f"Nori.t{number}_23") is not None for number in (1, 2))


def test_a_repository_s_files_import_what_they_need_and_no_more(tmp_path: Path) -> None:
    for path, text in next(revisions(3, "Nori", size=SMALL)).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    env = Modules(tmp_path).environment([f"Nori.Solved1_{number}" for number in (1, 2, 3)])
    assert env.get("Nori.t1_23") is not None
    assert "import Nori.Solved" not in "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.lean"))


def test_theorems_cite_the_shared_library_and_the_private_one_alike() -> None:
    files = next(revisions(3, "Nori", size=replace(SMALL, difficulties=(1,))))
    cited = [name for path, text in files.items() if "Solved" in path for name in CITED.findall(text)]
    shared = [name for name in cited if name in declared(files["Shared.lean"])]
    private = [name for name in cited if name in declared(files["Nori/Library.lean"])]
    assert len(shared) == len(private) == 12


def test_a_goal_says_the_repository_s_own_names_which_no_lemma_says() -> None:
    files = next(revisions(3, "Nori", size=SMALL))
    own = declared(files["Nori/Names.lean"])
    for path, text in files.items():
        said = set(re.findall(r"\b[A-Z][a-z]+\b", " ".join(line for _, line in STATED.findall(text))))
        assert said - {"Prop"} <= own, path
        if path in ("Shared.lean", "Nori/Library.lean"):
            assert not own & set(re.findall(r"\w+", text)), path


def test_repositories_of_one_shared_seed_share_that_library_and_nothing_else() -> None:
    one, other = (next(revisions(3, name, shared=8, size=SMALL)) for name in ("Nori", "Tavo"))
    assert one["Shared.lean"] == other["Shared.lean"]
    assert one["Shared.lean"] != next(revisions(3, "Nori", shared=9, size=SMALL))["Shared.lean"]
    assert not declared(one["Nori/Names.lean"]) & declared(other["Tavo/Names.lean"])
    assert not declared(one["Nori/Library.lean"]) & declared(other["Tavo/Library.lean"])


def test_a_later_commit_adds_a_library_and_theorems_and_changes_no_file() -> None:
    commits = revisions(3, "Nori", size=SMALL)
    first, second = next(commits), next(commits)
    assert {path: second[path] for path in first} == first
    added = {path: text for path, text in second.items() if path not in first}
    assert {"Nori/Library2.lean", "Nori/Names2.lean"} < added.keys()
    theorems = [found for text in added.values() for found in STATED.findall(text)]
    assert len(theorems) == 24
    assert len({stated for _, stated in theorems}) == 24
    assert not declared(first["Nori/Names.lean"]) & declared(second["Nori/Names2.lean"])


def test_a_repository_follows_from_its_seed_and_refuses_what_it_cannot_make() -> None:
    assert next(revisions(3, "Nori", size=SMALL)) == next(revisions(3, "Nori", size=SMALL))
    assert next(revisions(3, "Nori", size=SMALL)) != next(revisions(4, "Nori", size=SMALL))
    with pytest.raises(ValueError, match="name is 'nori'"):
        next(revisions(3, "nori"))
    with pytest.raises(ValueError, match="is not Shared"):
        next(revisions(3, "Shared"))
    few = RepositorySize(theorems=50_000, shared_relations=4, shared_lemmas=1, lemmas=1, difficulties=(1,))
    with pytest.raises(ValueError, match=r"Nori has only about \d+ different ones"):
        next(revisions(3, "Nori", size=few))


def test_a_library_on_another_adds_lemmas_about_relations_of_its_own() -> None:
    base = Library.generate(1, relations=5, lemmas=10)
    words = ["Kova", "Bilu", "Tane", "Sori"]
    private = Library.generate(2, relations=4, lemmas=20, words=words, base=base)
    assert private.meanings.keys() == base.meanings.keys() | set(words)
    assert all(lemma.relations & set(words) for lemma in private.lemmas)
    assert any(lemma.relations & set(WORDS) for lemma in private.lemmas)
    assert not declared(private.source()) & declared(base.source())
    environment(base.source() + "\n" + private.source())
