"""The mail of a proof: real git makes a commit of it, with the author, the subject and the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.place.paths import author_from_config
from daemon.results.mail import mail
from daemon.settings import ConfigError, load
from pipeline.gate.patch import PatchHeader, build_patch
from store.domain.identity import git_blob
from store.view.rows import ProofRow
from tests.support.daemon.remote import Remote
from tests.support.events import proof_row

AUTHOR = "Ünsorry Bot <bot@example.org>"
BEFORE = b"-- From here on\ntheorem t (p : Prop) : p \xe2\x86\x92 p := by\n  sorry\n\n-- end"
AFTER = BEFORE.replace(b"sorry", b"intro h\n  exact h")


def row_of(**changes: object) -> ProofRow:
    return proof_row(**{"declaration": "Demo.ℕ_t", "path": "Demo/A file.lean", **changes})


def recorded(row: ProofRow, before: bytes = BEFORE, after: bytes = AFTER) -> bytes:
    """What the gate writes."""
    header = PatchHeader(
        sorry=row.sorry,
        proof=row.proof,
        repository="github.com/demo/one",
        sha="1" * 40,
        declaration=row.declaration,
        prover="tactics, rung 0, job prove-1",
        toolchain="leanprover/lean4:v4.28.0",
        verified=row.state == "verified",
        grade="L1",
        kernel="leanchecker",
        axioms=("propext",),
        not_checked=(),
    )
    blobs = (git_blob(before, like="1" * 40), git_blob(after, like="1" * 40))
    return build_patch(header, path=row.path, before=before, after=after, blobs=blobs)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "repository")


def with_file(remote: Remote, path: str, data: bytes) -> str:
    (remote.path / path).parent.mkdir(exist_ok=True)
    (remote.path / path).write_bytes(data)
    remote.git("add", "--all")
    return remote.commit("first")


def take(remote: Remote, *arguments: str, text: bytes) -> None:
    patch = remote.path.parent / "proof.patch"
    patch.write_bytes(text)
    remote.git(*arguments, str(patch))


def test_git_am_makes_a_commit_with_the_author_the_subject_and_the_evidence(remote: Remote) -> None:
    row = row_of()
    with_file(remote, row.path, BEFORE)
    take(remote, "am", "--quiet", text=mail(row, recorded(row), AUTHOR))
    assert (remote.path / row.path).read_bytes() == AFTER
    assert remote.git("show", "--no-patch", "--format=%an <%ae>|%s|%cn") == f"{AUTHOR}|prove Demo.ℕ_t|Ada"
    lines = remote.git("show", "--no-patch", "--format=%b").splitlines()
    assert lines[0] == "A proof of Demo.ℕ_t, found by everlean and verified by Lean"
    for told in (
        "Grade: L1: kernel replayed all, by leanchecker; no second kernel",
        "Axioms: propext",
        f"Everlean-Commit: {'1' * 40}",
        "Everlean-Prover: tactics, rung 0, job prove-1",
        f"Everlean-Proof: {row.proof}",
    ):
        assert told in lines
    assert not any("changed" in line or line.startswith(("---", "From")) for line in lines)


def test_its_first_lines_read_as_git_format_patch_writes_them(remote: Remote) -> None:
    row = row_of()
    head, told, rest = mail(row, recorded(row), AUTHOR).decode().partition("\nMIME-Version: 1.0\n")
    assert told
    first, author, subject = head.split("\n")
    assert first.startswith("From ")
    assert first.endswith(" Mon Sep 17 00:00:00 2001")
    assert (author, subject) == (f"From: {AUTHOR}", "Subject: [PATCH] prove Demo.ℕ_t")
    stat = rest.split("\n---\n")[1].split("\n\n")[0].splitlines()
    assert stat == [" Demo/A file.lean | 3 ++-", " 1 file changed, 2 insertions(+), 1 deletion(-)"]


def test_a_file_with_crlf_is_taken_with_the_option_that_the_mail_names(remote: Remote) -> None:
    row, before, after = row_of(path="A.lean"), BEFORE.replace(b"\n", b"\r\n"), AFTER.replace(b"\n", b"\r\n")
    with_file(remote, row.path, before)
    text = mail(row, recorded(row, before, after), AUTHOR)
    assert b"`git am --keep-cr` takes this patch" in text
    take(remote, "am", "--quiet", "--keep-cr", text=text)
    assert (remote.path / row.path).read_bytes() == after
    assert "keep-cr" not in remote.git("show", "--no-patch", "--format=%B")


def test_a_candidate_says_so_in_the_commit_s_subject_too(remote: Remote) -> None:
    row = row_of(state="candidate")
    with_file(remote, row.path, BEFORE)
    text = mail(row, recorded(row), AUTHOR)
    assert "[PATCH candidate] Not verified: a candidate" in text.decode()
    take(remote, "am", "--quiet", text=text)
    title, _, body = remote.git("show", "--no-patch", "--format=%B").partition("\n\n")
    assert title == "Not verified: a candidate for a proof of Demo.ℕ_t"
    assert "it is not verified" in body


def test_a_name_from_which_a_forge_would_make_a_call_makes_none(remote: Remote) -> None:
    row = row_of(declaration="Demo.@ada fixes #1")
    subject = mail(row, recorded(row), AUTHOR).decode().split("\n")[2]
    assert subject == "Subject: [PATCH] prove Demo._ada_fixes__1"


@pytest.mark.parametrize("between", [0, 9], ids=["neighbours", "far apart"])
def test_git_takes_several_of_one_file_one_after_the_other(remote: Remote, between: int) -> None:
    """Each is made on the same version. Of neighbours each one's context is changed by the other: --3way, which knows
    that version by the patch's index line, takes these as well."""
    names, rest = (b"t1", b"t2", b"t3"), b"-- far\n" * between
    before = b"".join(b"theorem %s : True := by\n  sorry\n\n%s" % (name, rest) for name in names)
    with_file(remote, "A.lean", before)
    for name in (b"t1", b"t3", b"t2"):
        old = name + b" : True := by\n  sorry"
        after = before.replace(old, old.replace(b"sorry", b"skip\n  skip\n  trivial"))
        row = row_of(declaration=name.decode(), path="A.lean")
        take(remote, "am", "--quiet", "--3way", text=mail(row, recorded(row, before, after), AUTHOR))
    assert (remote.path / "A.lean").read_bytes() == before.replace(b"sorry", b"skip\n  skip\n  trivial")
    assert remote.git("log", "--format=%s", "-3").splitlines() == ["prove t2", "prove t3", "prove t1"]


def test_the_author_is_the_configuration_s_and_one_that_git_would_not_take_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[daemon]\nstate_dir = "state"\nauthor = "{AUTHOR}"\n')
    assert load(config).daemon.author == author_from_config(config) == AUTHOR
    for wrong in ("", "bot@example.org", "Bot <bot>", "Bot <a@b.c> <d@e.f>", "Bot\\nX <a@b.c>", " <a@b.c>"):
        config.write_text(f'[daemon]\nstate_dir = "state"\nauthor = "{wrong}"\n')
        with pytest.raises(ConfigError, match=r"is no author; write a name and an e-mail address"):
            load(config)
        assert author_from_config(config) == "everlean <everlean@localhost>"
