"""What a job reads is frozen under its hash, durably and once, and goes when nothing needs it."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from daemon.jobs.recovery import drop_old_job_folders
from pipeline.jobs.inputs import InputError, Inputs, InputStore


@pytest.fixture
def store(tmp_path: Path) -> InputStore:
    return InputStore(tmp_path / "inputs")


def contents(store: InputStore) -> set[bytes]:
    return {path.read_bytes() for path in store.folder.iterdir() if path.is_file()}


def test_a_job_has_its_inputs_under_their_names_and_finds_them_again(
    store: InputStore, tmp_path: Path
) -> None:
    place = tmp_path / "job" / "inputs"
    assert store.frozen(place) is None
    (tmp_path / "made").write_bytes(b"rows")
    inputs = store.freeze(place, {"known.json": b"{}", "dataset/rows": tmp_path / "made"})
    assert store.frozen(place) == inputs == Inputs.of_json(inputs.as_json())
    assert "known.json" in inputs
    assert "other" not in inputs
    assert inputs.path("dataset/rows").read_bytes() == b"rows"
    assert not (tmp_path / "made").exists(), "a file is moved"
    assert [one.sha256 for one in inputs.files] == [hashlib.sha256(it).hexdigest() for it in (b"{}", b"rows")]
    assert {path.stat().st_mode & 0o222 for path in store.folder.iterdir()} == {0}


def test_one_content_is_there_once_and_goes_with_the_last_job_that_has_it(
    store: InputStore, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        store.freeze(place, {"one": b"same", place.name: place.name.encode()})
    assert contents(store) == {b"same", b"first", b"second"}
    store.forget(first)
    store.sweep()
    assert (contents(store), first.exists()) == ({b"same", b"second"}, False)
    assert store.freeze(second, {"one": b"another"}).path("one").read_bytes() == b"another"
    assert contents(store) == {b"another"}
    store.forget(second)
    store.forget(second)
    assert contents(store) == set()


def test_what_is_kept_for_later_jobs_stays_until_there_is_a_newer_one(
    store: InputStore, tmp_path: Path
) -> None:
    for at in (1, 2):
        made = tmp_path / "made"
        made.write_text(f"corpus {at}")
        kept = store.keep("repository", f"trace{at}", made)
        assert store.kept("repository", f"trace{at}") == kept
        store.freeze(tmp_path / f"job{at}", {"corpus.jsonl": kept})
        store.sweep()
    assert store.kept("repository", "trace1") is None
    assert contents(store) == {b"corpus 1", b"corpus 2"}, "the first job needs its own still"
    for at in (1, 2):
        store.forget(tmp_path / f"job{at}")
    store.sweep()
    assert contents(store) == {b"corpus 2"}
    (path,) = store.folder.glob("kept/*/*")
    os.utime(path, (0, time.time() - 40 * 24 * 3600))
    store.sweep()
    assert contents(store) == set(), "nothing has used it for a month"


@pytest.mark.parametrize("content", [b"", b"{]"])
def test_an_input_that_is_damaged_is_named_and_never_read(
    store: InputStore, tmp_path: Path, content: bytes
) -> None:
    inputs = store.freeze(tmp_path / "job", {"known.json": b"{}"})
    path = inputs.folder / "known.json"
    path.chmod(0o644)
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"the input {path} is damaged: its SHA-256"):
        inputs.path("known.json")
    assert content in contents(store), "it is the same file"
    path.unlink()
    with pytest.raises(InputError, match=rf"the input {path} cannot be read: No such file"):
        inputs.path("known.json")
    with pytest.raises(InputError, match="there is no input other"):
        inputs.path("other")
    (tmp_path / "corpus").write_bytes(b"corpus")
    kept = store.keep("repository", "trace1", tmp_path / "corpus")
    damaged = store.freeze(tmp_path / "other", {"corpus.jsonl": kept})
    damaged.path("corpus.jsonl").chmod(0o644)
    (damaged.folder / "corpus.jsonl").write_bytes(b"corpse")
    store.forget(damaged.folder, damaged=True)
    assert store.kept("repository", "trace1") is None, "it is made anew, for who needs it next"


def test_inputs_that_were_half_made_are_none_and_are_swept(store: InputStore, tmp_path: Path) -> None:
    place = tmp_path / "job"
    place.mkdir()
    (place / "known.json").write_text("{}")
    assert store.frozen(place) is None
    store.freeze(place, {"other": b"1"})
    (store.folder / "new-half").write_bytes(b"half")
    store.sweep()
    assert contents(store) == {b"1", b"half"}, "it may be on its way"
    os.utime(store.folder / "new-half", (0, time.time() - 2 * 24 * 3600))
    store.sweep()
    assert contents(store) == {b"1"}
    assert [path.name for path in place.iterdir()].count("known.json") == 0


def test_the_folder_of_a_job_that_is_tried_again_with_its_inputs_stays_for_two_weeks(
    store: InputStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.jobs.recovery.KEPT", 0)
    jobs = tmp_path / "jobs"
    for name in ("done", "waits"):
        (jobs / name / "1").mkdir(parents=True)
    store.freeze(jobs / "waits" / "inputs", {"known.json": b"{}"})
    dropped = [
        drop_old_job_folders(jobs, inputs=store, running=frozenset()),
        [path.name for path in jobs.iterdir()],
    ]
    assert dropped == [1, ["waits"]]
    os.utime(jobs / "waits", (0, time.time() - 15 * 24 * 3600))
    assert drop_old_job_folders(jobs, inputs=store, running=frozenset()) == 1
    assert contents(store) == set()
