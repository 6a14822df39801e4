"""What a ledger says was spent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from pipeline.endpoint.spending import file_of


def spent_usd(ledger: Path, day: str = "") -> float:
    """Return the dollars of a day (today, in UTC): of each request, the last readable line."""
    file = file_of(ledger, day or datetime.now(UTC).date().isoformat())
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    amounts = {line["id"]: line["usd"] or 0.0 for line in map(json.loads, lines)}
    return sum(amounts.values())
