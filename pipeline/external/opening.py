"""A client from the parameters of a job: the endpoint, what it may cost, and where its key is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.external.client import ChatClient
from pipeline.external.credentials import read_key
from pipeline.external.endpoint import Endpoint
from pipeline.external.spending import Prices, Spending


def open_client(part: Mapping[str, Any], *, concurrency: int = 4) -> ChatClient:
    """Return the client; whoever has it closes it.

    Args:
        part: base_url and model; optional: credential and key_variable (names, and never the key), timeout_s, retries,
            ledger, cap_usd, usd_per_million_prompt, usd_per_million_completion.
        concurrency: requests that are under way at once.

    Raises:
        ExternalError: the address cannot be meant, the key cannot be used, or the cap could not be held.
        KeyError, TypeError, ValueError: a parameter is missing or malformed.
    """
    limits: dict[str, Any] = {"concurrency": concurrency}
    for name, kind in (("timeout_s", float), ("retries", int)):
        if part.get(name) is not None:
            limits[name] = kind(part[name])
    endpoint = Endpoint(str(part["base_url"]), str(part["model"]), **limits)
    prompt, completion = (_dollars(part, f"usd_per_million_{what}") for what in ("prompt", "completion"))
    prices = None if prompt is None or completion is None else Prices(prompt, completion)
    ledger = part.get("ledger")
    spending = Spending(
        ledger=None if ledger is None else Path(str(ledger)), prices=prices, cap_usd=_dollars(part, "cap_usd")
    )
    key = read_key(credential=str(part.get("credential") or ""), variable=str(part.get("key_variable") or ""))
    return ChatClient(endpoint, key=key, spending=spending)


def _dollars(part: Mapping[str, Any], name: str) -> float | None:
    value = part.get(name)
    return None if value is None else float(value)
