"""A small repository for agents' tests, and a folder with a configuration and a store that knows it.

study = TracedProject.begin(tmp_path)          # a remote with one commit
study.write_config()                   # what `everlean` and the agents find through $EVERLEAN_CONFIG
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from daemon.place.paths import Paths
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN

BASIC = "theorem keep (p : Prop) (h : p) : p := h\n"
SUMS = "".join(f"theorem sum{n} : {n} + 1 = {n + 1} := by\n  rfl\n\n" for n in (0, 1, 2))
# The splits are for life: use2 is always a test, sum2 and use7 are always in val, the others are learned from.
LOGIC = "import Basic\n\n" + "".join(
    f"theorem use{n} (p q{n} : Prop) (hp : p) : p := by\n  exact keep p hp\n\n" for n in (0, 1, 2, 3, 7)
)
OPEN = "import Basic\n\ntheorem four : 2 + 2 = 4 := by\n  sorry\n"
FILES = {
    "lean-toolchain": f"{TOOLCHAIN}\n",
    "lakefile.toml": 'name = "small"\ndefaultTargets = ["Logic", "Sums", "Open"]\n[[lean_lib]]\nname = "Basic"\n',
    "Basic.lean": BASIC,
    "Sums.lean": SUMS,
    "Logic.lean": LOGIC,
    "Open.lean": OPEN,
}
KEY = "local/remotes/small"

CONFIG = """
[daemon]
state_dir = "state"
[lean]
sandbox = "none"
as_root = true
[train]
device = "cpu"
[prove]
seconds_per_sorry = "20s"
nodes_per_sorry = 2
[prove.generator]
device = "cpu"
candidates = 4
"""


@dataclass(frozen=True, slots=True)
class TracedProject:
    """`folder` has the configuration and the state, `remote` the repository, with the commit `sha`."""

    folder: Path
    remote: Remote
    sha: str

    @classmethod
    def begin(cls, folder: Path) -> TracedProject:
        """Make the remote, with its first commit."""
        remote = Remote(folder / "remotes" / "small")
        return cls(folder, remote, remote.commit("first", FILES))

    @property
    def url(self) -> str:
        return f"file://{self.remote.path}"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    @property
    def paths(self) -> Paths:
        return Paths(self.state, self.state / "cache", self.state / "run")

    def copied(self, folder: Path) -> TracedProject:
        """Return this one with a copy of its state below another folder, and a configuration there."""
        shutil.copytree(self.state, folder / "state")
        made = TracedProject(folder, self.remote, self.sha)
        made.write_config()
        return made

    def write_config(self) -> None:
        self.config.write_text(CONFIG, encoding="utf-8")

    def everlean(self, *arguments: str) -> Any:
        """Run the command line; return the document that it prints."""
        from daemon.cli.app import build

        done = CliRunner().invoke(build(), [*arguments, "--json", "--config", str(self.config)])
        if done.exit_code:
            raise AssertionError(f"everlean {' '.join(arguments)}: {done.output}")
        return json.loads(done.stdout)

    def events(self, *types: str) -> list[StoredEvent]:
        """What the log holds now, in order."""
        with LogReader.open(self.paths.events_db) as log:
            return list(log.read(types=types))
