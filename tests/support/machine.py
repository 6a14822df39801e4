"""What of the machine the tests see: neither the user's programs, folders and settings nor their locale and zone.

`hide()` is called once, before any test. A test that needs what it hides asks for a fixture of
tests/conftest.py, which brings it back for that test or skips.

What stays is what the program itself requires (Python, git, a shell, coreutils, util-linux) and whatever else lies on
PATH and nobody asks for.
"""

from __future__ import annotations

import atexit
import fnmatch
import functools
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PACKAGES = {
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "curl": "curl",
    "dpkg-deb": "dpkg",
    "sqlite3": "sqlite3",
    "ssh-keygen": "openssh-client",
    "systemd-analyze": "systemd",
    "systemd-sysusers": "systemd",
    "systemd-tmpfiles": "systemd",
}
"""The Debian package of what a test may lack."""


def _names(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)))


# What the program or a test looks for and can do without.
_PROGRAMS = _names(
    *PACKAGES, "systemd-*", "systemctl", "loginctl", "chromium-browser", "google-chrome", "elan", "lake", "lean",
    "leanc", "nanoda_bin", "pantograph-repl", "nvidia-smi", "podman", "docker", "pipx", "uv", "zsh", "fish",
)  # fmt: skip
_VARIABLES = _names(
    "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY", "NOTIFY_SOCKET",
    "CONFIGURATION_DIRECTORY", "LOGS_DIRECTORY", "GITHUB_TOKEN", "GH_TOKEN", "LANGUAGE", "COLUMNS", "LINES",
    "NO_COLOR", "FORCE_COLOR", "GIT_*", "XDG_*", "LC_*", "EVERLEAN_*", "ELAN_*", "LAKE_*", "LEAN_*", "CUDA_*",
    "NVIDIA_*", "HF_*", "RAY_*", "MAKE*", "MFLAGS",
)  # fmt: skip
# What tells the tests something, and which certificates the network is to be trusted by.
_KEPT = _names("EVERLEAN_GOLDEN", "LEAN_SHARED", "GIT_SSL_*")
_USER, _PATH = "user.json", "PATH"


class MissingError(Exception):
    """This machine lacks what a test asks for; the text says what, and where there is one the package that has it."""


def hide() -> None:
    """Change this process's environment, umask and zone to what they are on every machine."""
    place = folder()
    for name in list(os.environ):
        if _VARIABLES.fullmatch(name) and not _KEPT.fullmatch(name):
            del os.environ[name]
    os.environ.update({
        "PATH": (place / _PATH).read_text(encoding="utf-8"),
        "HOME": str(place / "home"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "CUDA_VISIBLE_DEVICES": "",
        # No test takes a model from the hub, and looking for one takes half a minute without a network.
        "HF_HUB_OFFLINE": "1",
    })  # fmt: skip
    time.tzset()
    os.umask(0o022)


@functools.cache
def folder() -> Path:
    """Return the folder of what stands in for the machine's; it goes away with the process that makes it."""
    made = Path(tempfile.mkdtemp(prefix="everlean-tests-machine-"))
    _remove_at_the_end(made)
    made.chmod(0o755)  # a test may become another user
    (made / "home").mkdir()
    record = made / _USER
    record.touch(0o600)  # it may hold tokens
    record.write_text(json.dumps(dict(os.environ)), encoding="utf-8")
    (made / _PATH).write_text(_path_without(os.environ.get("PATH", os.defpath), made), encoding="utf-8")
    return made


@functools.cache
def user() -> Mapping[str, str]:
    """Return the environment of whoever runs the tests, as it was."""
    record: dict[str, str] = json.loads((folder() / _USER).read_bytes())
    return record


def program(name: str) -> Path:
    """Return a link to a program of the user's, hidden or not, in a folder that has nothing else.

    Raises:
        MissingError: it is not installed.
    """
    path = f"{user().get('PATH', os.defpath)}{os.pathsep}{elan_home()}/bin"
    installed = shutil.which(name, path=path)
    if installed is None:
        package = PACKAGES.get(name)
        how = f"; Debian: apt-get install {package}" if package else ""
        raise MissingError(f"the program {name} is not on PATH{how}")
    link = folder() / "with" / name / name
    link.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another process of these tests was here before
        link.symlink_to(Path(installed).absolute())
    return link


def elan_home() -> str:
    """Return where the user's elan keeps its toolchains."""
    return user().get("ELAN_HOME") or str(Path(user().get("HOME", "/nonexistent"), ".elan"))


def _path_without(path: str, folder: Path) -> str:
    """Return PATH with a folder of links for each of its folders that has a hidden program, less those."""
    kept: dict[Path, str] = {}
    for entry in filter(None, path.split(os.pathsep)):
        real = Path(entry).resolve()
        if real in kept or not os.access(real, os.X_OK) or not real.is_dir():
            continue
        # Python knows its virtual environment by the place where it is called; what is in one, is locked.
        is_environment = (real.parent / "pyvenv.cfg").is_file()
        may_look = os.access(real, os.R_OK)
        names = [file.name for file in real.iterdir()] if may_look and not is_environment else []
        if not any(map(_PROGRAMS.fullmatch, names)):
            kept[real] = str(Path(entry).absolute())
            continue
        links = folder / f"bin{len(kept)}"
        links.mkdir()
        kept[real] = str(links)
        for name in names:
            if _PROGRAMS.fullmatch(name) is None:
                (links / name).symlink_to(real / name)
    return os.pathsep.join(kept.values())


def _remove_at_the_end(folder: Path) -> None:
    made_by = os.getpid()

    def remove() -> None:
        if os.getpid() == made_by:  # and not a fork of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
