"""What is small on its way in and huge when it is unpacked, or has no end at all: each is met with a bound."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest

from store.errors import BlobCorruptError, InvalidAppendError
from store.log import blobs


def test_a_payload_beyond_any_trace_is_refused_before_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "MOST_BYTES", 1000)
    file = tmp_path / "staged"
    file.write_bytes(bytes(1000))
    assert blobs.pack_file(hashlib.sha256(bytes(1000)).hexdigest(), file).size_bytes == 1000
    with file.open("wb") as grown:
        grown.truncate(2**40)
    with pytest.raises(InvalidAppendError, match="no trace of a file"):
        blobs.pack_file("0" * 64, file)


def test_a_row_that_unpacks_to_more_than_it_says_is_damaged_and_not_unpacked() -> None:
    bomb = zlib.compress(bytes(50_000_000), 9)
    assert len(bomb) < 100_000
    with pytest.raises(BlobCorruptError):
        blobs.unpack(hashlib.sha256(b"a trace").hexdigest(), 7, bomb, where="row 1")


def test_what_an_earlier_version_took_in_is_read_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MOST_BYTES", 1000)
    payload = bytes(5_000_000)  # as dense as zlib packs
    digest = hashlib.sha256(payload).hexdigest()
    packed = blobs.pack(digest, payload, where="an earlier version")
    assert blobs.unpack(digest, packed.size_bytes, packed.content, where="row 1") == payload


@pytest.mark.parametrize("size", [blobs.MOST_BYTES + 1, 2**62, -1])
def test_a_row_that_says_it_is_larger_than_its_bytes_can_be_is_not_unpacked(size: int) -> None:
    content = zlib.compress(b"a trace")
    digest = hashlib.sha256(b"a trace").hexdigest()
    assert blobs.unpack(digest, 7, content, where="row 1") == b"a trace"
    with pytest.raises(BlobCorruptError, match=f"says that it has {size} bytes"):
        blobs.unpack(digest, size, content, where="row 1")
