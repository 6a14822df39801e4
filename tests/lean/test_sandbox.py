"""The sandbox, for real: what a program in it can do and cannot. Each test is one property."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.repl import Repl
from pipeline.lean.sandbox.command import SandboxError, bubblewrap

PYTHON = Path(sys.executable).resolve()


def inside(script: str, project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in the sandbox. The interpreter stands in for a toolchain: read-only, by its own path."""
    readable = [Path(sys.base_prefix)] if not str(PYTHON).startswith("/usr/bin") else []
    argv = bubblewrap(
        [str(PYTHON), "-I", "-c", textwrap.dedent(script)],
        project=project,
        readable=readable,
        environment={"PATH": "/usr/bin:/bin", **environment},
    )
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=30, check=False, env={"SECRET": "s3cret"}
    )


def refused(script: str, project: Path) -> str:
    """Run code that must fail with an OSError and return which."""
    body = textwrap.indent(textwrap.dedent(script), "    ")
    guard = "except OSError as error:\n    print(type(error).__name__, error)\nelse:\n    print('ALLOWED')"
    done = inside(f"try:\n{body}\n{guard}", project)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("bubblewrap")
def test_the_project_is_readable_and_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "file.lean").write_text("theorem", "utf-8")
    done = inside("import os; print(os.getcwd(), open('file.lean').read())", tmp_path)

    assert done.stdout.split() == [str(tmp_path), "theorem"], done.stderr


@pytest.mark.usefixtures("bubblewrap")
def test_the_project_cannot_be_written(tmp_path: Path) -> None:
    assert "Read-only file system" in refused("open('new', 'w')", tmp_path)


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("place", ["/", "/usr", "/etc", "/var", "/home"])
def test_nothing_outside_can_be_written(tmp_path: Path, place: str) -> None:
    said = refused(
        f"import os; os.makedirs({place!r}, exist_ok=True); open({place + '/new'!r}, 'w')", tmp_path
    )

    assert "ALLOWED" not in said


@pytest.mark.usefixtures("bubblewrap")
def test_tmp_is_private_and_writable(tmp_path: Path) -> None:
    name = f"/tmp/everlean-sandbox-{os.getpid()}"
    done = inside(f"import os; open({name!r}, 'w').write('x'); print(sorted(os.listdir('/tmp')))", tmp_path)

    assert Path(name).name in done.stdout, done.stderr
    assert not Path(name).exists()


@pytest.mark.usefixtures("bubblewrap")
def test_tmp_cannot_fill_the_machines_memory(tmp_path: Path) -> None:
    script = """
    chunk = b"x" * 2**20
    with open("/tmp/big", "wb") as big:
        for _ in range(300):
            big.write(chunk)
    """

    assert "No space left" in refused(script, tmp_path)


@pytest.mark.usefixtures("bubblewrap")
def test_a_secret_in_a_home_cannot_be_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    secret = tmp_path / "token"
    secret.write_text("s3cret", "utf-8")

    assert "No such file" in refused(f"print(open({str(secret)!r}).read())", project)


@pytest.mark.usefixtures("bubblewrap")
def test_of_the_home_only_what_was_bound_is_there(tmp_path: Path) -> None:
    home = Path.home()
    bound = {PYTHON.relative_to(home).parts[0]} if PYTHON.is_relative_to(home) else set()
    script = f"import json, os, pathlib; print(json.dumps([p.name for p in pathlib.Path({str(home)!r}).glob('*')]))"

    assert set(json.loads(inside(script, tmp_path).stdout)) <= bound


@pytest.mark.usefixtures("bubblewrap")
def test_the_environment_is_what_was_given_and_no_more(tmp_path: Path) -> None:
    done = inside("import json, os; print(json.dumps(dict(os.environ)))", tmp_path, LEAN_PATH="/x")
    seen = json.loads(done.stdout)

    assert seen["LEAN_PATH"] == "/x"
    assert "s3cret" not in done.stdout
    assert set(seen) <= {"PATH", "LEAN_PATH", "PWD", "LC_CTYPE"}


@pytest.mark.usefixtures("bubblewrap")
def test_there_is_no_network_not_even_to_this_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = refused(f"import socket; socket.create_connection(('127.0.0.1', {port}), 3)", tmp_path)

    assert "ALLOWED" not in said


@pytest.mark.usefixtures("bubblewrap")
def test_a_unix_socket_of_the_daemon_is_not_there(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        said = refused(f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r})", project)

    assert "No such file" in said


@pytest.mark.usefixtures("bubblewrap")
def test_other_processes_are_not_visible(tmp_path: Path) -> None:
    done = inside("import os; print(sum(name.isdigit() for name in os.listdir('/proc')))", tmp_path)

    assert int(done.stdout) <= 3


@pytest.mark.usefixtures("bubblewrap")
def test_a_daemon_that_it_forks_dies_with_it(tmp_path: Path) -> None:
    marker = f"everlean-orphan-{os.getpid()}"
    script = f"""
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", [{marker!r}, "60"])
        os._exit(0)
    time.sleep(0.3)
    """
    inside(script, tmp_path)

    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if marker.encode() in _bytes_of(path)]
    assert not running


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.usefixtures("bubblewrap")
def test_the_client_drives_a_repl_inside_the_sandbox(tmp_path: Path) -> None:
    script = tmp_path / "fake_repl"
    script.write_text(
        "#!/bin/sh\necho ready.\nwhile read -r line; do\n"
        "  if echo x > /usr/new 2>/dev/null; then echo '{\"nGoals\": 666}'; else echo '{\"nGoals\": 7}'; fi\ndone\n",
        "utf-8",
    )
    script.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    backend = LeanBackend("pantograph", (str(script),), "a script", "", sandbox="bubblewrap")

    async def run() -> int:
        async with await Repl.start(
            backend, imports=["Init"], project=project, ready_timeout_s=10, dialect="newer"
        ) as repl:
            return await repl.stat()

    assert asyncio.run(run()) == 7


def test_without_bubblewrap_composing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SandboxError, match="bwrap is not on PATH"):
        bubblewrap(["/bin/true"], project=tmp_path, environment={})


@pytest.mark.usefixtures("bubblewrap")
def test_a_toolchain_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="not there"):
        bubblewrap(["/bin/true"], project=tmp_path, readable=[tmp_path / "gone"], environment={})
