"""The tasks of a learning experiment, written once as datasets in LeanDojo's format, and their orders."""

from __future__ import annotations

import json
import lzma
import random
import re
import shutil
import string
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from experiments.file import Datasets, ExperimentError, Letters, Order, Premises, Repositories
from pipeline.models.datasets import TaskData
from pipeline.models.model_files import file_digest
from store.curriculum import difficulty, thresholds
from store.domain.records import holds_sorry
from tests.support.letters import letter_pairs

Source = Letters | Datasets | Repositories | Premises
SPLITS = ("train", "val", "test")


def contents(source: Source) -> tuple[str, ...]:
    """Return a hash of each file of a source; () if the experiment makes them itself.

    Raises:
        ExperimentError: a dataset is not there.
    """
    if isinstance(source, Premises):
        return tuple(file_digest(_file_of(source, name)) for name in source.repositories)
    if not isinstance(source, Datasets):
        return ()
    result = []
    for name, folder in source.folders.items():
        sides = [f"random/{split}.json" for split in SPLITS]
        others = [f"novel_premises/{split}.json" for split in SPLITS]
        paths = [folder / name for name in ("corpus.jsonl", *sides)]
        paths += [folder / name for name in others if (folder / name).is_file()]
        for path in paths:
            if not path.is_file():
                raise ExperimentError(
                    f"{name}: {path} is not there; unpack or export the dataset into {folder}, or name its folder"
                )
            result.append(file_digest(path))
    return tuple(result)


def make_tasks(source: Source, folder: Path, seed: int, say: Callable[[str], None]) -> list[TaskData]:
    """Return the tasks in the file's order; make missing ones in `folder`.

    Raises:
        ExperimentError: a repository cannot be traced.
    """
    match source:
        case Datasets():
            return [TaskData(name, path.absolute()) for name, path in source.folders.items()]
        case Letters():
            names: Sequence[str] = string.ascii_uppercase[: source.tasks]

            def make(place: Path) -> None:
                for name in names:
                    write_letters(place / name, name, seed, source)
        case Premises():
            names = source.repositories

            def make(place: Path) -> None:
                for name in names:
                    write_premises(place / name, [_read(source, name)], seed, source)

            _once(folder, make)
            return [TaskData(name, folder / name) for name in names]
        case Repositories():
            return _trace(source, folder, say)
    _once(folder, make)
    return [TaskData(name, folder / name) for name in names]


def _once(folder: Path, make: Callable[[Path], object]) -> None:
    """Make a folder whole or not at all."""
    if folder.exists():
        return
    beside = folder.with_name(f".{folder.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.parent.mkdir(parents=True, exist_ok=True)
    make(beside)
    beside.rename(folder)


def _trace(source: Repositories, folder: Path, say: Callable[[str], None]) -> list[TaskData]:
    """Trace repositories as the daemon does, and export each; existing traces and exports stay."""
    from daemon.leandojo import AgentError
    from experiments.ladder import RungAgent
    from store.leandojo.exporting import export_leandojo
    from store.log.reader import LogReader
    from store.view import queries

    try:
        agent, traced = RungAgent.of(source, say)
        folder.mkdir(parents=True, exist_ok=True)
        tasks: list[TaskData] = []
        for pinned in traced:
            name = pinned.key.rpartition("/")[2]
            if any(task.name == name for task in tasks):
                name = pinned.key
            place = folder / pinned.commit
            paths = agent.settings.paths
            if not place.exists():
                with (
                    closing(queries.connect(paths.database_db)) as view,
                    LogReader.open(paths.events_db) as log,
                ):
                    trace = pinned.trace(view)
                    export_leandojo(
                        place,
                        log=log,
                        view=view,
                        repositories=[pinned.key],
                        trace=None if trace is None else trace.trace,
                        with_database=False,
                    )
            tasks.append(TaskData(name, place))
    except AgentError as error:
        raise ExperimentError(str(error)) from error
    return tasks


# ---- letters


def write_letters(folder: Path, name: str, seed: int, sizes: Letters) -> TaskData:
    """Write a task's dataset. Held-out queries see the held-out documents alone: a file of their own."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 99], counter=[0, 0, 0, ord(name)]))
    counts = {"Held": sizes.held_out, "Shown": sizes.steps * sizes.rows}
    corpus: list[dict[str, Any]] = []
    proved: dict[str, list[dict[str, Any]]] = {}
    for module, count in counts.items():
        path = f"{module}.lean"
        premises: list[dict[str, Any]] = []
        proved[module] = []
        for number, (query, document) in enumerate(letter_pairs(name, seed, rng, count)):
            premises.append(premise_row(module, number, document))
            proved[module].append(theorem_row(path, module, number, count, query))
        corpus.append({"path": path, "imports": [], "premises": premises})
    write_dataset(folder, corpus, {"train": proved["Shown"], "val": [], "test": proved["Held"]})
    return TaskData(name, folder)


def premise_row(module: str, number: int, code: str, name: str | None = None) -> dict[str, Any]:
    """Return a premise of a corpus' file: one of a line, by its number."""
    return {
        "full_name": name or f"{module}.p{number}",
        "code": code,
        "start": [number + 1, 1],
        "end": [number + 1, 20],
        "kind": "commanddeclaration",
    }


def theorem_row(
    path: str, module: str, number: int, premises: int, state: str, uses: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return a theorem with some of its file's premises, by number; by default its own number's."""
    row = premises + number + 1  # behind all premises of its file
    used = [
        {
            "full_name": f"{module}.p{one}",
            "def_path": path,
            "def_pos": [one + 1, 9],
            "def_end_pos": [one + 1, 11],
        }
        for one in ([number] if uses is None else uses)
    ]
    step = {
        "tactic": "exact p",
        "annotated_tactic": ["exact <a>p</a>", used],
        "state_before": state,
        "state_after": "no goals",
    }
    return {
        "url": "https://example.org/letters",
        "commit": "a" * 40,
        "file_path": path,
        "full_name": f"{module}.t{number}",
        "theorem_statement": None,
        "start": [row, 1],
        "end": [row, 30],
        "traced_tactics": [step],
    }


def write_dataset(
    folder: Path, corpus: Sequence[dict[str, Any]], splits: dict[str, list[dict[str, Any]]]
) -> None:
    """Write corpus.jsonl and the split `random`."""
    (folder / "random").mkdir(parents=True)
    lines = "".join(json.dumps(file) + "\n" for file in corpus)
    (folder / "corpus.jsonl").write_text(lines, encoding="utf-8")
    for split, content in splits.items():
        (folder / "random" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")


# ---- statements and the premises of their proofs

Statements = tuple[list[str], list[tuple[str, list[int]]]]
"""Premises, and statements with the numbers of theirs."""
_NAMED = re.compile("<a>(.*?)</a>")


def _file_of(source: Premises, name: str) -> Path:
    result = [
        path for path in (source.folder / f"{name}.json", source.folder / f"{name}.json.xz") if path.is_file()
    ]
    if not result:
        raise ExperimentError(
            f"{name}: {source.folder} has no {name}.json and no {name}.json.xz; name their folder by --data"
        )
    return result[0]


def _read(source: Premises, name: str) -> Statements:
    """Return a repository's premises and statements, each statement once."""
    path = _file_of(source, name)
    content = path.read_bytes()
    data = json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)
    queries: dict[str, list[int]] = {}
    for text, used, _ in data["queries"]:
        queries.setdefault(text, used)
    return data["docs"], list(queries.items())


def base_of(source: Premises, folder: Path) -> TaskData:
    """Return a source's repositories as one task, made in `folder`, with equal shares of test statements."""
    _once(
        folder,
        lambda place: write_premises(place, [_read(source, name) for name in source.repositories], 0, source),
    )
    return TaskData("base", folder)


def write_premises(folder: Path, repositories: Sequence[Statements], seed: int, sizes: Premises) -> None:
    """Write a task's dataset. Test statements have premises in files of their own, of all repositories."""
    modules = {
        "Held": (sizes.held_out, sizes.asked_of),
        "Chosen": (sizes.held_out // 2, sizes.asked_of),
        "Shown": (0, 0),
    }
    content: dict[str, tuple[list[str], list[tuple[str, list[int]]]]] = {one: ([], []) for one in modules}
    rng = random.Random(f"premises/{seed}")
    for docs, queries in repositories:
        left = rng.sample(queries, len(queries))
        for module, (statements, premises) in modules.items():
            texts, tests = content[module]
            if module == "Shown":
                most, own = max(1, sizes.pairs // len(repositories)), []
                while left and most > 0:
                    text, used = left.pop()
                    own.append((text, used[:most]))
                    most -= len(used)
            else:
                own = [left.pop() for _ in range(min(len(left) // 3, statements // len(repositories)))]
            needed = sorted({number for _, used in own for number in used})
            others = [number for number in range(len(docs)) if number not in set(needed)]
            room = premises // len(repositories) or 2 * len(needed)
            needed = sorted([*needed, *rng.sample(others, min(len(others), max(0, room - len(needed))))])
            place = {number: len(texts) + at for at, number in enumerate(needed)}
            texts += [docs[number] for number in needed]
            tests += [(text, [place[number] for number in used]) for text, used in own]
    corpus, proved = [], {}
    for module, (texts, tests) in content.items():
        path = f"{module}.lean"
        premises_ = []
        for number, text in enumerate(texts):
            match = _NAMED.search(text)
            code = _NAMED.sub(r"\1", text)[: sizes.letters]
            premises_.append(premise_row(module, number, code, match[1] if match else None))
        corpus.append({"path": path, "imports": [], "premises": premises_})
        proved[module] = [
            theorem_row(
                path,
                module,
                number,
                len(texts),
                f"⊢ {text.removeprefix('theorem : ')[-sizes.letters :]}",
                used,
            )
            for number, (text, used) in enumerate(tests)
        ]
    write_dataset(folder, corpus, {"train": proved["Shown"], "val": proved["Chosen"], "test": proved["Held"]})


def asked_alone(task: TaskData) -> TaskData:
    """Return a task of `write_premises` without its training part, to embed little; made beside it."""

    def make(place: Path) -> None:
        lines = (task.dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        corpus = [file for file in map(json.loads, lines) if file["path"] != "Shown.lean"]
        splits = {
            one: (task.dataset / "random" / f"{one}.json").read_text(encoding="utf-8") for one in SPLITS[1:]
        }
        write_dataset(place, corpus, {"train": [], **{one: json.loads(text) for one, text in splits.items()}})

    folder = task.dataset.with_name(f"{task.dataset.name} asked")
    _once(folder, make)
    return TaskData(task.name, folder)


# ---- all tasks at once


def joined(tasks: Sequence[TaskData], folder: Path) -> TaskData:
    """Return the tasks' training splits as one task, made in `folder`, for joint training.

    A file shared by several tasks with the same premises and imports is one file; another one of its path is
    called `<task>/<path>`. The other splits are empty: each task is measured on its own.
    """

    def make(place: Path) -> None:
        written: dict[str, str] = {}
        corpus: list[dict[str, Any]] = []
        proved: list[dict[str, Any]] = []
        for task in tasks:
            names: dict[str, str] = {}
            with (task.dataset / "corpus.jsonl").open(encoding="utf-8") as corpus_file:
                # Imports come before their users.
                for file in map(json.loads, corpus_file):
                    path, imports = file["path"], [names.get(one, one) for one in file["imports"]]
                    content = json.dumps([imports, file["premises"]], sort_keys=True)
                    same = written.get(path, content) == content
                    names[path] = name = path if same else f"{task.name}/{path}"
                    if name not in written:
                        written[name] = content
                        corpus.append({**file, "path": name, "imports": imports})
            train = json.loads((task.dataset / "random" / "train.json").read_text(encoding="utf-8"))
            for theorem in train:
                theorem["file_path"] = names.get(theorem["file_path"], theorem["file_path"])
                for step in theorem["traced_tactics"]:
                    for use in step["annotated_tactic"][1]:
                        use["def_path"] = names.get(use["def_path"], use["def_path"])
            proved += train
        write_dataset(place, corpus, {"train": proved, "val": [], "test": []})

    _once(folder, make)
    return TaskData("all tasks", folder)


# ---- orders


def ordered(tasks: Sequence[TaskData], order: Order, seed: int) -> list[TaskData]:
    """Return the tasks in this order. Between tasks with as many easy theorems the file's order decides."""
    if order in ("given", "reversed"):
        return list(tasks) if order == "given" else list(reversed(tasks))
    if order == "shuffled":
        return random.Random(f"order/{seed}").sample(list(tasks), len(tasks))
    easy = easy_theorems(tasks)
    sign = -1 if order == "easiest first" else 1
    return sorted(tasks, key=lambda task: sign * easy[task.name])


def easy_theorems(tasks: Sequence[TaskData]) -> dict[str, int]:
    """Return each task's easy theorems: with the steps of the easiest third of all, as `store.curriculum`.

    Theorems without steps, which it deals out evenly over the thirds, count as none here.
    """
    counted: dict[str, Counter[int]] = {}
    for task in tasks:
        own: Counter[int] = Counter()
        counted[task.name] = own
        for split in SPLITS:
            for theorem in json.loads(
                (task.dataset / "random" / f"{split}.json").read_text(encoding="utf-8")
            ):
                tactics = [step["tactic"] for step in theorem["traced_tactics"]]
                steps = difficulty(len(tactics), has_sorry=any(map(holds_sorry, tactics)))
                if steps is not None:
                    own[steps] += 1
    everything: Counter[int] = Counter()
    for own in counted.values():
        everything.update(own)
    limits = thresholds(everything)
    if limits is None:
        return dict.fromkeys(counted, 0)
    return {
        name: sum(number for steps, number in own.items() if steps <= limits.easy)
        for name, own in counted.items()
    }
