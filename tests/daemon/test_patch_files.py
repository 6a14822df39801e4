"""The folder of patches: what lies there and what must not."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from daemon.results.patches import write_missing
from store.events.base import BlobRef, EventBody
from store.log.envelope import Expect, NewEvent
from tests.support.daemon.deployment import Deployment
from tests.support.events import (
    declaration,
    place,
    proof_found,
    proof_rejected,
    proof_verified,
    scanned,
    sha,
)

AUTHOR = "Bot <bot@example.org>"
SORRY = "0123456789abcdef"
SCAN = scanned("A.lean", [declaration("a")], with_sorry=["a"])
SPOT = place(SCAN, SCAN.sorries[0], blob=sha("blob"))


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path])
    return deployment


def patches_after(deployment: Deployment, *told: EventBody, text: bytes) -> list[Path]:
    """Return the patch files that lie there after each of these was told, one after the other."""

    async def go() -> list[Path]:
        file = deployment.folder / "payload"
        file.write_bytes(text)
        blob = BlobRef(sha256=hashlib.sha256(text).hexdigest(), size_bytes=len(text))
        async with deployment.opened() as parts:
            folder = parts.settings.paths.patches
            for body in told:
                cites = "patch" in type(body).model_fields
                fact = body.model_copy(update={"patch": blob}) if cites else body
                await parts.store.append(
                    [NewEvent("proof:p", fact)],
                    expect={"proof:p": Expect.ANY},
                    blobs={blob.sha256: file} if cites else {},
                )
                await write_missing(parts.store, folder, author=AUTHOR)
            return sorted(folder.rglob("*.patch"))

    return asyncio.run(go())


def test_the_patch_of_a_proof_that_was_rejected_after_all_is_taken_away(deployment: Deployment) -> None:
    result = proof_found(SORRY, SPOT, commit=sha(1))
    first = proof_verified(result)
    assert len(patches_after(deployment, result, first, text=b"A proof\n")) == 1
    assert patches_after(deployment, proof_rejected(result), text=b"x") == []


def test_a_proof_that_was_checked_again_has_the_patch_of_the_last_check(deployment: Deployment) -> None:
    result = proof_found(SORRY, SPOT, commit=sha(1))
    verified = proof_verified(result)
    (first,) = patches_after(deployment, result, verified, text=b"checked\n\ndiff --git a/A.lean b/A.lean\n")
    before = first.read_bytes()
    assert before.startswith(b"From ")
    assert f"From: {AUTHOR}\nSubject: [PATCH] prove a\n".encode() in before
    assert b"\n\nchecked\n---\n" in before
    text = b"checked again\n\ndiff --git a/A.lean b/A.lean\n"
    assert patches_after(deployment, verified.model_copy(update={"job": "check-2"}), text=text) == [first]
    assert b"\n\nchecked again\n---\n" in first.read_bytes()


def test_a_patch_that_is_there_as_it_should_be_is_not_written_again(deployment: Deployment) -> None:
    result = proof_found(SORRY, SPOT, commit=sha(1))
    text = b"checked\n\ndiff --git a/A.lean b/A.lean\n"
    (file,) = patches_after(deployment, result, proof_verified(result), text=text)
    st_ino = file.stat().st_ino
    (file,) = patches_after(deployment, proof_found("f" * 16, SPOT, commit=sha(1)), text=text)
    assert file.stat().st_ino == st_ino


def test_what_a_killed_daemon_left_of_a_patch_is_removed_when_the_next_one_writes_all(
    deployment: Deployment,
) -> None:
    result = proof_found(SORRY, SPOT, commit=sha(1))
    text = b"checked\n\ndiff --git a/A.lean b/A.lean\n"
    (file,) = patches_after(deployment, result, proof_verified(result), text=text)
    file.rename(file.with_name(f".{file.name}.4711.tmp"))
    assert patches_after(deployment, proof_found("f" * 16, SPOT, commit=sha(1)), text=text) == [file]
    assert list(file.parent.iterdir()) == [file]


def test_a_name_leads_to_no_other_folder_and_a_patch_that_is_missing_is_written_again(
    deployment: Deployment,
) -> None:
    result = proof_found(SORRY, SPOT, commit=sha(1)).model_copy(update={"declaration": "../../etc/passwd"})
    text = b"checked\n\ndiff --git a/A.lean b/A.lean\n"
    (file,) = patches_after(deployment, result, proof_verified(result), text=text)
    assert file.name == f"_.._etc_passwd-{result.proof}.patch"
    file.unlink()
    assert patches_after(deployment, proof_found("f" * 16, SPOT, commit=sha(1)), text=text) == [file]
