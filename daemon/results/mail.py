"""Make a mail for `git am` of a proof: an author, a subject, the evidence as the message, the diff.

The log keeps the gate's text: the evidence above the diff. The author is this installation's ([daemon]
author), so the mail is made when a patch leaves. It has no date: git takes the present. Bytes of the diff
stay as they are, and `git apply` takes the mail as well. Standard library only: `everlean proofs patch`
starts at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from store.documents.grades import IN_DOUBT, doubt_reason, doubt_text
from store.log.reader import LogReader
from store.text import clean
from store.view.rows import ProofRow

_LONGEST_TITLE = 200
_FORMAT = "1"
"""Changes with the output of `mail`, so that files of an earlier version are written anew."""
_DIFF = re.compile(rb"^(?:diff --git |--- a/)", flags=re.MULTILINE)
_HUNK = re.compile(rb"^@@ -.*\n", flags=re.MULTILINE)
_CRLF_NOTE = "The file has CRLF line ends: `git am --keep-cr` takes this patch.\n\n"


class NoPatchError(Exception):
    """A proof has no patch, for the reason in the message."""


def patch_mail(row: ProofRow, log: LogReader, author: str) -> bytes:
    """Return the patch of a proof as a mail.

    Raises:
        NoPatchError: it has none.
    """
    if row.patch_sha256 is None:
        why = f": {clean(row.reason)}" if row.reason else ""
        raise NoPatchError(
            f"proof {row.proof} has no patch, it is {row.state}{why}; `everlean proofs show {row.proof}` says more"
        )
    return mail(row, log.blob(row.patch_sha256), author)


def title_of(row: ProofRow) -> str:
    """Return the subject of a proof's commit or pull request; that of an unverified one begins with it.

    A forge turns "@name" and "fixes #1" into calls, and a Lean name may hold either.
    """
    name = "".join("_" if one in "@# " or not one.isprintable() else one for one in row.declaration)
    title = f"prove {name}" if row.state == "verified" else f"Not verified: a candidate for a proof of {name}"
    return title[:_LONGEST_TITLE]


def message_of(row: ProofRow, text: bytes) -> str:
    """Return the evidence above a recorded patch's diff, as the body of a commit's message."""
    message = text[: _start_of_diff(text)].decode("utf-8", errors="replace").strip()
    if row.doubts:
        message = f"{in_doubt(row)}\n\n{message}".rstrip()
    return f"{message}\n"


def messages_of(rows: Iterable[ProofRow], log: LogReader) -> dict[str, str]:
    """Return the commit messages of the proofs with a patch, by proof."""
    return {
        row.proof: message_of(row, log.blob(row.patch_sha256)) for row in rows if row.patch_sha256 is not None
    }


def in_doubt(row: ProofRow) -> str:
    """Return the reason of a doubt: all accepting kernels have known faults, or kernels disagree."""
    why = doubt_reason(row.state)
    return f"{doubt_text(row.doubts)}. {why[0].upper()}{why[1:]}; it was not refuted, and has to be checked again."


def mail_id(row: ProofRow, author: str) -> str:
    """Return the 40 digits in the mail's first line: they change with the recorded patch, its author and its
    doubts."""
    doubts = "".join(f" {one}" for one in row.doubts)
    return hashlib.sha256(f"{_FORMAT} {row.patch_sha256} {author}{doubts}".encode()).hexdigest()[:40]


def first_line(row: ProofRow, author: str) -> bytes:
    """Return the line by which git recognises a patch in a mail, with git's one date for all."""
    return f"From {mail_id(row, author)} Mon Sep 17 00:00:00 2001\n".encode()


def mail(row: ProofRow, text: bytes, author: str) -> bytes:
    """Return the mail of a proof; `text` is its recorded patch."""
    kind = ("" if row.state == "verified" else f" {row.state}") + (f" {IN_DOUBT}" if row.doubts else "")
    head = (
        f"From: {author}\n"
        f"Subject: [PATCH{kind}] {title_of(row)}\n"
        "MIME-Version: 1.0\n"
        "Content-Type: text/plain; charset=UTF-8\n"
        "Content-Transfer-Encoding: 8bit\n"
        "\n"
        f"{message_of(row, text)}"
        "---\n"
    )
    diff = text[_start_of_diff(text) :]
    note = _CRLF_NOTE.encode() if b"\r\n" in diff else b""
    return first_line(row, author) + head.encode() + note + _stat(row.path, diff) + diff


def series_mail(one: Mapping[str, str], author: str, number: str) -> bytes:
    """Return one patch of a bump's series as a mail for `git am`, from {"title", "message", "diff"}."""
    diff = one["diff"].encode("utf-8", "surrogateescape")
    title = " ".join("".join(c if c.isprintable() else "?" for c in one["title"]).split())[:_LONGEST_TITLE]
    # A line of the message that looks like a diff or its end would be taken for one.
    lines = ("".join(c if c.isprintable() else "?" for c in line) for line in one["message"].splitlines())
    message = "\n".join(f"  {line}" for line in lines)
    head = (
        f"From {hashlib.sha256(diff).hexdigest()[:40]} Mon Sep 17 00:00:00 2001\n"
        f"From: {author}\n"
        f"Subject: [PATCH {number}] {title}\n"
        "MIME-Version: 1.0\n"
        "Content-Type: text/plain; charset=UTF-8\n"
        "Content-Transfer-Encoding: 8bit\n"
        "\n"
        f"{message}\n"
        "---\n"
    )
    note = _CRLF_NOTE if b"\r\n" in diff else "\n"
    return head.encode() + note.encode() + diff


def changed_lines(text: bytes) -> str:
    """Return the lines removed and added by the hunk of a recorded patch, with those around them."""
    match = _HUNK.search(text, _start_of_diff(text))
    return "" if match is None else text[match.end() :].decode("utf-8", errors="replace")


def _start_of_diff(text: bytes) -> int:
    match = _DIFF.search(text)
    return len(text) if match is None else match.start()


def _stat(path: str, diff: bytes) -> bytes:
    """Return the text of `git diff --stat` for a diff of one file with one hunk, for people."""
    match = _HUNK.search(diff)
    if match is None:
        return b"\n"
    lines = diff[match.end() :].split(b"\n")
    gone, come = (sum(line.startswith(mark) for line in lines) for mark in (b"-", b"+"))
    name = "".join(one if one.isprintable() else "?" for one in path)
    counts = f"1 file changed, {come} insertion{'s' * (come != 1)}(+), {gone} deletion{'s' * (gone != 1)}(-)"
    return f" {name} | {come + gone} {'+' * min(come, 30)}{'-' * min(gone, 30)}\n {counts}\n\n".encode()
