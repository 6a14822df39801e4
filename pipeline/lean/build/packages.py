"""Fetch one git package at its exact commit, with a git that does nothing but that.

No hooks, no configuration but ours, no submodules, no LFS, no links in the checkout, no protocol but the URL's own,
every connection through the proxy that it is given. The clone keeps its `.git`, for Lake looks there for the commit
and the remote; nobody runs git in it again outside of a sandbox, because code of the packages may have written there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.lean.build.manifest import GitPackage
from pipeline.lean.sandbox.bounded import Bounds, run_bounded

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
_PASSED_ON = ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")


class GitFailedError(Exception):
    """git could not do it; the message is what it said."""


def fetch_package(
    package: GitPackage,
    target: Path,
    *,
    proxy: str,
    timeout_s: float,
    disk_bytes: int | None = None,
    memory_bytes: int | None = None,
) -> None:
    """Have the package's commit checked out in the new folder `target`.

    The commit alone is asked for; where a server gives no commit by its id, its branches and tags are fetched.
    `proxy` is the URL of an HTTP proxy that every connection goes through.

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
    fetch = ("fetch", "--quiet", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance")
    try:
        git.run(*fetch, "--no-tags", "--depth=1", "--", "origin", package.rev)
    except GitFailedError:
        git.run(*fetch, "--tags", "--", "origin", "+refs/heads/*:refs/remotes/origin/*")
    git.run("checkout", "--quiet", "--detach", package.rev, "--")


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
        # git runs outside of any sandbox: what ends it with a job that is killed is this.
        command = ("setpriv", "--pdeathsig", "KILL", "--", "git", *arguments)
        left = max(1.0, self._deadline - time.monotonic())
        bounds = Bounds(left, self._memory_bytes, None, self._disk_bytes, (self._folder,))
        outcome = run_bounded(command, cwd=self._folder, bounds=bounds, environment=self._environment)
        if not outcome.ok:
            said = " ".join(outcome.end(500).split())
            raise GitFailedError(
                f"git {arguments[0]}: {outcome.explain(bounds)}: {said or 'it said nothing'}"
            )
