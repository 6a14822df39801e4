"""The problems that `unsorry status` names, each with its code, which stays, and its remedy.

docs/operations.md has the codes, made of the docstrings below them: the first sentence says what it is, the others
what to do.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal


class ProblemCode(enum.StrEnum):
    """What is wrong, as a word that programs may rely on. Links are those of docs/operations.md."""

    DAEMON_NOT_RUNNING = "daemon_not_running"
    """no process holds the state folder. `sudo systemctl start unsorry`; if it ends again, `journalctl -u
    unsorry -n 50`."""
    DAEMON_SILENT = "daemon_silent"
    """it does not answer. Wait a minute, then restart it, which loses nothing; beside `disk_full` it waits
    for room."""
    DAEMON_NOT_ASKED = "daemon_not_asked"
    """this user may not use the control socket. `sudo -u unsorry`, or join the group `unsorry` (to read) or
    `[daemon] control_group` (to act)."""
    DAEMON_PROBLEM = "daemon_problem"
    """the daemon names it itself. As it says."""
    KEPT_AWAY = "kept_away"
    """another command has the folders. Wait for its end."""
    CONFIG_REJECTED = "config_rejected"
    """the file has mistakes; the settings before it hold. Correct the lines that are named."""
    CONFIG_BROKEN = "config_broken"
    """the file is no TOML. `unsorry config check`."""
    REPOSITORY_UNREACHABLE = "repository_unreachable"
    """no connection. The network, DNS, the proxy."""
    REPOSITORY_OTHER_OWNER = "repository_other_owner"
    """the files belong to another user. `[poll] safe_directories`, or give them to the daemon's user."""
    REPOSITORY_NOT_FOUND = "repository_not_found"
    """nothing is there for this token. Correct its `url`, or give a token that may read it."""
    REPOSITORY_GONE = "repository_gone"
    """it is not there any more. Correct its `url`, or take it out of the file."""
    REPOSITORY_AUTH_FAILED = "repository_auth_failed"
    """the token is refused. [a new token](install.md#a-github-token)."""
    REPOSITORY_RATE_LIMITED = "repository_rate_limited"
    """the forge wants to be asked less. A token or a larger `[poll] every`."""
    REPOSITORY_EMPTY = "repository_empty"
    """it has no branch yet. Nothing."""
    REPOSITORY_INVALID = "repository_invalid"
    """it answers as no repository does. As the message says."""
    JOB_FAILED = "job_failed"
    """a job ended without success. `unsorry jobs logs JOB`; then `unsorry jobs retry JOB`."""
    WORK_PAUSED = "work_paused"
    """polls, training or proving were paused. `unsorry resume all`."""
    NO_LEAN = "no_lean"
    """nothing here runs Lean. `unsorry setup`."""
    TOOLCHAIN_MISSING = "toolchain_missing"
    """a branch's Lean version is not installed. `unsorry setup`, or `install = "auto"` under `[lean]`."""
    SIMULATOR = "simulator"
    """the simulator stands in for Lean. `[lean] backend = "auto"`."""
    RUNS_AS_ROOT = "runs_as_root"
    """root runs the daemon, and Lean. A user of its own ([install.md](install.md))."""
    BOUNDS_WATCHED = "bounds_watched"
    """no control group bounds the memory of jobs. The shipped unit; cgroup v2."""
    NO_SANDBOX = "no_sandbox"
    """code of repositories runs unconfined. `[lean] sandbox = "bubblewrap"`."""
    GPU_LOST = "gpu_lost"
    """a GPU does not answer any more; its jobs wait. `nvidia-smi`, `dmesg`; restart the machine."""
    CACHE_OVER_LIMIT = "cache_over_limit"
    """builds in use are larger than `[cache] size`. Raise it, or watch fewer branches."""
    DISK_FULL = "disk_full"
    """a disk has no room. [Free some space](#when-a-disk-fills-up-or-fails)."""
    DISK_READ_ONLY = "disk_read_only"
    """a folder cannot be written. Mount it writable, `fsck`; [more](#when-a-disk-fills-up-or-fails)."""
    TOO_LARGE = "too_large"
    """more sorries or declarations than `[scan]` allows; the rest is counted only. Raise the limit, or
    exclude the file."""
    CLOCK_SET = "clock_set"
    """the clock was set. Let time synchronisation run."""
    MACHINE_SLEPT = "machine_slept"
    """the machine was suspended. Nothing."""
    NOTIFY_FAILING = "notify_failing"
    """a channel of `[notify]` takes no message. The receiver's address and secret, or the command."""
    VIEW_MISSING = "view_missing"
    """the database is not there. `unsorry db rebuild`."""
    VIEW_UNREADABLE = "view_unreadable"
    """it is damaged. Stop the daemon; `unsorry db rebuild`."""
    VIEW_BEHIND = "view_behind"
    """it lags behind the log. Start the daemon; if it runs, `unsorry db rebuild`."""
    VIEW_STOPPED = "view_stopped"
    """the log holds what this version does not know. Install the version that it names."""
    LOG_MISSING = "log_missing"
    """the log is gone and the database is there. [Restore](#restore)."""
    LOG_UNREADABLE = "log_unreadable"
    """the log is damaged or of a newer version. `unsorry db check`; [Restore](#restore), or the newer
    version."""
    LOG_BEHIND = "log_behind"
    """the log lost its end (power, a bad disk). `unsorry db check`; [A damaged log](#a-damaged-log)."""


@dataclass(frozen=True, slots=True)
class Problem:
    code: ProblemCode
    severity: Literal["error", "warning"]
    subject: str | None
    message: str
    remedy: str
    errors: list[str] | None = None
    """only of `config_rejected`"""


def problem(
    code: ProblemCode,
    message: str,
    remedy: str,
    *,
    severity: Literal["error", "warning"] = "error",
    subject: str | None = None,
    errors: list[str] | None = None,
) -> Problem:
    return Problem(code, severity, subject, message, remedy, errors)
