"""A sorry from its first sight on, told by the daemon as people commit."""

from __future__ import annotations

from pathlib import Path

from daemon.place.control_client import request
from store.view import queries
from tests.support.daemon.deployment import Deployment
from tests.support.views import sorry_steps

OPEN = "theorem one : 1 = 1 := by\n  sorry\n"
MOVED = "-- a comment more\n\n" + OPEN
FILLED = "theorem one : 1 = 1 := by\n  rfl\n"
GONE = "theorem other : 2 = 2 := rfl\n"


def test_a_sorry_that_moves_is_filled_comes_back_and_goes_is_one_sorry_throughout(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("open", {"A.lean": OPEN})
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon():
        for number, source in enumerate((OPEN, MOVED, FILLED, OPEN, GONE), start=1):
            if number > 1:
                remote.commit(f"commit {number}", {"A.lean": source})
                request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
            deployment.wait_for(
                lambda wanted=number: len(deployment.events("commit_scanned")) == wanted,  # type: ignore[misc]
                what=f"commit {number} to be scanned",
            )
        # The log is first, and the view a moment later: what ends the job comes behind both.
        deployment.wait_for(lambda: len(deployment.events("job_succeeded")) == 5, what="the jobs' ends")
    view = queries.connect(settings.paths.database_db)
    (sorry,) = queries.sorries(view)
    steps = [step.step for step in sorry_steps(view, sorry.sorry)]
    view.close()
    assert steps == ["opened", "moved", "filled", "reopened", "removed"]
    opened = deployment.events("sorry_opened")
    assert [event.data["reopened"] for event in opened] == [False, True]
    assert {event.data["sorry"] for event in opened} == {sorry.sorry}
