"""Identities that survive edits: keys derived from a thing's content, never from its place.

Line numbers move with every commit, so nothing here depends on them. Every identifier is the first 16 hex
digits (64 bits) of a SHA-256 over unit-separated fields, except event ids, which are UUIDs, and git's own.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from store.domain.keywords import THEOREM_KINDS

_SEPARATOR = "\x1f"
_EVENT_NAMESPACE = uuid.UUID("6f3b1a52-6c0e-5d0e-9f57-0c9d3f1e7a10")


def short_hash(*fields: str) -> str:
    """Return 16 hex digits over the fields; the separator keeps ("a", "b") apart from ("ab", "")."""
    return hashlib.sha256(_SEPARATOR.join(fields).encode()).hexdigest()[:16]


def slug(repository: str) -> str:
    """Return a file name for a repository key; different keys never share one."""
    return "+".join(quote(part, safe="") for part in repository.split("/"))


def event_id(*natural_key: str) -> str:
    """Return the UUIDv5 of a natural key: recording the same fact twice is one event."""
    return str(uuid.uuid5(_EVENT_NAMESPACE, _SEPARATOR.join(natural_key)))


def hash_of_statement(statement: str) -> str:
    """Identify a statement as the scanner reads it (`Declaration.statement`): two with one hash are the same statement.

    For the gate, for `everlean diff`, for recalled proofs and for a theorem's life alike.
    """
    return short_hash("statement", statement)


def normalise(text: str) -> str:
    """Collapse white space; the caller has already removed comments."""
    return " ".join(text.split())


def theorem_id(repository: str, name: str, statement_hash: str) -> str:
    """Identify a theorem (or definition): a moved or re-formatted one is the same one."""
    return short_hash("theorem", repository, name, statement_hash)


def sorry_id(repository: str, declaration: str, statement_hash: str, ordinal: int) -> str:
    """Identify a sorry at its first sight. It keeps this id through later moves, renames and changes."""
    return short_hash("sorry", repository, declaration, statement_hash, str(ordinal))


def proof_id(sorry: str, blob: str, replacement: str, parts: Sequence[int] = ()) -> str:
    """Identify one replacement text for one sorry in one version (git blob) of its file.

    Args:
        parts: the lengths of its parts, where it fills several sorries: they decide the verdict too.
    """
    return short_hash(" ".join(("proof", *map(str, parts))), sorry, blob, replacement)


def job_id(kind: str, *key: str) -> str:
    """Identify a job by its task: planning the same work twice names the same job."""
    return f"{kind}-{short_hash(kind, *key)}"


def trace_id(
    url: str, commit: str, lean_version: str, tracer: str, tracer_version: str, project: str = ""
) -> str:
    """Identify a trace as LeanDojo identifies a repository: by the commit, the Lean version and the tracer.

    A Lake project below the root has another trace, by its folder.
    """
    below = (project,) if project else ()
    return short_hash("trace", url, commit, lean_version, tracer, tracer_version, *below)


def split_key(full_name: str, statement: str | None) -> str:
    """Identify a theorem for the splits: by its statement, or its name if the statement is unknown.

    Not by repository: a copy in a fork, or in a dependency's folder, must not stand on another side. And not
    by the name, attributes or modifiers at the beginning of LeanDojo's statements (`@[simp] theorem foo (n :
    Nat) : … :=`): a renamed theorem states the same.
    """
    if statement is not None and (text := bare_statement(normalise(statement))):
        return short_hash("statement of a theorem", text)
    return short_hash("name of a theorem", full_name)


_HEAD = re.compile(
    r"(?:@\[(?:[^\[\]]|\[[^\[\]]*\])*\] )*"
    r"(?:(?:private|protected|public|noncomputable|nonrec|unsafe|partial|scoped|local|meta) )*"
    rf"(?:{'|'.join(THEOREM_KINDS)}) "
    r"(?:«[^»]*»|[^\s:({\[⦃.«])*(?:\.(?:«[^»]*»|[^\s:({\[⦃.«])+)*"
)
_TAIL = re.compile(r" ?:=(?: by)?$")


def bare_statement(text: str) -> str:
    """Cut a normalised statement down to binders and type, if it begins with a declaration's head.

    The name in the head may be another's: `to_additive` makes two theorems of one text.
    """
    text = _TAIL.sub("", text)
    head = _HEAD.match(text)
    return text if head is None else text[head.end() :].strip()


def git_blob(data: bytes, *, like: str) -> str:
    """Return git's object id of a file's content, by the hash of `like` (SHA-1 or SHA-256)."""
    content = b"blob %d\0" % len(data) + data
    if len(like) == 64:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


SCP = re.compile(r"(?:(?P<user>[^@/\s]+)@)?(?P<host>[A-Za-z0-9.\-]+):(?P<path>[^\s].*)")
"""git's short form of an ssh address: user@host:path."""
_DEFAULT_PORTS = {"https": 443, "ssh": 22}


def repository_key(url: str) -> str:
    """Return host/owner/name for a URL, local/parent/name for a path or a file URL.

    The host is in lower case, a port other than the scheme's own stays with it, ".git" goes. Two spellings of one
    remote (https, ssh, scp-like) have one key.

    Raises:
        ValueError: the URL's host or port cannot be read.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        scp = None if url.startswith(("/", ".", "~")) else SCP.fullmatch(url)
        if scp is None:
            return _local_key(Path(url))
        host, path = scp["host"].lower(), scp["path"]
    elif scheme.lower() == "file":
        return _local_key(Path(unquote(urlsplit(url).path)))
    else:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if parts.port is not None and parts.port != _DEFAULT_PORTS.get(scheme.lower()):
            host = f"{host}:{parts.port}"
        path = unquote(parts.path)
    names = [part for part in path.strip("/").split("/") if part]
    return "/".join((host, *names[:-1], *(name.removesuffix(".git") for name in names[-1:])))


def _local_key(path: Path) -> str:
    # A bare clone in "name/.git" style: people call the folder above the repository.
    parts = [part for part in path.parts if part != "/"]
    if len(parts) > 1 and parts[-1] == ".git":
        parts.pop()
    names = parts[-2:] if len(parts) > 1 else ["root", *parts]
    return "/".join(("local", *names[:-1], *(name.removesuffix(".git") for name in names[-1:])))


_PULL_REQUEST = re.compile(r"\(#(\d{1,9})\)\s*$|^Merge pull request #(\d{1,9})\b")


def pull_request_of(subject: str) -> int | None:
    """Return the number of the pull request at the end of a commit's subject, or in a merge's subject."""
    match = _PULL_REQUEST.search(subject)
    return None if match is None else int(match[1] or match[2])


def line_url(repository: str, sha: str, path: str, line: int) -> str:
    """Return the address of a line at a commit, by the repository's key; "" for an unknown forge."""
    base, forge = _base_url(repository)
    return f"{base}/{_BLOBS[forge]}/{quote(sha)}/{quote(path)}#L{line}" if base else ""


def commit_url(repository: str, sha: str) -> str:
    """Return the address of a commit; see `line_url`."""
    base, forge = _base_url(repository)
    return f"{base}/{'-/' if forge == 'gitlab' else ''}commit/{quote(sha)}" if base else ""


def _base_url(repository: str) -> tuple[str, str]:
    """Return a repository's address and its forge; "" for both if the forge is unknown."""
    host, _, name = repository.partition("/")
    forge, _, domain = host.partition(".")
    if forge not in _BLOBS or not domain or "/" not in name:
        return "", ""
    return f"https://{host}/{quote(name)}", forge


_BLOBS = {"github": "blob", "gitlab": "-/blob", "codeberg": "src/commit"}
"""The known forges, by the beginning of their hosts ("gitlab.com", "github.example.org")."""
