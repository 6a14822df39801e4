"""Paths of the configuration, the state, the cache and the control socket.

Owns the search for `config.toml` and the names of the files below the three folders. Standard library only:
the command line's read verbs must start in milliseconds. `daemon.settings` validates the settings; this
module reads only the three folders and the author of patches from the file, even from one with an error
elsewhere, so `status` can still report the running daemon's opinion of that file.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SYSTEM_CONFIG = Path("/etc/everlean/config.toml")
_SYSTEM_FOLDERS = {
    "state": Path("/var/lib/everlean"),
    "cache": Path("/var/cache/everlean"),
    "runtime": Path("/run/everlean"),
}


class ConfigNotFoundError(FileNotFoundError):
    """No configuration file was found; the message names the places and the remedy."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The three folders of one daemon and their files. Nothing is created here."""

    state: Path
    cache: Path
    runtime: Path

    @property
    def events_db(self) -> Path:
        return self.state / "events.db"

    @property
    def database_db(self) -> Path:
        return self.state / "database.db"

    @property
    def second_view(self) -> Path:
        """The view for the comparison with the first, while that goes on (`store.view.checking`)."""
        return self.cache / "second-view.db"

    @property
    def lock(self) -> Path:
        """Held (flock) by the daemon while it lives; contains its process id."""
        return self.state / "daemon.lock"

    @property
    def standby(self) -> Path:
        """This machine's role for the shipped log: its standby, or the successor's name
        (`daemon.state.standby`)."""
        return self.state / "standby.json"

    @property
    def patches(self) -> Path:
        return self.state / "patches"

    @property
    def jobs(self) -> Path:
        return self.state / "jobs"

    @property
    def inputs(self) -> Path:
        """The jobs' extracts of the log and the view, frozen (`pipeline.jobs.inputs`)."""
        return self.state / "inputs"

    @property
    def models(self) -> Path:
        """One folder of checkpoints for each model."""
        return self.state / "models"

    @property
    def embeddings(self) -> Path:
        """Premise embeddings of checkpoints, computed again if lost."""
        return self.cache / "embeddings"

    @property
    def answers(self) -> Path:
        """The paid answers of endpoints to searches (`pipeline.endpoint.answers`)."""
        return self.cache / "answers"

    @property
    def mirrors(self) -> Path:
        return self.cache / "mirrors"

    @property
    def worktrees(self) -> Path:
        return self.cache / "worktrees"

    @property
    def copies(self) -> Path:
        """Views as of earlier events, made on demand (`store.view.asof`)."""
        return self.cache / "as-of"

    @property
    def socket(self) -> Path:
        return self.runtime / "control.sock"


def find_config(explicit: Path | None = None) -> Path:
    """Return the configuration file to use, as an absolute path.

    Order: `explicit` (--config), $EVERLEAN_CONFIG, /etc/everlean/config.toml,
    $XDG_CONFIG_HOME/everlean/config.toml. A named file that is missing is an error, never a reason to look
    further. A file in the current folder is read only if named: a clone brings one, and a user in a clone
    means the installed daemon.
    """
    if explicit is not None:
        return _resolve(explicit, by="--config")
    if from_environment := os.environ.get("EVERLEAN_CONFIG"):
        return _resolve(Path(from_environment), by="$EVERLEAN_CONFIG")
    places = (SYSTEM_CONFIG, user_config())
    for place in places:
        if place.is_file():
            return place.absolute()
    looked = " and ".join(str(place) for place in places)
    here = Path("config.toml")
    remedy = f"--config {here} names this folder's" if here.is_file() else "name one with --config FILE"
    raise ConfigNotFoundError(
        f"no configuration file found (looked for {looked}); `everlean init` makes one, or {remedy}"
    )


def user_config() -> Path:
    """Return the place of a user's own configuration, whether it is there or not."""
    return _home_folder("XDG_CONFIG_HOME", ".config") / "everlean" / "config.toml"


def paths_from_config(path: Path) -> Paths:
    """Return the folders configured in the file at `path`, reading nothing but those three settings.

    An empty setting means $STATE_DIRECTORY, $CACHE_DIRECTORY or $RUNTIME_DIRECTORY (systemd's), else the
    system folders for a configuration in /etc/everlean, else `cache` and `run` inside a configured state
    folder (two daemons with two state folders must share neither mirrors nor socket), else the XDG folders.
    """
    return resolve_paths(_daemon_table(path.read_bytes().decode(errors="replace")), config=path)


DEFAULT_AUTHOR = "everlean <everlean@localhost>"
AUTHOR = re.compile(r"([^<>\x00-\x1f\x7f]*[^<>\x00-\x20\x7f]) <([^<>@\s]+@[^<>@\s]+)>")
"""A name and an e-mail address in git's form."""


def author_from_config(path: Path) -> str:
    """Return the author of proofs in the file at `path`; an invalid value counts as unset."""
    value = _daemon_table(path.read_bytes().decode(errors="replace")).get("author")
    return value if isinstance(value, str) and AUTHOR.fullmatch(value) else DEFAULT_AUTHOR


def resolve_paths(daemon: dict[str, Any], *, config: Path) -> Paths:
    """Turn the `[daemon]` table into folders; values of a wrong type count as unset (settings reports
    them)."""
    base = config.absolute().parent
    state = _setting(daemon, "state_dir", base=base)
    system = config.absolute() == SYSTEM_CONFIG
    return Paths(
        state=state
        or _from_systemd("STATE_DIRECTORY")
        or (
            _SYSTEM_FOLDERS["state"]
            if system
            else _home_folder("XDG_STATE_HOME", ".local/state") / "everlean"
        ),
        cache=_setting(daemon, "cache_dir", base=base)
        or _from_systemd("CACHE_DIRECTORY")
        or (_SYSTEM_FOLDERS["cache"] if system else None)
        or (state / "cache" if state else _home_folder("XDG_CACHE_HOME", ".cache") / "everlean"),
        runtime=_setting(daemon, "runtime_dir", base=base)
        or _from_systemd("RUNTIME_DIRECTORY")
        or (_SYSTEM_FOLDERS["runtime"] if system else None)
        or (state / "run" if state else _user_runtime()),
    )


def _resolve(path: Path, *, by: str) -> Path:
    if not path.is_file():
        raise ConfigNotFoundError(f"{path}, named by {by}, is not a file; name an existing config.toml")
    return path.absolute()


def _setting(daemon: dict[str, Any], key: str, *, base: Path) -> Path | None:
    value = daemon.get(key)
    if not isinstance(value, str) or not value:
        return None
    # normpath and not resolve: a state folder behind a symlink keeps its owner's name for it.
    return Path(os.path.normpath(base / Path(value).expanduser()))


def _from_systemd(variable: str) -> Path | None:
    # systemd gives a colon-separated list if a unit asks for several folders; ours asks for one.
    first = os.environ.get(variable, "").split(":")[0]
    return Path(first) if first else None


def _home_folder(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path in these variables is to be ignored.
    return Path(value) if value.startswith("/") else Path.home() / fallback


def _user_runtime() -> Path:
    value = os.environ.get("XDG_RUNTIME_DIR", "")
    if value.startswith("/"):
        return Path(value) / "everlean"
    return _home_folder("XDG_STATE_HOME", ".local/state") / "everlean" / "run"


def _daemon_table(text: str) -> dict[str, Any]:
    try:
        table = tomllib.loads(text).get("daemon", {})
    except tomllib.TOMLDecodeError:
        return _readable_lines(text)
    return table if isinstance(table, dict) else {}


def _readable_lines(text: str) -> dict[str, Any]:
    """Return the one-line settings of `[daemon]` in a file with a syntax error."""
    result: dict[str, Any] = {}
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            inside = line.split("#")[0].strip() == "[daemon]"
        elif inside:
            try:
                result.update(tomllib.loads(line))
            except tomllib.TOMLDecodeError:
                continue  # this is the broken line, or part of a longer value; `config check` reports it
    return result
