"""`everlean serve` as a process: what it refuses, and that it becomes the server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
import psutil
import pytest

from daemon.planning import serve_spec
from daemon.settings import parse
from store.log.log import EventLog
from store.view.view import View
from tests.support import verbs
from tests.support.chat_server import ChatServer, Says

COMMAND = Path(sys.executable).parent / "everlean"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration, and an empty log with its view."""
    configure(tmp_path, "")
    state = tmp_path / "state"
    state.mkdir()
    log = EventLog.open(state / "events.db")
    reader = log.reader()
    View.open(state / "database.db", reader).close()
    reader.close()
    log.close()
    return tmp_path


def configure(folder: Path, serve: str) -> None:
    (folder / "config.toml").write_text(
        f'[daemon]\nstate_dir = "state"\n[serve]\n{serve}\n', encoding="utf-8"
    )


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EVERLEAN_", "LEANPROGRESS_"))
    }
    return {**kept, "EVERLEAN_CONFIG": str(folder / "config.toml"), "HOME": str(folder), **more}


def refused(folder: Path, *arguments: str, **more: str) -> tuple[int, str]:
    done = verbs.everlean("serve", *arguments, environment=environment(folder, **more), folder=folder)
    assert done.stdout == ""
    return done.returncode, done.stderr


@contextmanager
def serving(folder: Path, *arguments: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Yield the process, its port, and what it printed before; it is ended with SIGTERM, and ends well."""
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [str(COMMAND), "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(folder, **more),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "stderr").read_text()
        yield process, json.loads(line)["listening"]["port"], (folder / "stderr").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "stderr").read_text()
    finally:
        process.kill()
        process.communicate()


def test_it_serves_before_any_model_is_promoted_asks_for_its_token_and_reloads_in_the_same_process(
    folder: Path,
) -> None:
    with serving(folder, EVERLEAN_SERVE_TOKEN="t0ken") as (process, port, said):
        base = f"http://127.0.0.1:{port}"
        assert f"serving at {base}" in said
        assert httpx2.get(f"{base}/health", timeout=60).status_code == 200
        assert httpx2.get(f"{base}/ready", timeout=60).status_code == 503
        assert httpx2.get(f"{base}/models", timeout=60).status_code == 401
        answer = httpx2.get(f"{base}/models", headers={"Authorization": "Bearer t0ken"}, timeout=60)
        models = answer.json()["models"]
        assert [model["name"] for model in models] == ["tactics", "retriever"]
        assert all("promoted" in model["reason"] for model in models)
        assert psutil.Process(process.pid).cmdline()[1:4] == ["-P", "-m", "pipeline.serve"]
        (own,) = folder.rglob("by-hand-*")
        assert own.name == f"by-hand-{process.pid}"

        # A reload begins anew in the same process, with the settings as they are now.
        (folder / "token").write_text("an0ther\n")
        (folder / "token").chmod(0o600)
        configure(folder, 'token_file = "token"')
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["listening"]["port"]
        models = f"http://127.0.0.1:{port}/models"
        refused, answered = (
            httpx2.get(models, headers={"Authorization": f"Bearer {token}"}, timeout=60).status_code
            for token in ("t0ken", "an0ther")
        )
        assert (refused, answered) == (401, 200)
    assert list(folder.rglob("*spec*")) == [], "what it is told is in no file that would stay"
    assert list(folder.rglob("by-hand-*")) == [], "nor is its folder"


@pytest.mark.slow
def test_a_head_that_does_not_end_has_its_connection_closed(folder: Path) -> None:
    with serving(folder) as (_, port, _), socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(b"GET /health HTTP/1.1\r\n")
        assert line.recv(1000) == b""


def test_an_address_that_others_reach_needs_a_token(folder: Path) -> None:
    code, said = refused(folder, "--host", "0.0.0.0")
    assert code == 78
    assert "there is no token" in said
    assert "token_file" in said


def test_what_is_no_address_is_a_wrong_command_line(folder: Path) -> None:
    code, said = refused(folder, "--host", "everywhere")
    assert code == 2
    assert "--host" in said


def test_a_port_that_is_taken_is_named_with_the_remedy(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = refused(folder, "--port", str(port))
    assert code == 1
    assert f"127.0.0.1:{port} cannot be listened on" in said
    assert "--port" in said


def test_without_a_database_it_says_to_run_the_daemon_once(folder: Path) -> None:
    (folder / "state" / "database.db").unlink()
    code, said = refused(folder)
    assert code == 1
    assert "database.db: missing" in said
    assert "everlean run" in said


@pytest.mark.timeout(300)
def test_with_every_model_named_it_serves_without_a_daemon_or_a_database(tmp_path: Path) -> None:
    with ChatServer([Says("rfl")]) as chat:
        named = f'name = "x"\nkind = "endpoint"\nmodel = "m"\ncandidates = 1\nbase_url = "{chat.url}"'
        configure(tmp_path, f"[[serve.models]]\n{named}\n")
        with serving(tmp_path) as (_, port, _):
            ask = partial(httpx2.post, f"http://127.0.0.1:{port}/generate", timeout=60)
            deadline = time.monotonic() + 240
            while (answer := ask(json={"name": "x", "input": "⊢ 1 = 1"})).status_code == 503:
                assert time.monotonic() < deadline, answer.text
                time.sleep(0.1)  # until libraries are loaded, beside which to ask without end is work
    assert [one["output"] for one in answer.json()["outputs"]] == ["rfl"]
    assert not (tmp_path / "state" / "database.db").exists()


def test_a_mistake_in_the_configuration_is_named_and_nothing_is_started(folder: Path) -> None:
    configure(folder, 'device = "cud"')
    code, said = refused(folder)
    assert code == 78
    assert 'serve.device: must be one of cpu, cuda, auto (got "cud")' in said


@pytest.mark.parametrize(
    ("missing", "extras"), [("fastapi", "extra `serve`"), ("torch", "extras `serve` and `train`")]
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    missing: str, extras: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serve_spec, "find_spec", lambda name: None if name == missing else object())
    spec = serve_spec.spec_of(parse(b"", path=tmp_path / "config.toml"), scratch="x", environment={})
    assert serve_spec.why_not_servable(spec) == (
        f"{missing} not installed: install everlean with its {extras} (docs/install.md)"
    )
