"""Fetch and build the packages of a project's manifest, once for each (toolchain, manifest).

`<cache>/dependencies/<key>/packages/<name>` and `dependency.json` beside it; they appear at once, complete, and are
read-only from then on. Only fetching has a network, through `pipeline.lean.sandbox.network`, git included; building has
none. `lake update` is never called: revisions are those of the manifest.

The project's own lakefile does not run here. Every commit and repository with the same key shares this cache, so only
code named by the key itself may touch it: the packages are fetched, with their caches, and built below a root of our
own making, which requires each of them at its revision and holds nothing else. The project is built elsewhere
(`pipeline.build`), with this folder read-only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

from pipeline.lean.build.build_cache import put_aside, settle
from pipeline.lean.build.lake import MOST_PROCESSES, Bounds, LakeRunner, Outcome
from pipeline.lean.build.trees import remove_tree
from pipeline.lean.sandbox.bounded import run_bounded
from pipeline.lean.sandbox.network import Gateway, Refusal, Rules, forwarded
from pipeline.lean.source.manifest import MOST_BYTES, GitPackage, Manifest
from pipeline.lean.source.worktree import read_beginning, read_inside
from store.files import HeldError, Lock, lock, sync

_RELEASED = re.compile(rb"^\s*preferReleaseBuild\s*:?=\s*true\b", re.MULTILINE)


# ---- git packages
# The clone runs no hooks, no configuration but ours, no submodules, no LFS, no protocol but the URL's own, and makes
# no links; every connection goes through the given proxy. It keeps its `.git` because Lake reads the commit and
# remote there. Git never runs in it again outside a sandbox: code of the packages may have written there.


_CONFIG = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.symlinks", "false"),
    ("core.protectNTFS", "true"),
    ("core.protectHFS", "true"),
    ("core.autocrlf", "false"),
    ("credential.helper", ""),
    ("submodule.recurse", "false"),
    ("filter.lfs.smudge", ""),
    ("filter.lfs.process", ""),
    ("filter.lfs.required", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("http.followRedirects", "initial"),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "30"),
    ("advice.detachedHead", "false"),
    ("init.defaultBranch", "main"),
)
_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
_SPECIAL, _ESCAPED = re.compile(r"([*?\[\]!# ])"), r"\\\1"
_PASSED_ON = ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")


class GitFailedError(Exception):
    """git failed; the message is its output."""


def fetch_package(
    package: GitPackage,
    target: Path,
    *,
    proxy: str,
    timeout_s: float,
    disk_bytes: int | None = None,
    memory_bytes: int | None = None,
    only: tuple[str, ...] = (),
) -> None:
    """Check the package's commit out into the new folder `target`.

    Only the commit is fetched; if a server gives no commit by its id, its branches and tags are fetched. `proxy` is the
    URL of an HTTP proxy for every connection. `only`: check out no more than these files of the commit, those that
    exist, and fetch no more, if the server can send files alone.

    Raises:
        GitFailedError: it cannot be fetched or is not there; `target` may hold a part of it.
    """
    deadline = time.monotonic() + timeout_s
    target.mkdir(parents=True)
    git = _Git(target, package.url, proxy, deadline, disk_bytes, memory_bytes)
    git.run(
        "init", "--quiet", "--template=", f"--object-format={'sha256' if len(package.rev) == 64 else 'sha1'}"
    )
    git.run("config", "core.symlinks", "false")
    git.run("remote", "add", "--", "origin", package.url)
    fetch = ["fetch", "--quiet", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance"]
    if only:
        git.run("config", "core.sparseCheckout", "true")
        (target / ".git" / "info").mkdir(exist_ok=True)
        lines = "".join(f"/{_SPECIAL.sub(_ESCAPED, name)}\n" for name in only)
        (target / ".git" / "info" / "sparse-checkout").write_text(lines, "utf-8")
        fetch.append("--filter=blob:none")
    try:
        git.run(*fetch, "--no-tags", "--depth=1", "--", "origin", package.rev)
    except GitFailedError:
        git.run(*fetch, "--tags", "--", "origin", "+refs/heads/*:refs/remotes/origin/*")
    git.run("checkout", "--quiet", "--detach", package.rev, "--")


def is_published(
    package: GitPackage,
    scratch: Path,
    *,
    proxy: str,
    timeout_s: float,
    disk_bytes: int | None = None,
    memory_bytes: int | None = None,
) -> bool:
    """Return whether the commit is on its repository's default branch, or on the manifest's tag.

    A forge gives a commit by its id from any fork of the repository, so its URL alone does not tell its owner.
    `scratch` is a new folder, removed afterwards; only commits are fetched into it, if the server can send them alone.
    """
    git = _Git(scratch, package.url, proxy, time.monotonic() + timeout_s, disk_bytes, memory_bytes)
    try:
        scratch.mkdir(parents=True)
        kind = "sha256" if len(package.rev) == 64 else "sha1"
        git.run("init", "--quiet", "--bare", "--template=", f"--object-format={kind}")
        for ref in ("HEAD", f"refs/tags/{package.input_rev}"):
            try:
                git.run(
                    "fetch",
                    "--quiet",
                    "--no-tags",
                    "--filter=tree:0",
                    "--",
                    package.url,
                    f"+{ref}:refs/heads/it",
                )
                git.run("merge-base", "--is-ancestor", package.rev, "refs/heads/it")
            except GitFailedError:
                continue
            return True
        return False
    except GitFailedError:
        return False
    finally:
        remove_tree(scratch)


class _Git:
    def __init__(
        self,
        folder: Path,
        url: str,
        proxy: str,
        deadline: float,
        disk_bytes: int | None,
        memory_bytes: int | None,
    ) -> None:
        self._folder = folder
        self._deadline = deadline
        self._disk_bytes = disk_bytes
        self._memory_bytes = memory_bytes
        scheme = urlsplit(url).scheme
        config = [*_CONFIG, ("http.proxy", proxy)]
        self._environment = {
            **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            **_ENVIRONMENT,
            "GIT_ALLOW_PROTOCOL": scheme,
            "GIT_CEILING_DIRECTORIES": str(folder.parent),
            "GIT_CONFIG_COUNT": str(len(config)),
            **{f"GIT_CONFIG_KEY_{index}": key for index, (key, _) in enumerate(config)},
            **{f"GIT_CONFIG_VALUE_{index}": value for index, (_, value) in enumerate(config)},
        }

    def run(self, *arguments: str) -> None:
        # git runs outside of any sandbox: this ends it with a killed job.
        command = ("setpriv", "--pdeathsig", "KILL", "--", "git", *arguments)
        left = max(1.0, self._deadline - time.monotonic())
        bounds = Bounds(left, self._memory_bytes, None, self._disk_bytes, (self._folder,))
        outcome = run_bounded(command, cwd=self._folder, bounds=bounds, environment=self._environment)
        if not outcome.ok:
            text = " ".join(outcome.end(500).split())
            raise GitFailedError(
                f"git {arguments[0]}: {outcome.explain(bounds)}: {text or 'it said nothing'}"
            )


DEPENDENCIES = "dependencies"
DESCRIPTION = "dependency.json"
PACKAGES = "packages"
LOCK = "lock"
_ROOT_NAME = "everlean_dependencies"
_SCHEMA = 1
OF_LEAN = ("https://github.com/leanprover/", "https://github.com/leanprover-community/")
"""Addresses of Lean's own organisations."""

Step = Callable[[str], None]
Reason = Literal[
    "dependencies_unreachable", "dependency_refused", "dependencies_timeout", "dependencies_too_large"
]


class DependencyError(Exception):
    """The packages are not there. `passing`: trying again later can help."""

    def __init__(self, reason: Reason, message: str, *, remedy: str, passing: bool) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.remedy = remedy
        self.passing = passing


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The packages under a key.

    `cache` tells the fate of Mathlib's compiled files: "" (none offered), "fetched", or the error. `not_built` is ""
    or the end of lake's output if the packages did not build completely; a project may still do with the rest.
    `refusals` are the refused connections. `trusted`: every package is published by Lean's own organisations, so
    nobody else's code took part in the build.
    """

    key: str
    toolchain: str
    packages: tuple[str, ...]
    cache: str
    not_built: str
    refusals: tuple[Refusal, ...]
    bytes: int
    seconds: float
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class PackageFiles:
    """A package's Lean and manifest at its commit; "" and None without one."""

    toolchain: str
    manifest: bytes | None


def key_of(toolchain: str, manifest: bytes) -> str:
    """Return the key of a toolchain's and a manifest's packages: 64 hex digits."""
    digest = hashlib.sha256()
    for part in (toolchain.encode(), manifest):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def folder_of(cache: Path, key: str) -> Path:
    """Return a key's folder, whether it exists or not; the packages themselves are in `packages` below it."""
    return cache.absolute() / DEPENDENCIES / key


def read_dependencies(cache: Path, key: str) -> Dependencies | None:
    """Return the packages under a key, None if there are none or another version wrote them."""
    folder = folder_of(cache, key)
    try:
        raw = json.loads((folder / DESCRIPTION).read_bytes())
        if raw.pop("schema") != _SCHEMA or not (folder / LOCK).is_file():
            return None
        raw["refusals"] = tuple(Refusal(**refusal) for refusal in raw["refusals"])
        return Dependencies(**{**raw, "packages": tuple(raw["packages"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches and builds packages for one project.

    `runner` is the project's lake; only its program, toolchain and sandbox are used. `timeout_s` is for the whole of
    it, `disk_bytes` for the folder. `rules` hold for git and the cache program alike. `on_step` receives the name of
    each step.
    """

    cache: Path
    runner: LakeRunner
    rules: Rules
    timeout_s: float
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    on_step: Step = lambda _note: None

    def ensure(self, *, toolchain: str, manifest: Manifest, key: str) -> Dependencies:
        """Return the packages of the key, after fetching and building them if they are not there yet.

        Of several callers at once one works and the others wait for it.

        Raises:
            DependencyError: they cannot be had. Nothing is left under the key.
            SandboxError: the sandbox cannot be composed.
        """
        if (found := read_dependencies(self.cache, key)) is not None:
            return found
        folder = folder_of(self.cache, key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / f".{key}.lock", self.on_step):
            if (found := read_dependencies(self.cache, key)) is not None:
                return found
            put_aside(folder)  # another version's, or not ours
            staging = folder.parent / f".new-{key}"
            remove_tree(staging)
            try:
                result = self._make(staging, folder, toolchain=toolchain, manifest=manifest, key=key)
                staging.rename(folder)
            finally:
                remove_tree(staging)
        return result

    def files_of(self, package: GitPackage, scratch: Path) -> PackageFiles:
        """Return a package's toolchain and manifest; only they are fetched, into `scratch`, removed afterwards.

        Raises:
            DependencyError: it cannot be fetched.
            OSError: its manifest is no plain file, or larger than `MOST_BYTES`.
        """
        folder = PurePosixPath(package.subdir)
        toolchain, manifest = str(folder / "lean-toolchain"), str(folder / package.manifest_file)
        try:
            with Gateway(self.rules, tcp=True) as gateway:
                self._fetch(package, scratch, gateway, self.timeout_s, only=(toolchain, manifest))
            lean = read_beginning(scratch, toolchain, most_bytes=1000).decode(errors="replace").strip()
            try:
                return PackageFiles(lean, read_inside(scratch, manifest, most_bytes=MOST_BYTES))
            except FileNotFoundError:
                return PackageFiles(lean, None)
        finally:
            remove_tree(scratch)

    def _make(
        self, staging: Path, folder: Path, *, toolchain: str, manifest: Manifest, key: str
    ) -> Dependencies:
        started = time.monotonic()
        packages = staging / PACKAGES
        packages.mkdir(parents=True)
        (staging / LOCK).touch()
        trusted = bool(manifest.packages)
        with Gateway(self.rules, tcp=True) as gateway:
            for number, package in enumerate(manifest.packages, 1):
                self.on_step(f"package {package.name} ({number} of {len(manifest.packages)})")
                self._fetch(package, packages / package.name, gateway, self._left(started))
                trusted = trusted and self._is_of_lean(package, staging / "commits", gateway, started)
            root = _write_root(staging, manifest, toolchain)
            lake = _Lake(self, root, staging, folder)
            cache = self._ask_for_cache(lake, manifest, packages, gateway, started)
            cache = "\n".join(
                filter(None, (cache, *self._releases(lake, manifest, packages, gateway, started)))
            )
        not_built = self._build(lake, manifest, started)
        remove_tree(root)
        size = settle(packages, keep=True)
        dependencies = Dependencies(
            key=key,
            toolchain=toolchain,
            packages=tuple(package.name for package in manifest.packages),
            cache=cache,
            not_built=not_built,
            refusals=gateway.refusals,
            bytes=size,
            seconds=round(time.monotonic() - started, 3),
            trusted=trusted,
        )
        text = json.dumps({"schema": _SCHEMA, **asdict(dependencies)}, ensure_ascii=False, indent=1)
        (staging / DESCRIPTION).write_text(text, encoding="utf-8")
        sync(staging / DESCRIPTION)
        return dependencies

    def _fetch(
        self,
        package: GitPackage,
        target: Path,
        gateway: Gateway,
        timeout_s: float,
        only: tuple[str, ...] = (),
    ) -> None:
        parts = urlsplit(package.url)
        refused = (
            None if parts.scheme == "file" else self.rules.refuses(parts.hostname or "", parts.port or 443)
        )
        if refused is not None:
            raise DependencyError(
                "dependency_refused",
                f"package {package.name}: {package.url}: {refused}",
                remedy="add the host to [build] hosts, if you trust it",
                passing=False,
            )
        try:
            fetch_package(
                package,
                target,
                proxy=gateway.url,
                timeout_s=timeout_s,
                disk_bytes=self.disk_bytes,
                memory_bytes=self.memory_bytes,
                only=only,
            )
        except GitFailedError as error:
            text = "".join(f"; {one.target}: {one.reason}" for one in gateway.refusals)
            raise DependencyError(
                "dependencies_unreachable",
                f"package {package.name}: {package.url} at {package.rev}: {error}{text}",
                remedy="check the network and that the revision still exists; it is tried again by itself",
                passing=True,
            ) from error

    def _is_of_lean(self, package: GitPackage, scratch: Path, gateway: Gateway, started: float) -> bool:
        return package.url.startswith(OF_LEAN) and is_published(
            package,
            scratch,
            proxy=gateway.url,
            timeout_s=self._left(started),
            disk_bytes=self.disk_bytes,
            memory_bytes=self.memory_bytes,
        )

    def _ask_for_cache(
        self, lake: _Lake, manifest: Manifest, packages: Path, gateway: Gateway, started: float
    ) -> str:
        """Run Mathlib's `cache get` if a package brings it; missing files are built instead."""
        mathlib = next((one for one in manifest.packages if one.name == "mathlib"), None)
        if mathlib is None or not (packages / "mathlib" / mathlib.subdir / "Cache").is_dir():
            return ""
        self.on_step("compiled files of Mathlib")
        bounds = self._bounds(started, lake.staging)
        outcome = lake.run("exe", "cache", "get", bounds=bounds, gateway=gateway)
        if outcome.ending in ("timeout", "disk"):
            raise self._passed_a_bound(outcome, bounds)
        if outcome.ok:
            return "fetched"
        return f"lake exe cache get: {outcome.explain(bounds)}: {outcome.end(500)}"

    def _releases(
        self, lake: _Lake, manifest: Manifest, packages: Path, gateway: Gateway, started: float
    ) -> Iterator[str]:
        """Fetch the compiled files in the releases of packages that prefer them; yield the failures.

        Building them instead has no network, which ProofWidgets' JavaScript would need.
        """
        for one in manifest.packages:
            lakefile = packages / one.name / one.subdir / one.config_file
            if not _wants_release(lakefile):
                continue
            self.on_step(f"released files of {one.name}")
            bounds = self._bounds(started, lake.staging)
            outcome = lake.run("build", f"{one.name}:release", bounds=bounds, gateway=gateway)
            if outcome.ending in ("timeout", "disk"):
                raise self._passed_a_bound(outcome, bounds)
            if not outcome.ok:
                yield f"lake build {one.name}:release: {outcome.explain(bounds)}: {outcome.end(500)}"

    def _build(self, lake: _Lake, manifest: Manifest, started: float) -> str:
        """Build each package's default targets; return the failures, by package, with the end of the output.

        All at once, which evaluates the lakefiles once; after a failure one by one, so that a failing package does not
        keep lake from the others.
        """
        targets = [f"@{one.name}" for one in manifest.packages]
        if not (said := self._build_targets(lake, targets, started)) or len(targets) == 1:
            return said
        return "\n".join(filter(None, (self._build_targets(lake, [one], started) for one in targets)))

    def _build_targets(self, lake: _Lake, targets: list[str], started: float) -> str:
        words = " ".join(targets)
        self.on_step(f"building {words}")
        bounds = self._bounds(started, lake.staging)
        built = lake.run("build", *targets, bounds=bounds)
        if built.ending in ("timeout", "disk"):
            raise self._passed_a_bound(built, bounds)
        return "" if built.ok else f"{words}: {built.explain(bounds)}: {built.end(500)}"

    def _left(self, started: float) -> float:
        return max(1.0, self.timeout_s - (time.monotonic() - started))

    def _bounds(self, started: float, staging: Path) -> Bounds:
        return Bounds(self._left(started), self.memory_bytes, MOST_PROCESSES, self.disk_bytes, (staging,))

    def _passed_a_bound(self, outcome: Outcome, bounds: Bounds) -> DependencyError:
        reason: Reason = "dependencies_timeout" if outcome.ending == "timeout" else "dependencies_too_large"
        what = (
            f"no end after {self.timeout_s:g} s" if outcome.ending == "timeout" else outcome.explain(bounds)
        )
        return DependencyError(
            reason,
            f"the packages: {what}; the end of the output:\n{outcome.end()}",
            remedy="raise [build] timeout" if outcome.ending == "timeout" else "raise [build] disk",
            passing=outcome.ending == "timeout",  # a network may be faster another time
        )


def _wants_release(lakefile: Path) -> bool:
    """Return whether a package's lakefile prefers the compiled files in its releases."""
    if lakefile.is_symlink() or not lakefile.is_file():
        return False
    with lakefile.open("rb") as file:
        return _RELEASED.search(file.read(MOST_BYTES)) is not None


@dataclass(frozen=True, slots=True)
class _Lake:
    """Lake in the root of our own making. The sandbox shows the packages at their final place."""

    fetcher: Fetcher
    root: Path
    staging: Path
    folder: Path

    def run(self, *arguments: str, bounds: Bounds, gateway: Gateway | None = None) -> Outcome:
        link = self.root / ".lake" / PACKAGES
        link.unlink(missing_ok=True)
        runner = self.fetcher.runner
        if runner.sandbox == "none":
            link.symlink_to(self.staging / PACKAGES)
            environment = {}
            if gateway is not None:
                environment = dict.fromkeys(
                    ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), gateway.url
                )
            environment["XDG_CACHE_HOME"] = str(self.root / "home")
            here = LakeRunner(runner.program, runner.toolchain, "none", self.root, environment=environment)
            return here.run(*arguments, bounds=bounds)
        link.symlink_to(self.folder / PACKAGES)
        wrap, readable = forwarded(gateway.socket) if gateway is not None else ((), ())
        here = LakeRunner(
            runner.program,
            runner.toolchain,
            runner.sandbox,
            self.root,
            readable=readable,
            writable=(self.root,),
            mounts={self.folder / PACKAGES: self.staging / PACKAGES},
            # Archives of compiled files are larger than the private home.
            environment={"XDG_CACHE_HOME": str(self.root / "home")},
            wrap=wrap,
            certificates=gateway is not None,
        )
        return here.run(*arguments, bounds=bounds)


def _write_root(staging: Path, manifest: Manifest, toolchain: str) -> Path:
    """Make a project that requires each package at its revision and is nothing else.

    Lake finds a package in the manifest by its name, so no scope is written. The options in a package's own `require`
    (`with`) are left out: Mathlib's tell ProofWidgets to fail rather than to build its JavaScript.
    """
    root = staging / "root"
    (root / ".lake").mkdir(parents=True)
    (root / "home").mkdir()
    lines = ["import Lake", "open Lake DSL", f"package {_ROOT_NAME}", ""]
    for one in manifest.packages:
        revision = f' @ "{one.input_rev}"' if one.input_rev else ""
        subdir = f' / "{one.subdir}"' if one.subdir else ""
        name = ".".join(f"«{part}»" for part in one.name.split("."))
        lines.append(f'require {name} from git "{one.url}"{revision}{subdir}')
    (root / "lakefile.lean").write_text("\n".join([*lines, ""]), "utf-8")
    (root / "lean-toolchain").write_text(f"{toolchain}\n", "utf-8")
    (root / "lake-manifest.json").write_text(manifest_text(_ROOT_NAME, manifest.packages), "utf-8")
    return root


def manifest_text(name: str, packages: tuple[GitPackage, ...] = ()) -> str:
    """Write a manifest in version 7, which every Lake since Lean 4.3 reads."""
    entries = [
        {
            "url": one.url,
            "type": "git",
            "subDir": one.subdir or None,
            "rev": one.rev,
            "name": one.name,
            "manifestFile": one.manifest_file,
            "inputRev": one.input_rev or None,
            "inherited": False,
            "configFile": one.config_file,
        }
        for one in packages
    ]
    written = {
        "version": 7,
        "packagesDir": ".lake/packages",
        "packages": entries,
        "name": name,
        "lakeDir": ".lake",
    }
    return json.dumps(written, indent=1) + "\n"


def _locked(path: Path, on_step: Step) -> Lock:
    try:
        return lock(path, wait_s=0)
    except HeldError:
        on_step("waiting for a job that fetches the same packages")
        return lock(path)
