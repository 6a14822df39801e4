"""One GraphQL query about up to a hundred repositories: its text, and what its answer says of each of them.

Each repository is an alias (`r0`, `r1`, …) of the field `repository`, which follows renames, with one page of a hundred
branches; such a query costs one point of 5,000 an hour. GitHub answers 200 also where it could not answer everything:
what a repository's `errors` are about is null, and the rest is right. Owns no request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemon.github_answers import number, text

MOST_TOGETHER = 100
"""Repositories in one query; 100 connections of 100 branches each are the most that costs one point."""
_LIMITED = frozenset({"RATE_LIMIT", "RATE_LIMITED"})
_FIELDS = """{
    databaseId nameWithOwner url isArchived isEmpty defaultBranchRef { name }
    refs(refPrefix: "refs/heads/", first: 100, after: $%s) {
      pageInfo { hasNextPage endCursor } nodes { name target { oid } }
    }
  }"""


@dataclass(frozen=True, slots=True)
class Page:
    """What an answer says of a repository; `after` is where its next page of branches begins, None on the last."""

    heads: Mapping[str, str]
    default_branch: str | None
    full_name: str | None
    forge_id: int | None
    clone_url: str | None
    archived: bool
    after: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """The pages by the names asked for; a name that is missing has to be asked for alone."""

    pages: Mapping[str, Page]
    limited: bool
    """Whether the answer is that the quota is used up."""
    cost: int | None
    """Points that the query cost."""


def query(wanted: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the body of the request about these owner/name, each from a place in its branches, None the first."""
    declared: list[str] = []
    fields: list[str] = []
    variables: dict[str, str | None] = {}
    for index, (name, after) in enumerate(wanted.items()):
        owner, _, short = name.partition("/")
        declared.append(f"$o{index}: String!, $n{index}: String!, $a{index}: String")
        fields.append(
            f"  r{index}: repository(owner: $o{index}, name: $n{index}, followRenames: true) {_FIELDS % f'a{index}'}"
        )
        variables |= {f"o{index}": owner, f"n{index}": short, f"a{index}": after}
    lines = "\n".join(fields)
    return {
        "query": f"query({', '.join(declared)}) {{\n  rateLimit {{ cost remaining resetAt }}\n{lines}\n}}",
        "variables": variables,
    }


def read(content: Any, names: Sequence[str]) -> Answered | None:
    """Read the answer to the query about these names, in its order; None for what GitHub would not send."""
    if not isinstance(content, dict):
        return None
    data, errors = content.get("data"), content.get("errors")
    problems = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    limited = any(error.get("type") in _LIMITED for error in problems)
    if not isinstance(data, dict):
        return Answered({}, limited, None) if problems else None
    # An error below a repository, as of one branch, makes all of it doubtful.
    doubtful = {path[0] for error in problems if isinstance(path := error.get("path"), list) and path}
    pages = {}
    for index, name in enumerate(names):
        alias = f"r{index}"
        page = None if alias in doubtful else _page(data.get(alias))
        if page is not None:
            pages[name] = page
    rate = data.get("rateLimit")
    return Answered(pages, limited, number(rate.get("cost")) if isinstance(rate, dict) else None)


def _page(found: Any) -> Page | None:
    if not isinstance(found, dict) or found.get("isEmpty") is True:
        return None  # what an empty repository is, REST says
    refs = found.get("refs")
    about = refs.get("pageInfo") if isinstance(refs, dict) else None
    nodes = refs.get("nodes") if isinstance(refs, dict) else None
    if not isinstance(about, dict) or not isinstance(nodes, list):
        return None
    heads: dict[str, str] = {}
    for node in nodes:
        target = node.get("target") if isinstance(node, dict) else None
        sha = target.get("oid") if isinstance(target, dict) else None
        if not isinstance(sha, str) or not isinstance(node.get("name"), str):
            return None
        heads[node["name"]] = sha
    more, after = about.get("hasNextPage"), text(about.get("endCursor"))
    if more and after is None:
        return None
    default, url = found.get("defaultBranchRef"), text(found.get("url"))
    return Page(
        heads,
        text(default.get("name")) if isinstance(default, dict) else None,
        text(found.get("nameWithOwner")),
        number(found.get("databaseId")),
        f"{url}.git" if url else None,
        found.get("isArchived") is True,
        after if more else None,
    )
