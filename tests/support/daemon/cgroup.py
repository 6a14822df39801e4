"""A part of the cgroup tree for tests, as a folder of plain files that say what a kernel would say.

tree = FakeTree(tmp_path, kills=1)
engine = LocalEngine(..., cgroups=tree.cgroups())
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from daemon.jobs.limits import Cgroups


class _Groups(Cgroups):
    """Groups whose kernel files are there, as they are in the real tree from the mkdir on."""

    events = ""
    peak = ""

    def open(self, name: str, *, memory_bytes: int) -> Path:
        group = super().open(name, memory_bytes=memory_bytes)
        (group / "memory.events").write_text(self.events, encoding="ascii")
        (group / "memory.peak").write_text(self.peak, encoding="ascii")
        return group


class FakeTree:
    """`top` is the daemon's own group. `kills`, `at_limit` and `peak_bytes` are what each job's group will say."""

    def __init__(
        self, folder: Path, *, kills: int = 0, at_limit: int = 0, peak_bytes: int = 0, memory: bool = True
    ) -> None:
        self.root = folder / "cgroup"
        self.top = self.root / "system.slice" / "everlean.service"
        self.own = folder / "own"
        self._kills, self._at_limit, self._peak_bytes = kills, at_limit, peak_bytes
        self.top.mkdir(parents=True)
        (self.top / "cgroup.controllers").write_text(
            "cpu memory pids" if memory else "cpu pids", encoding="ascii"
        )
        (self.top / "cgroup.procs").write_text(f"{os.getpid()}\n", encoding="ascii")
        self.own.write_text("0::/system.slice/everlean.service\n", encoding="ascii")

    def cgroups(self) -> Cgroups:
        """Return it divided for jobs.

        Raises:
            NoCgroupsError: as the real one.
        """
        groups = _Groups.take(root=self.root, own=self.own, remove=shutil.rmtree)
        assert isinstance(groups, _Groups)
        groups.events = f"low 0\nhigh 0\nmax {self._at_limit}\noom {self._at_limit}\noom_kill {self._kills}\n"
        groups.peak = f"{self._peak_bytes}\n"
        return groups
