"""Ids, times, the JSON of events, and blobs."""

from __future__ import annotations

import hashlib
import time
import uuid
import zlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from store.errors import BlobCorruptError, InvalidAppendError
from store.events.proofs import AttemptFinished
from store.events.scans import SorryOpened
from store.log.blobs import cited, pack, unpack
from store.log.envelope import _Counter, utc_text, uuid7
from tests.support.events import samples


def test_a_uuid7_has_its_version_variant_and_time() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before - 1 <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1


def test_the_random_part_of_a_uuid7_never_reaches_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.log.envelope._counter", _Counter())
    monkeypatch.setattr("store.log.envelope.time.time_ns", lambda: 1_700_000_000_000 * 1_000_000)
    monkeypatch.setattr("store.log.envelope.os.urandom", lambda size: b"\xff" * size)
    made = uuid7()
    assert made.int >> 80 == 1_700_000_000_000
    assert made.int & (1 << 62) - 1 == (1 << 62) - 1


def test_uuid7s_increase_strictly_even_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [uuid7() for _ in range(2000)]
    monkeypatch.setattr("store.log.envelope.time.time_ns", lambda: 1_000_000_000)
    made += [uuid7() for _ in range(2000)]
    assert made == sorted(set(made))
    assert all(one.version == 7 for one in made)


def test_times_are_utc_with_microseconds_and_sort_as_text() -> None:
    moment = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert utc_text(moment) == "2026-02-28T23:30:00.000000Z"
    assert datetime.fromisoformat(utc_text(moment)) == moment
    later = moment + timedelta(microseconds=1)
    assert utc_text(moment) < utc_text(later) < utc_text(datetime(2026, 3, 1, tzinfo=UTC))


def test_infinite_numbers_never_reach_the_log() -> None:
    body = samples()["attempt_finished"].model_dump()
    with pytest.raises(ValidationError, match="finite"):
        AttemptFinished.model_validate(body | {"seconds": float("nan")})


def test_every_cited_blob_of_a_body_is_found() -> None:
    found = {name for name, body in samples().items() if cited(body.model_dump_json())}
    assert found == {
        "bump_finished",
        "closure_judged",
        "file_scanned",
        "file_traced",
        "proof_checked",
        "proof_verified",
        "theorems_followed",
        "trace_measured",
    }
    assert cited('{"x": [{"y": {"sha256": "a", "size_bytes": 1}}, {"sha256": "b"}]}') == {"a"}


def test_a_blob_comes_back_and_a_changed_one_does_not() -> None:
    payload = b"lean " * 10_000
    name = hashlib.sha256(payload).hexdigest()
    packed = pack(name, payload, where="here")
    assert len(packed.content) < len(payload) / 10
    assert unpack(name, packed.size_bytes, packed.content, where="log") == payload
    for content in (
        b"no zlib",
        zlib.compress(b"other"),
        packed.content[:-20],
        zlib.compress(b"x" * 10_000_000),
    ):
        with pytest.raises(BlobCorruptError, match="restore"):
            unpack(name, packed.size_bytes, content, where="log")


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_a_blob_is_named_by_a_hash_and_nothing_else(name: str) -> None:
    with pytest.raises(InvalidAppendError):
        pack(name, b"", where="here")


@pytest.mark.parametrize("change", [{"blob": "main"}, {"token": "sry"}, {"line": "first"}, {"colour": "red"}])
def test_the_log_takes_a_sorry_s_place_only_as_it_is_declared(change: dict[str, str]) -> None:
    body = samples()["sorry_opened"].model_dump()
    assert SorryOpened.model_validate(body).model_dump() == body
    with pytest.raises(
        ValidationError, match=f"place.*{next(iter(change))}|blob of a sorry's place is 'main'"
    ):
        SorryOpened.model_validate(body | {"place": body["place"] | change})
