"""A certificate: the gate's findings on one proof, in a file anyone can check without a daemon.

It is made of the log alone: of the event that verified the proof, the event that found it, and its patch. The same
event gives the same bytes, so a log can recognize its own certificates. A proof needs a kernel's replay with everything
below it to have one. A Lean with a foreign library never leads to one, since its judgements verify nothing.

A signature is a file beside it, made by `ssh-keygen -Y sign`: with OpenSSH you can check it without everlean.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pipeline.gate.advisories import Advisory, against, read_feed, shipped, told, witnesses
from pipeline.gate.axioms import ALLOWED_AXIOMS
from store.documents.grades import GRADES, doubt_text
from store.events.base import BlobRef, Digest, Part, Sha
from store.events.proofs import (
    Check,
    CheckedVersion,
    Material,
    ProofChecked,
    ProofDoubted,
    ProofFound,
    ProofVerified,
)
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.log.upcast import read_body
from store.view.projections.proofs import why_not_verified
from store.view.rows import ProofRow

VERSION = 1
NAMESPACE = "everlean-certificate"
"""The purpose of a signature: one for a git commit or a login does not count for a certificate."""
MOST_BYTES = 16 * 2**20
"""The largest certificate to read; a patch is a few kilobytes."""
MOST_INPUTS = 8
"""Files naming Lean and the packages; the gate looks at fewer."""
_SSH_S = 30.0


class CertificateError(Exception):
    """A certificate cannot be made, read, signed or checked; the message has the reason."""


class Origin(Part):
    """The certificate's event in the log; `sha256` is of its data as stored there."""

    seq: int
    id: str
    sha256: Digest


class Certificate(Part):
    """One verified proof. All hashes are SHA-256.

    `commit`, `path` and `blob` are the file before the patch; `kernels` the programs that replayed the proof with
    everything below it.
    """

    certificate: Literal[1]
    verdict: Literal["verified"]
    proof: str
    sorry: str
    repository: str
    commit: Sha
    path: str
    blob: Sha
    declaration: str
    material: Material
    axioms: tuple[str, ...]
    toolchain: str
    grade: Literal["L1", "L2"]
    kernels: tuple[str, ...]
    checks: tuple[Check, ...]
    not_checked: tuple[str, ...]
    verified_at: str
    event: Origin
    patch_sha256: Digest
    patch: str

    def text(self) -> bytes:
        """Return the file's bytes: JSON in ASCII, so no name in it can write to a terminal."""
        return json.dumps(self.model_dump(mode="json"), indent=2).encode("ascii") + b"\n"


# ---- made of the log


def certificate_of(log: LogReader, proof: str) -> Certificate:
    """Return the certificate of a proof's newest verdict.

    Raises:
        CertificateError: it has none; the message has the reason.
        LogError: the log cannot be read.
    """
    result, judged, _ = _history(log, proof)
    if result is None or not judged:
        raise CertificateError(f"proof {proof}: the log has no verdict on it")
    return _made(log, result, judged[-1])


def of_event(log: LogReader, seq: int) -> Certificate:
    """Return the certificate of the event at `seq`.

    Raises:
        CertificateError: it gives none.
    """
    event = next(iter(log.read(after=seq - 1, limit=1)), None) if seq > 0 else None
    if event is None or event.seq != seq or event.type != "proof_verified":
        raise CertificateError(f"event {seq} of this log verifies no proof")
    result, _, _ = _history(log, str(event.data["proof"]))
    if result is None:
        raise CertificateError(f"event {seq}: the log does not say how its proof was found")
    return _made(log, result, event)


def _history(log: LogReader, proof: str) -> tuple[ProofFound | None, list[StoredEvent], str]:
    """Return the discovery of a proof, its verdicts in order, and why the last is in doubt ("": it is not)."""
    result, judged, doubt = None, [], ""
    for event in log.read_stream(f"proof:{proof}"):
        if event.type == "proof_found" and result is None:
            body = read_body(event)
            result = body if isinstance(body, ProofFound) else None
        elif event.type in ("proof_verified", "proof_rejected") or _disagreement(event):
            judged.append(event)
            doubt = ""
        elif event.type == ProofDoubted.type and judged and event.data["job"] == judged[-1].data["job"]:
            doubt = str(event.data["reason"]) if event.data["advisories"] else ""
    return result, judged, doubt


def _disagreement(event: StoredEvent) -> str:
    """Return the disagreement of kernels on a proof, if that is the verdict; "" for any other."""
    return str(event.data["disagreement"]) if event.type == ProofChecked.type else ""


def _made(log: LogReader, found: ProofFound, event: StoredEvent) -> Certificate:
    body = read_body(event)
    if why := _disagreement(event):
        raise CertificateError(f"proof {found.proof}: it is not verified: {why}")
    if not isinstance(body, ProofVerified):
        raise CertificateError(f"proof {found.proof}: it was rejected, so there is no certificate of it")
    if (found.proof, found.sorry) != (body.proof, body.sorry):
        raise CertificateError(f"event {event.seq}: it is about another proof than the one that was found")
    if (lacking := why_not_verified(body)) is not None:
        raise CertificateError(f"proof {found.proof}: it is not verified: {lacking}")
    if body.grade == "L0":
        raise CertificateError(
            f"proof {found.proof}: {GRADES[body.grade]}, and a certificate needs a kernel's replay of all that the"
            " proof rests on; `[lean] second_kernel` names a program that can"
        )
    if body.material is None:
        raise CertificateError(
            f"proof {found.proof}: no hashes of what was checked are recorded, since not all of it could be read; the"
            f" check of its statement says why (`everlean proofs show {found.proof}`)"
        )
    patch = log.blob(body.patch.sha256)
    try:
        text = patch.decode()
    except UnicodeDecodeError as error:
        raise CertificateError(f"proof {found.proof}: its patch is not UTF-8: {error}") from error
    return Certificate(
        certificate=VERSION,
        verdict="verified",
        proof=found.proof,
        sorry=found.sorry,
        repository=found.repository,
        commit=body.version.sha,
        path=found.path,
        blob=body.version.blob,
        declaration=found.declaration,
        material=body.material,
        axioms=body.axioms,
        toolchain=body.toolchain,
        grade=body.grade,
        kernels=kernels(body.kernel),
        checks=body.checks,
        not_checked=body.not_checked,
        verified_at=event.recorded_at,
        event=Origin(
            seq=event.seq, id=event.event_id, sha256=hashlib.sha256(event.data_json.encode()).hexdigest()
        ),
        patch_sha256=body.patch.sha256,
        patch=text,
    )


def kernels(recorded: str) -> tuple[str, ...]:
    """Return the programs in an event's `kernel`."""
    return tuple(one for one in recorded.split(", ") if one)


# ---- read and checked


def read_certificate(data: bytes) -> Certificate:
    """Read a certificate's file.

    Raises:
        CertificateError: it is none; the message names the first fault.
    """
    if len(data) > MOST_BYTES:
        raise CertificateError(f"it is larger than {MOST_BYTES // 2**20} MiB, which no certificate is")
    try:
        result = Certificate.model_validate_json(data, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CertificateError(
            f"it is no certificate: {f'{where}: ' if where else ''}{first['msg']}"
        ) from error
    # A key written twice means one thing here, and the other to another reader.
    if result.text() != data:
        raise CertificateError(
            "it is no certificate: its bytes are not those that everlean writes for what it says"
        )
    return result


Outcome = Literal["good", "bad", "unknown"]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a certificate's check: `good`, `bad`, or `unknown` if nothing here could tell."""

    what: str
    outcome: Outcome
    said: str


def agrees(certificate: Certificate) -> Point:
    """Check that a certificate's parts agree with each other, as in every honest one."""
    faults = _faults(certificate)
    if faults:
        return Point("content", "bad", "; ".join(faults))
    return Point("content", "good", "the patch, the verdict and the hashes of the file agree with each other")


def _faults(certificate: Certificate) -> list[str]:
    body = ProofVerified(
        proof=certificate.proof,
        sorry=certificate.sorry,
        checks=certificate.checks,
        not_checked=certificate.not_checked,
        axioms=certificate.axioms,
        grade=certificate.grade,
        kernel=", ".join(certificate.kernels),
        version=CheckedVersion(sha=certificate.commit, blob=certificate.blob, byte_start=0),
        patch=BlobRef(sha256=certificate.patch_sha256, size_bytes=0),
        job="",
        toolchain=certificate.toolchain,
        material=certificate.material,
    )
    faults = []
    if (why := why_not_verified(body)) is not None:
        faults.append(why)
    if not certificate.kernels:
        faults.append("it names no kernel that replayed the proof")
    if foreign := sorted(set(certificate.axioms) - ALLOWED_AXIOMS):
        faults.append(f"the proof rests on {', '.join(foreign)}")
    if hashlib.sha256(certificate.patch.encode()).hexdigest() != certificate.patch_sha256:
        faults.append("the patch is not the one of its hash")
    head, _, diff = certificate.patch.partition("\ndiff --git ")
    told = {line.partition(": ")[0]: line.partition(": ")[2] for line in head.splitlines()}
    for name, ours in (
        ("Everlean-Declaration", certificate.declaration),
        ("Everlean-Repository", certificate.repository),
        ("Everlean-Commit", certificate.commit),
        ("Everlean-Sorry", certificate.sorry),
        ("Everlean-Proof", certificate.proof),
        ("Toolchain", certificate.toolchain),
        ("Axioms", ", ".join(certificate.axioms) or "none"),
    ):
        if told.get(name, "") != " ".join(ours.split()):
            faults.append(f"the patch says {name} {told.get(name, 'nothing')!r}, not {ours!r}")
    if f"\nindex {certificate.blob}.." not in diff:
        faults.append(f"the patch is not of the file {certificate.blob}")
    file_sha256 = certificate.material.file_sha256
    if not any(file_sha256 in check.evidence for check in certificate.checks if check.step == "shape"):
        faults.append("the file that was checked is not the one of its hash")
    return faults


def in_log(certificate: Certificate, log: LogReader) -> Point:
    """Check that a log has this certificate's event, word for word, and nothing against it since.

    Raises:
        LogError: the log cannot be read.
    """
    try:
        ours = of_event(log, certificate.event.seq)
    except CertificateError as error:
        return Point("log", "bad", str(error))
    if ours != certificate:
        fields = type(ours).model_fields
        other = [name for name in fields if getattr(ours, name) != getattr(certificate, name)]
        return Point("log", "bad", f"event {ours.event.seq} of the log says another {', '.join(other)}")
    _, judged, doubt = _history(log, ours.proof)
    if judged[-1].type == "proof_rejected":
        return Point("log", "bad", f"the proof was rejected later: {judged[-1].data.get('reason')}")
    if why := _disagreement(judged[-1]):
        return Point("log", "bad", f"the proof was put in doubt later: {why}")
    if doubt and judged[-1].seq == ours.event.seq:
        return Point("log", "bad", f"the proof was put in doubt later: {doubt}")
    return Point("log", "good", f"event {ours.event.seq} of the log says the same")


def recalled(certificate: Certificate, known: Sequence[Advisory]) -> Point:
    """Return whether advisories cover every kernel that replayed the proof."""
    kernel = ", ".join(certificate.kernels)
    faults = against(witnesses(certificate.grade, kernel, certificate.toolchain), known)
    if faults:
        return Point("kernels", "bad", f"in doubt, since every one has a known fault: {told(faults)}")
    newest = max((one.published for one in known), default=None)
    return Point("kernels", "good", f"one has none of the {len(known)} faults known up to {newest}")


def in_repository(certificate: Certificate, clone: Path) -> Point:
    """Check that a clone's commit has the file, and that the patch turns it into the judged file."""
    name = f"{certificate.commit}:{certificate.path}"
    try:
        blob = _git(clone, "rev-parse", "--verify", "--end-of-options", name).decode().strip()
        if blob != certificate.blob:
            return Point("repository", "bad", f"{certificate.path} of commit {certificate.commit} is {blob}")
        before = _git(clone, "cat-file", "blob", blob)
        after = patched(before, certificate)
    except CertificateError as error:
        return Point("repository", "bad", str(error))
    result = hashlib.sha256(after).hexdigest()
    if result != certificate.material.file_sha256:
        return Point(
            "repository", "bad", f"the patch makes a file with sha256 {result}, which was not checked"
        )
    if len(certificate.material.inputs) > MOST_INPUTS:
        return Point("repository", "bad", "it names more files for Lean and the packages than there are")
    for one in certificate.material.inputs:
        try:
            data = _git(clone, "cat-file", "blob", f"{certificate.commit}:{one.path}")
        except CertificateError as error:
            return Point("repository", "bad", str(error))
        if hashlib.sha256(data).hexdigest() != one.sha256:
            return Point("repository", "bad", f"{one.path} is not the one that it was checked with")
    text = (
        f"{certificate.path} of commit {certificate.commit[:12]} with the patch is the file that was checked"
    )
    return Point("repository", "good", text)


def patched(before: bytes, certificate: Certificate) -> bytes:
    """Apply the patch to the file's bytes with git, in an empty folder.

    Raises:
        CertificateError: it does not apply.
    """
    with tempfile.TemporaryDirectory(prefix="everlean-certificate-") as folder:
        place = Path(folder) / "file"
        place.write_bytes(before)
        # The certificate chooses the name, which may be anything: apply the hunk alone, to a name of our own.
        _, separator, hunk = certificate.patch.partition("\n@@ ")
        if not separator:
            raise CertificateError("the patch has no hunk")
        diff = f"--- a/file\n+++ b/file\n@@ {hunk}".encode()
        _git(Path(folder), "apply", "--whitespace=nowarn", "-p1", "-", given=diff)
        return place.read_bytes()


def _git(folder: Path, *words: str, given: bytes = b"") -> bytes:
    environment = {
        "PATH": _path(),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        # The commit's own objects: no replacements, none from elsewhere.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "LC_ALL": "C",
    }
    if words[0] == "apply":
        environment["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    command = ("git", "-C", str(folder), "-c", "core.fsmonitor=false", *words)
    return _ran(command, given, environment=environment).stdout


# ---- signatures


def sign(data: bytes, key: Path) -> bytes:
    """Return the signature of a file's bytes with a private key of OpenSSH's, without a passphrase.

    Raises:
        CertificateError: ssh-keygen is missing, or refuses; the message quotes it.
    """
    if not key.is_file():
        raise CertificateError(
            f"{key}: there is no such key; `ssh-keygen -t ed25519 -N '' -f {key}` makes one"
        )
    return _ssh("sign", "-f", str(key), "-n", NAMESPACE, given=data).stdout


def signed_by(data: bytes, signature: Path, signers: Path | None) -> Point:
    """Check the signature of these bytes, and its key against `signers`, a file like OpenSSH's `allowed_signers`."""
    try:
        if signers is None:
            text = _ssh("check-novalidate", "-n", NAMESPACE, "-s", str(signature), given=data).stdout.decode()
            key = text.rpartition(" ")[2].strip()
            return Point(
                "signature", "unknown", f"good, by the key {key}; --signers says whose keys are trusted"
            )
        people = _ssh("find-principals", "-s", str(signature), "-f", str(signers)).stdout.decode().split("\n")
        who = next((one.strip() for one in people if one.strip()), "")
        _ssh("verify", "-f", str(signers), "-I", who, "-n", NAMESPACE, "-s", str(signature), given=data)
    except CertificateError as error:
        return Point("signature", "bad", str(error))
    return Point("signature", "good", f"by {who}, whom {signers} names")


def _ssh(action: str, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    # No terminal: a key with a passphrase is an error, not a question.
    environment = {"PATH": _path(), "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}
    return _ran(("ssh-keygen", "-Y", action, *words), given, environment=environment)


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def _ran(
    command: tuple[str, ...], given: bytes, *, environment: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    if shutil.which(command[0]) is None:
        raise CertificateError(f"{command[0]} is not installed here")
    try:
        ran = subprocess.run(
            command, input=given, capture_output=True, timeout=_SSH_S, env=environment, start_new_session=True,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CertificateError(f"{command[0]} did not end within {_SSH_S:g} s") from error
    except (OSError, ValueError) as error:  # a NUL in a word, or words without end
        raise CertificateError(f"{command[0]} cannot be given these words: {error}") from error
    if ran.returncode:
        words = " ".join((ran.stderr or ran.stdout).decode(errors="replace").split())
        raise CertificateError(f"{command[0]}: {words[-300:] or f'exit status {ran.returncode}'}")
    return ran


_UNSAFE = re.compile(r"[^\w.'!?-]")


def file_name(certificate: Certificate) -> str:
    """Return the name of a certificate's file."""
    name = _UNSAFE.sub("_", certificate.declaration).lstrip(".").encode()[:150].decode(errors="ignore")
    return f"{name or '_'}-{_UNSAFE.sub('_', certificate.proof)[:64]}.certificate.json"


def doubt_on(made: Certificate, row: ProofRow) -> str:
    """Return why a certificate's proof is in doubt, by the log or by this version's advisories; "" if it is not."""
    kernels = recalled(made, shipped())
    return doubt_text(row.doubts) or (kernels.said if kernels.outcome == "bad" else "")


# ---- Its file


@dataclass(frozen=True, slots=True)
class Verified:
    file: Path
    """the certificate's"""
    holds: bool
    """nothing speaks against it, and a trusted signer or a log vouches for it"""
    points: list[Point]
    """the checks: `what` names the subject, `outcome` is `good`, `bad` or `unknown`, and `said` is the reason"""


def write_certificate(made: Certificate, folder: Path, *, key: Path | None) -> list[Path]:
    """Write a certificate into a folder, and with a key its signature beside it; return the files.

    Raises:
        CertificateError: it cannot be signed; nothing is written.
        OSError: a file cannot be written.
    """
    data, place = made.text(), folder / file_name(made)
    # Before any writing: a certificate without its configured signature is none of ours.
    signature = sign(data, key) if key else None
    folder.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    if signature is None:
        return [place]
    beside = place.with_name(f"{place.name}.sig")
    beside.write_bytes(signature)
    return [place, beside]


def verify_file(
    file: Path,
    *,
    signers: Path | None = None,
    log: Path | None = None,
    clone: Path | None = None,
    advisories: Path | None = None,
) -> tuple[Certificate, Verified]:
    """Check a certificate's file against the files named with it.

    Args:
        signers: the trusted keys, as OpenSSH's allowed_signers.
        log: an events.db to compare with.
        clone: a clone with the commit and the file.
        advisories: known faults of kernels, in place of the shipped file.

    Raises:
        CertificateError: the file is no certificate.
        FeedError: the advisories cannot be read.
        LogError: the log cannot be read.
        OSError: the file cannot be read.
    """
    with file.open("rb") as opened:
        data = opened.read(MOST_BYTES + 1)
    try:
        certificate = read_certificate(data)
    except CertificateError as error:
        raise CertificateError(f"{file}: {error}") from error
    points = [
        agrees(certificate),
        recalled(certificate, shipped() if advisories is None else read_feed(advisories)),
    ]
    signature = file.with_name(f"{file.name}.sig")
    if signature.is_file():
        points.append(signed_by(data, signature, signers))
    else:
        missing = f"there is no {signature.name} beside it"
        points.append(Point("signature", "unknown" if signers is None else "bad", missing))
    if log is not None:
        with LogReader.open(log) as reader:
            points.append(in_log(certificate, reader))
    if clone is not None:
        points.append(in_repository(certificate, clone))
    vouched = any(one.outcome == "good" and one.what in ("signature", "log") for one in points)
    return certificate, Verified(file, vouched and all(one.outcome != "bad" for one in points), points)
