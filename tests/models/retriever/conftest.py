"""A tiny encoder, small tasks and repositories, and how to learn them, for tests that train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from pipeline.models.datasets import TaskData
from pipeline.models.retriever.config import RetrieverConfig
from store.leandojo import Repository
from tests.support.retrieval import small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever

# What takes its time is loaded once. Each program is a fork, with files for its standard input and outputs.
_LOADED = """
import gc, json, os, sys, traceback
import pytorch_lightning, torch, transformers
import pipeline.models.retriever, pipeline.models.retriever.fisher, pipeline.models.retriever.job

gc.freeze()  # a collection in a fork would copy all of what is loaded


def be(asked):
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
        os.dup2(os.open(asked[name], flags), number)
    sys.argv = ["-c", *asked["arguments"]]
    exec(compile(asked["program"], "the program", "exec"), {"__name__": "__main__"})


for line in sys.stdin:
    asked = json.loads(line)
    if "wait" in asked:
        print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            be(asked)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(pid, flush=True)
"""


class Program:
    """A program that runs in a process of its own."""

    def __init__(self, programs: Programs, pid: int, folder: Path) -> None:
        self._programs = programs
        self.pid = pid
        self._folder = folder

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; what it said comes with its status, which is negative where a signal ended it."""
        status = self._programs.ask({"wait": self.pid})
        out, err = ((self._folder / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([], status, out, err)


class Programs:
    """Runs Python programs, each in a process of its own, without loading torch and Lightning anew."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOADED],
            cwd=Path(__file__).resolve().parents[3],
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def __enter__(self) -> Programs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # it has nothing to tidy
        self._process.communicate()
        self._said.close()

    def said_while_loading(self) -> str:
        """Return what the libraries said on standard error while they were loaded; known once a program has ended."""
        self._said.seek(0)
        return self._said.read()

    def start(self, program: str, *arguments: object, folder: Path, stdin: Path | None = None) -> Program:
        """Start a program; `folder` takes what it says, and is made."""
        folder.mkdir()
        files = {"stdin": stdin or Path(os.devnull), "stdout": folder / "stdout", "stderr": folder / "stderr"}
        for name in ("stdout", "stderr"):  # they can be read from now on, also before the program has begun
            files[name].touch()
        words = [str(argument) for argument in arguments]
        asked = {"program": program, "arguments": words, **{name: str(file) for name, file in files.items()}}
        return Program(self, self.ask(asked), folder)

    def ask(self, asked: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    with Programs() as started:
        yield started


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_retriever(tmp_path_factory.mktemp("model"), d_model=32, layers=1)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[TaskData]:
    folder = tmp_path_factory.mktemp("data")
    return [
        TaskData(name, write_dataset(folder / name, seed=n, alphabet=n, files=3), data_seq=7 + n)
        for n, name in enumerate("ab")
    ]


@pytest.fixture
def config(model: Path) -> RetrieverConfig:
    return small_config(model)


@pytest.fixture(scope="session")
def repository() -> Callable[[Path, str, int], Repository]:
    """Makes a simulated repository's trace as LeanDojo's database has it, from (a scratch folder, name, number)."""
    return _repository


def _repository(folder: Path, name: str, number: int) -> Repository:
    dataset = write_dataset(folder, seed=number, alphabet=number, prefix=name.title(), files=3, theorems=80)
    url, commit = f"https://example.org/demo/{name}", str(number) * 40
    theorems = [
        {
            **record,
            "url": url,
            "commit": commit,
            "theorem_statement": f"theorem {record['full_name']} : {record['start'][0]} = {number}",
        }
        for split in ("train", "val", "test")
        for record in json.loads((dataset / "random" / f"{split}.json").read_text())
    ]
    return Repository.from_dict(
        {
            "url": url,
            "name": f"demo/{name}",
            "commit": commit,
            "lean_version": "v4.20.0",
            "lean_dojo_version": "4.20.0",
            "metadata": {"date_processed": "2025-01-02T03:04:05"},
            "proven_theorems": theorems,
            "premise_files": [
                json.loads(line) for line in (dataset / "corpus.jsonl").read_text().splitlines()
            ],
            "files_traced": [],
        }
    )
