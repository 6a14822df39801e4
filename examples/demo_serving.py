"""Ask the server for editors over HTTP, as an editor would, and tell what it answers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx2

from examples.demo_repositories import DemoError
from examples.demo_telling import say

READY_S = 120.0
_SHOWN = 3


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Editor:
    """A client of the server at a port. `keep_up` is called while it waits."""

    def __init__(self, port: int, *, keep_up: Callable[[], None]) -> None:
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0, trust_env=False)
        self._keep_up = keep_up

    def wait(self) -> None:
        """Wait until the models are loaded."""
        end = time.monotonic() + READY_S
        why = "it does not listen"
        while time.monotonic() < end:
            self._keep_up()
            try:
                answer = self._client.get("/ready")
            except httpx2.TransportError:
                pass
            else:
                if answer.status_code == 200:
                    return
                why = answer.json()["reason"]
            time.sleep(0.2)
        raise DemoError(
            f"the server was not ready after {READY_S:.0f} s: {why}; see server.log in its folder"
        )

    def show(self, sorry: dict[str, Any], proof: dict[str, Any]) -> None:
        """Ask about a sorry in each way; `proof` is what a search found for it."""
        goal = sorry["goal"]["goal"]
        say(f"The goal of {sorry['declaration']}: {' '.join(goal.splitlines()[-1].split())}\n")
        asked = {"name": "tactics", "input": goal}
        tactics, headers = self._ask("/generate", asked, 'the model "tactics"')
        for one in tactics["outputs"][:_SHOWN]:
            say(f"  {one['score']:.2f}  {one['output']}")
        mark = _mark({"simulated": headers.get("X-Everlean-Simulated") == "true"})
        say(f"  by {headers['X-Everlean-Checkpoint']}; nothing has checked them{mark}")
        place = {"repository": sorry["repository"], "file": sorry["path"]}
        position = {"line": sorry["line"], "column": sorry["column"] + 1}
        found, _ = self._ask(
            "/retrieve", {"goal": goal, **place, "position": position, "k": _SHOWN}, "premises for it"
        )
        for one in found["premises"]:
            say(f"  {one['score']:.2f}  {one['full_name']}  {one['file']}:{one['line']}")
        say(f"  of {found['accessible']} that may be used there{_mark(found)}")
        for text in (proof["replacement"], "exact sorryAx _", "trivial"):
            proposed = {"repository": sorry["repository"], "sorry": {"id": sorry["sorry"]}, "proof": text}
            judged, _ = self._ask("/check", proposed, text)
            say(f"  {judged['verdict']}: {judged['reason']}{_mark(judged)}")
        say()

    def close(self) -> None:
        self._client.close()

    def _ask(self, path: str, body: dict[str, Any], what: str) -> tuple[dict[str, Any], httpx2.Headers]:
        answer = self._client.post(path, json=body)
        if answer.status_code != 200:
            raise DemoError(f"POST {path} {json.dumps(body)}: {answer.status_code} {answer.text}")
        say(f"POST {path}  {what}")
        told: dict[str, Any] = answer.json()
        return told, answer.headers


def _mark(answer: dict[str, Any]) -> str:
    return "  [simulated]" if answer["simulated"] else ""
