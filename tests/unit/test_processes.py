"""`pytest -n`: tests in forks of the process that collected them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "test_many": """
import pytest

@pytest.fixture(scope="module", autouse=True)
def once():
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
DIES = """
import os

def test_before():
    pass

def test_that_ends_its_process():
    os._exit(7)
"""


def run(folder: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    # `once` and what waits for it are in two processes, in one folder.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:xdist",
        "-p",
        "no:schemathesis",
    ]
    done = subprocess.run(
        [*command, "-n", "2", "-rfs", "--assert=plain", *options, folder],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


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


def test_a_test_that_ends_its_process_is_named(tmp_path: Path) -> None:
    code, said = run(tmp_path, {"test_dies": DIES, "test_skip": FILES["test_skip"]})
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "the process of test_dies.py::test_that_ends_its_process ended with status 7" in said
