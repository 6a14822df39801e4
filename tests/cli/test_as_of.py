"""`--as-of`: every reading verb answers about an earlier moment as it would over a log that ends there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import chdir, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from daemon.cli.app import build, exit_code_of
from store.log.anchor import anchor_path
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view.asof import KEPT, Copies, find
from store.view.rebuild import rebuild
from tests.support.events import STREAM, record, record_story, sample_payloads, samples
from tests.support.state_folder import COMMAND

ONE_OF_EACH = (
    "repository_watched", "branch_created", "commit_observed", "file_scanned", "sorry_opened", "commit_scanned",
    "job_started", "proof_found", "proof_verified",
)  # fmt: skip
NOT_OF_THE_LOG = {"since", "daemon", "as_of", "healthy", "summary"}


@dataclass
class RecordedStory:
    """A state folder with a long story in its log, and the command run on it in this process."""

    root: Path

    @property
    def events_db(self) -> Path:
        return self.root / "state" / "events.db"

    @property
    def copies(self) -> Path:
        return self.root / "state" / "cache" / "as-of"

    def ask(self, *arguments: str) -> Any:
        # A verb may write where it is called: `report` does, and its folder must not land in the repository.
        with chdir(self.root):
            result = CliRunner().invoke(
                build(), [*arguments], env={"EVERLEAN_CONFIG": str(self.root / "config.toml")}
            )
        if isinstance(result.exception, Exception) and exit_code_of(result.exception) is None:
            raise result.exception
        return result

    def document(self, *arguments: str) -> dict[str, Any]:
        answer = self.ask(*arguments, "--json")
        # `status` says by its code that no daemon runs; of an earlier moment it only answers.
        down = arguments[0] == "status" and "--as-of" not in arguments
        assert answer.exit_code == (3 if down else 0), (arguments, answer.output, answer.exception)
        document = json.loads(answer.stdout)
        assert isinstance(document, dict)
        return document

    def end_at(self, seq: int) -> None:
        """Cut the log's end off, as a backup of that moment has it, and make the view anew."""
        with closing(sqlite3.connect(self.events_db)) as connection, connection:
            for table in ("events", "chain"):
                name = f"{table}_no_delete"
                result = connection.execute(
                    "SELECT sql FROM sqlite_schema WHERE name = ?", (name,)
                ).fetchone()
                connection.execute(f"DROP TRIGGER {name}")
                connection.execute(f"DELETE FROM {table} WHERE seq > ?", (seq,))
                connection.execute(result[0])
        anchor_path(self.events_db).unlink(missing_ok=True)
        rebuild(self.events_db, self.events_db.with_name("database.db"))

    def recorded_at(self, seq: int) -> str:
        with LogReader.open(self.events_db) as log:
            return next(log.read(after=seq - 1, limit=1)).recorded_at


def record_in(root: Path, *, batches: int = 25) -> RecordedStory:
    story = RecordedStory(root)
    (root / "config.toml").write_text('[daemon]\nstate_dir = "state"\n', encoding="utf-8")
    story.events_db.parent.mkdir()
    with EventLog.open(story.events_db) as log:
        # One of everything that a verb shows, whatever the story tells.
        one_of_each = samples()
        first = [one_of_each[name] for name in ONE_OF_EACH]
        record(log, first, folder=root / "staging", payloads=sample_payloads())
        record_story(log, root, seed=7, batches=batches)
    rebuild(story.events_db, story.events_db.with_name("database.db"))
    return story


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a story, which no test changes."""
    return record_in(tmp_path_factory.mktemp("told")).root


@pytest.fixture
def story(told: Path, tmp_path: Path) -> RecordedStory:
    return RecordedStory(Path(shutil.copytree(told, tmp_path / "story")))


def verbs_with_the_option() -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every verb that has --as-of, with all its options; `<name>` stands for an argument that must be given."""
    top: Any = typer.main.get_command(build())
    for name, command in top.commands.items():
        below = [((name, verb), inner) for verb, inner in getattr(command, "commands", {}).items()]
        for verb, one in [((name,), command), *below]:
            options = {option for parameter in one.params for option in parameter.opts}
            options |= {f"<{parameter.name}>" for parameter in one.params if parameter.required}
            if "--as-of" in options:
                yield verb, options


def questions(story: RecordedStory, moment: tuple[str, ...]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Ask every reading verb that gives one document; those of one thing about the first in its list."""
    result: dict[tuple[str, ...], dict[str, Any]] = {}
    for verb, options in verbs_with_the_option():
        # Of branches that a random story unwatches at its end there is something to compare too.
        given: tuple[str, ...] = ("--all",) if "--all" in options else ()
        if verb[0] == "events" or verb == ("jobs", "logs"):
            continue  # not one document; not of the log
        if needed := {option for option in options if option.startswith("<")}:
            if needed not in ({"<sorry>"}, {"<proof>"}, {"<job>"}):
                continue  # what it writes or looks up has its own tests
            kind = needed.pop().strip("<>")
            listed = result[verb[0],][verb[0]]
            ids = [item[kind] for item in listed if verb[-1] != "patch" or item["patch_sha256"] is not None]
            if not ids:
                continue
            given = (ids[0],)
        result[verb] = story.document(*verb, *given, *moment)
    return result


def of_the_log(document: dict[str, Any]) -> dict[str, Any]:
    """What both must agree on: not what is only true now, nor what follows from no daemon running in the test."""
    kept = {key: value for key, value in document.items() if key not in NOT_OF_THE_LOG}
    if "problems" in kept:
        kept["problems"] = [
            {**item, "message": re.sub(r"(just now|[0-9.]+s ago)", "…", item["message"])}
            for item in kept["problems"]
            if not item["code"].startswith("daemon_")
        ]
        kept["jobs"] = {key: value for key, value in kept["jobs"].items() if key != "running"}
    return kept


@pytest.mark.slow
def test_every_reading_verb_answers_as_over_a_log_that_ends_there(story: RecordedStory) -> None:
    with LogReader.open(story.events_db) as log:
        last = log.position()
    moments = [last, last // 2, 1]
    answers = {seq: questions(story, ("--as-of", str(seq))) for seq in moments}
    asked = set().union(*answers.values())
    assert {("status",), ("repos",), ("sorries",), ("sorries", "show"), ("theorems",), ("proofs",),
            ("proofs", "show"), ("proofs", "patch"), ("jobs",), ("jobs", "show")} <= asked  # fmt: skip
    for seq in moments:
        story.end_at(seq)
        plain = questions(story, ())
        assert plain.keys() == answers[seq].keys()
        for verb, document in plain.items():
            earlier = answers[seq][verb]
            assert earlier["as_of"] == {"seq": seq, "recorded_at": story.recorded_at(seq)}, verb
            assert of_the_log(earlier) == of_the_log(document), (verb, seq)


def test_as_of_a_time_is_as_of_the_last_event_recorded_by_then(story: RecordedStory) -> None:
    at = story.recorded_at(9)
    with LogReader.open(story.events_db) as log:
        expected = max(event.seq for event in log.read() if event.recorded_at <= at)
    assert story.document("theorems", "--as-of", at)["as_of"] == {
        "seq": expected,
        "recorded_at": story.recorded_at(expected),
    }


def test_the_text_says_in_one_line_that_it_is_not_now(story: RecordedStory) -> None:
    answer = story.ask("sorries", "--as-of", "20")
    assert answer.exit_code == 0
    assert answer.stderr == f"everlean: this is the state as of event 20 ({story.recorded_at(20)})\n"
    assert "LAST POLL" in story.ask("repos", "--all").stdout
    assert "LAST POLL" not in story.ask("repos", "--all", "--as-of", "20").stdout
    status = story.ask("status", "--as-of", "20").stdout
    assert "As of event 20:" in status
    assert "not running" not in status
    assert "LAST POLL" not in status


@pytest.mark.parametrize(
    ("moment", "says"),
    [
        ("999999", "the log ends at event"),
        ("0", "nothing was recorded as of event 0, it begins with event 1 at"),
        ("1999-01-01", "nothing was recorded as of 1999-01-01T00:00:00.000000Z"),
        ("2999-01-01", "lies in the future"),
    ],
)
def test_a_moment_that_the_log_does_not_reach_is_an_error(
    story: RecordedStory, moment: str, says: str
) -> None:
    answer = story.ask("status", "--as-of", moment)
    assert answer.exit_code == 1
    assert says in str(answer.exception)
    assert not story.copies.exists()


def test_what_is_no_moment_is_a_usage_error(story: RecordedStory) -> None:
    answer = story.ask("status", "--as-of", "the day before")
    assert answer.exit_code == 2
    assert "neither the number of an event nor a time such as 7d, yesterday or" in " ".join(
        answer.stderr.replace("│", " ").split()
    )


def test_an_event_that_cannot_be_read_is_named_and_what_lies_before_it_is_answered(
    story: RecordedStory,
) -> None:
    with closing(sqlite3.connect(story.events_db)) as connection, connection:
        seq, version = connection.execute(
            "SELECT max(seq) + 1, max(version) + 1 FROM events WHERE stream = ?", (STREAM,)
        ).fetchone()
        connection.execute(
            "INSERT INTO events (seq, event_id, stream, version, type, schema_version, data, recorded_at, actor)"
            " VALUES (?, 'new', ?, ?, 'of_a_later_version', 1, '{}', '2026-07-01T00:00:00.000000Z', 'test')",
            (seq, STREAM, version),
        )
    answer = story.ask("repos", "--as-of", str(seq))
    assert answer.exit_code == 1
    assert f"event {seq}: of_a_later_version version 1 cannot be read" in str(answer.exception)
    assert story.document("repos", "--as-of", str(seq - 1))["as_of"]["seq"] == seq - 1
    assert [path.name for path in story.copies.iterdir() if not path.name.endswith(".db")] == []


def test_the_four_copies_that_were_used_last_are_kept(story: RecordedStory) -> None:
    with LogReader.open(story.events_db) as log:
        copies = Copies(story.copies)
        for number, seq in enumerate((10, 20, 30, 40)):
            path = copies.make(log, find(log, seq))
            os.utime(path, ns=(number, number))
        assert copies.ready(log, find(log, 10)) is not None  # used now
        copies.open(log, find(log, 50)).close()
    assert sorted(int(path.name.split("-")[1]) for path in story.copies.iterdir()) == [10, 30, 40, 50]
    assert KEPT == 4


def test_a_copy_goes_on_from_the_nearest_earlier_one_and_a_restored_log_from_none(
    story: RecordedStory,
) -> None:
    with LogReader.open(story.events_db) as log:
        copies = Copies(story.copies)
        copies.make(log, find(log, 10))
        copies.make(log, find(log, 30))
        assert copies.start(log, find(log, 40)) == 30
        assert copies.start(log, find(log, 29)) == 10
        assert copies.start(log, find(log, 9)) == 0
        whole = Copies(story.copies.with_name("whole"))
        with (
            closing(copies.open(log, find(log, 40))) as extended,
            closing(whole.open(log, find(log, 40))) as built,
        ):
            assert list(extended.iterdump()) == list(built.iterdump())
    other = story.root / "other"
    other.mkdir()
    with LogReader.open(record_in(other).events_db) as log:
        assert copies.start(log, find(log, 40)) == 0
        assert copies.ready(log, find(log, 40)) is None


def test_a_killed_build_leaves_a_temporary_name_that_the_next_one_removes(story: RecordedStory) -> None:
    story.copies.mkdir(parents=True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = story.copies / f"00000000-5-0000000000000000.db.making-{gone.pid}-1"
    left.write_bytes(b"half")
    (story.copies / f"{left.name}-journal").write_bytes(b"half")
    alive = story.copies / f"00000000-5-0000000000000000.db.making-{os.getpid()}-1"
    alive.write_bytes(b"half")
    story.document("repos", "--as-of", "10")
    assert not left.exists()
    assert sorted(path.name for path in story.copies.glob("*making*")) == [alive.name]


def test_killed_before_a_finished_copy_gets_its_name_there_is_none_under_it(story: RecordedStory) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from store.view.asof import Copies, find
from store.log.reader import LogReader
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with LogReader.open(Path(sys.argv[1])) as log:
    Copies(Path(sys.argv[2])).make(log, find(log, 20))
"""
    result = subprocess.run(
        [sys.executable, "-c", code, story.events_db, story.copies], check=False, timeout=60
    )
    assert result.returncode == -signal.SIGKILL
    assert list(story.copies.glob("*.db")) == []
    assert story.document("repos", "--as-of", "20")["as_of"]["seq"] == 20


def test_a_damaged_copy_is_made_again(story: RecordedStory) -> None:
    before = story.document("sorries", "--as-of", "30")
    (copy,) = story.copies.iterdir()
    copy.write_bytes(b"no database at all" * 100)
    assert story.document("sorries", "--as-of", "30") == before


@pytest.mark.slow
def test_processes_that_ask_at_once_get_the_same_answer(story: RecordedStory) -> None:
    command = [str(COMMAND), "sorries", "--as-of", "40", "--json"]
    env = {**os.environ, "EVERLEAN_CONFIG": str(story.root / "config.toml")}
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) for _ in range(4)
    ]
    answers = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0] * 4, answers
    assert len({out for out, _ in answers}) == 1
    assert len(list(story.copies.iterdir())) == 1


def test_who_may_not_write_the_cache_gets_a_private_folder_of_their_own() -> None:
    # Not below pytest's own folder, which no one else may enter.
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        story = record_in(root)
        expected = story.document("theorems", "--all", "--as-of", "30")["theorems"]
        for copy in story.copies.iterdir():
            copy.unlink()
        story.copies.parent.chmod(0o555)
        code, document = in_a_child(story, root / "tmp", "theorems", "--all", "--as-of", "30")
        story.copies.parent.chmod(0o755)
        assert code == 0
        assert document["theorems"] == expected
        assert list(story.copies.iterdir()) == []
        (own,) = (root / "tmp").iterdir()
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert len(list(own.iterdir())) == 1


def in_a_child(story: RecordedStory, temporary: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Ask as a user whom permissions stop, which root is not; a fork, for no one may not read this interpreter."""
    story.copies.chmod(0o555)
    answer = temporary.parent / "answer"
    answer.touch()
    answer.chmod(0o666)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir("/")  # the repository's folder may be closed to others
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            tempfile.tempdir = str(temporary)
            answer.write_text(json.dumps(story.document(*arguments)))
            code = 0
        except BaseException:  # noqa: BLE001 - a forked child must end here, whatever happens
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    story.copies.chmod(0o755)
    return code, json.loads(answer.read_text() or "{}")
