"""Remotes that really are elsewhere; these run by themselves where there is an internet."""

from __future__ import annotations

import asyncio

import pytest

from daemon.polling.git import Git


@pytest.mark.usefixtures("network", "users_settings")
def test_a_public_repository_on_github_tells_its_default_branch_and_tip() -> None:
    refs = asyncio.run(Git(timeout_s=60).ls_remote("https://github.com/leanprover-community/batteries"))
    assert refs.default_branch == "main"
    assert len(refs.heads["main"]) == 40
