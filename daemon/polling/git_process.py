"""Run git: no prompt, no hooks, only our configuration, bounded output, a deadline, no process left behind.

Owns the environment of the process, the token in it, and its end. A remote's names and ids are checked here
before any command has them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from daemon.polling.errors import RemoteError, SlowGitError, classify
from daemon.polling.turns import Turns
from pipeline.redact import redact

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|//|/\.|\.lock(?:/|$)")


def is_branch_name(name: str) -> bool:
    """Return whether git could store `refs/heads/<name>` (git-check-ref-format), and UTF-8 can spell it."""
    parts = name.split("/")
    return bool(
        name
        and len(name.encode(errors="replace")) <= 250
        and not _NO_REF.search(name)
        and all(part and not part.startswith(".") for part in parts)
        and not name.endswith((".", "/"))
        and name != "@"
        and "�" not in name
    )


def is_sha(text: str) -> bool:
    """Return whether this is a full git object id."""
    return _SHA.fullmatch(text) is not None


def check_sha(sha: str) -> str:
    """Return a git object id in full.

    Raises:
        RemoteError: it is none.
    """
    if not _SHA.fullmatch(sha):
        raise RemoteError("invalid", f"{sha!r} is no git object id", remedy="report this as a defect")
    return sha


def check_branch(name: str) -> str:
    """Return a branch's name.

    Raises:
        RemoteError: git could not store it.
    """
    if not is_branch_name(name):
        raise RemoteError(
            "invalid", f"{name!r} is no valid branch name", remedy="rename the branch at its remote"
        )
    return name


_MOST_OUTPUT_BYTES = 256 * 2**20
_MOST_ERROR_BYTES = 2**20
_CHUNK_BYTES = 2**16
_LOWEST_PRIORITY = 19
_LAST_READ_S = 5.0
LONG = 10
"""Factor on the timeout of a clone or fetch, which depends on the size of the repository."""
_PATIENCE = 1 / 12
"""Share of its timeout after which a process loses its place: a remote may drip to the end."""
_PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "all_proxy",
    "ALL_PROXY",
)
_CONFIG = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("protocol.ext.allow", "never"),
    ("credential.helper", ""),
    ("submodule.recurse", "false"),
    # Commits cited in events must stay readable: nothing is collected behind our back.
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "30"),
)
_ENVIRONMENT = {
    "LC_ALL": "C",  # messages are matched
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ASKPASS": "",  # set and empty: no prompt
    "SSH_ASKPASS": "",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=20",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",  # a file may be called "*"
    "GIT_ALLOW_PROTOCOL": "file:https:http:ssh:git",
}


class GitProcess:
    """Runs git: `parallel` processes at a time, and more if some are slow.

    `token` gives the secret for a URL's host, or None; `safe` the paths of other users that it may read.
    """

    def __init__(
        self,
        *,
        timeout_s: float = 60.0,
        parallel: int = 4,
        token: Callable[[str], str | None] = lambda _url: None,
        safe: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.timeout_s = timeout_s
        self._token = token
        self._safe = safe
        self._turns = Turns(parallel)
        self._origins: dict[Path, tuple[tuple[int, int, int] | None, str | None]] = {}
        """By mirror the version of its configuration, and the URL in it."""

    async def _run(
        self,
        *arguments: str,
        mirror: Path | None = None,
        url: str | None = None,
        lazily_from: str | None = None,
        timeout_s: float | None = None,
        text: str = "",
        most_bytes: int = _MOST_OUTPUT_BYTES,
        in_background: bool = False,
    ) -> bytes:
        """Run git and return its output; `url` is the remote, None for work on a mirror alone.

        `lazily_from` is a remote for missing contents. Without one git is not let out: missing contents are
        an error at once. Processes `in_background` leave the processor to all others.

        Raises:
            RemoteError: it failed, took too long, or printed too much.
        """
        result = await self._try(
            *arguments,
            mirror=mirror,
            url=url or lazily_from,
            timeout_s=timeout_s,
            text=text,
            most_bytes=most_bytes,
            in_background=in_background,
        )
        if result.status != 0:
            remote = url is not None or "promisor remote" in result.err
            raise result.error(url or str(mirror or arguments[-1]), remote=remote)
        return result.out

    async def _try(
        self,
        *arguments: str,
        mirror: Path | None = None,
        url: str | None = None,
        timeout_s: float | None = None,
        text: str = "",
        most_bytes: int = _MOST_OUTPUT_BYTES,
        in_background: bool = False,
    ) -> GitResult:
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        token = self._token(url) if url else None
        argv = ["git", *(["--git-dir", str(mirror)] if mirror else []), *arguments]
        async with self._turns.one(patience_s=timeout_s * _PATIENCE):
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.PIPE if text else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=environment(url=url, token=token, safe=self._safe()),
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise RemoteError(
                    "invalid", "git: not found on PATH", remedy="install git (Debian: apt install git)"
                ) from error
            if in_background:
                with contextlib.suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST_PRIORITY)
            try:
                async with asyncio.timeout(timeout_s):
                    out, err = await _communicate(process, text.encode(), most_bytes=most_bytes)
            except _TooMuchError:
                raise RemoteError(
                    "invalid",
                    f"git {arguments[0]} of {url or mirror}: more than {most_bytes // 2**20} MiB of output",
                    remedy="check that the url is that of a repository of ordinary size",
                ) from None
            except TimeoutError:
                raise SlowGitError(
                    "unreachable",
                    f"git {arguments[0]} of {url or mirror}: no end after {timeout_s:g} s",
                    remedy="check the network, or raise [poll] timeout",
                ) from None
            finally:
                await _end(process)
        secrets = (token, _basic(token)) if token else ()
        return GitResult(process.returncode or 0, out, redact(err.decode(errors="replace"), secrets=secrets))


@dataclass(frozen=True, slots=True)
class GitResult:
    """The exit of a git process and its output (standard error without secrets)."""

    status: int
    out: bytes
    err: str

    def error(self, what: str, *, remote: bool = False) -> RemoteError:
        return classify(self.err, status=self.status, what=redact(what), remote=remote)


@lru_cache(maxsize=16)
def _telling(safe: tuple[str, ...]) -> str:
    """Return a git configuration file with these safe directories, for the life of this process.

    git clears its variables before it starts the other side of a path, but not the place of its global
    configuration.
    """
    lines = ["[safe]"]
    for path in safe:
        quoted = path.rstrip("/").replace("\\", "\\\\").replace('"', '\\"')
        lines += [f'\tdirectory = "{quoted}"', f'\tdirectory = "{quoted}/.git"']
    descriptor = os.memfd_create("everlean-gitconfig", os.MFD_CLOEXEC)
    os.write(descriptor, ("\n".join(lines) + "\n").encode())
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def environment(
    *, url: str | None = None, token: str | None = None, safe: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the whole environment of a git process: an allow-list, our switches, and our configuration.

    The token goes to the host of `url` only, in a header read from here: not from git's arguments, which
    every user of the machine can see, and not from a file, which would outlive it.
    """
    variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _ENVIRONMENT
    if url is None:
        # A partial mirror would ask its remote for missing objects, even when asked whether it has them.
        variables["GIT_ALLOW_PROTOCOL"] = "none"
    elif safe:
        variables["GIT_CONFIG_GLOBAL"] = _telling(safe)
    config = list(_CONFIG)
    if token and url:
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.netloc:
            config.append(
                (f"http.https://{parts.netloc}/.extraHeader", f"Authorization: Basic {_basic(token)}")
            )
    variables["GIT_CONFIG_COUNT"] = str(len(config))
    for index, (key, value) in enumerate(config):
        variables[f"GIT_CONFIG_KEY_{index}"] = key
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables


def _basic(token: str) -> str:
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


class _TooMuchError(Exception):
    """git prints without end."""


async def _communicate(
    process: asyncio.subprocess.Process, text: bytes, *, most_bytes: int
) -> tuple[bytes, bytes]:
    """Like `Process.communicate`, with bounds: a remote can make git print without end.

    Raises:
        _TooMuchError: standard output is longer; standard error is cut, and drained.
    """

    async def read(stream: asyncio.StreamReader | None, *, most: int, cut: bool) -> bytes:
        kept = bytearray()
        while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
            if len(kept) + len(chunk) > most and not cut:
                raise _TooMuchError
            kept += chunk[: max(0, most - len(kept))]
        return bytes(kept)

    async def write() -> None:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(text)
                await process.stdin.drain()
            process.stdin.close()

    out = asyncio.create_task(read(process.stdout, most=most_bytes, cut=False))
    err = asyncio.create_task(read(process.stderr, most=_MOST_ERROR_BYTES, cut=True))
    into = asyncio.create_task(write())
    try:
        await asyncio.gather(out, err, into)
    finally:
        for task in (out, err, into):
            task.cancel()
        await asyncio.gather(out, err, into, return_exceptions=True)
    await process.wait()
    return out.result(), err.result()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process group: git's helpers (ssh, git-remote-https) live in it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # asyncio's wait ends only after its pipes do, and a pipe not read to its end stays open for good.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_READ_S):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(_CHUNK_BYTES):  # noqa: ASYNC110 - reads, and does not poll
                    await asyncio.sleep(0)  # a full pipe never yields, and the timeout needs a turn
            await process.wait()
