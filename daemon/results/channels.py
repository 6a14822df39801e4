"""The daemon's ways to send a message: a webhook's POST, a program, and apprise's services.

A channel tries once and returns the outcome; `daemon.results.notifications` decides about times, messages and
repeats. The signing key, and addresses that are themselves secrets, are read at each use, and are in no
error. A signed POST follows https://www.standardwebhooks.com: `webhook-id`, `webhook-timestamp`, and in
`webhook-signature` the HMAC-SHA256 of "id.timestamp.body".
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from daemon.settings.schema import Command, Notify, webhook_url
from pipeline.endpoint.credentials import read_key
from pipeline.endpoint.errors import CredentialError
from pipeline.http_client import Answer, HttpClient, NoAnswerError
from pipeline.jobs.spec import KeyPlace
from pipeline.redact import redact
from store.events.service import NotifyChannel, NotifyProblem

URL_CREDENTIAL, URL_VARIABLE = "everlean-notify-url", "EVERLEAN_NOTIFY_URL"
KEY_CREDENTIAL, KEY_VARIABLE = "everlean-notify-secret", "EVERLEAN_NOTIFY_SECRET"  # names, no secrets
APPRISE_CREDENTIAL, APPRISE_VARIABLE = "everlean-notify-apprise", "EVERLEAN_NOTIFY_APPRISE"
WEBHOOK_S = 10.0
COMMAND_S = 30.0
"""Time limits of one attempt; a command may have to start an interpreter and send mail."""
APPRISE_S = 120.0
"""Of all services together, one after the other."""

LONGEST_RETRY_AFTER_S = 3600.0
_WORDS_BYTES = 2000
_LINGER_S = 1.0
_PARTLY = 3
"""The exit status of apprise's process if some services took the message and others did not."""
_PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    # Without these two nothing appears on a desktop.
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
_PASSED_TO_APPRISE = (*_PASSED_ON, "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "REQUESTS_CA_BUNDLE")


class NotTakenError(Exception):
    """A message was not taken. `retry_after_s` is the wait requested by the receiver, 0 without one.

    `partly`: some of several receivers took it, and must not get it again.
    """

    def __init__(
        self,
        problem: NotifyProblem,
        reason: str,
        *,
        remedy: str,
        retry_after_s: float = 0.0,
        partly: bool = False,
    ) -> None:
        super().__init__(reason)
        self.problem: NotifyProblem = problem
        self.reason = reason
        self.remedy = remedy
        self.retry_after_s = retry_after_s
        self.partly = partly


@dataclass(frozen=True, slots=True)
class Message:
    """A message: `id` is the same for the same events sent again; `body` is JSON in UTF-8."""

    id: str
    body: bytes
    title: str
    text: str
    """for people, as in the body"""


class Channel(Protocol):
    """One way to a receiver."""

    async def send(self, message: Message) -> None:
        """Try once.

        Raises:
            NotTakenError: with the reason and the remedy.
        """
        ...


def channel(name: NotifyChannel, notify: Notify, *, folder: Path) -> Channel | None:
    """Return the present channel of this name; None without one in the settings.

    Raises:
        NotTakenError: its URL or its key cannot be used.
    """
    if name == "command":
        return CommandChannel(notify.command, folder=folder) if notify.command.run else None
    try:
        if name == "apprise":
            urls = read_key(KeyPlace(APPRISE_CREDENTIAL, APPRISE_VARIABLE, notify.apprise.urls_file))
            return AppriseChannel(urls, folder=folder) if urls else None
        url = notify.webhook.url or read_key(KeyPlace(URL_CREDENTIAL, URL_VARIABLE))
        if not url:
            return None
        return WebhookChannel(
            url=webhook_url(url),
            key=read_key(KeyPlace(KEY_CREDENTIAL, KEY_VARIABLE)),
        )
    except CredentialError as error:
        remedy = "correct the file or the variable; the daemon reads it again"
        raise NotTakenError("misconfigured", str(error), remedy=remedy) from None
    except ValueError as error:
        # The value itself may be the secret: `webhook_url` does not quote it.
        reason, _, remedy = f"the URL in {URL_CREDENTIAL} or {URL_VARIABLE} {error}".partition("; ")
        raise NotTakenError("misconfigured", reason, remedy=remedy) from None


class WebhookChannel:
    """A POST with the message as its body."""

    def __init__(self, *, url: str, key: str | None) -> None:
        self._url = url
        self._host = urlsplit(url).netloc.rpartition("@")[2]
        self._key = None if key is None else _key_bytes(key)

    async def send(self, message: Message) -> None:
        """POST it; only a 2xx answer takes it."""
        try:
            answer = await self._post(message)
        except NoAnswerError as error:
            # `from None`: a traceback of the library's own error may hold the URL.
            if error.reason == "late":
                raise NotTakenError(
                    "timeout",
                    f"{self._host} did not answer within {WEBHOOK_S:g} s",
                    remedy="look at the receiver, which has to answer before it works on the message",
                ) from None
            raise NotTakenError(
                "unreachable",
                f"{self._host}: {self._without_url(str(error))}",
                remedy="look whether it is up, and at the network",
            ) from None
        if not 200 <= answer.status < 300:
            retry_after = answer.headers.get("retry-after", "")
            raise NotTakenError(
                "refused",
                f"{self._host} answered {answer.status}",
                remedy=_remedy(answer.status),
                retry_after_s=_seconds(retry_after) if answer.status in (429, 503) else 0.0,
            )

    def _without_url(self, words: str) -> str:
        """Return a library's message, or its beginning if the rest quotes a secret part of the URL."""
        parts = urlsplit(self._url)
        quotes = any(part and part in words for part in (parts.path.strip("/"), parts.query, parts.password))
        return words.partition(" (")[0] if quotes else redact(words)

    async def _post(self, message: Message) -> Answer:
        moment = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"everlean/{version('everlean')}",
            "webhook-id": message.id,
            "webhook-timestamp": moment,
        }
        if self._key is not None:
            headers["webhook-signature"] = signature(self._key, message, moment)
        async with HttpClient(seconds=WEBHOOK_S, headers=headers) as client:
            # The body of the answer is not read: it is of no use.
            return await client.call("POST", self._url, body=message.body, read=False)


def signature(key: bytes, message: Message, timestamp: str) -> str:
    """Return the value of `webhook-signature`."""
    signed = b".".join((message.id.encode(), timestamp.encode(), message.body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode("ascii")


class CommandChannel:
    """A program with the message on standard input."""

    def __init__(self, settings: Command, *, folder: Path) -> None:
        self._run = settings.run
        self._folder = folder

    async def send(self, message: Message) -> None:
        """Run it once; exit status 0 takes the message."""
        await _run(
            self._run,
            message.body,
            name=self._run[0],
            folder=self._folder,
            passed_on=_PASSED_ON,
            limit_s=COMMAND_S,
            hung="run it by hand; what takes longer belongs into a process that it starts and leaves",
            missing="check [notify.command] run: the program's path, and that the daemon's user may run it",
            failed="run it by hand with a message on its standard input",
        )


class AppriseChannel:
    """Apprise's chats, mail and other services, in a process of its own: its plugins block, and may hang."""

    def __init__(self, urls: str, *, folder: Path) -> None:
        self._urls = urls
        self._folder = folder

    async def send(self, message: Message) -> None:
        """Send it to each service once."""
        if find_spec("apprise") is None:
            raise NotTakenError(
                "misconfigured",
                "apprise is not installed",
                remedy="install everlean with its extra `notify` (docs/recipes.md)",
            )
        options = {"urls": self._urls, "title": message.title, "text": message.text}
        await _run(
            (sys.executable, "-P", "-m", "daemon.results.apprise_sender", str(_PARTLY)),
            json.dumps(options).encode(),
            name="apprise",
            folder=self._folder,
            passed_on=_PASSED_TO_APPRISE,
            limit_s=APPRISE_S,
            hung="look at the services, and at the network",
            missing="look at everlean's installation",
            failed=f"correct the addresses in {APPRISE_CREDENTIAL}, urls_file or {APPRISE_VARIABLE}; `apprise -vv "
            "ADDRESS` tries one",
            partly=_PARTLY,
        )


async def _run(
    argv: Sequence[str],
    body: bytes,
    *,
    name: str,
    folder: Path,
    passed_on: Sequence[str],
    limit_s: float,
    hung: str,
    missing: str,
    failed: str,
    partly: int | None = None,
) -> None:
    """Run a program once with a body on standard input; exit status 0 takes the message.

    Args:
        argv: the program and its arguments.
        body: its standard input.
        name: the program's, for people.
        folder: its working folder.
        passed_on: its variables, from the daemon's environment.
        limit_s: its time limit, in seconds.
        hung, missing, failed: the remedies.
        partly: its exit status if only some of its receivers took the message; None without one.

    Raises:
        NotTakenError: it cannot be run, took too long, or failed.
    """
    # Not asyncio's own pipe, as `wait` would wait for its end: a process left behind may hold it for ever.
    reading, writing = os.pipe()
    words = asyncio.create_task(_last_words(reading))
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=writing,
            cwd=folder,
            env={name: os.environ[name] for name in passed_on if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        reason = f"{name} cannot be run: {error.strerror or error}"
        raise NotTakenError("misconfigured", reason, remedy=missing) from error
    finally:
        os.close(writing)
    try:
        async with asyncio.timeout(limit_s):
            await _feed(process.stdin, body)
            status = await process.wait()
        await asyncio.wait({words}, timeout=_LINGER_S)
    except TimeoutError:
        reason = f"{name} did not end within {limit_s:g} s and was killed"
        raise NotTakenError("timeout", reason, remedy=hung) from None
    finally:
        # Also if the daemon ends meanwhile.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        words.cancel()
    if status != 0:
        text = words.result() if words.done() and not words.cancelled() else ""
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        reason = f"{name} {how}{f': {text}' if text else ''}"
        raise NotTakenError("failed", reason, remedy=failed, partly=status == partly)


async def _feed(stdin: asyncio.StreamWriter | None, body: bytes) -> None:
    if stdin is None:
        return
    # A program need not read all of it; its exit status counts.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(body)
        await stdin.drain()
    stdin.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stdin.wait_closed()


async def _last_words(descriptor: int) -> str:
    """Return the last line of a pipe, ours to close; all of it is read, so the writer never blocks."""
    stderr, kept = asyncio.StreamReader(), b""
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stderr), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        while chunk := await stderr.read(65536):
            kept = (kept + chunk)[-_WORDS_BYTES:]
    finally:
        transport.close()
    lines = kept.decode(errors="replace").strip().splitlines()
    return redact(lines[-1].strip()) if lines else ""


def _key_bytes(key: str) -> bytes:
    """Return a key's bytes: `whsec_` marks base64, as in Standard Webhooks; any other text is the key
    itself."""
    if key.startswith("whsec_"):
        try:
            return base64.b64decode(key.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            raise CredentialError(
                f"the key in {KEY_CREDENTIAL} or {KEY_VARIABLE} begins with whsec_, and what follows is no base64"
            ) from None
    return key.encode("ascii")


def _remedy(status: int) -> str:
    if 300 <= status < 400:
        return "it points elsewhere: write the address that it points to in [notify.webhook] url"
    if status in (401, 403):
        return "check the URL, and whether both sides have the same key to sign with"
    if status in (404, 405, 410):
        return "check the URL of the webhook"
    if status == 413:
        return "the receiver takes no message of this size: raise its limit"
    return "the daemon tries again; look at the receiver"


def _seconds(retry_after: str) -> float:
    return min(float(retry_after), LONGEST_RETRY_AFTER_S) if retry_after.isdecimal() else 0.0
