"""`pytest -n`: tests in forks of the process that collected them."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "test_many": """
import pytest

@pytest.fixture(scope="module", autouse=True)
def once():
    open("set-up", "a").close()
    yield
    open("torn-down", "a").write("once ")

@pytest.mark.parametrize("number", range(8))
def test_one(number, tmp_path):
    print("told by", number)
    assert number != 5, "five"
""",
    "test_waits": """
import time

def test_until_the_other_file_is_done():
    deadline = time.monotonic() + 60
    while not open("torn-down", "a+").tell():
        assert time.monotonic() < deadline
        time.sleep(0.01)
""",
    "test_skip": """
import pytest

def test_nothing():
    pytest.skip("no such machine")
""",
}
HANGS = """
import os, signal, time, pytest
from tests.support import processes

processes._MORE_S = 1.0

def test_until_the_other_file_is_begun():
    deadline = time.monotonic() + 60
    while not os.path.exists("set-up"):
        assert time.monotonic() < deadline
        time.sleep(0.01)

@pytest.mark.timeout(1)
def test_that_is_lost():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(1000)
"""
IS_SET_UP = """
import time, pytest

@pytest.fixture(scope="module")
def folder():
    yield
    print("is torn down", flush=True)

def test_long(folder):
    print("is set up", flush=True)
    time.sleep(1000)
"""


def start(folder: Path, files: dict[str, str], *options: str) -> subprocess.Popen[str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    # `once` and what waits for it are in two processes, in one folder.
    plugins = ["-p", "tests.conftest", "-p", "no:xdist", "-p", "no:schemathesis"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugins, "-n", "2", "-rfs", "--assert=plain", *options, folder],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def run(folder: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    process = start(folder, files, *options)
    said, _ = process.communicate()
    return process.returncode, said


def test_each_file_is_one_process_s_and_all_are_reported_as_by_one(tmp_path: Path) -> None:
    code, said = run(tmp_path, FILES)
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "1 failed, 8 passed, 1 skipped" in said
    assert "AssertionError: five" in said
    assert "no such machine" in said
    assert re.findall("told by .", said) == ["told by 5"]
    assert (tmp_path / "torn-down").read_text() == "once "


def test_the_first_failure_ends_all_of_them_and_what_is_set_up_is_torn_down(tmp_path: Path) -> None:
    code, said = run(tmp_path, FILES, "--exitfirst", "-k", "test_many")
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "1 failed, 5 passed" in said
    assert (tmp_path / "torn-down").read_text() == "once "


def test_a_test_that_hangs_beyond_its_limit_fails_as_one_that_ends_its_process_and_others_tear_down(
    tmp_path: Path,
) -> None:
    code, said = run(tmp_path, {"test_lost": HANGS, "test_many": FILES["test_many"].replace("!= 5", "< 9")})
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "FAILED test_lost.py::test_that_is_lost - its process ended with status -6\n" in said
    assert (tmp_path / ".pytest_cache/v/cache/lastfailed").read_text().count("::") == 1
    assert (tmp_path / "torn-down").read_text() == "once "


@pytest.mark.parametrize("interrupt", [os.killpg, os.kill], ids=["all of them", "the first"])
def test_an_interrupted_run_tears_down_what_is_set_up(
    tmp_path: Path, interrupt: Callable[[int, int], None]
) -> None:
    process = start(tmp_path, {"test_one": IS_SET_UP, "test_other": IS_SET_UP}, "-s")
    assert process.stdout is not None
    with process.stdout as lines:
        before = "".join(itertools.islice((line for line in lines if "is set up" in line), 2))
        interrupt(process.pid, signal.SIGINT)
        said = before + lines.read()
    assert process.wait() == pytest.ExitCode.INTERRUPTED, said
    assert said.count("is torn down") == 2
    assert "Traceback" not in said
