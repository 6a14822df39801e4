"""A certificate as a project that others judge with tools of their own: leanprover/comparator, `lake comparator`.

The project is the commit, with the file that has the sorry as the challenge, the patched file as another module, which
is the solution, and the configuration that names both. Beside it stands a `formalization.yaml` as the Palomar registry
reads it, with what is known here; what only a person knows is marked TEMPLATE, as in the registry's own template.

Formats: comparator's README and `Config`, which `lake comparator` (Lean 4.35) has too; formalization.yaml v0.4 as
PalomarRegistry/PalomarTemplate fills it in.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from pipeline.gate.axioms import ALLOWED_AXIOMS
from pipeline.gate.certificate import (
    Certificate,
    CertificateError,
    agrees,
    blobs_of,
    in_repository,
    patched,
    tree_of,
)
from pipeline.lean.source.imports import module_of, read_lakefile_toml, source_folders

SOLUTION = "EverleanSolution"
CONFIGURATION, METADATA = "comparator.json", "formalization.yaml"
_TEMPLATE = "TEMPLATE: "


def export(certificate: Certificate, clone: Path, folder: Path) -> list[Path]:
    """Write the project into a new folder; return the files that it has beside the commit's own.

    Raises:
        CertificateError: the certificate does not agree with itself or the clone, or the project cannot be made of it.
        OSError: the folder cannot be written.
    """
    for point in (agrees(certificate), in_repository(certificate, clone)):
        if point.outcome != "good":
            raise CertificateError(point.said)
    if any(one in certificate.declaration for one in "«»") or not certificate.declaration.isprintable():
        raise CertificateError(
            f"comparator reads no quoted name such as {certificate.declaration}, and could not be asked about it"
        )
    if folder.exists():
        raise CertificateError(f"{folder}: is there already; name a new folder")
    folder.mkdir(parents=True)
    try:
        return _written(certificate, clone, folder)
    except (CertificateError, OSError, tarfile.TarError) as error:
        shutil.rmtree(folder)
        if isinstance(error, tarfile.TarError):
            raise CertificateError(f"the commit's files cannot be written: {error}") from error
        raise


def _written(certificate: Certificate, clone: Path, folder: Path) -> list[Path]:
    with tarfile.open(fileobj=BytesIO(tree_of(certificate, clone))) as tree:
        # Links that lead out, devices and absolute names are refused.
        tree.extractall(folder, filter="data")
    _require_same(folder, blobs_of(certificate, clone))
    taken = [name for name in (f"{SOLUTION}.lean", CONFIGURATION, METADATA) if (folder / name).exists()]
    if taken:
        raise CertificateError(f"the commit has a {', '.join(taken)} of its own, which would be replaced")
    lakefile = _with_solution(folder)
    made = {
        f"{SOLUTION}.lean": patched((folder / certificate.path).read_bytes(), certificate),
        CONFIGURATION: _configuration(certificate, folder),
        METADATA: _metadata(certificate),
        lakefile.name: lakefile.read_bytes() + _library(lakefile),
    }
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in made]


def _require_same(folder: Path, blobs: Mapping[str, str]) -> None:
    """Refuse a folder in which a file is not the commit's: git's attributes leave files out and change their text."""
    for path, blob in blobs.items():
        place = folder / path
        data = place.read_bytes() if place.is_file() else b""
        digest = hashlib.new("sha1" if len(blob) == 40 else "sha256", b"blob %d\0" % len(data) + data)
        if not place.is_file() or digest.hexdigest() != blob:
            raise CertificateError(f"git's attributes make another file of {path} where it is archived")


def _configuration(certificate: Certificate, folder: Path) -> bytes:
    return _json(
        {
            "challenge_module": module_of(certificate.path, source_folders(folder)),
            "solution_module": SOLUTION,
            "theorem_names": [certificate.declaration],
            "permitted_axioms": sorted(ALLOWED_AXIOMS),
            # comparator before Lean 4.34 reads none without it; with true it needs nanoda_bin.
            "enable_nanoda": False,
        }
    )


def _metadata(certificate: Certificate) -> bytes:
    """Return formalization.yaml, in the part of YAML that is JSON."""
    axioms = list(certificate.axioms)
    return _json(
        {
            "version": "v0.4",
            "project": {
                "name": f"{_TEMPLATE}name of the formalization",
                "description": f"{_TEMPLATE}what {certificate.declaration} says",
                "authors": [f"{_TEMPLATE}who wrote the statement and the project"],
                "license": f"{_TEMPLATE}the SPDX identifier of the project's licence",
                "responsible_maintainers": [f"{_TEMPLATE}who is responsible for the project"],
            },
            "classification": {
                "arxiv": [f"{_TEMPLATE}arXiv category such as math.LO"],
                "msc2020": [f"{_TEMPLATE}MSC 2020 identifier such as 03B35"],
            },
            "sources": [
                {
                    "title": f"{_TEMPLATE}what was formalized",
                    "relationship": f"{_TEMPLATE}formalizes, adapts, independently-proves, background or other",
                }
            ],
            "automation": {
                "methods": [{"method": "autonomous", "framework": "everlean"}],
                "notes": f"the proof of {certificate.declaration} was found by a program; the rest is the project's",
            },
            "status": {
                "scope": f"{_TEMPLATE}what is formalized, and what is not",
                "sorry_count": f"{_TEMPLATE}number of the project's sorries, the challenge's left out",
                "sorry_in_definitions": f"{_TEMPLATE}number of those in definitions",
                "axioms": axioms,
                "main_results": [
                    {
                        "declaration": certificate.declaration,
                        "file": f"{SOLUTION}.lean",
                        "sorry_count": 0,
                        "axioms": axioms,
                        "comparator_config": CONFIGURATION,
                    }
                ],
            },
            "fidelity": {"divergences": f"{_TEMPLATE}where the formalization differs from its sources"},
            "review": {"status": "unchecked"},
        }
    )


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def _with_solution(folder: Path) -> Path:
    """Return the lakefile to which the solution's library can be added, at the root of the package's sources."""
    file = next((one for one in (folder / "lakefile.lean", folder / "lakefile.toml") if one.is_file()), None)
    if file is None:
        raise CertificateError("the commit has no lakefile, so that lake cannot build it")
    text = file.read_text("utf-8", errors="replace")
    elsewhere = "srcDir" in text if file.suffix == ".lean" else "srcDir" in _toml(text)
    if elsewhere or SOLUTION in text:
        raise CertificateError(
            f"{file.name} has a srcDir or a {SOLUTION} of its own; add the library of the solution by hand"
        )
    return file


def _toml(text: str) -> Mapping[str, object]:
    try:
        return read_lakefile_toml(text)
    except ValueError as error:
        raise CertificateError(f"lakefile.toml cannot be read: {error}") from error


def _library(lakefile: Path) -> bytes:
    if lakefile.suffix == ".lean":
        return f"\nlean_lib {SOLUTION}\n".encode()
    return f'\n[[lean_lib]]\nname = "{SOLUTION}"\n'.encode()
