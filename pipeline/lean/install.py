"""Install elan, and Lean versions by elan, for `everlean setup`.

Each step is a program in a sandbox that can write only to elan's folder and its own, and reach a list of hosts. An
aborted step leaves no half of a Lean: elan names a toolchain only once it is complete.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from pipeline.http_client import REDIRECTS, HttpClient, NoAnswerError
from pipeline.lean.backend import Sandbox
from pipeline.lean.build.lake import Bounds, LakeRunner, Outcome
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.sandbox.network import Gateway, Rules, forwarded
from pipeline.lean.toolchain.versions import LeanVersion, elan_home, find_elan
from store.files import HeldError, lock

HOSTS = (
    "github.com",
    "codeload.github.com",
    "*.githubusercontent.com",
    "release.lean-lang.org",
    "releases.lean-lang.org",
)
"""Elan's sources of Lean."""
STEP_S = 1800.0
STEP_BYTES = 20 * 2**30
ELAN_ARCHIVE = (
    "https://github.com/leanprover/elan/releases/latest/download/elan-{machine}-unknown-linux-gnu.tar.gz"
)
_ELAN_MOST_BYTES = 100 * 2**20
_ELAN_S = 600.0
_MOST_REDIRECTS = 6
_SHOWN_CHARACTERS = 2000
_NO_SPACE = "No space left on device"
_ONLINE = "it needs the internet (DNS and https), or what is missing put there beforehand: docs/install.md"


class InstallError(Exception):
    """An installation failed; the message has the thing, the reason and the remedy."""


class BusyError(InstallError):
    """Another process installs."""


@contextmanager
def installing(folder: Path, *, sandbox: Sandbox, say: Callable[[str], None]) -> Iterator[Installer]:
    """Hold the right to install, and yield an installer; `folder` is its workplace, emptied before and after.

    Args:
        say: gets a line of progress now and then.

    Raises:
        BusyError: another process has that right; the message names it.
        InstallError: the folder cannot be used.
    """
    work = folder / "work"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = lock(folder / "lock", wait_s=0)
    except HeldError as error:
        raise BusyError(f"{folder}: {error.note} installs; wait for its end") from error
    except OSError as error:
        raise InstallError(
            f"{folder}: {error.strerror}; give this user write permission there, or run this as the daemon's user"
        ) from error
    with held:
        try:
            held.leave_note(f"process {os.getpid()}")
            shutil.rmtree(work, ignore_errors=True)  # of a killed process
            work.mkdir()
            yield Installer(work, sandbox, say)
        except SandboxError as error:
            raise InstallError(f"not installed: {error}") from error
        except OSError as error:
            where = error.filename2 or error.filename or work
            raise InstallError(f"not installed: {where}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Installer:
    """Installs one thing after the other, from a folder of its own. Made by `installing`."""

    work: Path
    sandbox: Sandbox
    say: Callable[[str], None]

    def elan(self, archive: str = "") -> None:
        """Install elan, without a Lean and without a change of any PATH.

        Args:
            archive: a release of elan, as the path of its .tar.gz or its URL; "" is the newest for this machine.

        Raises:
            InstallError: it cannot be had; nothing was changed.
        """
        archive = archive or ELAN_ARCHIVE.format(machine=platform.machine())
        self.say(f"elan, from {archive}")
        program = self.work / "elan-init"
        _unpack_elan(_fetched(archive, self.work), program)
        result = self._run(program, "-y", "--no-modify-path", "--default-toolchain", "none", online=False)
        if find_elan() is None:
            raise InstallError(
                f"elan: its installer made no {elan_home() / 'bin' / 'elan'}; the end of its output:\n"
                f"{result.end(_SHOWN_CHARACTERS)}"
            )

    def lean(self, version: LeanVersion) -> None:
        """Have elan install a Lean version, unless it has it.

        Raises:
            InstallError: it cannot be had; nothing was changed.
        """
        if _is_whole(version):
            return
        elan = find_elan()
        if elan is None:
            raise InstallError(
                f"{version}: elan is not on PATH and not in {elan_home() / 'bin'}; run `everlean setup`"
            )
        self.say(f"elan toolchain install {version.toolchain}")
        self._run(elan, "toolchain", "install", version.toolchain, online=True)
        if not _is_whole(version):
            # elan takes any folder of that name for an installed toolchain.
            raise InstallError(
                f"{version}: {version.sysroot} has no bin/lean and bin/lake; run"
                f" `elan toolchain uninstall {version.toolchain}` and try again"
            )

    def _run(self, program: Path, *arguments: str, online: bool) -> Outcome:
        """Run a program that installs into elan's folder to its end.

        Raises:
            InstallError: it did not end well; with the end of its output, and its refused hosts.
        """
        home = elan_home()
        try:
            (home / "toolchains").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InstallError(f"{home}: {error.strerror}; set ELAN_HOME to a folder of this user") from error
        bounds = Bounds(STEP_S, disk_bytes=STEP_BYTES, watched=(home,))
        runner = LakeRunner(
            program, None, self.sandbox, self.work, writable=(home,), environment={"ELAN_HOME": str(home)}
        )
        with Gateway(Rules(HOSTS)) as gateway:
            if online and self.sandbox != "none":
                wrap, readable = forwarded(gateway.socket)
                runner = replace(runner, wrap=wrap, readable=readable, certificates=True)
            result = runner.run(*arguments, bounds=bounds)
            refusals = gateway.refusals
        if result.ok:
            return result
        # A program's complaint of a full disk counts as its bound on the disk; the error should name the disk.
        full = result.ending == "disk" and _NO_SPACE in result.output
        how = f"no space left on the disk of {home}" if full else result.explain(bounds)
        hosts = "".join(f"\nrefused: {one.target} ({one.reason})" for one in refusals)
        raise InstallError(
            f"{program.name} {' '.join(arguments)}: {how}; nothing was installed. The end of its output:\n"
            f"{result.end(_SHOWN_CHARACTERS)}{hosts}" + (f"\n{_ONLINE}" if refusals else "")
        )


def _is_whole(version: LeanVersion) -> bool:
    return all((version.sysroot / "bin" / name).exists() for name in ("lean", "lake"))


def _fetched(archive: str, work: Path) -> Path:
    """Return the archive as a file of this machine."""
    parts = urlsplit(archive)
    if not parts.scheme:
        if not Path(archive).is_file():
            raise InstallError(f"elan: {archive}: no such file; name a release's .tar.gz, or its URL")
        return Path(archive)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost"):
        raise InstallError(f"elan: {archive}: not fetched; give an https URL, or the path of a file")
    target = work / "elan.tar.gz"
    try:
        target.write_bytes(asyncio.run(_downloaded(archive)))
    except NoAnswerError as error:
        if error.reason == "too_long":
            raise InstallError(
                f"elan: {archive}: more than {_ELAN_MOST_BYTES // 2**20} MiB, so no release of elan"
            ) from error
        raise InstallError(
            f"elan: {archive}: {error}; {_ONLINE}: fetch that file elsewhere, and name it with --elan FILE"
        ) from error
    return target


async def _downloaded(address: str) -> bytes:
    """Return the content of an address, following redirects: GitHub keeps releases on another host.

    Raises:
        NoAnswerError: it cannot be had.
    """
    async with HttpClient(seconds=_ELAN_S, most_bytes=_ELAN_MOST_BYTES) as client:
        encrypted = address.startswith("https:")
        for _ in range(_MOST_REDIRECTS):
            answer = await client.call("GET", address)
            if answer.status == 200:
                return answer.data
            if answer.status not in REDIRECTS:
                raise NoAnswerError("broken", f"it answered {answer.status}")
            try:
                address = urljoin(address, answer.headers.get("location", ""))
            except ValueError as error:
                raise NoAnswerError("broken", f"it redirects to what is no address ({error})") from error
            if encrypted and not address.startswith("https:"):
                raise NoAnswerError("broken", "it redirects to what is not encrypted")
        raise NoAnswerError("broken", "it redirects in a circle")


def _unpack_elan(archive: Path, target: Path) -> None:
    """Take the installer, and nothing else, out of a release."""
    try:
        with tarfile.open(archive) as files:
            member = files.getmember("elan-init")
            content = files.extractfile(member)
            if content is None or member.size > _ELAN_MOST_BYTES:
                raise KeyError("elan-init")
            target.write_bytes(content.read())
    except (tarfile.TarError, KeyError, EOFError, OSError) as error:
        raise InstallError(
            f"elan: {archive}: no release of elan, which is a .tar.gz with elan-init ({error}); see"
            " https://github.com/leanprover/elan/releases"
        ) from error
    target.chmod(0o755)
