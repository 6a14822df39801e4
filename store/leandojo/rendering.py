"""LeanDojo's records as JSON text, byte for byte as its own `json.dump(…, indent=2)` writes them.

The values are those of a `file_traced` payload (`store.domain.records`), as they were parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Place = Callable[[Iterable[int]], Any]
"""How a position is written: "(12, 5)" in a database, [12, 5] in a dataset."""


def indented(value: Any, *, margin: int, ascii_only: bool = False) -> str:
    """Write a value as JSON whose braces are at `margin`; the first line has no indentation."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2)
    return text.replace("\n", "\n" + " " * margin)  # no string has a bare newline in it


def tactic(data: Mapping[str, Any], position: Place, paths: Mapping[str, str]) -> dict[str, Any]:
    """Return LeanDojo's record of a traced tactic; `paths` gives each path its name in the export."""
    text, uses = data["annotated_tactic"]
    annotations = [
        {
            "full_name": use["full_name"],
            "def_path": paths[use["def_path"]],
            "def_pos": position(use["def_pos"]),
            "def_end_pos": position(use["def_end_pos"]),
            **use.get("extra", {}),
        }
        for use in uses
    ]
    return {
        "tactic": data["tactic"],
        "annotated_tactic": [text, annotations],
        "state_before": data["state_before"],
        "state_after": data["state_after"],
        **data.get("extra", {}),
    }
