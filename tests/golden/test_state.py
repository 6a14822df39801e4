"""The stored state opens, verifies, rebuilds and reads as it did."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from tests.golden import reach
from tests.golden.conftest import OUTPUTS, Golden
from tests.golden.test_outputs import FILES

NOT_OF_THE_LOG = {"poll_states", "view_position", "sqlite_sequence"}
"""Tables of the view that do not follow from events alone."""
KEYS = (
    *(
        "repository",
        "line",
        "branch",
        "sha",
        "path",
        "sorry",
        "declaration",
        "proof",
        "new_url",
        "url",
        "what",
    ),
    *("work", "kind", "kinds", "model", "prover", "rung", "outcome", "detail", "replacement", "goal", "step"),
    *("reason", "problem", "verdict", "conditional_on", "not_checked", "axioms", "by", "place"),
    *("n_declarations", "n_sorries", "files_seen", "files_traced", "theorems_seen", "theorems_traced"),
    *("tactics_seen", "tactics_traced", "gaps", "counts"),
)
"""Fields of events that are the same in each run of the demo."""


def test_the_log_is_sound_and_its_view_follows_from_it(rebuilt: Path) -> None:
    for verb, answer in (("check", "sound"), ("verify", "same")):
        said = reach.run_verb("db", verb, "--json", "--config", str(rebuilt / "config.toml"), home=rebuilt)
        assert said.code == 0, said.out + said.err
        assert json.loads(said.out)[answer] is True


def test_the_log_opens_for_writing_and_stays_as_it_is(as_left: Path, tmp_path: Path) -> None:
    copy = tmp_path / "events.db"
    shutil.copy(as_left / "state" / "events.db", copy)
    reach.open_for_writing(copy)
    assert reach.read_log(copy) == reach.read_log(as_left / "state" / "events.db")


def test_a_rebuilt_view_has_the_rows_that_it_had(as_left: Path, rebuilt: Path, golden: Golden) -> None:
    tables = rows_of(rebuilt / "state" / "database.db")
    before = rows_of(as_left / "state" / "database.db")
    lines = []
    for name, rows in sorted(tables.items()):
        digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        columns = ",".join(sorted(json.loads(rows[0]))) if rows else ""
        lines.append(f"{name}: {len(rows)} rows, {digest[:16]}, {columns}")
        # What the digest cannot show; a table that was changed on purpose is left to the golden file.
        if rows and columns == ",".join(sorted(json.loads(before.get(name, ["{}"])[0]))):
            assert sorted(set(rows) ^ set(before[name])) == [], name
    golden("view.txt", "\n".join(lines) + "\n")


def rows_of(path: Path) -> dict[str, list[str]]:
    """Return the rows of every table of a view, each as JSON, sorted."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: sorted(
                json.dumps(dict(row), sort_keys=True, ensure_ascii=False, default=bytes.hex)
                for row in database.execute(f'SELECT * FROM "{name}"')
            )
            for name in names
            if name not in NOT_OF_THE_LOG
        }


def test_events_read_as_they_did(as_left: Path, golden: Golden) -> None:
    golden("events.txt", "\n".join(map(line_of, reach.read_log(as_left / "state" / "events.db"))) + "\n")


def test_bodies_of_events_read_as_they_did(as_left: Path, golden: Golden) -> None:
    """All fields of all events, by a hash for each type."""
    bodies: dict[str, list[str]] = defaultdict(list)
    for event in reach.read_log(as_left / "state" / "events.db"):
        bodies[event.type].append(json.dumps(event.body, sort_keys=True, ensure_ascii=False))
    lines = [
        f"{kind}: {len(found)}, {hashlib.sha256(chr(10).join(found).encode()).hexdigest()[:16]}, "
        f"{','.join(sorted(json.loads(found[0])))}"
        for kind, found in sorted(bodies.items())
    ]
    golden("bodies.txt", "\n".join(lines) + "\n")


def test_every_golden_file_is_of_a_test() -> None:
    """A file that no test compares any more would look like a promise."""
    found = {str(path.relative_to(OUTPUTS)) for path in OUTPUTS.rglob("*") if path.is_file()}
    assert found == FILES | {"events.txt", "bodies.txt", "notebooks.txt", "view.txt"}


def line_of(event: reach.Event) -> str:
    """Return the event's type and those of its fields that are the same in each run of the demo."""
    fields = {key: event.body[key] for key in KEYS if event.body.get(key) not in (None, "", [], {}, False)}
    if isinstance(place := fields.get("place"), dict):
        fields["place"] = f"{place['path']}:{place['line']}:{place['column']} {place['declaration']}"
    return f"{event.type} {json.dumps(fields, ensure_ascii=False)}"
