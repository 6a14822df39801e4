"""The two ways in which a message leaves the daemon: a webhook's POST, and a program's standard input.

A channel tries once and says how it went; when, what and how often is `daemon.notifications`'. The key that signs, and
a URL that is itself a secret, are read when they are used, and stand in no error.

A signed POST is as https://www.standardwebhooks.com has it: `webhook-id`, `webhook-timestamp`, and in
`webhook-signature` the HMAC-SHA256 of "id.timestamp.body".
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import signal
import ssl
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

import httpx2

from daemon.redact import redact
from daemon.settings.schema import Command, Notify, Webhook, webhook_url
from pipeline.external.credentials import read_key
from pipeline.external.errors import CredentialError
from store.events.service import NotifyChannel, NotifyProblem

URL_CREDENTIAL, URL_VARIABLE = "unsorry-notify-url", "UNSORRY_NOTIFY_URL"
KEY_CREDENTIAL, KEY_VARIABLE = "unsorry-notify-secret", "UNSORRY_NOTIFY_SECRET"  # names, no secrets

LONGEST_RETRY_AFTER_S = 3600.0
_WORDS_BYTES = 2000
_LINGER_S = 1.0
_PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    # Without these two nothing appears on a desktop.
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip


class NotTakenError(Exception):
    """A message was not taken. `retry_after_s` is how long the receiver asked to be left alone, 0 where it did not."""

    def __init__(
        self, problem: NotifyProblem, reason: str, *, remedy: str, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.problem: NotifyProblem = problem
        self.reason = reason
        self.remedy = remedy
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: `id` stays the same whenever the same events are sent again; `body` is JSON in UTF-8."""

    id: str
    body: bytes


class Channel(Protocol):
    """One way to a receiver."""

    async def send(self, message: Message) -> None:
        """Try once.

        Raises:
            NotTakenError: with the reason and the remedy.
        """
        ...


def channel(name: NotifyChannel, notify: Notify, *, folder: Path) -> Channel | None:
    """Return the channel of this name as the settings have it now; None where they have none.

    Raises:
        NotTakenError: its URL or its key cannot be used.
    """
    if name == "command":
        return CommandChannel(notify.command, folder=folder) if notify.command.run else None
    try:
        url = notify.webhook.url or read_key(credential=URL_CREDENTIAL, variable=URL_VARIABLE)
        if not url:
            return None
        return WebhookChannel(
            notify.webhook,
            url=webhook_url(url),
            key=read_key(credential=KEY_CREDENTIAL, variable=KEY_VARIABLE),
        )
    except CredentialError as error:
        remedy = "mend the file or the variable; it is read again by itself"
        raise NotTakenError("misconfigured", str(error), remedy=remedy) from None
    except ValueError as error:
        # The value itself may be the secret: `webhook_url` does not quote it.
        reason, _, remedy = f"the URL in {URL_CREDENTIAL} or {URL_VARIABLE} {error}".partition("; ")
        raise NotTakenError("misconfigured", reason, remedy=remedy) from None


class WebhookChannel:
    """A POST with the message as its body."""

    def __init__(self, settings: Webhook, *, url: str, key: str | None) -> None:
        self._timeout_s = settings.timeout_s
        self._url = url
        self._host = urlsplit(url).netloc.rpartition("@")[2]
        self._key = None if key is None else _key_bytes(key)

    async def send(self, message: Message) -> None:
        """POST it; only a 2xx answer takes it."""
        # Reading the machine's certificates takes a tenth of a second, in which the loop has others to serve.
        secure = self._url.startswith("https:")
        context: ssl.SSLContext | Literal[False] = (
            await asyncio.to_thread(httpx2.create_ssl_context) if secure else False
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                status, retry_after = await self._post(message, context)
        except TimeoutError:
            raise NotTakenError(
                "timeout",
                f"{self._host} did not answer within {self._timeout_s:g} s",
                remedy="look at the receiver; raise [notify.webhook] timeout if it needs longer",
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            # `from None`: a traceback of the library's own error may hold the URL.
            raise NotTakenError(
                "unreachable",
                f"{self._host}: {self._without_url(error)}",
                remedy="look whether it is up, and at the network",
            ) from None
        if not 200 <= status < 300:
            raise NotTakenError(
                "refused",
                f"{self._host} answered {status}",
                remedy=_remedy(status),
                retry_after_s=_seconds(retry_after) if status in (429, 503) else 0.0,
            )

    def _without_url(self, error: Exception) -> str:
        """What a library says, unless it quotes a part of the URL that may be a secret."""
        parts, name, said = urlsplit(self._url), type(error).__name__, str(error)
        told = any(part and part in said for part in (parts.path.strip("/"), parts.query, parts.password))
        return name if told or not said else redact(f"{name}: {said}")

    async def _post(self, message: Message, context: ssl.SSLContext | Literal[False]) -> tuple[int, str]:
        moment = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"unsorry/{version('unsorry')}",
            "webhook-id": message.id,
            "webhook-timestamp": moment,
        }
        if self._key is not None:
            headers["webhook-signature"] = signature(self._key, message, moment)
        async with (
            httpx2.AsyncClient(verify=context, timeout=self._timeout_s, follow_redirects=False) as client,
            # The body of the answer is not read: it has nothing to say, and no end that anybody promised.
            client.stream("POST", self._url, content=message.body, headers=headers) as answer,
        ):
            return answer.status_code, answer.headers.get("retry-after", "")


def signature(key: bytes, message: Message, timestamp: str) -> str:
    """Return the value of `webhook-signature`."""
    signed = b".".join((message.id.encode(), timestamp.encode(), message.body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode("ascii")


class CommandChannel:
    """A program that gets the message on standard input."""

    def __init__(self, settings: Command, *, folder: Path) -> None:
        self._run = settings.run
        self._timeout_s = settings.timeout_s
        self._folder = folder

    async def send(self, message: Message) -> None:
        """Run it once; exit status 0 takes the message."""
        # Not asyncio's own pipe, whose end `wait` would wait for: what the program leaves running may hold it for ever.
        reading, writing = os.pipe()
        words = asyncio.create_task(_last_words(reading))
        try:
            process = await asyncio.create_subprocess_exec(
                *self._run,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=writing,
                cwd=self._folder,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise NotTakenError(
                "misconfigured",
                f"{self._run[0]} cannot be run: {error.strerror or error}",
                remedy="check [notify.command] run: the program's path, and that the daemon's user may run it",
            ) from error
        finally:
            os.close(writing)
        try:
            async with asyncio.timeout(self._timeout_s):
                await _feed(process.stdin, message.body)
                status = await process.wait()
            await asyncio.wait({words}, timeout=_LINGER_S)
        except TimeoutError:
            raise NotTakenError(
                "timeout",
                f"{self._run[0]} did not end within {self._timeout_s:g} s and was killed",
                remedy="run it by hand; raise [notify.command] timeout if it needs longer",
            ) from None
        finally:
            # Also where the daemon ends meanwhile.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            words.cancel()
        if status != 0:
            said = words.result() if words.done() and not words.cancelled() else ""
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise NotTakenError(
                "failed",
                f"{self._run[0]} {how}{f': {said}' if said else ''}",
                remedy="run it by hand with a message on its standard input",
            )


async def _feed(stdin: asyncio.StreamWriter | None, body: bytes) -> None:
    if stdin is None:
        return
    # A program need not read what it does not care for; its exit status is what counts.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(body)
        await stdin.drain()
    stdin.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stdin.wait_closed()


async def _last_words(descriptor: int) -> str:
    """The last line that a pipe brings, ours to close; all of it is read, so that nobody waits for a reader."""
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
    """`whsec_` marks base64, as Standard Webhooks writes its keys; any other text is the key itself."""
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
    return "it is tried again by itself; look at the receiver"


def _seconds(retry_after: str) -> float:
    return min(float(retry_after), LONGEST_RETRY_AFTER_S) if retry_after.isdecimal() else 0.0
