"""Make a REPL build for one Lean version: elan's toolchain, Pantograph's source at a pinned commit, `lake build repl`.

Each step is a program in a sandbox that may write to one folder only; those that need the network reach a list of
hosts and nothing else; the last, a trial of the new REPL, has none. What is kept gets its place by one rename, so an
installation that ends anywhere leaves either the whole build or nothing but a folder that the next one sweeps away.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from pipeline.lean.backend import Sandbox
from pipeline.lean.build.lake import Bounds, LakeRunner, Outcome
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.sandbox.network import Gateway, Refusal, Rules, forwarded
from pipeline.lean.toolchain.toolchains import (
    MARKER,
    PANTOGRAPH,
    RECORD,
    REPL,
    LeanVersion,
    Toolchain,
    ToolchainError,
    Toolchains,
    VersionError,
    elan_home,
    file_record,
    find_elan,
    install_command,
    known_releases,
    parse_sha,
    parse_version,
    revision_for,
    stand_in_problem,
)
from store.files import sync, sync_tree

# ---- trial of a new REPL


_GOAL = '{"cmd":"goal.start","payload":{"expr":"True → True"}}'
_SCRIPT = 'printf "%s\\n" "$1" | "$0" Init'
_TRIAL_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a build. `problem` is "" or why the REPL is dropped; `output` is the last step's."""

    problem: str
    says: str
    output: Outcome


def try_repl(repl: Path, sysroot: Path, *, sandbox: Sandbox, folder: Path, seconds: float) -> Trial:
    """Run it twice, each time for so many seconds at most, in `folder`, which is made for it.

    Raises:
        pipeline.lean.sandbox.command.SandboxError: there is no sandbox.
    """
    folder.mkdir()
    bounds = Bounds(seconds)
    environment = {"LEAN_SYSROOT": str(sysroot), "PATH": f"{sysroot}/bin:/usr/bin:/bin"}
    runner = LakeRunner(repl, sysroot, sandbox, folder, readable=(repl.parent,), environment=environment)
    said = runner.run("--version", bounds=bounds)
    if not said.ok:
        return Trial(f"the new REPL does not say its version ({said.explain(bounds)})", "", said)
    says = " ".join(said.output.split())[:_TRIAL_SHOWN_CHARACTERS]
    if problem := stand_in_problem(repl, sysroot=sysroot, says=says):
        return Trial(problem, says, said)
    asked = runner.execute(("/bin/sh", "-c", _SCRIPT, str(repl), _GOAL), bounds=bounds)
    if not asked.ok:
        return Trial(f"the new REPL does not start ({asked.explain(bounds)})", says, asked)
    lines = asked.output.splitlines()
    answers = lines[lines.index("ready.") + 1 :] if "ready." in lines else []
    opened = any(_opens_goal(line) for line in answers)
    return Trial("" if opened else "the new REPL did not open a goal", says, asked)


def _opens_goal(line: str) -> bool:
    try:
        reply = json.loads(line)
    except ValueError:
        return False
    return isinstance(reply, dict) and "stateId" in reply and "error" not in reply


HOSTS = (
    "github.com",
    "codeload.github.com",
    "*.githubusercontent.com",
    "release.lean-lang.org",
    "releases.lean-lang.org",
)
"""Where elan finds Lean, and where Pantograph and the one package that it needs are."""
GET_ELAN = "run `everlean setup`, which installs it"
DISK_BYTES = 20 * 2**30
_LOGS = ".logs"
_SHOWN_CHARACTERS = 2000
_NO_SPACE = "No space left on device"
_ONLINE = "it needs the internet (DNS and https), or what is missing put there beforehand: docs/install.md"
_GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "file:https",
    "GIT_ASKPASS": "",
    # The source is identified by its commit, so it does not matter whose copy of it this is.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """The timeout of each step, in seconds."""

    elan_s: float = 1800.0
    git_s: float = 600.0
    build_s: float = 3600.0
    trial_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Installed:
    """The result of an installation; `made` is False if the build existed."""

    toolchain: Toolchain
    made: bool


def install(
    cache: Toolchains,
    version: LeanVersion,
    *,
    sandbox: Sandbox,
    revision: str = "",
    source: str = PANTOGRAPH,
    patience: Patience | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Installed:
    """Make sure that the cache has a sound build for this version.

    Args:
        revision: the full commit id of Pantograph to build, "" for the known one. Its own `lean-toolchain` has to name
            this version.
        source: a git URL (https or file) that has that commit.
        say: gets a line of progress now and then.

    Raises:
        ToolchainError: it cannot be made; the cache is as it was. `ToolchainBusyError` where another process is in
            the way.
    """
    sha = _revision(version, revision)
    with cache.installing(f"everlean toolchain install {version}"):
        there = cache.find(version)
        if there is not None and there.revision == sha:
            damage = cache.check(there)
            if not damage:
                return Installed(there, made=False)
            say(f"there is a damaged build, which will be replaced: {damage}")
        with cache.exclusively(version):
            pass  # a build that is in use cannot be replaced, and now is a better time to say so than after the work
        with _work(cache, str(version), cache.temporary(version.release)) as work:
            build = _Build(cache, version, sha, source, sandbox, patience or Patience(), say, work)
            return Installed(build.run(), made=True)


def install_lean(
    cache: Toolchains,
    version: LeanVersion,
    *,
    sandbox: Sandbox,
    say: Callable[[str], None] = lambda _text: None,
) -> Path:
    """Make sure that elan has a Lean version; return its folder. `cache` is where the work is done and locked.

    Raises:
        ToolchainError: it cannot be had; nothing was changed.
    """
    with (
        cache.installing(f"everlean setup, {version}"),
        _work(cache, str(version), cache.temporary(version.release)) as work,
        Gateway(Rules(HOSTS)) as gateway,
    ):
        build = _Build(cache, version, "", PANTOGRAPH, sandbox, Patience(), say, work)
        return build._have_lean(_NetworkAccess(gateway, sandbox))


ELAN_ARCHIVE = (
    "https://github.com/leanprover/elan/releases/latest/download/elan-{machine}-unknown-linux-gnu.tar.gz"
)
_ELAN_MOST_BYTES = 100 * 2**20


def install_elan(
    cache: Toolchains, *, archive: str = "", sandbox: Sandbox, say: Callable[[str], None] = lambda _text: None
) -> Path:
    """Install elan, without a Lean and without a change of any PATH; return the program.

    Args:
        archive: a release of elan, as the path of its .tar.gz or its URL; "" is the newest for this machine.

    Raises:
        ToolchainError: it cannot be had; nothing was changed.
    """
    with cache.installing("everlean setup, elan"), _work(cache, "elan", cache.temporary("elan")) as work:
        archive = archive or ELAN_ARCHIVE.format(machine=platform.machine())
        say(f"elan, from {archive}")
        _unpack_elan(_fetched(archive, work), work / "elan-init")
        home = elan_home()
        home.mkdir(parents=True, exist_ok=True)
        runner = LakeRunner(
            work / "elan-init",
            None,
            sandbox,
            work,
            readable=(work,),
            writable=(home,),
            environment={"ELAN_HOME": str(home)},
        )
        bounds = Bounds(Patience().elan_s, disk_bytes=DISK_BYTES, watched=(home,))
        done = runner.run("-y", "--no-modify-path", "--default-toolchain", "none", bounds=bounds)
        elan = find_elan()
        if not done.ok or elan is None:
            raise ToolchainError(
                f"elan: its installer made no {home / 'bin' / 'elan'} ({done.explain(bounds)}); the end of its"
                f" output:\n{done.end(_SHOWN_CHARACTERS)}"
            )
        return elan


def _fetched(archive: str, work: Path) -> Path:
    """Return the archive as a file of this machine."""
    parts = urlsplit(archive)
    if not parts.scheme:
        if not Path(archive).is_file():
            raise ToolchainError(f"elan: {archive}: no such file; name a release's .tar.gz, or its URL")
        return Path(archive)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost"):
        raise ToolchainError(f"elan: {archive}: not fetched; give an https URL, or the path of a file")
    target = work / "elan.tar.gz"
    try:
        with urllib.request.urlopen(archive, timeout=60) as answer:  # noqa: S310 - the scheme was looked at
            data = answer.read(_ELAN_MOST_BYTES + 1)
    except OSError as error:
        raise ToolchainError(
            f"elan: {archive}: {getattr(error, 'reason', error)}; {_ONLINE}: fetch that file elsewhere, and name it"
            " with --elan FILE"
        ) from error
    if len(data) > _ELAN_MOST_BYTES:
        raise ToolchainError(
            f"elan: {archive}: more than {_ELAN_MOST_BYTES // 2**20} MiB, so no release of elan"
        )
    target.write_bytes(data)
    return target


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
        raise ToolchainError(
            f"elan: {archive}: no release of elan, which is a .tar.gz with elan-init ({error}); see"
            " https://github.com/leanprover/elan/releases"
        ) from error
    target.chmod(0o755)


@contextlib.contextmanager
def _work(cache: Toolchains, what: str, work: Path) -> Iterator[Path]:
    """Yield the folder of one installation, which is thrown away at the end; name what went wrong below it."""
    cache.sweep()
    try:
        work.mkdir(parents=True)
        yield work
    except SandboxError as error:
        raise ToolchainError(f"{what}: not installed: {error}") from error
    except OSError as error:
        where = error.filename2 or error.filename or work
        raise ToolchainError(
            f"{what}: not installed: {where}: {error.strerror or error}; an installation needs some GiB below"
            f" {cache.folder}, and this user's right to write there"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _revision(version: LeanVersion, asked: str) -> str:
    try:
        if asked:
            return parse_sha(asked)
    except VersionError as error:
        raise ToolchainError(f"--revision {error}") from error
    known = revision_for(version)
    if known is None:
        raise ToolchainError(
            f"{version}: no revision of Pantograph is known for this Lean version; known are"
            f" {', '.join(known_releases())}. Give one that is made for it with --revision SHA"
            f" (its lean-toolchain must say {version.toolchain}), or do without: after"
            f" `{install_command(version)}` its branches are traced, searched and checked with Lean's own toolchain"
        )
    return known.sha


@dataclass(frozen=True, slots=True)
class _Build:
    """One installation under way; `work` is its folder, which is thrown away at the end."""

    cache: Toolchains
    version: LeanVersion
    sha: str
    source: str
    sandbox: Sandbox
    patience: Patience
    say: Callable[[str], None]
    work: Path
    started: float = field(default_factory=time.monotonic)

    def run(self) -> Toolchain:
        rules, local = self._places()
        git = shutil.which("git")
        if git is None:  # before Lean is fetched, which takes long
            raise ToolchainError(f"{self.version}: git is not on PATH; install it (Debian: apt install git)")
        with Gateway(rules) as gateway:
            online = _NetworkAccess(gateway, self.sandbox)
            sysroot = self._have_lean(online)
            checkout = self._have_source(online, Path(git).resolve(), local)
            self._have_repl(online, sysroot, checkout)
        made = self._collect(checkout)
        self.say("trying it")
        tried = try_repl(
            made / REPL,
            sysroot,
            sandbox=self.sandbox,
            folder=self.work / "trial",
            seconds=self.patience.trial_s,
        )
        if tried.problem:
            self._fail(tried.problem, tried.output, ())
        says = tried.says
        return self._keep(made, sysroot, says)

    def _places(self) -> tuple[Rules, tuple[Path, ...]]:
        """Return where the network leads to, and which folder of this machine the source is in."""
        parts = urlsplit(self.source)
        if parts.scheme == "file" and parts.path.startswith("/"):
            folder = Path(parts.path)
            if not folder.is_dir():
                raise ToolchainError(f"--source {self.source}: {folder} is not a folder")
            return Rules(HOSTS), (folder,)
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise ToolchainError(
                f"--source {self.source}: give the URL of a git repository, https://… or file:///…"
            )
        return Rules((*HOSTS, parts.hostname)), ()

    def _have_lean(self, online: _NetworkAccess) -> Path:
        home = elan_home()
        sysroot = home / "toolchains" / self.version.elan_folder
        elan = find_elan()
        if _has_lean(sysroot):
            return sysroot
        if elan is None:
            raise ToolchainError(f"{self.version}: elan is not on PATH and not in {home / 'bin'}; {GET_ELAN}")
        self.say(f"elan toolchain install {self.version.toolchain}")
        try:
            (home / "toolchains").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ToolchainError(
                f"{home}: {error.strerror}; set ELAN_HOME to a folder of this user"
            ) from error
        bounds = Bounds(self.patience.elan_s, disk_bytes=DISK_BYTES, watched=(home,))
        runner = LakeRunner(
            elan, None, self.sandbox, self.work, writable=(home,), environment={"ELAN_HOME": str(home)}
        )
        done = online(runner).run("toolchain", "install", self.version.toolchain, bounds=bounds)
        self._hold(done, bounds, "elan could not install it", online)
        if not _has_lean(sysroot):
            # elan takes any folder of that name for an installed toolchain.
            raise ToolchainError(
                f"{self.version}: {sysroot} has no bin/lean and bin/lake; run"
                f" `elan toolchain uninstall {self.version.toolchain}` and try again"
            )
        return sysroot

    def _have_source(self, online: _NetworkAccess, git: Path, local: tuple[Path, ...]) -> Path:
        checkout = self.work / "source"
        checkout.mkdir()
        self.say(f"git fetch {self.source} {self.sha[:12]}")
        runner = LakeRunner(
            git, None, self.sandbox, checkout, readable=local, writable=(checkout,), environment=_GIT
        )
        bounds = Bounds(self.patience.git_s, disk_bytes=DISK_BYTES, watched=(checkout,))

        def run(*arguments: str) -> Outcome:
            return online(runner).run(*arguments, bounds=bounds)

        self._hold(run("init", "--quiet"), bounds, "git init failed", online)
        fetched = run("fetch", "--quiet", "--no-tags", "--depth", "1", "--", self.source, self.sha)
        if not fetched.ok and fetched.ending == "exited":
            # Not every server gives a commit that no branch points to: take all its branches.
            fetched = run("fetch", "--quiet", "--no-tags", "--", self.source, "+refs/*:refs/everlean/*")
        self._hold(fetched, bounds, f"{self.source}: git could not fetch it", online)
        out = run("-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--detach", self.sha, "--")
        self._hold(out, bounds, f"{self.source}: has no commit {self.sha}", online)
        head = run("rev-parse", "HEAD")
        if head.output.strip() != self.sha:
            raise ToolchainError(
                f"{self.version}: {self.source} gave commit {head.output.strip()[:60]}, not {self.sha}; not built"
            )
        self._hold_version(checkout / MARKER)
        return checkout

    def _hold_version(self, marker: Path) -> None:
        try:
            written = marker.read_text("utf-8", errors="replace").strip()
        except OSError as error:
            raise ToolchainError(
                f"{self.version}: Pantograph at {self.sha} has no {MARKER}: {error}"
            ) from error
        try:
            fits = parse_version(written) == self.version
        except VersionError:
            fits = False
        if not fits:
            raise ToolchainError(
                f"{self.version}: Pantograph at {self.sha} is made for {written[:80]!r} ({MARKER}), not for"
                f" {self.version.toolchain}; not built. Give a commit that is with --revision SHA"
            )

    def _have_repl(self, online: _NetworkAccess, sysroot: Path, checkout: Path) -> None:
        self.say("lake build repl")
        bounds = Bounds(self.patience.build_s, disk_bytes=DISK_BYTES, watched=(checkout,))
        runner = LakeRunner(
            sysroot / "bin" / "lake", sysroot, self.sandbox, checkout, writable=(checkout,), environment=_GIT
        )
        done = online(runner).run("build", "repl", bounds=bounds, on_line=_progress(self.say))
        self._hold(done, bounds, "`lake build repl` failed", online)

    def _collect(self, checkout: Path) -> Path:
        """Copy what is kept into a folder of its own."""
        built = checkout / ".lake" / "build" / "bin" / "repl"
        if built.is_symlink() or not built.is_file():
            raise ToolchainError(
                f"{self.version}: `lake build repl` ended well but made no .lake/build/bin/repl"
            )
        made = self.work / "made"
        made.mkdir()
        shutil.copyfile(built, made / REPL)
        (made / REPL).chmod(0o755)
        (made / MARKER).write_text(self.version.toolchain + "\n", "utf-8")
        return made

    def _keep(self, made: Path, sysroot: Path, says: str) -> Toolchain:
        """Write the record, make all of it durable, and give it its place."""
        toolchain = Toolchain(
            version=self.version,
            folder=self.cache.folder / self.version.release,
            sysroot=str(sysroot),
            revision=self.sha,
            source=self.source,
            says=says,
            built_at=datetime.now(UTC).isoformat(timespec="seconds"),
            built_with=f"lake build repl, {self.sandbox}",
            seconds=round(time.monotonic() - self.started, 1),
            files=tuple(file_record(made / name) for name in (REPL, MARKER)),
        )
        (made / RECORD).write_text(json.dumps(toolchain.record(), indent=1) + "\n", "utf-8")
        sync_tree(made)
        with self.cache.exclusively(self.version):
            if toolchain.folder.exists():
                toolchain.folder.rename(self.work / "replaced")
            made.rename(toolchain.folder)
            sync(self.cache.folder)
        return toolchain

    def _hold(self, done: Outcome, bounds: Bounds, what: str, online: _NetworkAccess) -> None:
        """Go on where a step ended well; else keep its output and raise with the end of it."""
        if done.ok:
            return
        # What a program says of a full disk counts as its bound on the disk; it is the disk that is to be named.
        full = done.ending == "disk" and _NO_SPACE in done.output
        how = (
            f"no space left on the disk of {self.work.parent} or {elan_home()}"
            if full
            else done.explain(bounds)
        )
        self._fail(f"{what} ({how})", done, online.refusals)

    def _fail(self, what: str, done: Outcome, refused: Sequence[Refusal]) -> NoReturn:
        """Keep the whole output, and raise with the end of it and the hosts that could not be reached."""
        text = f"{self.version}: {what}"
        log = self.cache.folder / _LOGS / f"{self.version.release}.log"
        where = f" ({log})"
        try:
            log.parent.mkdir(exist_ok=True)
            log.write_text(f"{text}\n\n{done.output}", "utf-8")
        except OSError:  # a full disk must not hide what went wrong
            where = ""
        hosts = "".join(f"\nrefused: {one.target} ({one.reason})" for one in refused)
        hint = f"\n{_ONLINE}" if refused else ""
        raise ToolchainError(
            f"{text}; nothing was installed. The end of its output{where}:\n{done.end(_SHOWN_CHARACTERS)}{hosts}{hint}"
        )


class _NetworkAccess:
    """Gives a step the network: through the list of hosts in the sandbox, as it is without one."""

    def __init__(self, gateway: Gateway, sandbox: Sandbox) -> None:
        self._gateway = gateway
        self._sandbox = sandbox

    def __call__(self, runner: LakeRunner) -> LakeRunner:
        if self._sandbox == "none":
            return runner
        wrap, readable = forwarded(self._gateway.socket)
        return replace(runner, wrap=wrap, readable=(*readable, *runner.readable), certificates=True)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return self._gateway.refusals


def _has_lean(sysroot: Path) -> bool:
    return all((sysroot / "bin" / name).exists() for name in ("lean", "lake"))


def _progress(say: Callable[[str], None]) -> Callable[[str], None]:
    """Pass on what lake says it has built, not what the compiler says of it."""

    def line(text: str) -> None:
        if text.lstrip().startswith(("✔", "⚠", "✖", "info:")):
            say(f"  {text.strip()}")

    return line
