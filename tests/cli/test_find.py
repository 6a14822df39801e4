"""`everlean new`, `search`, `open` and `logs`."""

from __future__ import annotations

from store.events.scans import SorryOpened
from tests.support.state_folder import OTHER_SORRY, PROOF, REPOSITORY, SORRY, StateFolder, sorry_place

LATER = "c0" * 8


def later_sorry(folder: StateFolder) -> None:
    """A sorry of a commit after the first one of the branch."""
    folder.add(f"repository:{REPOSITORY}", SorryOpened(
        repository=REPOSITORY, branch="main", sha="d" * 40, sorry=LATER, place=sorry_place("Demo.later", line=30),
        reopened=False,
    ))  # fmt: skip
    folder.write()


def test_new_has_what_came_and_what_was_proved_and_not_what_was_there_at_first(filled: StateFolder) -> None:
    later_sorry(filled)
    news = filled.everlean("new", "--since", "1d", "--json").json["news"]
    assert {(item["sorry"], item["what"]) for item in news} == {(SORRY, "proof verified"), (LATER, "opened")}
    assert {item["grade"] for item in news} == {"not_replayed", ""}
    text = filled.everlean("new", env={"COLUMNS": "80"}).out
    assert "proof verified, no kernel replay" in text
    assert f"    {LATER[:8]}  30    opened" in text
    assert OTHER_SORRY[:8] not in text
    assert max(map(len, text.splitlines())) <= 80
    assert filled.everlean("new", "--since", "2100-01-01", "--json").json["news"] == []
    assert filled.everlean("new", "--since", "2100-01-01").out == "nothing is new since 2100-01-01T00:00Z\n"
    assert filled.everlean("new", "--since", "soon").code == 2


def test_search_finds_sorries_and_theorems_by_any_part_of_them(filled: StateFolder) -> None:
    found = filled.everlean("search", "BETA", "--json").json
    assert [row["sorry"] for row in found["sorries"]] == [OTHER_SORRY]
    assert [row["name"] for row in found["theorems"]] == ["Demo.beta"]
    assert len(filled.everlean("search", "x = x", "--json").json["sorries"]) == 2
    limited = filled.everlean("search", "demo", "--limit", "1")
    assert "only the first 1 sorry;" in limited.err
    assert filled.everlean("search", "%").out == "nothing has % in its name, path or statement\n"


def test_open_names_the_line_at_the_forge(filled: StateFolder) -> None:
    address = f"https://{REPOSITORY}/blob/{'a' * 40}/Demo.lean#L14"
    assert filled.everlean("open", "5a", "--json").json["url"] == address
    assert filled.everlean("open", "5a", env={"BROWSER": "true"}).out == address + "\n"
    unknown = filled.everlean("open", PROOF)
    assert (unknown.code, "`everlean sorries` lists them" in unknown.err) == (1, True)


def test_logs_asks_the_journal_or_says_where_the_log_is(filled: StateFolder) -> None:
    programs = filled.root / "programs"
    programs.mkdir()
    missing = filled.everlean("logs", env={"PATH": str(programs)})
    assert (missing.code, "everlean events" in missing.err) == (1, True)
    journal = programs / "journalctl"
    journal.write_text('#!/bin/sh\necho "$@"\n')
    journal.chmod(0o755)
    asked = filled.everlean("logs", "-n", "7", "--follow", env={"PATH": str(programs)})
    assert asked.out == "--user --unit everlean --lines 7 -f\n"
