"""What `daemon.testing.github` answers to a GraphQL query about repositories and their branches.

As GitHub documents and does: 200 also where something could not be answered, which is then null and has an entry in
`errors` with its type and path; renames are followed; connections are pages of at most a hundred, gone on with by a
cursor that means nothing to anybody else; a query costs a point for each hundred connections that it opens, at least
one. Covered is this one form of query and no other:

    query(…) { rateLimit { … } r0: repository(owner: $o0, name: $n0, …) { … refs(…, after: $a0) { … } } … }
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FIELD = re.compile(
    r"(?P<alias>\w+): repository\(owner: \$(?P<owner>\w+), name: \$(?P<name>\w+), followRenames: true\)"
    r"\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*?"
    r"refs\(refPrefix: \"refs/heads/\", first: (?P<first>\d+), after: \$(?P<after>\w+)\)"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A repository as a query sees it; `error` is the type of the error where it sees none."""

    name: str = ""
    forge_id: int = 0
    archived: bool = False
    default_branch: str | None = None
    heads: Sequence[tuple[str, str]] = ()
    error: str = ""


def fields_of(body: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the fields of a query that ask about a repository."""
    return [match.groupdict() for match in _FIELD.finditer(str(body.get("query", "")))]


def cost_of(fields: Sequence[Mapping[str, str]]) -> int:
    """Return the points that a query costs."""
    return max(1, round(len(fields) / 100))


def answer(
    body: Mapping[str, Any],
    *,
    show: Callable[[str], Shown],
    most: int,
    left: int | None,
    reset_at: str,
) -> dict[str, Any]:
    """Return the content of the answer to a query.

    Args:
        show: says what there is under owner/name.
        most: branches on a page, at most a hundred.
        left: the points left after this query.
    """
    fields, variables = fields_of(body), body.get("variables") or {}
    if not fields:
        return {"errors": [{"message": "Parse error on the query"}]}
    data: dict[str, Any] = {"rateLimit": {"cost": cost_of(fields), "remaining": left, "resetAt": reset_at}}
    errors = []
    for field in fields:
        name = f"{variables[field['owner']]}/{variables[field['name']]}"
        shown = show(name)
        if shown.error:
            said = f"Could not resolve to a Repository with the name '{name}'."
            errors.append({"type": shown.error, "path": [field["alias"]], "message": said})
            data[field["alias"]] = None
        else:
            data[field["alias"]] = _repository(
                shown, first=min(int(field["first"]), most), after=variables.get(field["after"])
            )
    return {"data": data, **({"errors": errors} if errors else {})}


def _repository(shown: Shown, *, first: int, after: str | None) -> dict[str, Any]:
    begin = int(base64.b64decode(after)) if after else 0
    end = min(begin + first, len(shown.heads))
    default = shown.default_branch if shown.default_branch in dict(shown.heads) else None
    return {
        "databaseId": shown.forge_id,
        "nameWithOwner": shown.name,
        "url": f"https://github.com/{shown.name}",
        "isArchived": shown.archived,
        "isEmpty": not shown.heads,
        "defaultBranchRef": {"name": default} if default is not None else None,
        "refs": {
            "pageInfo": {
                "hasNextPage": end < len(shown.heads),
                "endCursor": base64.b64encode(str(end).encode()).decode() if end else None,
            },
            "nodes": [{"name": name, "target": {"oid": sha}} for name, sha in shown.heads[begin:end]],
        },
    }
