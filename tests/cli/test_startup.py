"""The start-up budget: `status` answers at once over a large database, and reading verbs load nothing heavy."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.harness import git, new_repository
from tests.support.state_folder import StateFolder, environment, fill, scan

FILES, THEOREMS_A_FILE = 500, 200
BUDGET_S = 0.2
TIMES_TYPER = 3.0
"""Where the machine is too slow for the budget: so many times what importing the command line's library takes."""
HEAVY = (
    "torch", "numpy", "pydantic", "pydantic_core", "sqlmodel", "sqlalchemy", "httpx2", "httpx", "structlog",
    "starlette", "uvicorn", "watchdog", "apscheduler", "rich", "asyncio", "psutil", "fsspec",
    "mcp", "mcp_types",
)  # fmt: skip


# It holds a time, and what else this machine does is in it.
@pytest.mark.slow
def test_status_answers_within_200_ms_over_100_000_theorems(folder: StateFolder) -> None:
    fill(folder)
    for file in range(FILES):
        scan(folder, [f"t{file}_{index}" for index in range(THEOREMS_A_FILE)], path=f"Demo/F{file}.lean")
    folder.write()
    # As installed: byte-compiled. Where the environment forbids to write bytecode, every run would compile anew.
    env = {"PYTHONPYCACHEPREFIX": str(folder.root / "pycache"), "PYTHONDONTWRITEBYTECODE": ""}
    document = folder.everlean("status", "--json", env=env).json
    assert document["theorems"] >= FILES * THEOREMS_A_FILE
    took: list[float] = []
    typer: list[float] = []
    for attempt in range(25):
        if attempt >= 5 and min(took) < max(BUDGET_S, TIMES_TYPER * min(typer)):
            break
        started = time.perf_counter()
        folder.everlean("status", "--json", env=env)
        took.append(time.perf_counter() - started)
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import typer"], check=True)
        typer.append(time.perf_counter() - started)
    # The best is what the program needs; the median also measures what else this machine is doing.
    budget_s = max(BUDGET_S, TIMES_TYPER * min(typer))
    assert min(took) < budget_s, (took, typer)
    if os.getloadavg()[0] < (os.cpu_count() or 1) and max(typer) < 1.5 * min(typer):
        assert statistics.median(took) < max(BUDGET_S, TIMES_TYPER * statistics.median(typer)), (took, typer)


def test_reading_verbs_load_nothing_heavy(filled: StateFolder) -> None:
    verbs = (
        "status --json", "status", "repos", "sorries", "sorries show 5a", "theorems", "proofs", "proofs show d0",
        "proofs patch d0", "jobs", "models", "events", "version", "--help",
    )  # fmt: skip
    program = (
        "import sys\n"
        "from daemon.cli import main\n"
        f"for verb in {verbs!r}:\n"
        "    sys.argv = ['everlean', *verb.split()]\n"
        "    try: main()\n"
        "    except SystemExit as end: code = end.code or 0\n"
        f"    print(f'LOADED by {{verb}}: {{code}}', *sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=filled.root,
        env={**environment(filled.root), "EVERLEAN_CONFIG": str(filled.config)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("LOADED")]
    assert lines == [f"LOADED by {verb}: {3 if 'status' in verb else 0}" for verb in verbs]


def test_the_check_of_a_pull_request_loads_nothing_heavy(tmp_path: Path) -> None:
    new_repository(tmp_path / "clone")
    file = tmp_path / "clone" / "A.lean"
    for text in ("theorem a : p := sorry\n", "theorem a : p := q\ntheorem b : p := sorry\n"):
        file.write_text(text, encoding="utf-8")
        git(file.parent, "add", "--all")
        git(file.parent, "commit", "--quiet", "-m", "x")
    loaded = f"print('LOADED', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    program = (
        "import sys\n"
        "from daemon.cli import main\n"
        "sys.argv = ['everlean', 'diff', '-C', sys.argv[1], 'HEAD~1']\n"
        f"try: main()\nfinally: {loaded}\n"
    )
    result = subprocess.run([sys.executable, "-c", program, file.parent], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    *found, loaded = result.stdout.splitlines()
    assert [line.split(": ")[1] for line in found[:-1]] == ["filled", "opened"]
    assert loaded == "LOADED"


@pytest.mark.parametrize("words", [["jobs", "show", ""], [""], ["proofs", "show", "d"]], ids=" ".join)
def test_completing_loads_nothing_heavy(words: list[str], filled: StateFolder) -> None:
    line = {
        "_EVERLEAN_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["everlean", *words]),
        "COMP_CWORD": str(len(words)),
    }
    program = (
        "import sys\n"
        "from daemon.cli import main\n"
        "sys.argv = ['everlean']\n"
        "try: main()\n"
        f"finally: print('LOADED', *sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=filled.root,
        env={**environment(filled.root), "EVERLEAN_CONFIG": str(filled.config), **line},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "LOADED\n")
    assert result.stdout


@pytest.mark.parametrize(
    ("verb", "code"),
    [("poll", 3), ("pause prove", 3), ("resume all", 3), ("trigger prove github.com/demo/one", 3), ("db check", 0),
     ("config check", 0), ("scan .", 0), ("curriculum", 0), ("export progress out", 1),
     ("jobs retry prove-1111", 3), ("models list", 0)],
)  # fmt: skip
def test_each_verb_as_it_is_installed_loads_what_it_needs_itself(
    verb: str, code: int, filled: StateFolder
) -> None:
    result = filled.installed(*verb.split())
    assert "Traceback" not in result.err
    assert result.code == code, result.err
