"""A search for an editor (`/fill`) and a prove job of the daemon: the same steps, each by the same function."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from pipeline.endpoint.credentials import job_key
from pipeline.freeze import contents, freeze
from pipeline.jobs.checkout import worktree
from pipeline.jobs.child import JobProcess
from pipeline.jobs.ladder import Ladder
from pipeline.jobs.lines import parse_line
from pipeline.jobs.specs import CheckSpec, ProveSpec
from pipeline.lean.backend import find_leans
from pipeline.lean.build.build_cache import attach


@pytest.mark.parametrize(
    ("step", "daemon", "server"),
    [
        (Ladder, "daemon.planning.ladder", "pipeline.serve.spec"),
        (ProveSpec, "daemon.planning.proving", "pipeline.serve.fill"),
        (find_leans, "daemon.scheduling.scheduler", "pipeline.serve.workspace"),
        (worktree, "daemon.jobs.local", "pipeline.serve.checkouts"),
        (attach, "daemon.jobs.local", "pipeline.serve.checkouts"),
        (job_key, "daemon.jobs.local", "pipeline.serve.workspace"),
        (JobProcess, "daemon.jobs.local", "pipeline.serve.workspace"),
        (parse_line, "daemon.jobs.runner", "pipeline.serve.workspace"),
        (CheckSpec, "daemon.planning.repository", "pipeline.serve.check"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_each_step_is_the_same_for_the_daemon_and_for_an_editor(step: Any, daemon: str, server: str) -> None:
    for module in (daemon, server):
        assert getattr(import_module(module), step.__name__, None) is step, f"{module} does it in another way"


def test_what_a_search_is_given_of_the_view_is_the_same() -> None:
    assert import_module("daemon.jobs.runner").contents is contents
    assert import_module("pipeline.serve.fill").freeze is freeze
    assert freeze.__globals__["contents"] is contents
