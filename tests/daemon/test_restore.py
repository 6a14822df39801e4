"""The backup and the restore of docs/operations.md: the very commands of the page, run beside a daemon at work."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from daemon.settings import load
from store.log.backup import check
from store.log.reader import LogReader
from store.view.rebuild import verify
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.remote import Remote

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
EVERLEAN = Path(sys.executable).parent / "everlean"
SUDO = """#!/bin/sh
# No other user here: what would be theirs is this one's.
if [ "$1" = -u ]; then shift 2; fi
if [ "$1" = install ]; then shift; set -- install "$1" "${@:6}"; fi
exec "$@"
"""
SYSTEMCTL = """#!/bin/sh
case "$1" in
  stop) kill "$(head -n 1 {lock})"; exec flock {lock} true ;;
  start) {everlean} run --config {config} >>{log} 2>&1 & ;;
esac
"""


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem one : 1 = 1 := rfl\n"})
    deployment.write(repos=[remote.path], every="1s")
    return remote


@pytest.fixture
def administrator(deployment: Deployment) -> Iterator[dict[str, str]]:
    """An environment in which `sudo` and `systemctl` act on this folder's daemon."""
    programs = deployment.folder / "bin"
    programs.mkdir()
    lock = deployment.folder / "state" / "daemon.lock"
    names = {
        "everlean": EVERLEAN,
        "config": deployment.config,
        "lock": lock,
        "log": deployment.folder / "daemon.log",
    }
    quoted = {name: shlex.quote(str(path)) for name, path in names.items()}
    for name, text in (
        ("sudo", SUDO.replace("#!/bin/sh", "#!/bin/bash")),
        ("systemctl", SYSTEMCTL.format(**quoted)),
    ):
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    path = f"{programs}:{EVERLEAN.parent}:{os.environ['PATH']}"
    yield {**os.environ, "PATH": path, "EVERLEAN_CONFIG": str(deployment.config)}
    pid = lock.read_text(encoding="ascii").strip()
    if pid.isdecimal():
        with suppress(ProcessLookupError):  # the test may have stopped it
            os.kill(int(pid), signal.SIGKILL)


def commands(deployment: Deployment) -> list[str]:
    """The two blocks of the section, on this test's folders."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Backup\n")[1].split("\n## Move")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    places = {
        "/var/lib/everlean": deployment.folder / "state",
        "/var/backups/everlean": deployment.folder / "backups",
        "/etc/everlean/config.toml": deployment.config,
    }
    for written, here in places.items():
        blocks = [block.replace(written, str(here)) for block in blocks]
    return blocks


def run(block: str, environment: dict[str, str]) -> str:
    result = subprocess.run(
        ["bash", "-e", "-c", block], capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_commands_of_the_page_restore_a_backup_that_was_made_while_the_daemon_wrote(
    deployment: Deployment, remote: Remote, administrator: dict[str, str]
) -> None:
    backup, restore = commands(deployment)
    copy = deployment.folder / "backups" / "events.db"
    paths = load(deployment.config).paths
    with deployment.daemon() as process:
        deployment.wait_for(lambda: deployment.events("commit_observed"), what="the first commit")
        for number in range(5):
            remote.commit(f"before {number}", {"A.lean": f"theorem t{number} : 1 = 1 := rfl\n"})
        run(backup, administrator)
        assert process.poll() is None
        assert check(copy).ok
        with LogReader.open(copy) as log:
            kept = list(log.read())
        assert deployment.events()[: len(kept)] == kept
        last = remote.commit("after the backup", {"A.lean": "theorem last : 1 = 1 := rfl\n"})
        deployment.wait_for(
            lambda: any(event.data["sha"] == last for event in deployment.events("commit_observed")),
            what="the commit after the backup",
        )
        said = run(restore, administrator)
        assert process.wait(timeout=30) == 0
    assert f"from {len(kept)} events" in said
    assert "the log is sound" in said
    deployment.wait_for(
        lambda: any(event.data["sha"] == last for event in deployment.events("commit_observed")),
        what="the restored daemon to find the later commit again",
    )
    run("systemctl stop everlean", administrator)
    assert deployment.events()[: len(kept)] == kept
    assert verify(paths.events_db, paths.database_db).differences == ()
    aside = {path.name for path in (paths.state / "before-restore").iterdir()}
    assert {"events.db", "database.db"} <= aside
    # Exit status 3 is that the daemon does not run.
    question = f"everlean status --json --config {deployment.config}; test $? = 3"
    status = json.loads(run(f"set +e; {question}", administrator))
    assert [problem["code"] for problem in status["problems"] if problem["severity"] == "error"] == [
        "daemon_not_running"
    ]
