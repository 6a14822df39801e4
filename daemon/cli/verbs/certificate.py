"""`everlean certificate`: write the gate's findings on a proof as a file for others, and check such a file.

Neither needs the daemon: one reads the log, a copy of it too, the other reads the file and the files named
beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import GROUPS, Call, ExitCode, files, verb
from daemon.cli.options import ProofId
from daemon.cli.render import fields, note, say, styled
from store.documents.lookup import proof_named
from store.documents.statements import statement_facts
from store.text import clean, counted

if TYPE_CHECKING:
    from pipeline.gate.certificate import Certificate, Verified

GROUPS["certificate"] = "Show or write the certificate of a verified proof, or verify one."


@dataclass(frozen=True, slots=True)
class Shown:
    certificate: dict[str, Any]
    """the file's content ([certificates](certificates.md))"""
    files: list[Path]
    """the files written; empty without `--out`"""
    in_doubt: str
    """why every kernel that vouches for the proof is in doubt; "" if one is not"""


@verb("certificate show", Shown)
def show(
    call: Call,
    proof: ProofId,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the file, and its signature, there.")
    ] = None,
) -> Answer:
    """Show a proof's certificate, or write it as a file."""
    from pipeline.gate.certificate import certificate_of, doubt_on, write_certificate

    with call.view() as database:
        row = proof_named(database, proof)
    with call.log() as log:
        certificate = certificate_of(log, row.proof)
    written: list[Path] = []
    if out is not None:
        key = call.settings.certificates.signing_key
        with files("name a folder that can be written with --out"):
            written = write_certificate(certificate, out, key=Path(key) if key else None)
    doubt = doubt_on(certificate, row)

    def write() -> None:
        for file in written:
            say(str(file))
        if not written:
            _show(certificate, doubt)
        elif doubt:
            note(f"everlean: the proof is not vouched for: {clean(doubt)}")

    return Answer(Shown(certificate.model_dump(mode="json"), written, doubt), write)


def _show(certificate: Certificate, doubt: str) -> None:
    material = certificate.material
    hashes = (
        f"{material.statement_sha256}  statement, with all below it",
        f"{material.file_sha256}  the file with the proof",
        f"{certificate.patch_sha256}  the patch",
        f"{material.modules_sha256}  {counted(material.modules, 'module')} below it",
        *(f"{one.sha256}  {clean(one.path)}" for one in material.inputs),
    )
    say(f"{styled(clean(certificate.declaration), 'bold')}  verified")
    fields(
        (
            *((name, clean(text)) for name, text in statement_facts(*material.statement_parts).items()),
            ("repository", clean(f"{certificate.repository} at {certificate.commit}")),
            ("file", clean(f"{certificate.path}, blob {certificate.blob}")),
            ("axioms", clean(", ".join(certificate.axioms)) or "none"),
            ("toolchain", clean(certificate.toolchain)),
            ("kernel", clean(f"replayed all that it rests on, by {', '.join(certificate.kernels)}")),
            ("not checked", ", ".join(certificate.not_checked)),
            ("verified", f"{certificate.verified_at}, event {certificate.event.seq} of the log"),
            ("sha256", "\n".join(hashes)),
            ("proof", certificate.proof),
            ("doubt", clean(doubt)),
        )
    )


@verb("certificate verify", "pipeline.gate.certificate:Verified")
def verify(
    call: Call,  # noqa: ARG001 - it asks nothing of a daemon
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate's file.")],
    signers: Annotated[
        Path | None,
        typer.Option(
            "--signers", metavar="FILE", help="Whose keys are trusted, as OpenSSH's allowed_signers."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="An events.db, or a copy, that must say the same."),
    ] = None,
    clone: Annotated[
        Path | None,
        typer.Option("--clone", metavar="DIR", help="A clone that must have the commit and the file."),
    ] = None,
    advisories: Annotated[
        Path | None,
        typer.Option(
            "--advisories", metavar="FILE", help="Known faults of kernels, in place of the shipped file."
        ),
    ] = None,
) -> Answer:
    """Verify a certificate's file, without daemon, database or Lean."""
    from pipeline.gate.certificate import verify_file

    with files("name a certificate's file"):
        certificate, result = verify_file(file, signers=signers, log=log, clone=clone, advisories=advisories)
    code = ExitCode.OK if result.holds else ExitCode.FAILURE
    return Answer(result, lambda: _tell(certificate, result), code)


def _tell(certificate: Certificate, report: Verified) -> None:
    what = f"{clean(certificate.declaration)} at {certificate.commit} of {clean(certificate.repository)}"
    for one in report.points:
        say(f"{one.outcome:8}{one.what}: {clean(one.said)}")
    if report.holds:
        say(f"The certificate holds: {what} is verified.")
    elif any(one.outcome == "bad" for one in report.points):
        note(f"everlean: the certificate does not hold: nothing here says that {what} is verified")
    else:
        note(
            "everlean: nothing shows that a trusted daemon issued the certificate, and anyone can write one: give"
            " --signers with the signer's key, or --log with the log that it is from"
        )
