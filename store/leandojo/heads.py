"""Of which trace an imported record is: repository, commit, versions, tracer.

What a trace's head is made of:

- A **database** has a trace for each of its repositories: their url, name, commit, lean_version, metadata and pr_url,
  the tracer "lean_dojo" with their lean_dojo_version. The lists are "proven_theorems", "sorry_theorems_proved" and
  "sorry_theorems_unproved". Its counts are not read but compared, and a contradiction is a note.
- A **folder** has one trace, by the tracer "lean_dojo dataset" (a dataset leaves out some tactics and every difficulty:
  it must not take the place of the same repository's trace from a database). Its lists are "random/train" and so on.
  What its metadata.json does not say is "unknown". If that names one repository (`from_repo`, or `repositories`
  with one entry), the trace is of that one.
- A **merged folder** of several repositories has a corpus that does not say what is whose. Its trace is of the dataset
  itself: the repository `leandojo.import/<12 hex digits>`, made of the urls and commits that it names, so that the same
  repositories merged again are the same trace, newly closed. Each theorem keeps its own url and commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from store.leandojo.jsonstream import ImportFormatError
from store.leandojo.records import Flaw, text
from store.recording import TraceHead
from store.repository_key import repository_key

MERGED_HOST = "leandojo.import"
TRACER = "lean_dojo"
DATASET_TRACER = "lean_dojo dataset"
UNKNOWN = "unknown"
HEAD_KEYS = ("url", "name", "commit", "lean_version", "lean_dojo_version")
REMEDY = "correct it there, or write the file anew with the program that made it"


def database_head(plain: Mapping[str, Any]) -> TraceHead:
    """Return the head of a database's repository record.

    Raises:
        Flaw: a key is missing or of another kind.
    """
    url, name, commit, lean_version, version = (_named(plain, key) for key in HEAD_KEYS)
    metadata = plain.get("metadata")
    if not isinstance(metadata, dict):
        raise Flaw("is missing" if metadata is None else "should be an object", ".metadata")
    date = text(metadata, "date_processed") if "date_processed" in metadata else ""
    if not _is_date(date):
        raise Flaw(
            "should be the time of the trace, as in 2025-01-31T12:00:00", ".metadata", ".date_processed"
        )
    pr_url = plain.get("pr_url")
    if pr_url is not None and not isinstance(pr_url, str):
        raise Flaw("should be a string or null", ".pr_url")
    return TraceHead(
        repository=_key(url),
        sha=commit,
        url=url,
        name=name,
        lean_version=lean_version,
        tracer=TRACER,
        tracer_version=version,
        source="import",
        metadata=metadata,
        pr_url=pr_url,
    )


def dataset_head(path: Path, metadata: Mapping[str, Any]) -> TraceHead:
    """Return the head of a dataset folder, by its metadata.json, which lies at `path`.

    Raises:
        ImportFormatError: it does not say which repository was traced.
    """
    try:
        repositories = metadata.get("repositories")
        if isinstance(repositories, list) and repositories:
            for index, item in enumerate(repositories):
                if not isinstance(item, dict):
                    raise Flaw("should be an object", f"repositories[{index}]")
                for key in ("url", "commit"):
                    try:
                        _named(item, key)
                    except Flaw as flaw:
                        raise flaw.below(f"repositories[{index}]") from None
            return _one_head(repositories[0]) if len(repositories) == 1 else _merged_head(repositories)
        origin = metadata.get("from_repo")
        if not isinstance(origin, dict):
            raise Flaw("says neither from_repo nor repositories, so nobody knows what was traced")
        try:
            return _from_repo_head(origin, metadata)
        except Flaw as flaw:
            raise flaw.below("from_repo") from None
    except Flaw as flaw:
        raise ImportFormatError(path, "".join(flaw.place), flaw.reason, remedy=REMEDY) from None


def _from_repo_head(origin: Mapping[str, Any], metadata: Mapping[str, Any]) -> TraceHead:
    created = metadata.get("creation_time")
    return _folder_head(
        url=_named(origin, "url"),
        commit=_named(origin, "commit"),
        lean_version=metadata.get("lean_version"),
        version=metadata.get("leandojo_version"),
        metadata={"date_processed": created} if isinstance(created, str) else {},
    )


def _one_head(item: Mapping[str, Any]) -> TraceHead:
    metadata = item.get("metadata")
    return _folder_head(
        url=_named(item, "url"),
        commit=_named(item, "commit"),
        lean_version=item.get("lean_version"),
        version=item.get("lean_dojo_version"),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def _folder_head(
    *, url: str, commit: str, lean_version: Any, version: Any, metadata: dict[str, Any]
) -> TraceHead:
    return TraceHead(
        repository=_key(url),
        sha=commit,
        url=url,
        name="/".join(url.removesuffix(".git").rstrip("/").split("/")[-2:]),
        lean_version=_or_unknown(lean_version),
        tracer=DATASET_TRACER,
        tracer_version=_or_unknown(version),
        source="import",
        metadata=metadata,
    )


def _merged_head(repositories: list[dict[str, Any]]) -> TraceHead:
    parts = sorted({(item["url"], item["commit"]) for item in repositories})
    digest = hashlib.sha256("\x1f".join(text for part in parts for text in part).encode()).hexdigest()
    key = f"{MERGED_HOST}/{digest[:12]}"
    dates = [
        item["metadata"].get("date_processed")
        for item in repositories
        if isinstance(item.get("metadata"), dict)
    ]
    known = [date for date in dates if isinstance(date, str)]
    return TraceHead(
        repository=key,
        sha=digest[:40],
        url=key,
        name=key,
        lean_version=_common(item.get("lean_version") for item in repositories),
        tracer=DATASET_TRACER,
        tracer_version=_common(item.get("lean_dojo_version") for item in repositories),
        source="import",
        metadata={"date_processed": max(known)} if known else {},
    )


def _common(values: Iterable[Any]) -> str:
    found = {_or_unknown(value) for value in values}
    return found.pop() if len(found) == 1 else UNKNOWN


def _or_unknown(value: Any) -> str:
    return value if isinstance(value, str) and value else UNKNOWN


def _named(record: Mapping[str, Any], key: str) -> str:
    value = text(record, key)
    if not value.strip():
        raise Flaw("is empty", f".{key}")
    return value


def _key(url: str) -> str:
    try:
        key = repository_key(url)
    except ValueError as error:
        raise Flaw(f"is no URL ({error})", ".url") from None
    if not key.strip("/"):
        raise Flaw("names no repository", ".url")
    return key


def _is_date(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True
