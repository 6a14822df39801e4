"""[notify] and [metrics] of config.toml: who is told what happened, and where numbers can be fetched.

No secret stands here, nor in the settings that the log records: the key that signs, and a URL that is itself a secret,
are read when they are used (`daemon.notify_channels`).
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from daemon.settings_fields import Flag, Section, Text, base_of, duration, table_list

NotifyKind = Literal["proof_verified", "model_promoted", "repository_failing"]
KINDS: tuple[NotifyKind, ...] = get_args(NotifyKind)

_SECRET_ADDRESSES = re.compile(
    r"^(hooks\.slack\.com|discord(app)?\.com/api/webhooks|[^/]+\.webhook\.office\.com|chat\.googleapis\.com)\b"
)
"""Addresses which are known to be all that it takes to write there."""
_BY_CREDENTIAL = (
    'leave url = "" and give it as systemd\'s credential unsorry-notify-url or as $UNSORRY_NOTIFY_URL'
)


def webhook_url(value: str) -> str:
    """Return the URL of a webhook if messages can be sent there; the message of an error never holds it.

    Raises:
        ValueError: with the reason and the remedy.
    """
    remedy = 'write "https://host/path"'
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"is no valid URL; {remedy}") from None
    if parts.scheme not in ("http", "https") or not host or not value.isascii() or not value.isprintable():
        raise ValueError(f"must be an https URL; {remedy}")
    if parts.fragment:
        raise ValueError(f'has a part after "#"; {remedy}')
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"would be sent unencrypted; {remedy}")
    return value


def _configured_url(value: str) -> str:
    if not value:
        return value
    parts = urlsplit(webhook_url(value))
    if "@" in parts.netloc or parts.query or _SECRET_ADDRESSES.match(f"{parts.hostname}{parts.path}"):
        raise ValueError(f"is itself a secret (not shown), which this file must not hold; {_BY_CREDENTIAL}")
    return value


def _program(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """The program's name is looked up on PATH when it is run; a path is relative to the configuration file."""
    if not value:
        return value
    first, *rest = value
    if not first or any("\0" in word for word in value):
        raise ValueError('names no program; write run = ["/usr/local/bin/tell", "--here"]')
    if "/" in first:
        first = os.path.normpath(base_of(info) / Path(first).expanduser())
    return (first, *rest)


def address_of(listen: str) -> tuple[str, int]:
    """Return host and port of "127.0.0.1:9464" or "[::1]:9464".

    Raises:
        ValueError: it is no such thing.
    """
    remedy = 'write "127.0.0.1:9464", or "" for none'
    host, colon, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f'is no address with a port (got "{listen}"); {remedy}')
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        raise ValueError(f'must begin with an IP address, not a name (got "{listen}"); {remedy}') from None
    return bare, int(port)


def _listen(value: str, info: ValidationInfo) -> str:
    if not value:
        return value
    host, _ = address_of(value)
    if not ipaddress.ip_address(host).is_loopback and not info.data.get("public"):
        raise ValueError(
            f'lets other machines read the names and numbers of all that is watched (got "{value}"); write '
            '"127.0.0.1:9464", or public = true beside it if they shall'
        )
    return value


def _kinds(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if name not in KINDS:
            raise ValueError(
                f'has "{name[:40]}", which is none of {", ".join(KINDS)}; write kinds = ["{KINDS[0]}"]'
            )
    if not value:
        raise ValueError(f'is empty, so that nothing would be told; write kinds = ["{KINDS[0]}"]')
    return value


_Kinds = Annotated[tuple[Text, ...], BeforeValidator(table_list), AfterValidator(_kinds)]


class Webhook(Section):
    """[notify.webhook]: a POST with the message as JSON."""

    url: Annotated[Text, AfterValidator(_configured_url)] = Field("", examples=["https://example.org/hook"])
    kinds: _Kinds = Field(KINDS, examples=[["proof_verified"]])
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=0.1, maximum_s=600, example="10s"))] = (
        Field(10.0, alias="timeout", examples=["10s"])
    )


class Command(Section):
    """[notify.command]: a program that is given the message as JSON on standard input."""

    run: Annotated[tuple[Text, ...], BeforeValidator(table_list), AfterValidator(_program)] = Field(
        (), examples=[["/usr/local/bin/tell", "--here"]]
    )
    kinds: _Kinds = Field(KINDS, examples=[["proof_verified"]])
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=0.1, maximum_s=3600, example="30s"))] = (
        Field(30.0, alias="timeout", examples=["30s"])
    )


class Notify(Section):
    """[notify]: what is told, and how often at most."""

    simulated: Flag = Field(False, examples=[False])
    failing_for_s: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=365 * 86400, example="1d"))
    ] = Field(86400.0, alias="failing_for", examples=["1d"])
    every_s: Annotated[float, BeforeValidator(duration(minimum_s=0, maximum_s=86400, example="1m"))] = Field(
        60.0, alias="every", examples=["1m"]
    )
    webhook: Webhook = Field(default_factory=Webhook)
    command: Command = Field(default_factory=Command)


class Metrics(Section):
    """[metrics]: where Prometheus can fetch numbers, beside the control socket."""

    public: Flag = Field(False, examples=[False])  # before `listen`, whose check asks for it
    listen: Annotated[Text, AfterValidator(_listen)] = Field("", examples=["127.0.0.1:9464"])
