"""The simulator as a process: how it starts and ends, and that each `--fault` goes wrong as it says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.lean.simulator.server import BadFault, Fault, Faults, parse_fault

SIMULATOR = [sys.executable, "-I", "-m", "pipeline.lean.simulator"]


def run(
    *argv: str, requests: int = 3, text: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Send the same request some times, then the end."""
    given = '{"cmd":"stat"}\n' * requests if text is None else text
    return subprocess.run(
        [*SIMULATOR, *argv], input=given, capture_output=True, text=True, cwd=cwd, timeout=120, check=False
    )


# ---- starting and ending


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--nonsense",), "Options cannot be parsed: --nonsense"),
        (("No.Such",), "unknown module prefix 'No.Such'"),
        (("--fault", "explode"), "there is no such fault"),
        (("--fault", "crash@0"), "requests count from 1"),
        (("--fault", "bigline@1"), "a size is missing"),
        (("--fault", "exit-before-ready"), "before ready"),
        (("--dialect", "middle"), "there is new, and there is old"),
        (("--seed", "x"), "invalid literal"),
        (("--root",), "option --root requires argument"),
    ],
)
def test_a_bad_start_dies_before_ready_and_says_why(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run(*argv, cwd=tmp_path)

    assert (done.returncode != 0, done.stdout) == (True, "")
    assert said in done.stderr


def test_core_options_and_modules_come_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "A.lean").write_text("theorem a : True := trivial\n", "utf-8")
    done = run("--pp.unicode=true", "A", "--maxRecDepth=100", "Init", requests=1, cwd=tmp_path)

    assert done.returncode == 0
    assert done.stdout.startswith("ready.\n{")


def test_a_blank_line_ends_it_well() -> None:
    done = run("Init", text='{"cmd":"stat"}\n\n{"cmd":"stat"}\n')

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


def test_the_dialect_is_chosen_at_the_start() -> None:
    done = run("Init", "--dialect", "old", text='{"cmd":"frontend.distil"}\ngoal.start {}\nstat\n')

    assert [json.loads(line)["error"] for line in done.stdout.splitlines()[1:]] == [
        "command",
        "arguments",
        "command",
    ]


def test_the_help_lists_every_fault() -> None:
    said = run("--help").stdout

    for kind in ("crash", "hang", "slow", "stderr", "leak", "panic", "garbage", "truncated", "bigline", "interrupt",
                 "oom", "exit-before-ready", "slow-start"):  # fmt: skip
        assert f"  {kind}" in said


# ---- going wrong


def test_a_crash_comes_instead_of_the_answer_it_was_ordered_for() -> None:
    done = run("--fault", "crash@2")

    assert done.returncode == -signal.SIGABRT
    assert len(done.stdout.splitlines()) == 2
    assert "simulated by --fault" in done.stderr


def test_a_hang_answers_nothing_more() -> None:
    process = subprocess.Popen(
        [*SIMULATOR, "--fault", "hang@2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"stat {}\nstat {}\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ready.\n"
    assert b"nGoals" in process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.3)
    process.kill()
    assert process.communicate()[0] == b""


def test_memory_runs_out_as_when_the_kernel_kills() -> None:
    done = run("--fault", "oom@1:1000000")

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "ready.\n")


def test_answers_can_be_garbage_too_long_or_cut_off() -> None:
    done = run("--fault", "garbage@1", "--fault", "bigline@2:100000", "--fault", "truncated@3")
    garbage, big, cut = done.stdout.removeprefix("ready.\n").split("\n")

    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(garbage)
    assert len(big) >= 100_000
    assert json.loads(big)["nGoals"] == 0
    assert cut.startswith("{")
    assert not cut.endswith("}")
    assert done.returncode == -signal.SIGABRT


def test_a_panic_is_on_stderr_and_the_answer_comes_all_the_same() -> None:
    done = run("--fault", "panic@2")

    assert done.stderr.count("PANIC at") == 1
    assert len(done.stdout.splitlines()) == 4


def test_noise_comes_with_every_request() -> None:
    assert len(run("--fault", "stderr:5000").stderr) >= 15_000


def test_an_interrupt_is_the_dialects_error_object() -> None:
    for dialect, kind in (("old", "internal"), ("new", "io")):
        lines = run("--dialect", dialect, "--fault", "interrupt@2").stdout.splitlines()
        assert json.loads(lines[2]) == {"error": kind, "desc": "interrupt"}
        assert json.loads(lines[3])["nGoals"] == 0


def test_random_faults_follow_the_seed() -> None:
    def pattern(seed: int) -> list[bool]:
        faults = Faults([parse_fault("garbage%0.3"), parse_fault("interrupt%0.1")], seed=seed, dialect="new")
        return [faults.around(lambda: b"{}") == b"{}" for _ in range(300)]

    assert pattern(1) == pattern(1)
    assert pattern(1) != pattern(2)
    assert 140 < sum(pattern(1)) < 240


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("crash@3", Fault("crash", at=3)),
        ("hang%0.25", Fault("hang", probability=0.25)),
        ("slow:20", Fault("slow", size=20)),
        ("slow@2:50", Fault("slow", at=2, size=50)),
        ("oom@1", Fault("oom", at=1)),
        ("leak:4096", Fault("leak", size=4096)),
    ],
)
def test_a_fault_is_read(spec: str, fault: Fault) -> None:
    assert parse_fault(spec) == fault


@pytest.mark.parametrize(
    "spec", ["", "crash", "crash@", "crash@x", "crash%2", "crash%0", "stderr@1:5", "slow", "hang@1@2"]
)
def test_a_fault_that_says_nothing_is_refused(spec: str) -> None:
    with pytest.raises(BadFault, match="--fault"):
        parse_fault(spec)


def test_a_leak_keeps_memory() -> None:
    faults = Faults([parse_fault("leak:100000")], seed=0, dialect="new")
    for _ in range(3):
        faults.around(lambda: b"{}")

    assert faults.kept_bytes == 300_000
