"""LeanDojo-v2's names, each with its place here, and the run of a script that imports them.

`NAMES` is the one table: the finder makes the modules `lean_dojo_v2.*` from it, and docs/leandojo.md shows
it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from daemon.leandojo.session import AgentError

PACKAGE = "lean_dojo_v2"
_AGENTS, _TRACING, _SCRIPTS = "daemon.leandojo.agents", "daemon.leandojo.tracing", "daemon.leandojo.scripts"
_TRAINERS = "pipeline.models.trainers"
_PROVERS, _RECORDS = "pipeline.prove.provers", "store.leandojo"

NAMES: Mapping[str, Mapping[str, str]] = {
    "agent.base_agent": {"BaseAgent": _AGENTS},
    "agent.hf_agent": {"HFAgent": _AGENTS},
    "agent.lean_agent": {"LeanAgent": _AGENTS},
    "agent.external_agent": {"ExternalAgent": _AGENTS},
    "trainer.sft_trainer": {"SFTTrainer": _TRAINERS},
    "trainer.grpo_trainer": {"GRPOTrainer": _TRAINERS},
    "trainer.retrieval_trainer": {"RetrievalTrainer": _TRAINERS},
    "trainer.progress_trainer": {"ProgressTrainer": _TRAINERS},
    "prover.base_prover": {"BaseProver": f"{_PROVERS}:Prover"},
    "prover.hf_prover": {"HFProver": _PROVERS},
    "prover.retrieval_prover": {"RetrievalProver": _PROVERS},
    "prover.external_prover": {"ExternalProver": _PROVERS},
    "lean_agent": {"main": f"{_SCRIPTS}:lean_agent"},
    "lean_agent.config": {"ProverConfig": _AGENTS, "TrainingConfig": "pipeline.models.retriever.config"},
    "database.dynamic_database": {"DynamicDatabase": _TRACING},
    "database.models.repository": {"Repository": _RECORDS},
    "database.models.theorems": {"Theorem": _RECORDS},
    "database.models.annotations": {"AnnotatedTactic": _RECORDS, "Annotation": _RECORDS},
    "database.models.premises": {"Premise": _RECORDS, "PremiseFile": _RECORDS},
    "lean_dojo.data_extraction.dataset": {"generate_benchmark": _TRACING},
    "lean_dojo.data_extraction.lean": {"LeanGitRepo": _TRACING, "Pos": _RECORDS},
    "lean_progress.create_sample_dataset": {"main": f"{_SCRIPTS}:create_sample_dataset"},
    "lean_progress.train_steps_model": {"main": f"{_SCRIPTS}:train_steps_model"},
}
"""By module of `lean_dojo_v2` and name there: the module here, and behind a colon the name here if it
differs."""
ALIASES = {"lean_agent.database": "database"}
"""Packages with another's content."""
LEFT_OUT = {
    "TracedRepo": "the records of `DynamicDatabase` have what Lean said of files, theorems and tactics",
    "TracedFile": "see `TracedRepo`",
    "TracedTheorem": "see `TracedRepo`",
    "TracedTactic": "see `TracedRepo`",
    "trace": "`generate_benchmark`, and the verb `everlean trace`, write what a trace gives",
    "get_traced_repo_path": "traces are in the store",
    "is_available_in_cache": "what was traced is not traced again",
    "Cache": "[cache] of the configuration bounds the builds and clones",
}
"""LeanDojo's names without an equivalent, each with a substitute."""


def names_of(module: str) -> Mapping[str, str]:
    """Return the names of a module of `lean_dojo_v2`, given without the package's name, and of all modules
    below it."""
    module = ALIASES.get(module, module)
    result: dict[str, str] = {}
    for name, own in NAMES.items():
        if name.startswith(f"{module}."):
            result |= own
    return {**result, **NAMES.get(module, {})}


def resolve(module: str, name: str) -> Any:
    """Return the equivalent of one of LeanDojo's names.

    Raises:
        AttributeError: there is none; the message has the substitute, if there is one.
    """
    place = names_of(module).get(name)
    if place is None:
        why = LEFT_OUT.get(name, "docs/leandojo.md lists the names that are")
        raise AttributeError(f"{PACKAGE}.{module} has no {name} here: {why}")
    where, _, own = place.partition(":")
    return getattr(importlib.import_module(where), own or name)


class Finder:
    """Finds `lean_dojo_v2` and its modules; a module's content is loaded at its use."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, module = name.partition(".")
        if package != PACKAGE:
            return None
        modules = (*NAMES, *ALIASES)
        if module and not any(one == module or one.startswith(f"{module}.") for one in modules):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        _, _, below = spec.name.partition(".")
        module.__dict__["__getattr__"] = lambda name: resolve(below, name)
        module.__dict__["__all__"] = sorted(names_of(below))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


@contextmanager
def in_place_of_leandojo() -> Iterator[None]:
    """Have imports of `lean_dojo_v2` find the names here, whether it is installed or not."""
    finder = Finder()
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == PACKAGE}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        sys.modules.update(aside)


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """Run a script as `python SCRIPT ARGUMENTS` does, with LeanDojo's names found here.

    Raises:
        AgentError: there is no such file.
    """
    if not path.is_file():
        raise AgentError(f"{path}: no such file; name a script that imports {PACKAGE}")
    with _program(str(path), arguments, path.absolute().parent):
        runpy.run_path(str(path), run_name="__main__")


def run_module(module: str, arguments: Sequence[str]) -> None:
    """Run a module, LeanDojo's or the caller's own, as `python -m MODULE ARGUMENTS` does.

    Raises:
        AgentError: it is one of LeanDojo's that cannot be run.
        ImportError: there is no such module.
    """
    package, _, below = module.partition(".")
    runnable = [name for name, own in NAMES.items() if "main" in own]
    if package == PACKAGE and below not in runnable:
        there = ", ".join(f"{PACKAGE}.{name}" for name in runnable)
        raise AgentError(f"{module} cannot be run; what can: {there}")
    with _program(module, arguments, Path.cwd()):
        if package == PACKAGE:
            resolve(below, "main")()
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)


@contextmanager
def _program(name: str, arguments: Sequence[str], folder: Path) -> Iterator[None]:
    """Set `sys` up as for a program with this name and these arguments, its modules in `folder`."""
    before = sys.argv, sys.path
    sys.argv, sys.path = [name, *arguments], [str(folder), *sys.path]
    try:
        with in_place_of_leandojo():
            yield
    finally:
        sys.argv, sys.path = before
