"""The Lean version of each watched branch and its toolchain, for `doctor` and `status`.

Reads the view (`branches.projects`, filled by a scan) and the answer of `Leans`; starts nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daemon.jobs.gpus import DEVICES, NVIDIA, cuda_is_there
from daemon.place.instance import Instance, open_view
from pipeline.lean.backend import GET_LEAN, LeanBackend, Leans, find_leans
from pipeline.lean.toolchain.versions import VersionError, parse_version
from store.events.projects import worked_on
from store.view import queries

if TYPE_CHECKING:
    from daemon.settings import Settings
    from daemon.settings.models import Prove, Train


class NeedingProject(NamedTuple):
    """A Lake project of a branch; `project` is its folder, "" for the root."""

    repository: str
    branch: str
    project: str

    def __str__(self) -> str:
        return f"{self.repository} ({', '.join(filter(None, (self.branch, self.project)))})"


@dataclass(frozen=True, slots=True)
class Need:
    """One Lean version needed by watched branches. `toolchain` is "" for those without a `lean-toolchain`.

    `places` are the Lake projects that need it; `version` is the short name, "" if the text has none.
    `remedy` installs its program, "" if it is there.
    """

    toolchain: str
    version: str
    places: tuple[NeedingProject, ...]
    backend: LeanBackend
    remedy: str = ""

    @property
    def met(self) -> bool:
        return self.backend.kind != "none"


def needs(database: sqlite3.Connection, leans: Leans) -> tuple[Need, ...]:
    """Return every version needed by the scanned tips of watched repositories, in the order of their names.

    Branches not scanned yet are not among them: their versions are unknown.
    """
    watched = {row.repository: row.projects for row in queries.repositories(database, watched_only=True)}
    result: dict[str, list[NeedingProject]] = {}
    for branch in queries.branches(database):
        if branch.repository in watched and branch.state == "live":
            for project in worked_on(branch.lake_projects, watched[branch.repository]):
                place = NeedingProject(branch.repository, branch.branch, project.folder)
                result.setdefault(_full(project.toolchain), []).append(place)
    return tuple(_need(leans, toolchain, sorted(places)) for toolchain, places in sorted(result.items()))


def _need(leans: Leans, toolchain: str, places: Sequence[NeedingProject]) -> Need:
    backend = leans.for_toolchain(toolchain)
    try:
        version = parse_version(toolchain)
    except VersionError:
        return Need(toolchain, "", tuple(places), backend, "see docs/install.md")
    remedy = GET_LEAN if backend.kind == "none" else ""
    return Need(toolchain, version.release, tuple(places), backend, remedy)


def lacking(database: sqlite3.Connection, leans: Leans) -> tuple[Need, ...]:
    """Return the needed versions without a program here.

    Empty if the settings have one program for every version, or none at all: that is the daemon's own state.
    """
    if leans.fixed is not None:
        return ()
    # Nearly always all of them are there; the branches of thousands of repositories are read only if not.
    if all(leans.for_toolchain(text).kind != "none" for text in queries.toolchains(database)):
        return ()
    return tuple(need for need in needs(database, leans) if not need.met)


def _full(text: str) -> str:
    try:
        return parse_version(text).toolchain
    except VersionError:
        return text  # shown as it is, with the reason


# ---- Whether a model can be trained, or asked, on this machine
# Looks for the libraries, and the GPU if one is wanted; imports none.


_TO_ASK = ("torch", "transformers", "safetensors", "peft")
_TO_TRAIN = {
    "retriever": ("torch", "transformers", "safetensors", "accelerate", "yaml"),
    "tactics": (*_TO_ASK, "accelerate", "trl", "datasets"),
    "progress": (*_TO_ASK, "accelerate"),
}


def why_not_trainable(train: Train, *, devices: Path = DEVICES) -> str:
    """Return the missing requirement of training, with the remedy; "" without one."""
    enabled = [name for name in ("tactics", "progress") if getattr(train, name).get("enabled", False)]
    libraries = dict.fromkeys(library for model in ("retriever", *enabled) for library in _TO_TRAIN[model])
    reports = () if train.report_to == "none" else (train.report_to,)
    missing = _missing(list(libraries)) or _missing(reports, extra=train.report_to)
    return missing or _no_gpu(train.device, "[train]", devices)


def why_no_models(prove: Prove, *, devices: Path = DEVICES) -> str:
    """Return the missing requirement of the rungs with a model, with the remedy; "" without one."""
    return _missing(_TO_ASK) or _no_gpu(prove.generator.device, "[prove.generator]", devices)


def _missing(libraries: Sequence[str], *, extra: str = "train") -> str:
    missing = [name for name in libraries if find_spec(name) is None]
    if not missing:
        return ""
    return f"{', '.join(missing)} not installed: install everlean with its extra `{extra}` (docs/install.md)"


def _no_gpu(device: str, table: str, devices: Path) -> str:
    if device != "cuda" or cuda_is_there(devices=devices):
        return ""
    return (
        f"no GPU was found ({devices / NVIDIA} is not there): give the service access to one"
        f' (docs/install.md), or write device = "cpu" under {table}'
    )


def needs_of(instance: Instance, settings: Settings) -> tuple[Need, ...] | None:
    """Return the Lean versions needed by the watched branches; None before a daemon recorded anything."""
    if not instance.paths.database_db.exists():
        return None
    lean = settings.lean
    leans = find_leans(
        backend=lean.backend,
        repl=lean.repl,
        sandbox=lean.sandbox,
        as_root=lean.as_root,
    )
    with open_view(instance) as database:
        return needs(database, leans)
