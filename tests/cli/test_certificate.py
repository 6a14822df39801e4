"""`everlean certificate`: made of the log alone, signed with OpenSSH, and refused in every way it could be forged."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from daemon.cli.app import build, exit_code_of
from pipeline.gate.certificate import (
    Certificate,
    CertificateError,
    agrees,
    certificate_of,
    in_log,
    read_certificate,
)
from store.events.proofs import ProofDoubted, ProofRejected
from store.log.reader import LogReader
from tests.support.certified import PROOF, Judged, as_json, judge, record
from tests.support.events import proof_checked
from tests.support.reference import DOCS
from tests.support.state_folder import Answer, StateFolder

Edit = Callable[[dict[str, Any]], None]
APP = build(("certificate",))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    return judge(tmp_path_factory.mktemp("judged"))


@pytest.fixture(scope="module")
def honest(judged: Judged, tmp_path_factory: pytest.TempPathFactory) -> tuple[StateFolder, Certificate]:
    state = record(tmp_path_factory.mktemp("honest"), judged)
    with LogReader.open(state.state / "events.db") as log:
        return state, certificate_of(log, PROOF)


@pytest.fixture
def state(judged: Judged, tmp_path: Path) -> StateFolder:
    """A folder of the test's own, for those that write."""
    return record(tmp_path, judged)


@pytest.fixture
def file(honest: tuple[StateFolder, Certificate], tmp_path: Path) -> Path:
    """The honest certificate's file."""
    place = tmp_path / "one.certificate.json"
    place.write_bytes(honest[1].text())
    return place


@pytest.fixture
def log(honest: tuple[StateFolder, Certificate]) -> Path:
    """The log that it is from."""
    return honest[0].state / "events.db"


def command(*words: str | Path, state: StateFolder | None = None) -> Answer:
    """Run the verb in this process."""
    config = "/nonexistent" if state is None else str(state.config)
    result = CliRunner().invoke(APP, ["certificate", *map(str, words)], env={"EVERLEAN_CONFIG": config})
    if isinstance(result.exception, Exception) and (code := exit_code_of(result.exception)) is not None:
        return Answer(int(code), result.stdout, f"{result.stderr}{result.exception}")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def written(state: StateFolder) -> Path:
    answer = command("show", PROOF, "--out", state.root / "out", state=state)
    assert answer.code == 0, answer.err
    return Path(answer.out.splitlines()[0])


def verify(file: Path, *options: str | Path) -> Answer:
    return command("verify", file, *options)


def edited(file: Path, edit: Edit) -> Path:
    document = as_json(file)
    edit(document)
    file.write_bytes(in_our_words(document))
    return file


def in_our_words(document: dict[str, Any]) -> bytes:
    """As everlean writes a certificate."""
    return json.dumps(document, indent=2).encode() + b"\n"


def key_pair(folder: Path, name: str) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)], check=True
    )
    return folder / name


def trusted(key: Path, who: str = "daemon@example.org") -> Path:
    signers = key.with_name("allowed_signers")
    signers.write_text(f"{who} {key.with_suffix('.pub').read_text('utf-8')}", "utf-8")
    return signers


@pytest.fixture
def signed(judged: Judged, tmp_path: Path, ssh_keygen: None) -> tuple[StateFolder, Path, Path]:
    state = record(tmp_path, judged)
    key = key_pair(state.root, "key")
    state.config.write_text(state.config.read_text("utf-8") + f'[certificates]\nsigning_key = "{key}"\n')
    return state, written(state), trusted(key)


def test_a_certificate_says_what_was_proved_on_what_and_who_replayed_it(file: Path, judged: Judged) -> None:
    document = as_json(file)
    assert document["verdict"] == "verified"
    assert (document["declaration"], document["commit"]) == ("Demo.mine", judged.found.sha)
    assert document["material"]["statement"] == "(p q : Prop) (h : p ∧ q) : q ∧ p"
    assert document["material"]["lean"]["name"] == "Demo.mine"
    assert (document["grade"], document["kernels"]) == ("L1", ["leanchecker of v4.34.1"])
    assert document["patch_sha256"] == hashlib.sha256(document["patch"].encode()).hexdigest()
    assert {one["path"] for one in document["material"]["inputs"]} == {"lean-toolchain", "lakefile.toml"}


def test_both_statements_are_shown_and_what_lean_did_not_say_is_unknown(
    state: StateFolder, judged: Judged, tmp_path: Path
) -> None:
    shown = command("show", PROOF, state=state).out
    assert "(p q : Prop) (h : p ∧ q) : q ∧ p" in shown
    assert re.search(r"Lean's statement\s+Demo.mine : A\n", shown)
    assert judged.verified.material is not None
    (tmp_path / "silent").mkdir()
    silent = record(
        tmp_path / "silent",
        judged,
        material=judged.verified.material.model_copy(update={"lean": None}),
    )
    assert "what judged the proof did not write it" in command("show", PROOF, state=silent).out


def test_the_same_log_gives_the_same_bytes_and_show_says_it_in_words(state: StateFolder) -> None:
    first = written(state).read_bytes()
    assert written(state).read_bytes() == first
    shown = command("show", PROOF, state=state)
    assert "Demo.mine  verified" in shown.out
    assert "replayed all that it rests on, by leanchecker" in shown.out
    assert command("show", PROOF, "--json", state=state).json["certificate"] == json.loads(first)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"grade": "L0", "kernel": ""}, "L0: no kernel replayed all"),
        ({"material": None}, "no hashes of what was checked are recorded"),
        ({"checks": ()}, "no check of"),
    ],
)
def test_what_no_kernel_replayed_whole_has_no_certificate(
    changes: dict[str, Any], why: str, judged: Judged, tmp_path: Path
) -> None:
    state = record(tmp_path, judged, **changes)
    with LogReader.open(state.state / "events.db") as log, pytest.raises(CertificateError, match=why):
        certificate_of(log, PROOF)


def test_a_file_alone_proves_nothing_since_anyone_can_write_it(file: Path) -> None:
    answer = verify(file)
    assert answer.code == 1
    assert "unknown signature: there is no" in answer.out
    assert (
        "nothing shows that a trusted daemon issued the certificate, and anyone can write one" in answer.err
    )


def test_the_log_vouches_for_its_own_certificate_and_the_clone_for_the_file(
    file: Path, log: Path, judged: Judged
) -> None:
    answer = verify(file, "--log", log, "--clone", judged.clone)
    assert answer.code == 0, answer.out + answer.err
    assert "The certificate holds: Demo.mine" in answer.out
    assert [line.split()[0] for line in answer.out.splitlines()[:-1]] == [
        "good",
        "good",
        "unknown",
        "good",
        "good",
    ]


def test_the_log_says_that_a_proof_was_rejected_later(state: StateFolder, judged: Judged) -> None:
    file = written(state)
    state.add(f"proof:{PROOF}", ProofRejected(
        proof=PROOF, sorry=judged.found.sorry, step="kernel", reason="a trap", checks=(), conditional_on=(),
        job="check-2",
    ))  # fmt: skip
    state.write()
    answer = verify(file, "--log", state.state / "events.db")
    assert answer.code == 1
    assert "the proof was rejected later: a trap" in answer.out
    assert "it was rejected" in command("show", PROOF, state=state).err


def test_the_log_says_that_kernels_did_not_agree_later(state: StateFolder, judged: Judged) -> None:
    file = written(state)
    for disagreement in ("", "kernels do not agree: one refuses"):
        changes = {"disagreement": disagreement, "patch": judged.verified.patch}
        state.add(f"proof:{PROOF}", proof_checked(judged.found).model_copy(update=changes))
        state.write()
        answer = verify(file, "--log", state.state / "events.db")
        assert (answer.code, "in doubt later: kernels do not agree" in answer.out) == (
            (1, True) if disagreement else (0, False)
        )
    assert "it is not verified: kernels do not agree" in command("show", PROOF, state=state).err


def test_a_fault_that_is_found_later_recalls_a_certificate(file: Path, log: Path) -> None:
    feed = file.with_name("advisories.toml")
    feed.write_text(
        '[[advisory]]\nid = "lean4#1"\npublished = 2027-01-01\ntitle = "False"\nsource = "https://example.org"\n'
        "fixed.leanchecker = []\n",
        "utf-8",
    )
    answer = verify(file, "--log", log, "--advisories", feed)
    assert answer.code == 1
    assert "bad     kernels: in doubt, since every one has a known fault: lean4#1: False" in answer.out


def test_a_doubt_in_the_log_reaches_who_shows_or_verifies_a_certificate(
    state: StateFolder, judged: Judged
) -> None:
    file, log = written(state), state.state / "events.db"
    assert "IN DOUBT" not in command("show", PROOF, state=state).out
    for advisories in (("own#1",), ()):
        state.add(f"proof:{PROOF}", ProofDoubted(
            proof=PROOF, sorry=judged.found.sorry, job=judged.verified.job, advisories=advisories, reason="a fault",
        ))  # fmt: skip
        state.write()
        answer = verify(file, "--log", log)
        assert (answer.code, "put in doubt later: a fault" in answer.out) == (
            len(advisories),
            bool(advisories),
        )
        assert ("IN DOUBT: own#1" in command("show", PROOF, state=state).out) == bool(advisories)
        said = command("show", PROOF, "--out", state.root / "out", state=state)
        assert ("IN DOUBT: own#1" in said.err) == bool(advisories)
        assert command("show", PROOF, "--json", state=state).json["in_doubt"] == (
            "IN DOUBT: own#1" if advisories else ""
        )


def test_a_signature_is_openssh_s_and_is_checked_without_us(signed: tuple[StateFolder, Path, Path]) -> None:
    _, file, signers = signed
    answer = verify(file, "--signers", signers)
    assert answer.code == 0, answer.out + answer.err
    assert "good    signature: by daemon@example.org" in answer.out
    result = subprocess.run(
        ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "daemon@example.org", "-n",
         "everlean-certificate", "-s", f"{file}.sig"],
        input=file.read_bytes(), capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_a_good_signature_of_an_unknown_key_is_no_witness(signed: tuple[StateFolder, Path, Path]) -> None:
    state, file, _ = signed
    answer = verify(file)
    assert answer.code == 1
    assert "unknown signature: good, by the key SHA256:" in answer.out
    stranger = trusted(key_pair(state.root, "stranger"))
    assert "bad     signature" in verify(file, "--signers", stranger).out


def test_a_signature_for_another_purpose_or_of_other_bytes_is_refused(
    signed: tuple[StateFolder, Path, Path], tmp_path: Path
) -> None:
    state, original, signers = signed
    key, file = state.root / "key", tmp_path / original.name
    signature = Path(shutil.copy(original, file)).with_name(f"{file.name}.sig")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "git", file], check=True)
    assert "bad     signature" in verify(file, "--signers", signers).out
    signature.write_text("no signature")
    assert "bad     signature" in verify(file, "--signers", signers).out
    signature.unlink()
    answer = verify(file, "--signers", signers)
    assert (answer.code, "bad     signature: there is no" in answer.out) == (1, True)


@pytest.mark.usefixtures("ssh_keygen")
def test_a_key_that_cannot_sign_leaves_no_certificate(state: StateFolder) -> None:
    state.config.write_text(state.config.read_text("utf-8") + '[certificates]\nsigning_key = "missing"\n')
    answer = command("show", PROOF, "--out", "out", state=state)
    assert answer.code == 1
    assert "ssh-keygen -t ed25519" in answer.err
    assert not (state.root / "out").exists()


def other_statement(document: dict[str, Any]) -> None:
    document["declaration"] = "Demo.riemann"


def other_patch(document: dict[str, Any]) -> None:
    document["patch"] = document["patch"].replace("⟨h.2, h.1⟩", "⟨h.1, h.2⟩")


def other_patch_and_hash(document: dict[str, Any]) -> None:
    other_patch(document)
    document["patch_sha256"] = hashlib.sha256(document["patch"].encode()).hexdigest()


def weaker_grade(document: dict[str, Any]) -> None:
    document["grade"] = "L0"


def no_kernel(document: dict[str, Any]) -> None:
    document["kernels"] = []


def an_axiom(document: dict[str, Any]) -> None:
    document["axioms"] = ["sorryAx"]


def a_failed_check(document: dict[str, Any]) -> None:
    document["checks"][-1]["verdict"] = "failed"


def another_file(document: dict[str, Any]) -> None:
    document["material"]["file_sha256"] = "0" * 64


def a_field_more(document: dict[str, Any]) -> None:
    document["trust"] = "me"


def a_word_for_a_number(document: dict[str, Any]) -> None:
    document["event"]["seq"] = "first"


FORGERIES: dict[Edit, str] = {
    other_statement: "the patch says Everlean-Declaration 'Demo.mine', not 'Demo.riemann'",
    other_patch: "the patch is not the one of its hash",
    other_patch_and_hash: "event 2 of the log says another patch",
    weaker_grade: "it is no certificate: grade",
    no_kernel: "it names no kernel",
    an_axiom: "the proof rests on sorryAx",
    a_failed_check: "failed",
    another_file: "the file that was checked is not the one of its hash",
    a_field_more: "it is no certificate: trust",
    a_word_for_a_number: "it is no certificate: event.seq",
}


@pytest.mark.parametrize("edit", FORGERIES, ids=lambda edit: edit.__name__)
def test_a_forged_certificate_is_refused_with_the_reason(
    edit: Edit, honest: tuple[StateFolder, Certificate]
) -> None:
    state, certificate = honest
    document = json.loads(certificate.text())
    edit(document)
    said = objections(in_our_words(document), state)
    assert FORGERIES[edit] in said


def objections(data: bytes, state: StateFolder) -> str:
    """What is said against a file's bytes, beside the log that it claims to be from."""
    try:
        forged = read_certificate(data)
    except CertificateError as error:
        return str(error)
    with LogReader.open(state.state / "events.db") as log:
        points = [agrees(forged), in_log(forged, log)]
    assert points[1].outcome == "bad"
    return "; ".join(one.said for one in points)


def test_a_patch_that_was_edited_with_its_hash_does_not_make_the_checked_file(
    file: Path, judged: Judged
) -> None:
    answer = verify(edited(file, other_patch_and_hash), "--clone", judged.clone)
    assert answer.code == 1
    assert "bad     repository: the patch makes a file with sha256" in answer.out


def an_option(document: dict[str, Any]) -> None:
    document["path"] = "--output=/tmp/x"


def no_commit(document: dict[str, Any]) -> None:
    document["commit"] = "0" * 40


def a_nul(document: dict[str, Any]) -> None:
    document["path"] = "A\0.lean"


def a_nul_in_an_input(document: dict[str, Any]) -> None:
    document["material"]["inputs"][0]["path"] = "a\0b"


def a_word_without_end(document: dict[str, Any]) -> None:
    document["path"] = "A" * 3_000_000


def more_inputs_than_there_are(document: dict[str, Any]) -> None:
    document["material"]["inputs"] *= 50


@pytest.mark.parametrize(
    "edit", [an_option, no_commit, a_nul, a_nul_in_an_input, a_word_without_end, more_inputs_than_there_are]
)
def test_what_a_certificate_names_is_no_command_of_git_and_nothing_that_it_chokes_on(
    edit: Edit, file: Path, judged: Judged
) -> None:
    answer = verify(edited(file, edit), "--clone", judged.clone)
    assert answer.code == 1
    assert "bad     repository" in answer.out


def test_a_key_that_is_there_twice_makes_no_certificate(file: Path, log: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"{\n", b'{\n  "declaration": "Demo.riemann",\n', 1))
    answer = verify(file, "--log", log)
    assert (answer.code, answer.out) == (1, "")
    assert "its bytes are not those that everlean writes" in answer.err


def test_an_object_that_a_clone_puts_in_the_place_of_another_is_not_the_commit_s(
    file: Path, judged: Judged, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(judged.clone, clone)
    git = ("git", "-C", str(clone), "-c", "user.name=t", "-c", "user.email=t@example.org")
    tree = (
        subprocess.run([*git, "mktree"], input=b"", capture_output=True, check=True).stdout.decode().strip()
    )
    other = subprocess.run([*git, "commit-tree", "-m", "x", tree], capture_output=True, check=True)
    words = ["replace", other.stdout.decode().strip(), judged.found.sha]
    subprocess.run([*git, *words], check=True)

    def edit(document: dict[str, Any]) -> None:
        document["commit"] = words[1]

    answer = verify(edited(file, edit), "--clone", clone)
    assert "bad     repository" in answer.out


def test_a_name_with_control_characters_writes_nothing_to_the_terminal(file: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["declaration"] = "Demo.\x1b[2Jmine\nverified\u202e"

    answer = verify(edited(file, edit))
    assert answer.code == 1
    assert not {"\x1b", "\u202e"} & set(answer.out + answer.err)
    assert all(line.split()[0] in ("good", "bad", "unknown") for line in answer.out.splitlines())


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b"[1]", b"null", b'{"certificate": 2}'])
def test_what_is_no_certificate_is_named_as_such(data: bytes) -> None:
    with pytest.raises(CertificateError, match="it is no certificate"):
        read_certificate(data)


@pytest.mark.usefixtures("ssh_keygen")
def test_the_commands_of_the_page_do_what_it_says(state: StateFolder, judged: Judged) -> None:
    page = (DOCS / "certificates.md").read_text("utf-8")
    commands = [line[2:] for line in page.splitlines() if line.startswith("$ ")]
    shutil.copytree(judged.clone, state.root / "project")
    shutil.copy(state.state / "events.db", state.root / "events.db")
    config = state.config.read_text("utf-8")
    # The key first, so that what is written is signed.
    for command in sorted(commands, key=lambda command: not command.startswith("ssh-keygen")):
        words = shlex.split(command)
        if words[0] == "ssh-keygen":
            subprocess.run(words, check=True, cwd=state.root)
            state.config.write_text(config + '[certificates]\nsigning_key = "certificate-key"\n', "utf-8")
            trusted(state.root / "certificate-key")
            continue
        file = next((state.root / "certificates").glob("*.json"), Path("FILE"))
        options = {"ID": PROOF, "FILE": str(file)}
        answer = state.everlean(*(options.get(word, word) for word in words[1:]))
        assert answer.code == 0, (command, answer.out, answer.err)
