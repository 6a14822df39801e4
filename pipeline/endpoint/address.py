"""The address of an endpoint, and who can read a key on the way there."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_PATH = "/chat/completions"


def checked_address(base_url: str, *, example: str = "https://api.example.org/v1") -> str:
    """Return an endpoint's address, as the example's, without a slash at its end.

    Raises:
        ValueError: it cannot be used; the message has the reason and the remedy.
    """
    remedy = f'write for instance "{example}"'
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"is no valid URL; {remedy}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"must be an https URL; {remedy}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"carries more than a host and a path (not shown); the key is a credential, not a part of the URL; {remedy}"
        )
    return base_url.rstrip("/")


def private_address(base_url: str, *, example: str = "https://api.example.org/v1") -> str:
    """Return the same of an address that keeps a key private: https, or this machine.

    Raises:
        ValueError: as `checked_address`, or it does not.
    """
    address = checked_address(base_url, example=example)
    if urlsplit(address).scheme != "https" and not is_local(address):
        raise ValueError("would send the key unencrypted; write its https address")
    return address


def requests_url(base_url: str) -> str:
    """Return the address of requests; LeanDojo-v2's constant is one already."""
    return base_url.rstrip("/").removesuffix(_PATH) + _PATH


def is_local(base_url: str) -> bool:
    """Return whether an endpoint is on this machine's loopback address."""
    host = urlsplit(base_url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
