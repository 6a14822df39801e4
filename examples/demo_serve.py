"""`make demo-serve`: the server for editors, with two small checkpoints, about a theorem left open.

The daemon has Lean trace a library of rows of numbers. The checkpoints learned from other theorems of its
kind (`examples.make_checkpoints`). An editor asks the server for tactics and premises for a goal, and the
gate for its verdict on a sorry in other words, and on one tactic after the other until Lean takes one.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from examples import rows
from examples.harness import (
    COMMAND,
    EXAMPLES,
    WIDTH,
    Daemon,
    DemoError,
    begin,
    commit,
    cut,
    main,
    new_daemon,
    new_repository,
    of_type,
    say,
)
from store.view import queries

SOLVED = 40
ASKED = "Lists.t40"
CHECKPOINTS = EXAMPLES / "checkpoints"
SETTINGS = f"""[prove]
enabled = false
[train]
enabled = false

[serve]
token_file = "token"

[[serve.models]]
name = "tactics"
kind = "tactics"
model = {json.dumps(str(CHECKPOINTS / "tactics"))}
candidates = 3
max_tokens = 24

[[serve.models]]
name = "retriever"
kind = "retriever"
model = {json.dumps(str(CHECKPOINTS / "retriever"))}
"""
LOADED_S = 600.0
"""The time for the server to load its models, long on a busy machine; its end is seen at once."""


def run(directory: Path) -> None:
    """Show the whole screen."""
    begin(directory, "everlean serve: what an editor asks")
    repository = new_repository(directory / "rows")
    sha = commit(repository, "Rows of numbers", rows.files("Lists", count=SOLVED, opened=1, seed=5), day=1)
    say(f"\nAda commits {sha[:7]}: {len(rows.lemmas('Lists'))} lemmas, {SOLVED} theorems, one left open.")
    # Without a sandbox, Lean runs only for clients with a token.
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_urlsafe(32), encoding="utf-8")
    with new_daemon(directory, SETTINGS, watched=repository) as daemon:
        daemon.wait("the scan", lambda events: bool(of_type(events, "commit_scanned")))
        # It loads its models while Lean traces.
        with served(daemon) as editor:
            daemon.wait("the trace", lambda events: bool(of_type(events, "trace_measured")))
            ready(editor, daemon)
            show(editor, daemon)
    say("Its routes: docs/editors.md, and /docs of the server itself")


@contextmanager
def served(daemon: Daemon) -> Iterator[httpx2.Client]:
    """Run the server beside the daemon, and give a client of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token, log = daemon.config.with_name("token"), daemon.config.with_name("server.log")
    with log.open("ab") as output:
        server = subprocess.Popen(
            [COMMAND, "serve", "--port", str(port), "--config", str(daemon.config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": "1", **daemon.environment},
        )
    try:
        shown = {"Authorization": f"Bearer {token.read_text('utf-8')}"}
        address = f"http://127.0.0.1:{port}"
        with httpx2.Client(base_url=address, headers=shown, timeout=LOADED_S, trust_env=False) as client:
            client.event_hooks = {"request": [lambda _request: _alive(server, log)]}
            yield client
    finally:
        server.terminate()
        server.wait(timeout=40)


def _alive(server: subprocess.Popen[bytes], log: Path) -> None:
    if server.poll() is not None:
        raise DemoError(f"the server ended with status {server.returncode}; see {log}")


def ready(editor: httpx2.Client, daemon: Daemon) -> None:
    """Wait until the models are loaded."""
    end = time.monotonic() + LOADED_S
    why = "it does not listen"
    while time.monotonic() < end:
        daemon.keep_up()
        try:
            answer = editor.get("/ready")
        except httpx2.TransportError:
            pass
        else:
            if answer.status_code == 200:
                return
            why = answer.json()["reason"]
        time.sleep(0.2)
    raise DemoError(f"the server was not ready after {LOADED_S:.0f} s: {why}; see server.log in its folder")


def show(editor: httpx2.Client, daemon: Daemon) -> None:
    """Ask about a sorry in each way, and show the answers."""
    with closing(queries.connect(daemon.paths.database_db)) as view:
        (sorry,) = (row for row in queries.sorries(view) if row.declaration == ASKED)
    (goal,) = (one["goal"] for one in of_type(daemon.events, "sorry_stated") if one["sorry"] == sorry.sorry)
    say(f"\nThe goal of {ASKED}: {goal.splitlines()[-1]}\n")
    tactics = ask(editor, "/generate", "tactics", {"name": "tactics", "input": goal})["outputs"]
    for one in tactics:
        say(f"  {one['score']:.2f}  {one['output']}")
    place = {"repository": sorry.repository, "file": sorry.path}
    position = {"line": sorry.line, "column": sorry.column + 1}
    answer = ask(editor, "/retrieve", "premises", {"goal": goal, **place, "position": position, "k": 3})
    for one in answer["premises"]:
        say(f"  {one['score']:.2f}  {one['full_name']}  {one['file']}:{one['line']}")
    say(f"  of {answer['accessible']} that may be used there")
    for proof in ("exact sorryAx _", *(one["output"] for one in tactics)):
        body = {"repository": sorry.repository, "sorry": {"id": sorry.sorry}, "proof": proof}
        judged = ask(editor, "/check", proof, body)
        # Of lake's output, the place and the reason.
        reason = judged["reason"].partition("error: ")[2] or judged["reason"]
        say(f"  {judged['verdict']}: {cut(reason, WIDTH - 4 - len(judged['verdict']))}")
        if any((one["step"], one["verdict"]) == ("compile", "passed") for one in judged["findings"]):
            say("  Lean compiles the project with it")
            break
    say()


def ask(editor: httpx2.Client, path: str, what: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask a route; return its answer.

    Raises:
        DemoError: it has none.
    """
    answer = editor.post(path, json=body)
    if answer.status_code != 200:
        raise DemoError(f"POST {path} {json.dumps(body)}: {answer.status_code} {answer.text}")
    say(f"POST {path}  {what}")
    content: dict[str, Any] = answer.json()
    return content


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
