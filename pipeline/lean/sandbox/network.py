"""The only way out of a sandbox: an HTTP CONNECT proxy that lets named hosts pass and reports every refusal.

Owns the rules (`Rules`), the proxy (`Gateway`, a thread with its own event loop, on a unix socket and, for git, on the
loopback) and the command that joins a sandboxed program to it (`forwarded`). A host passes by its name, on ports 443
and 80; a literal address never does, nor a name with an address outside of the public ones. The name is looked up once,
and the connection goes to the very addresses that passed, so a name cannot change its mind in between. Inside a
connection the program speaks its own TLS, which is not looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType

from pipeline.lean.sandbox import forwarder

PORTS = (443, 80)
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""IPv6's public addresses; all others are local to a site, translated, or unassigned."""
_PROTOCOLS = ipaddress.IPv4Network("192.0.0.0/24")
_AZURE_AGENT = ipaddress.IPv4Address("168.63.129.16")
"""A public address by its number, but the host of the machine that asks: it gives out the machine's credentials."""
_HEAD_BYTES = 8192
_HEAD_S = 20.0
_CONNECT_S = 20.0
_IDLE_S = 120.0
_PREFIX = "everlean-gate-"
_MOST_CONNECTIONS = 128
_MOST_REFUSALS = 100
_CHUNK_BYTES = 64 * 1024

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused connection: its target ("host:port" as far as readable), and the reason."""

    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The allowed hosts: names or globs such as `*.example.org`, compared in lower case.

    `private_addresses` lets a name resolve to any address, for machines that replace the internet in tests.
    """

    hosts: tuple[str, ...]
    ports: tuple[int, ...] = PORTS
    private_addresses: bool = False

    def refuses(self, host: str, port: int) -> str | None:
        """Return why the host is refused, or None if it may be reached."""
        name = host.lower().removesuffix(".")
        if _is_literal(name):
            return "a literal address; only names can be allowed"
        if _HOST.fullmatch(name) is None:
            return "no host name"
        if not any(fnmatchcase(name, pattern.lower()) for pattern in self.hosts):
            return "not on the list of hosts"
        if port not in self.ports:
            return f"port {port}; only {', '.join(map(str, self.ports))}"
        return None

    def refuses_addresses(self, addresses: Sequence[str]) -> str | None:
        """Return why a name with these addresses is refused, or None."""
        if not addresses:
            return "the name leads to no address"
        hidden = [address for address in addresses if not _is_public(address)]
        if hidden and not self.private_addresses:
            return f"the name leads to {hidden[0]}, which is not a public address"
        return None


class Gateway:
    """The running proxy. A context manager; `refusals` may be read after its end too.

    Bind `socket` into a sandbox. With `tcp`, `url` is the same proxy on this machine's loopback, for programs outside
    of a sandbox.
    """

    def __init__(self, rules: Rules, *, tcp: bool = False, resolver: Resolver | None = None) -> None:
        self._rules = rules
        self._tcp = tcp
        self._resolve = resolver or _look_up
        self._folder: Path | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._refusals: dict[Refusal, None] = {}
        self._passed: dict[str, None] = {}
        self._open = 0
        self.url = ""

    @property
    def socket(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the gateway is not open")
        return self._folder / "proxy.sock"

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every refusal once, in the order of their first times, at most 100."""
        return tuple(self._refusals)

    @property
    def passed(self) -> tuple[str, ...]:
        """The targets of all connections made."""
        return tuple(self._passed)

    def __enter__(self) -> Gateway:
        _remove_orphans()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="gateway", daemon=True)
        self._thread.start()
        ready.wait()
        if self._error is not None:
            error = self._error
            self.__exit__(None, None, None)
            raise error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            if self._loop is not None and self._stop is not None and not self._loop.is_closed():
                with contextlib.suppress(RuntimeError):  # it closed between the question and the call
                    self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that opened it
            self._error = error
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._answer(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        servers: list[asyncio.Server] = [
            await asyncio.start_unix_server(accept, path=self.socket, limit=_HEAD_BYTES)
        ]
        if self._tcp:
            server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_HEAD_BYTES)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            servers.append(server)
        ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            try:
                if self._open > _MOST_CONNECTIONS:
                    # Before its head is read: silent clients would use up our descriptors.
                    raise _RefusedError(429, "", f"more than {_MOST_CONNECTIONS} connections at once")
                async with asyncio.timeout(_HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                opened = await self._open_target(head)
            except _RefusedError as refused:
                if len(self._refusals) < _MOST_REFUSALS:
                    self._refusals.setdefault(refused.refusal)
                writer.write(refused.response())
                await writer.drain()
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _join(reader, writer, *opened)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client's own connection failed or its request was none; it has gone
        finally:
            self._open -= 1
            writer.close()

    async def _open_target(self, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        method, _, rest = head.split(b"\r\n")[0].decode("latin-1").partition(" ")
        target = rest.split(" ")[0][:300]
        if method != "CONNECT":
            raise _RefusedError(405, target, f"{_plain(method[:20])} without a tunnel; only CONNECT passes")
        host, separator, number = target.rpartition(":")
        port = int(number) if separator and number.isascii() and number.isdecimal() and len(number) < 6 else 0
        host = host.lower().removesuffix(".")
        if reason := self._rules.refuses(host, port):
            raise _RefusedError(403, target, reason)
        try:
            async with asyncio.timeout(_CONNECT_S):
                addresses = await self._resolve(host, port)
        except (OSError, TimeoutError) as error:
            raise _RefusedError(502, target, f"cannot be looked up: {error}") from error
        if reason := self._rules.refuses_addresses(addresses):
            raise _RefusedError(403, target, reason)
        for address in addresses:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_S):
                    opened = await asyncio.open_connection(address, port)
                self._passed.setdefault(f"{host}:{port}")
                return opened
        raise _RefusedError(502, target, "no connection")


class _RefusedError(Exception):
    def __init__(self, status: int, target: str, reason: str) -> None:
        super().__init__(reason)
        self._status = status
        self.refusal = Refusal(_plain(target), reason)

    def response(self) -> bytes:
        body = f"refused by the daemon: {self.refusal.target}: {self.refusal.reason}\n".encode()
        head = f"HTTP/1.1 {self._status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode("ascii") + body


def _plain(text: str) -> str:
    """Return a program's text, made fit for a terminal."""
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)


def _remove_orphans() -> None:
    """Remove the folders of gateways with a killed process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)  # another user's stays


def forwarded(gateway_socket: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Return a prefix that gives a sandboxed program the proxy, and the paths to bind for it.

    The interpreter runs isolated: it reads no site packages, no variable and no folder of the project.
    """
    python = Path(sys.executable).resolve()
    source = Path(forwarder.__file__).read_text("utf-8")
    base = Path(sys.base_prefix).resolve()
    readable = (gateway_socket,) if base.is_relative_to("/usr") else (base, gateway_socket)
    return (str(python), "-I", "-S", "-c", source, str(gateway_socket)), readable


async def _look_up(host: str, port: int) -> Sequence[str]:
    result = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in result))


async def _join(
    client_reader: asyncio.StreamReader,
    client_writer: asyncio.StreamWriter,
    target_reader: asyncio.StreamReader,
    target_writer: asyncio.StreamWriter,
) -> None:
    """Carry bytes both ways until both sides have ended, or neither has sent anything for a while."""
    clock = asyncio.get_running_loop().time
    last = clock()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal last
        while True:
            try:
                async with asyncio.timeout(_IDLE_S):
                    data = await reader.read(_CHUNK_BYTES)
            except TimeoutError:
                if clock() - last < _IDLE_S:
                    continue  # the other direction is busy
                raise
            if not data:
                break
            last = clock()
            writer.write(data)
            async with asyncio.timeout(_IDLE_S):
                await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(carry(client_reader, target_writer))
            group.create_task(carry(target_reader, client_writer))
    except* (OSError, TimeoutError):
        pass  # one side broke off; both are closed now, and the program sees that
    finally:
        target_writer.close()


def _is_literal(host: str) -> bool:
    """Return whether a resolver may read this as an address, such as `127.1`, `0x7f000001` or `[::1]`."""
    if ":" in host or host.startswith("["):
        return True
    return _NUMERIC.fullmatch(host.rpartition(".")[2]) is not None


def _is_public(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(_is_public_itself(one) for one in _meant(address))


def _is_public_itself(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        hidden = address in _PROTOCOLS or address == _AZURE_AGENT
        return address.is_global and not address.is_multicast and not hidden
    return address in _NAT64 or (address in _UNICAST and address.is_global)


def _meant(address: Address) -> Sequence[Address]:
    """Return the address and the IPv4 addresses inside it."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    inner = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return (address, *(one for one in inner if one is not None))
