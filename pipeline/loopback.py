"""Decide whether a name or an address is this machine's alone. Standard library only."""

from __future__ import annotations

import ipaddress


def is_loopback(name: str) -> bool:
    """Return whether this is localhost or an address of the loopback; False for every other name."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def names_this_machine(host: str) -> bool:
    """Return whether a Host header names this machine alone, with or without a port.

    After DNS rebinding, a browser sends the attacker's name.
    """
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return is_loopback(name.removeprefix("[").removesuffix("]"))
