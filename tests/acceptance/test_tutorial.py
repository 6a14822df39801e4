"""docs/tutorial.md from its first command to its last, by the real daemon and Lean 4.35.0 itself.

Stand-ins: the repository is a local one, elan and lake are ours, and so is the library in place of Lean's
(`tests.support.lean.real_gate`). With it no proof is called verified, and the page takes a candidate.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.place.paths import paths_from_config
from examples.harness import Daemon
from pipeline.lean.toolchain.standins import SWITCH
from store.view import queries
from tests.support.daemon.kills import settled
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import real_elan
from tests.support.reference import DOCS, commands

ROOT = Path(__file__).resolve().parents[2]
URL = "https://github.com/owner/name"
PAGE = (DOCS / "tutorial.md").read_text("utf-8")
STEPS = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_page_is_one_page_and_says_only_commands_that_there_are() -> None:
    assert len(PAGE.split()) <= 700
    options = {name: {text for item in verb.params for text in item.opts} for name, verb in commands()}
    lines = [line.split()[1:] for step in STEPS for line in step.splitlines() if line.startswith("everlean ")]
    assert len(lines) == 11
    for words in lines:
        verb = next(name for name in (" ".join(words[:2]), words[0]) if name in options)
        assert {word for word in words if word.startswith("--")} <= options[verb], words


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("real_lean")
def test_every_command_of_the_tutorial_works_in_its_order(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    remote = Remote(tmp_path / "name")
    shutil.copytree(ROOT / "examples" / "small-project", remote.path, dirs_exist_ok=True)
    sha = remote.commit("A small project", {"notes.md": "ours\n"})
    elan = real_elan(tmp_path)
    config = home / ".config" / "everlean" / "config.toml"
    environment = {
        "HOME": str(home), "ELAN_HOME": str(elan), SWITCH: "1", "NO_COLOR": "1", "COLUMNS": "200",
        "PATH": f"{elan}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org",
    }  # fmt: skip
    names = {URL: str(remote.path)}

    def shell(step: str) -> str:
        for name, value in names.items():
            step = step.replace(name, value)
        result = subprocess.run(
            ["bash", "-euc", step], env=environment, cwd=home, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert result.returncode == 0, f"{step}\n{result.stdout}{result.stderr}"
        return result.stdout

    watch, run, look, one, read, proofs, take = STEPS
    assert run == "everlean run\n"
    assert "is valid: 1 repository" in shell(watch)
    # Tests are run by root, who runs no Lean by default, and where there is no sandbox; a socket's path is short.
    ours = f'[daemon]\nstate_dir = "{tmp_path / "state"}"\n[lean]\nas_root = true\nsandbox = "none"\n\n'
    config.write_text(ours + config.read_text("utf-8"), "utf-8")
    daemon = Daemon(config, paths_from_config(config), tmp_path / "daemon.log", environment)
    daemon.process = start(environment, home, daemon.log)
    try:
        daemon.wait("the end of the work", lambda _events: settled(daemon.paths, sha))
        listed = shell(look)
        assert "Small.and_swap" in listed
        assert re.search(r"disproved +Small.square_of_17", listed)
        names["SORRY"] = id_of("Small.and_swap", listed)
        assert "⊢ p ∧ q ↔ q ∧ p" in shell(one)
        assert "Small.square_of_17" in shell(read)
        page = (home / "report" / "index.html").read_text("utf-8")
        assert "square_of_17" in page
        names["PROOF"] = found(daemon, "Small.and_swap")
        assert "candidate" in shell(proofs)
        changed = shell(take)
    finally:
        daemon.process.send_signal(signal.SIGINT)
        daemon.process.wait(timeout=40)
    assert daemon.process.returncode == 0, "Ctrl-C ends it"
    assert "-  sorry" in changed
    assert "+  exact And.comm .." in changed
    assert "not verified" in changed, "the commit says what was not checked"


def start(environment: dict[str, str], home: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(["everlean", "run"], env=environment, cwd=home, stdout=output, stderr=output)


def id_of(declaration: str, listed: str) -> str:
    (line,) = (line for line in listed.splitlines() if declaration in line)
    return line.split()[0]


def found(daemon: Daemon, declaration: str) -> str:
    view = queries.connect(daemon.paths.database_db)
    try:
        (proof,) = (one for one in queries.proofs(view) if one.declaration == declaration)
    finally:
        view.close()
    return proof.proof[:8]
