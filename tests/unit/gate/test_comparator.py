"""A certificate as a project for comparator: the commit, the solution as a module, and the documents' own keys."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

from pipeline.gate.certificate import Certificate, CertificateError, certificate_of
from pipeline.gate.comparator import export
from store.log.reader import LogReader
from tests.support.certified import PROOF, Judged, judge, record


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return judge(tmp_path_factory.mktemp("judged"))


@pytest.fixture(scope="module")
def certificate(judged: Judged, tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    state = record(tmp_path_factory.mktemp("state"), judged)
    with LogReader.open(state.state / "events.db") as log:
        return certificate_of(log, PROOF)


def test_the_project_has_the_challenge_as_committed_and_the_proof_as_another_module(
    certificate: Certificate, judged: Judged, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(certificate, judged.clone, out)
    assert "sorry" in (out / "A.lean").read_text("utf-8")
    solution = (out / "EverleanSolution.lean").read_text("utf-8")
    assert "exact ⟨h.2, h.1⟩" in solution
    assert "sorry" not in solution
    assert tomllib.loads((out / "lakefile.toml").read_text("utf-8"))["lean_lib"] == [
        {"name": "EverleanSolution"}
    ]
    assert json.loads((out / "comparator.json").read_text("utf-8")) == {
        "challenge_module": "A",
        "solution_module": "EverleanSolution",
        "theorem_names": ["Demo.mine"],
        "permitted_axioms": ["Classical.choice", "Quot.sound", "propext"],
        "enable_nanoda": False,
    }


def test_the_metadata_has_the_fields_of_the_schema_and_marks_what_only_a_person_knows(
    certificate: Certificate, judged: Judged, tmp_path: Path
) -> None:
    export(certificate, judged.clone, tmp_path / "out")
    read = yaml.safe_load((tmp_path / "out" / "formalization.yaml").read_text("utf-8"))
    # The schema's required fields (v0.4), and those that Palomar's template has nobody leave out.
    assert read["version"] == "v0.4"
    assert {"project", "sources", "automation", "review", "classification", "fidelity"} <= set(read)
    assert {"arxiv", "msc2020"} == set(read["classification"])
    assert {"title", "relationship"} <= set(read["sources"][0])
    assert {"scope", "sorry_count", "sorry_in_definitions", "axioms"} <= set(read["status"])
    assert {"name", "authors", "license", "description", "responsible_maintainers"} == set(read["project"])
    assert "TEMPLATE" in read["project"]["license"]
    assert read["automation"]["methods"][0]["method"] == "autonomous"
    (result,) = read["status"]["main_results"]
    assert (result["declaration"], result["sorry_count"]) == ("Demo.mine", 0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"commit": "0" * 40}, "checked at commit"),
        ({"declaration": "Demo.«a b»"}, "declaration"),
        ({"patch": "x"}, "the patch is not the one of its hash"),
    ],
)
def test_what_does_not_agree_is_not_written(
    change: dict[str, str], why: str, certificate: Certificate, judged: Judged, tmp_path: Path
) -> None:
    with pytest.raises(CertificateError, match=why):
        export(certificate.model_copy(update=change), judged.clone, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_git_s_attributes_leave_out_is_not_passed_over(
    certificate: Certificate, judged: Judged, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(judged.clone, clone)
    (clone / ".git" / "info").mkdir(exist_ok=True)
    (clone / ".git" / "info" / "attributes").write_text("lean-toolchain export-ignore\n", "utf-8")
    with pytest.raises(CertificateError, match="make another file of lean-toolchain"):
        export(certificate, clone, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_left_alone(
    certificate: Certificate, judged: Judged, tmp_path: Path
) -> None:
    with pytest.raises(CertificateError, match="is there already"):
        export(certificate, judged.clone, tmp_path)
