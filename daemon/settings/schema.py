"""The sections of config.toml as frozen pydantic models: names, defaults, limits.

The docstring below an attribute describes the setting in `docs/configuration.md` (`make docs`). An attribute
is named like its setting, with its unit at the end (`every` -> `every_s`).

No secret is kept: `GitHub.read_token` reads it at each use.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from daemon.place.paths import AUTHOR, DEFAULT_AUTHOR
from daemon.place.peers import group_id
from daemon.settings.hours import Window
from daemon.settings.models import Prove, Serve, Train
from daemon.settings.types import (
    Branches,
    Duration,
    Flag,
    Folders,
    Globs,
    Hosts,
    Integer,
    Section,
    Size,
    Text,
    base_of,
    command_line,
    key_file,
    resolve_url,
    table_list,
)
from pipeline.endpoint.address import private_address
from pipeline.endpoint.credentials import read_key
from pipeline.jobs.kinds import Kind
from pipeline.jobs.spec import KeyPlace
from pipeline.lean.sandbox.hosts import DEFAULT_HOSTS

Sort = Literal["poll", "train", "prove"]
"""Work with quiet hours and pauses."""
OF_SORT: dict[Kind, Sort] = {
    "prove": "prove",
    "check": "prove",
    "bump": "prove",
    "train": "train",
    "train_tactics": "train",
    "train_grpo": "train",
    "train_progress": "train",
}
"""The sort of a kind of job; other kinds only stop with everything."""


def _window(text: str) -> str:
    Window.parse(text)
    return text


class Limit(Section):
    """The own limits of one kind of job, in place of those of its table."""

    memory_bytes: Annotated[int | None, Size("256M")] = None
    timeout_s: Annotated[float | None, Duration("1s", "30d")] = None


def _not_build(limits: dict[Kind, Limit]) -> dict[Kind, Limit]:
    if "build" in limits:
        raise ValueError("build has its limits in a table of its own; write memory and timeout under [build]")
    return limits


Hours = Annotated[tuple[Annotated[Text, AfterValidator(_window)], ...], BeforeValidator(table_list)]


class Quiet(Section):
    """[schedule.quiet]: hours in which no work of a sort begins."""

    poll: Hours = Field((), examples=[["22:00-06:00"]])
    """No scheduled poll. `everlean poll` still polls. Set it to leave the network to others then"""
    train: Hours = Field((), examples=[["mon-fri 08:00-18:00"]])
    """No training of models begins. Set it to leave the GPU to others then"""
    prove: Hours = Field((), examples=[["22:00-06:00"]])
    """No search, no check and no bump begins. Set it to leave the machine to others then"""

    def windows(self, sort: Sort) -> tuple[Window, ...]:
        """Return the quiet hours of a sort of work."""
        return tuple(Window.parse(text) for text in getattr(self, sort))


class Schedule(Section):
    """[schedule]: the hours of each sort of work, and preemption."""

    preempt: Annotated[tuple[Literal["prove", "quiet", "pause"], ...], BeforeValidator(table_list)] = (
        "quiet",
        "pause",
    )
    """Reasons to preempt a running training or search for proofs. `quiet`: its quiet hours begin. `pause`: a
    user pauses it. `prove`: a proof search waits for the GPU of a training that has run for at least ten
    minutes. A preempted training later resumes exactly where it was. Of a preempted search, the finished
    sorries are recorded and the others begin again. A search with an endpoint or a program (rungs 4 and 5) is
    never preempted, since its requests are already paid. Jobs of other kinds, checks included, run to their
    end. Take a reason out to let running work end, add `prove` if proofs matter more than trainings"""
    quiet: Quiet = Field(default_factory=Quiet)


NotifyKind = Literal[
    "sorry_opened", "sorry_filled", "sorry_restated", "sorry_disproved",
    "proof_verified", "proof_doubted", "model_promoted", "repository_failing",
]  # fmt: skip
NOTIFY_KINDS: tuple[NotifyKind, ...] = get_args(NotifyKind)
_NotifiedKinds = Annotated[tuple[NotifyKind, ...], BeforeValidator(table_list), Field(min_length=1)]

_SECRET_ADDRESSES = re.compile(
    r"^(hooks\.slack\.com|discord(app)?\.com/api/webhooks|[^/]+\.webhook\.office\.com|chat\.googleapis\.com)\b"
)
"""Addresses that are secrets in themselves: nothing else is needed to write there."""
_BY_CREDENTIAL = (
    'leave url = "" and give it as systemd\'s credential everlean-notify-url or as $EVERLEAN_NOTIFY_URL'
)


def webhook_url(value: str) -> str:
    """Return a webhook's URL if messages can be sent there; an error's message never holds it.

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


class Webhook(Section):
    """[notify.webhook]: a POST with the message as JSON."""

    url: Annotated[Text, AfterValidator(_configured_url)] = Field("", examples=["https://example.org/hook"])
    """Address of the webhook. Plain http only to this machine. `""`: systemd's credential
    `everlean-notify-url`, else `$EVERLEAN_NOTIFY_URL`, else there is no webhook. A URL that is itself a
    secret (a user name, a query, the webhooks of Slack, Discord, Teams, Google Chat) is refused here. Set it
    to feed a service of your own; for chats there is `[notify.apprise]`"""
    kinds: _NotifiedKinds = Field(NOTIFY_KINDS, examples=[["proof_verified"]])
    """Events to send. Shorten it to hear less"""


class Command(Section):
    """[notify.command]: a program with the message as JSON on standard input."""

    run: Annotated[tuple[Text, ...], BeforeValidator(table_list), AfterValidator(command_line)] = Field(
        (), examples=[["/usr/local/bin/tell", "--here"]]
    )
    """The program and its arguments. A path is relative to this file. `[]`: no command. Set it for messages
    on this desktop, or to run a script of yours"""
    kinds: _NotifiedKinds = Field(NOTIFY_KINDS, examples=[["proof_verified"]])
    """Events to send. Shorten it to hear less"""


class Apprise(Section):
    """[notify.apprise]: chats, mail and apprise's other channels."""

    urls_file: Annotated[Text, AfterValidator(key_file)] = Field("", examples=["notify-urls"])
    """File of mode 600 with apprise's addresses in one line, separated by commas. `""`: systemd's credential
    `everlean-notify-apprise`, else `$EVERLEAN_NOTIFY_APPRISE`, else nothing is sent. Set it for messages in
    Zulip, Slack or by mail"""
    kinds: _NotifiedKinds = Field(NOTIFY_KINDS, examples=[["sorry_filled"]])
    """Events to send. Shorten it to hear less"""


class Notify(Section):
    """[notify]: the channels' messages, and their frequency."""

    digest_s: Annotated[float, Duration("0s", "90d")] = 7 * 86400.0
    """Interval of the digest, the report's first screen as text, for every channel. The first one comes an
    interval after the channel is switched on. `"1d"` for readers each morning, `"0s"` (none) for readers of
    the page"""
    webhook: Webhook = Field(default_factory=Webhook)
    command: Command = Field(default_factory=Command)
    apprise: Apprise = Field(default_factory=Apprise)


class Metrics(Section):
    """[metrics]: the address of numbers for Prometheus, beside the control socket."""

    public: Flag = False  # before `listen`, whose check asks for it
    """`true`: other machines may reach `listen`. Any client there reads the names and numbers of all watched
    repositories, without a password. Turn it on if Prometheus runs elsewhere, or a proxy asks under another
    name"""
    listen: Annotated[Text, AfterValidator(_listen)] = Field("", examples=["127.0.0.1:9464"])
    """Second address for the metrics, such as `"127.0.0.1:9464"` or `"[::1]:9464"`. It serves the report too
    with `[report] serve`. If it is in use, the daemon runs without it, tries again, and `everlean status`
    reports it. Set it if Prometheus cannot read the control socket"""


class Report(Section):
    """[report]: the page of `everlean report`, beside the numbers of [metrics]."""

    serve: Flag = False
    """`true`: serve report, badge and feed at `[metrics] listen` too: `http://127.0.0.1:9464/report`. With
    `[metrics] public`, other machines read it too, without a password. Turn it on to read it in a browser"""


def unreachable(report: Report, metrics: Metrics) -> list[str]:
    """Return why the report could not be reached, if it is to be served; else nothing."""
    if not report.serve or metrics.listen:
        return []
    return [
        'has no address to be served at; write listen = "127.0.0.1:9464" below [metrics], or serve = false'
    ]


TOKEN_CREDENTIAL = "github-token"  # noqa: S105 - the name of a systemd credential, not a secret
TOKEN_VARIABLES = ("EVERLEAN_GITHUB_TOKEN", "GITHUB_ACCESS_TOKEN")
"""The environment variables with the token, the first before the second, LeanDojo's."""
WEBHOOK_CREDENTIAL = "webhook-secret"
WEBHOOK_VARIABLE = "EVERLEAN_WEBHOOK_SECRET"


EXERCISES = ("**/*[Ee]xercise*/**", "**/*[Ee]xercise*.lean")


def _repository_url(value: str, info: ValidationInfo) -> str:
    return resolve_url(value, base=base_of(info))


def _program(value: str, info: ValidationInfo) -> str:
    """Look a bare name up on PATH at its use; a path is relative to the configuration file."""
    return os.path.normpath(base_of(info) / Path(value).expanduser()) if "/" in value else value


def _author(value: str) -> str:
    if not AUTHOR.fullmatch(value):
        raise ValueError(f'is no author; write a name and an e-mail address such as "{DEFAULT_AUTHOR}"')
    return value


def _api_url(value: str) -> str:
    return value and private_address(value, example="https://github.example.org/api/v3")


def _existing_group(value: str) -> str:
    if value:
        try:
            group_id(value)
        except KeyError:
            raise ValueError(
                f'names a group that is not there, "{value}"; create it (groupadd), or write control_group = ""'
            ) from None
    return value


class Daemon(Section):
    """[daemon]: folders, logs, stopping."""

    state_dir: Text = Field("", examples=["/var/lib/everlean"])
    """Folder of log, database, patches and jobs, on a local file system. `""`: `$STATE_DIRECTORY` (set by
    systemd), else `/var/lib/everlean` for `/etc/everlean/config.toml`, else `$XDG_STATE_HOME/everlean`
    (`~/.local/state/everlean`). Set it to keep the state on another disk"""
    cache_dir: Text = Field("", examples=["/var/cache/everlean"])
    """Folder of mirrors, worktrees, builds and packages. You may delete it while the daemon is stopped. `""`:
    `$CACHE_DIRECTORY`, else `/var/cache/everlean`, else `cache` inside a configured `state_dir`, else
    `$XDG_CACHE_HOME/everlean`. Set it to keep builds on a larger disk"""
    runtime_dir: Text = Field("", examples=["/run/everlean"])
    """Folder of the control socket. `""`: `$RUNTIME_DIRECTORY`, else `/run/everlean`, else `run` inside a
    configured `state_dir`, else `$XDG_RUNTIME_DIR/everlean`. Set it to run two daemons of one user on a
    machine"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`. `debug` also logs polls without news; `warning` logs only
    failures. `debug` to investigate a poll or a job"""
    log_format: Literal["auto", "json", "console"] = "auto"
    """`console` (sentences), `json` (fields), or `auto`: sentences on a terminal, else fields. `console` in a
    container with a log for people"""
    shutdown_timeout_s: Annotated[float, Duration("1s", "1h")] = 20.0
    """Time for running jobs to end when the daemon stops. Raise it if a training is often stopped and cannot
    save its state in time, with `TimeoutStopSec=` of the unit"""
    author: Annotated[Text, AfterValidator(_author)] = Field(
        DEFAULT_AUTHOR, examples=["everlean <everlean@example.org>"]
    )
    """Author of patches and of `everlean proofs apply`'s commits, in git's form. A pull request's commit is
    GitHub's, by the account of the token. Set it to the person responsible for the patches"""
    control_group: Annotated[Text, AfterValidator(_existing_group)] = Field("", examples=["root"])
    """Group with the right to act through the control socket (`poll`, `jobs retry`, `models promote` …).
    `""`: only the daemon's own user and root may act; members of the daemon's group may still read. The
    daemon's user must be a member of this group, since the socket is handed to it. With the shipped unit
    write `"everlean"`: the service sees no other group. Set it to let others than root act"""


def _absolute_paths(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not path.startswith("/") or "\n" in path or path.startswith("//"):
            raise ValueError(f'names "{path[:60]}"; write whole paths such as ["/srv/git/name"]')
    return paths


class Poll(Section):
    """[poll]: intervals and limits of polling."""

    every_s: Annotated[float, Duration("1s", "30d")] = 300.0
    """Polling interval of each repository. Shorten it to see commits sooner without webhooks, lengthen it for
    very many repositories on one API"""
    timeout_s: Annotated[float, Duration("1s", "1h")] = 60.0
    """Time limit of one git or API call. A clone or fetch has ten times as long: raise it if that is too
    short for the network"""
    slowest_s: Annotated[float, Duration("1s", "30d")] = 600.0
    """Longest polling interval of a quiet repository. After a change, a repository is polled every `every`,
    then at intervals of 1/24 of the time since the change (two hours after it: every five minutes), and never
    less often than this. An archived repository is polled at this interval. A value of at most `every` turns
    it off. Lengthen it to spare an API that counts requests"""
    safe_directories: Annotated[tuple[Text, ...], AfterValidator(_absolute_paths)] = Field(
        (), examples=[["/srv/git/name"]]
    )
    """Watched local repositories of other users, for git to read (its `safe.directory`). Add each clone of an
    owner you trust"""


class GitHub(Section):
    """[github]: the API, used when a token or `api_url` is configured, and its webhooks."""

    api_url: Annotated[Text, AfterValidator(_api_url)] = Field("", examples=["https://api.github.com"])
    """API of GitHub Enterprise, such as `https://github.example.org/api/v3`. `""` is
    `https://api.github.com`. Set it for GitHub Enterprise"""
    local_repositories: Flag = False
    """`true`: ask an API on this machine about repositories given by path, with the token. Without it, git
    reads a path, and with a token no forge hears of it. Set it for a server of local repositories on this
    machine"""
    token_file: Annotated[Text, AfterValidator(key_file)] = Field("", examples=["/etc/everlean/github-token"])
    """File with the token in one line, of mode 600. Read access is enough, except for `everlean proofs pr`,
    which needs write access to contents and pull requests. Set it for private repositories, and for more than
    60 requests an hour"""
    webhook_port: Integer = Field(0, ge=0, le=65535)
    """Port on 127.0.0.1 for GitHub's webhooks, 0 for none. Set it to hear of pushes within a second"""
    webhook_secret_file: Annotated[Text, AfterValidator(key_file)] = Field(
        "", examples=["/etc/everlean/webhook-secret"]
    )
    """File with the webhooks' secret in one line, of mode 600. Otherwise systemd's credential
    `webhook-secret` or `$EVERLEAN_WEBHOOK_SECRET` is used; without a secret the port stays closed, and
    `everlean status` reports it. Set it with `webhook_port`, on a machine without systemd"""

    @property
    def token_places(self) -> tuple[KeyPlace, ...]:
        """The places of the token, the first one before the others."""
        return tuple(KeyPlace(TOKEN_CREDENTIAL, name, self.token_file) for name in TOKEN_VARIABLES)

    def read_token(self) -> str | None:
        """Return the token, read now: systemd's credential, else `token_file`, else the environment.

        Raises:
            CredentialError: there is one that cannot be used.
        """
        return next(filter(None, map(read_key, self.token_places)), None)

    def read_webhook_secret(self) -> str | None:
        """Return the webhooks' secret, read now: from the places of the token, by other names.

        Raises:
            CredentialError: there is one that cannot be used.
        """
        return read_key(KeyPlace(WEBHOOK_CREDENTIAL, WEBHOOK_VARIABLE, self.webhook_secret_file))


class Lean(Section):
    """[lean]: how Lean runs."""

    backend: Literal["auto", "none"] = "auto"
    """`auto`: the branch's Lean version, in a REPL or a language server. A branch without either is only
    scanned. `none`: scanning only. `none` if Lean must not run on this machine"""
    repl: Annotated[Text, AfterValidator(_program)] = Field("", examples=["/opt/pantograph/repl"])
    """Path of `pantograph-repl`, or its name on `PATH`. `""`: the search order of docs/configuration.md. Set
    it to use a REPL outside that order"""
    install: Literal["manual", "auto"] = Field("manual", examples=["auto"])
    """`auto`: the daemon installs elan and watched branches' Lean releases, about 2.8 GB each.
    `manual`: you do, with `everlean setup`. `auto` on an unattended machine"""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """`bubblewrap`: the sandbox of lake and Lean; without it they do not run. `none` runs code of the watched
    repositories unconfined, and `everlean status` reports it. `none` in a container that is itself the sandbox, for
    repositories that you trust"""
    as_root: Flag = False
    """`true`: run Lean even if root runs the daemon, as in a container. A sandbox escape is root there.
    Without it, root's daemon only scans. Turn it on in a container that runs all as root"""
    second_kernel: Annotated[Text, AfterValidator(_program)] = "auto"
    """Program to judge each proof beside Lean's kernel: `auto`, `off`, a path, or a name on `PATH`. It is
    nanoda, or takes the path of an export in lean4export's format and ends with 0 (accepts), 1 (refuses) or 2
    (declines). `auto`: the toolchain's own kernels, six from Lean 4.35 on; else `nanoda_bin` on `PATH`;
    `off`: none. Set it to have another checker judge each proof too, `off` if it takes too long"""
    repls: Integer = Field(2, ge=1, le=256)
    """Lean processes at once in a search, a trace or the server for editors. Raise it with the cores and the
    memory"""
    repl_memory_bytes: Annotated[int, Size("256M")] = 2**33
    """Private memory of each Lean process. A process that reaches the limit ends, and a new one takes over
    its work; a process that uses three quarters of it after an answer is replaced. Recent Leans reserve 1.4
    GiB of it before they use any: Lean 4.35 starts with 2G, and not with 1G. Raise it if Lean ends for want
    of memory, lower it on a small machine"""
    start_timeout_s: Annotated[float, Duration("1s", "1h")] = 300.0
    """Time for a Lean process to load its imports. Mathlib from a slow disk takes minutes the first time.
    Raise it for a slower one"""
    repl_calls: Integer = Field(20_000, ge=1)
    """Requests to a Lean process before its replacement, since it frees no memory. Lower it if Lean reaches
    its memory limit before that"""


class Build(Section):
    """[build]: fetching dependencies and `lake build`."""

    # For single modules built by the gate and a search: `pipeline.lean.build.lake.BUILD_BOUNDS`.
    enabled: Flag = True
    """`false`: nothing is built, and Lean sees only its toolchain's libraries. Turn it off for projects
    without other imports"""
    timeout_s: Annotated[float, Duration("1s", "7d")] = 7200.0
    """Time limit of one build, packages included. Raise it for projects that compile for longer"""
    memory_bytes: Annotated[int, Size("256M")] = 2**34
    """Memory of lake and all its processes together. The daemon checks it a few times a second; a hard limit
    is `MemoryMax=` of the systemd unit. Raise it if a build ends as `out_of_memory`, lower it on a small
    machine"""
    disk_bytes: Annotated[int, Size("1M")] = 30 * 2**30
    """Disk limit of fetching packages, and of building the project. Raise it if a build ends for this
    limit"""
    hosts: Hosts = Field(DEFAULT_HOSTS, examples=[["github.com", "*.githubusercontent.com"]])
    """Hosts of packages, reached on ports 443 and 80. Building has no network. `"*.example.org"`
    matches every name below `example.org`; `[]`: none. Add a dependency's host that is refused"""


class Scan(Section):
    """[scan]: the limits of a commit's scan. Sorries beyond them are counted but not followed, and `everlean
    status` and `everlean repos` print "too large: N of M taken"; a followed sorry stays followed. A raised
    limit counts for a file from its next change on."""

    max_sorries: Integer = Field(8000, ge=1, le=1_000_000)
    """Sorries followed on one branch at the same time. Raise it if `everlean status` reports `too_large` for
    a branch"""
    history: Flag = True
    """`true`: read sorries' authors and five years of weekly counts from git. Earlier versions of files are
    fetched for that, up to 20,000 at a time. `false`: no new answers; earlier ones stay. Turn it off to ask a
    forge for the tips only"""


class Trace(Section):
    """[trace]: Lean's record of every theorem of a commit."""

    enabled: Flag = True
    """`true`: Lean extracts the tactic states and premises of every theorem. `false`: no new traces; earlier
    ones stay. Turn it off if no model learns from the repositories: it is most of the work"""
    file_timeout_s: Annotated[float, Duration("1s", "1d")] = 600.0
    """Time limit of one file. A file that takes longer is recorded as a trace gap with this reason and is
    tried again at the next commit. Raise it if large files are gaps"""


class Cache(Section):
    """[cache]: the disk space of builds and their packages."""

    size_bytes: Annotated[int, Size("1M")] = 200 * 2**30
    """Disk space of builds and their packages, together. The least recently used are removed first, but none
    needed by a running or planned job; while those alone exceed the limit, `everlean status` warns. A removed
    build is built again when it is needed. Mirrors and the worktrees of running jobs are not counted. Set it
    to the disk space to spare"""


def _ship(value: str, info: ValidationInfo) -> str:
    if not value:
        return value
    remedy = 'write "/srv/backup/everlean" or "s3://bucket/folder"'
    if not value.isprintable() or "::" in value:
        raise ValueError(f"is no folder and no URL; {remedy}")
    scheme, separator, rest = value.partition("://")
    if not separator:
        return os.path.normpath(base_of(info) / Path(value).expanduser())
    if "@" in rest or "?" in rest:
        raise ValueError(
            "carries credentials (not shown); give them in the environment, or in fsspec's own configuration"
        )
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) or not rest.strip("/"):
        raise ValueError(f"is no folder and no URL; {remedy}")
    return value


class Log(Section):
    """[log]: the daemon's copy of the event log elsewhere, as segments."""

    ship: Annotated[Text, AfterValidator(_ship)] = Field("", examples=["s3://bucket/folder"])
    """Folder or fsspec's URL for each new event: `s3://bucket/folder`, `sftp://host/folder`. Its package has to be
    installed; `""`: none. It belongs to one log. Credentials come from the environment (`AWS_ACCESS_KEY_ID` …) or from
    fsspec's configuration, never from this file. Set it to have a backup, or a standby"""
    every_s: Annotated[float, Duration("100ms", "1d")] = 10.0
    """Interval of shipping, with at most one file each time. A lost machine loses the events of about this
    time. Lengthen it if each write to the store costs money, shorten it to lose less"""


def _path_beside(value: str, info: ValidationInfo) -> str:
    return str(base_of(info) / Path(value).expanduser()) if value else value


class Certificates(Section):
    """[certificates]: the key of `everlean certificate`, and the known faults that put a verified proof in
    doubt."""

    signing_key: Annotated[Text, AfterValidator(_path_beside)] = Field(
        "", examples=["/etc/everlean/certificate-key"]
    )
    """OpenSSH private key for certificates: ed25519, no passphrase (`ssh-keygen -t ed25519 -N ''`). The user
    of `everlean certificate` needs to read it. `""`: certificates are not signed. Set it to prove a
    certificate's origin"""
    advisories: Annotated[Text, AfterValidator(_path_beside)] = Field(
        "", examples=["/etc/everlean/advisories.toml"]
    )
    """Your own list of known kernel faults, in place of the shipped `pipeline/gate/advisories.toml`. It is
    read again every minute. `""`: the shipped one. Set it to hear of faults before the next version of
    everlean"""


class Jobs(Section):
    """[jobs]: limits of the child processes."""

    max_running: Integer = Field(2, ge=1, le=256)
    """Child processes at the same time, beside one training. Raise it with the cores and the memory: a job
    takes `memory` and `[lean] repls` Lean processes"""
    memory_bytes: Annotated[int, Size("256M")] = 2**32
    """Memory of each job, without its Lean processes (`[lean] repl_memory`). Builds, trainings and proof jobs
    with a model have limits of their own (`[build]`, `[train]`, `[prove]`). Raise it if jobs end as
    `out_of_memory`"""
    timeout_s: Annotated[float, Duration("1s", "7d")] = 1800.0
    """Time limit of each job, except builds and trainings. Raise it with the search times of `[prove]`"""
    max_attempts: Integer = Field(3, ge=1, le=100)
    """Attempts of a job after transient failures. Raise it if the machine or its network fails often"""
    retry_base_s: Annotated[float, Duration("100ms", "1d")] = 30.0
    """Wait before the second attempt, doubled for each further one. Lengthen it if faults last for hours"""
    limits: Annotated[dict[Kind, Limit], AfterValidator(_not_build)] = Field(default_factory=dict)
    """Limits of single kinds of jobs: `prove = { memory = "8G", timeout = "1h" }`. The kinds are `scan`,
    `trace`, `prove`, `check`, `train`, `train_tactics`, `train_grpo` and `train_progress`. Limits of builds
    are in `[build]`. Give a kind its own if it alone needs more"""

    def limit(self, kind: Kind) -> Limit:
        """Return the own limits of a kind."""
        return self.limits.get(kind, Limit())

    def timeout_of(self, kind: Kind) -> float:
        """Return the longest time of a kind limited by this table, in seconds."""
        own = self.limit(kind).timeout_s
        return self.timeout_s if own is None else own


def _launch(value: tuple[str, ...]) -> tuple[str, ...]:
    placeholders = dict.fromkeys(("gpus", "memory", "job", "kind"), "")
    for word in value:
        try:
            word.format_map(placeholders)
        except (KeyError, ValueError, IndexError) as error:
            raise ValueError(
                f"{word!r}: {error}; {{gpus}}, {{memory}}, {{job}} and {{kind}} are filled in, and any other brace is"
                " written twice"
            ) from None
    return value


class Engine(Section):
    """[engine]: where jobs run."""

    kind: Literal["local", "ray"] = Field("local", examples=["ray"])
    """`local` (this machine) or `ray` (a Ray cluster). `ray`: jobs are tasks of a Ray cluster, whose machines
    see the daemon's folders under the same paths (see `engines.md`). This table is read when the daemon
    starts. Choose `ray` to use such a cluster"""
    launch: Annotated[tuple[Text, ...], AfterValidator(_launch)] = Field(
        (), examples=[["srun", "--gres=gpu:{gpus}", "--mem={memory}"]]
    )
    """Command prefix that starts each job elsewhere: `srun`, `ssh`, `docker run`, `systemd-run`. The machines
    see the daemon's folders under the same paths. `{gpus}` is its number of GPUs, `{memory}` its limit in
    MiB, `{job}` and `{kind}` name it. `[]`: none. Set it to run jobs on other machines"""
    gpus: Integer = Field(0, ge=0, le=10_000, examples=[4])
    """With `launch`: most GPUs of all jobs there at once. Set it if the launcher can get one"""
    address: Text = Field("", examples=["10.0.0.5:6379"])
    """With `ray`: address of the cluster's head, `host:port`. Set it to the output of `ray start --head`"""
    token_file: Text = Field("", examples=["/etc/everlean/ray-token"])
    """With `ray`: file with the cluster's token. `""`: Ray's own place (`~/.ray/auth_token`). Set it if the
    service's home has none"""
    lease_s: Annotated[float, Duration("5s", "1h")] = 40.0
    """Time without contact before a job elsewhere ends itself. Raise it if the shared file system shows new
    content late"""

    @model_validator(mode="after")
    def _one_launcher(self) -> Engine:
        if self.kind == "ray" and not self.address:
            raise ValueError('kind = "ray" needs an address, such as "10.0.0.5:6379"')
        if self.kind == "ray" and self.launch:
            raise ValueError('kind = "ray" and launch are two ways; keep one')
        return self


class RepoEntry(Section):
    """[[repos]] as written: `every` may be left to [poll]."""

    url: Annotated[Text, AfterValidator(_repository_url)] = Field(examples=["https://github.com/owner/name"])
    """`https://host/owner/name`, `ssh://git@host/owner/name`, `git@host:owner/name`, `file:///path`, or a
    path (`/path`, `./path`, `~/path`). The repository's key is `host/owner/name`, for a path
    `local/parent/name`; each key may be listed once. Use ssh for a private repository outside the API's
    forge"""
    branches: Branches = Field((), examples=[["main", "release/*"]])
    """Names or globs (`"release/*"`); `[]`: the default branch. A branch that no longer matches (also a
    default branch after the remote chose another) becomes `unwatched`: its history stays, no job works on it,
    and its sorries are not counted as open. The default branch is looked up once an hour, and by `everlean
    poll`. Name branches to watch beside the default one"""
    every_s: Annotated[float | None, Duration("1s", "30d")] = None
    """Its polling interval, in place of that of `[poll]`. Shorten it for the one repository that matters
    most"""
    include: Globs = Field(("**/*.lean",), examples=[["Mathlib/**/*.lean"]])
    """Globs of the files to read, relative to the repository. After a change of `include` or `exclude` the
    tip is scanned again: newly matching files are read, and sorries in files that no longer match leave.
    Narrow it to the part of interest"""
    exclude: Globs = Field((), examples=[["Archive/**"]])
    """Globs of the files to leave out. Name generated and archived files"""
    projects: Folders = Field((), examples=[["lean4"]])
    """Folders of the Lake projects to build and prove in, `"."` for the root. `[]`: the one at the root, and
    without it, all. Each folder with a lakefile is one, with a `lean-toolchain` and a manifest of its own;
    the files of other projects are only scanned. Name the ones that matter if there are several"""
    exercises: Globs = Field(EXERCISES, examples=[["Exercises/**"]])
    """Globs of exercise files: scanned and counted, never proved. Unless this is `[]`, a file with three or
    more sorries and the word `exercise` anywhere in its text, in a comment or in a name, is an exercise too.
    Change it for a course with its exercises under other names"""
    enabled: Flag = True
    """`false`: not polled; its history stays. Turn it off for a while instead of taking the entry out"""
    opt_out: Flag = False
    """`true`: scanned, but no proof is searched or proposed. Turn it on if the owners want no machine
    proofs"""
    pull_requests: Flag = Field(False, examples=[True])
    """`true`: the owners agree to pull requests by `everlean proofs pr`. Turn it on once they have agreed"""
    try_bumps: Literal["never", "weekly"] = Field("never", examples=["weekly"])
    """`weekly`: try the newest installed Lean once a week ([bumps](bump.md)). It is tried if it is another
    one, or if the branch has moved since the last trial. Turn it on for a project that is to follow Lean's
    releases"""
    priority: Integer = Field(0, ge=-100, le=100)
    """Among jobs of a kind, a higher priority goes first. Raise it for the repository that must not wait"""


class ConfigFile(Section):
    """The file as written; the models of its sections hold the defaults."""

    daemon: Daemon = Field(default_factory=Daemon)
    poll: Poll = Field(default_factory=Poll)
    github: GitHub = Field(default_factory=GitHub)
    lean: Lean = Field(default_factory=Lean)
    build: Build = Field(default_factory=Build)
    scan: Scan = Field(default_factory=Scan)
    trace: Trace = Field(default_factory=Trace)
    jobs: Jobs = Field(default_factory=Jobs)
    engine: Engine = Field(default_factory=Engine)
    schedule: Schedule = Field(default_factory=Schedule)
    prove: Prove = Field(default_factory=Prove)
    train: Train = Field(default_factory=Train)
    cache: Cache = Field(default_factory=Cache)
    log: Log = Field(default_factory=Log)
    certificates: Certificates = Field(default_factory=Certificates)
    notify: Notify = Field(default_factory=Notify)
    metrics: Metrics = Field(default_factory=Metrics)
    report: Report = Field(default_factory=Report)
    serve: Serve = Field(default_factory=Serve)
    repos: Annotated[tuple[RepoEntry, ...], BeforeValidator(table_list)] = Field(())
