"""`everlean certificate`: what the gate found of a proof, as a file that others can check; and checking such a file.

Neither needs the daemon: one reads the log, a copy of it too, the other reads the file and what is named beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.completion import PROOFS, ids
from daemon.cli.context import CliError, Config, ExitCode, Json, locate, view
from daemon.cli.render import emit_json, fields, note, say, styled
from store.documents.lookup import one_match
from store.text import clean, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.gate.certificate import Certificate, Point

ProofId = Annotated[
    str, typer.Argument(metavar="ID", help="A proof's id, or its beginning.", autocompletion=ids(PROOFS))
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write the file, and its signature, there.")
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A certificate's file.")]
Signers = Annotated[
    Path | None,
    typer.Option("--signers", metavar="FILE", help="Whose keys are trusted, as OpenSSH's allowed_signers."),
]
LogFile = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="An events.db, or a copy, that must say the same."),
]
Clone = Annotated[
    Path | None,
    typer.Option("--clone", metavar="DIR", help="A clone that must have the commit and the file."),
]

Feed = Annotated[
    Path | None,
    typer.Option(
        "--advisories", metavar="FILE", help="Known faults of kernels, in place of the shipped file."
    ),
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Show or write the certificate of a verified proof, or verify one.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("show", help="Show a proof's certificate, or write it as a file.")(show)
    group.command("verify", help="Verify a certificate's file; no daemon, no database, no Lean.")(verify)
    group.command("export", help="Write a project on which `lake comparator` judges the proof.")(export)
    app.add_typer(group, name="certificate")


@dataclass(frozen=True, slots=True)
class Shown:
    certificate: dict[str, Any]
    """the file's content ([certificates](certificates.md))"""
    files: list[Path]
    """the files written; empty without `--out`"""
    in_doubt: str
    """why every kernel that vouches for the proof is in doubt; "" where one is not"""


def show(proof: ProofId, out: Out = None, config: Config = None, as_json: Json = False) -> None:
    from pipeline.gate.certificate import CertificateError, certificate_of, doubt_on
    from store.log.reader import LogReader
    from store.view import queries

    instance = locate(config)
    with view(instance) as database:
        row = one_match(queries.proofs_by_prefix(database, proof), proof, what="proof", key="proof")
    try:
        with LogReader.open(instance.paths.events_db) as log:
            made = certificate_of(log, row.proof)
        files = [] if out is None else _write(made, out, instance.config)
    except CertificateError as error:
        raise CliError(f"no certificate: {clean(str(error))}") from error
    doubt = doubt_on(made, row)
    if as_json:
        emit_json(Shown(made.model_dump(mode="json"), files, doubt), instance.head)
        return
    for file in files:
        say(str(file))
    if not files:
        _show(made, doubt)
    elif doubt:
        note(f"everlean: the proof is not vouched for: {clean(doubt)}")


def _write(made: Certificate, folder: Path, config: Path) -> list[Path]:
    from daemon.cli.config import loaded
    from pipeline.gate.certificate import file_name, sign

    key = loaded(config).certificates.signing_key
    data, place = made.text(), folder / file_name(made)
    # Before anything is written: a certificate without the signature that is configured is none of ours.
    signature = sign(data, Path(key)) if key else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        if signature is None:
            return [place]
        beside = place.with_name(f"{place.name}.sig")
        beside.write_bytes(signature)
    except OSError as error:
        raise CliError(
            f"{error.filename}: {error.strerror or error}; name a folder that can be written with --out"
        ) from error
    return [place, beside]


def _show(made: Certificate, doubt: str) -> None:
    material = made.material
    say(f"{styled(clean(made.declaration), 'bold')}  verified")
    fields(
        (
            ("statement", clean(material.statement)),
            ("repository", clean(f"{made.repository} at {made.commit}")),
            ("file", clean(f"{made.path}, blob {made.blob}")),
            ("axioms", clean(", ".join(made.axioms)) or "none"),
            ("toolchain", clean(made.toolchain)),
            ("kernel", clean(f"replayed all that it rests on, by {', '.join(made.kernels)}")),
            ("not checked", ", ".join(made.not_checked)),
            ("verified", f"{made.verified_at}, event {made.event.seq} of the log"),
            ("sha256", _hashes(made)),
            ("proof", made.proof),
            ("doubt", clean(doubt)),
        )
    )


def _hashes(made: Certificate) -> str:
    material = made.material
    below = f"{counted(material.modules, 'module')} below it"
    lines = [
        f"{material.statement_sha256}  statement, with what it rests on",
        f"{material.file_sha256}  the file with the proof",
        f"{made.patch_sha256}  the patch",
        f"{material.modules_sha256}  {below}",
        *(f"{one.sha256}  {clean(one.path)}" for one in material.inputs),
    ]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Verified:
    file: Path
    """the certificate's"""
    holds: bool
    """nothing speaks against it, and a trusted signer or a log vouches for it"""
    points: list[Point]
    """the checks: `what` was checked, its `outcome` (`good`, `bad` or `unknown`), and the reason (`said`)"""


def verify(
    file: File,
    signers: Signers = None,
    log: LogFile = None,
    clone: Clone = None,
    advisories: Feed = None,
    as_json: Json = False,
) -> None:
    data, certificate = _read(file)
    points = list(
        _points(certificate, data, file, signers=signers, log=log, clone=clone, advisories=advisories)
    )
    vouched = any(one.outcome == "good" and one.what in ("signature", "log") for one in points)
    holds = vouched and all(one.outcome != "bad" for one in points)
    if as_json:
        emit_json(Verified(file, holds, points))
    else:
        _tell(certificate, points, holds=holds)
    if not holds:
        raise typer.Exit(ExitCode.FAILURE)


def _read(file: Path) -> tuple[bytes, Certificate]:
    from pipeline.gate.certificate import MOST_BYTES, CertificateError, read_certificate

    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        return data, read_certificate(data)
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}; name a certificate's file") from error
    except CertificateError as error:
        raise CliError(f"{file}: {clean(str(error))}") from error


@dataclass(frozen=True, slots=True)
class Written:
    files: list[Path]
    """the files added to those of the commit"""


def export(
    file: File,
    clone: Annotated[Path, typer.Option("--clone", metavar="DIR", help="A clone that has the commit.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new folder.")],
    as_json: Json = False,
) -> None:
    from pipeline.gate import comparator
    from pipeline.gate.certificate import CertificateError

    _, certificate = _read(file)
    try:
        files = comparator.export(certificate, clone, out)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror or error}; check the path") from error
    except CertificateError as error:
        raise CliError(f"{file}: {clean(str(error))}") from error
    if as_json:
        emit_json(Written(files))
        return
    for one in files:
        say(str(one))
    note(
        "everlean: formalization.yaml has TEMPLATE where only a person knows; `lake comparator` does not read it"
    )


def _points(
    certificate: Certificate,
    data: bytes,
    file: Path,
    *,
    signers: Path | None,
    log: Path | None,
    clone: Path | None,
    advisories: Path | None,
) -> Iterator[Point]:
    from pipeline.gate.advisories import FeedError, read_feed, shipped
    from pipeline.gate.certificate import Point, agrees, in_log, in_repository, recalled, signed_by
    from store.log.reader import LogReader

    yield agrees(certificate)
    try:
        yield recalled(certificate, shipped() if advisories is None else read_feed(advisories))
    except FeedError as error:
        raise CliError(str(error)) from error
    signature = file.with_name(f"{file.name}.sig")
    if signature.is_file():
        yield signed_by(data, signature, signers)
    else:
        missing = f"there is no {signature.name} beside it"
        yield Point("signature", "unknown" if signers is None else "bad", missing)
    if log is not None:
        with LogReader.open(log) as reader:
            yield in_log(certificate, reader)
    if clone is not None:
        yield in_repository(certificate, clone)


def _tell(certificate: Certificate, points: list[Point], *, holds: bool) -> None:
    what = f"{clean(certificate.declaration)} at {certificate.commit} of {clean(certificate.repository)}"
    for one in points:
        say(f"{one.outcome:8}{one.what}: {clean(one.said)}")
    if holds:
        say(f"The certificate holds: {what} is verified.")
    elif any(one.outcome == "bad" for one in points):
        note(f"everlean: the certificate does not hold: nothing here says that {what} is verified")
    else:
        note(
            "everlean: nothing shows that a trusted daemon issued the certificate, and anyone can write one: give"
            " --signers with the signer's key, or --log with the log that it is from"
        )
