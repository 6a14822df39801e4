"""An experiment's file: YAML, read into one frozen model. An unknown key is refused with the nearest name.

Two kinds: `learning` (a retriever's knowledge of each task as it learns them one after another: by arm, by
order of the tasks) and `proving` (the share of theorems proved: by rung, by the shown premises, by budget).
Imports no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from daemon.settings.errors import setting_name, suggestion
from pipeline.models.errors import ConfigError
from pipeline.models.retriever.config import RetrieverConfig

Value = bool | int | float | str
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], Field(min_length=1)]


class ExperimentError(Exception):
    """The experiment cannot go on; the message names the reason and the remedy."""


class Part(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, fields: object) -> object:
        for key in fields if isinstance(fields, Mapping) else ():
            if key not in cls.model_fields:
                raise ValueError(f"{key} is no key here; {suggestion(str(key), list(cls.model_fields))}")
        return fields


# ---- tasks


class Letters(Part):
    """Tasks of `tests.support.letters`, without any Lean: each is another substitution of letters.

    `steps` steps of `rows` pairs to learn, `held_out` pairs to answer.
    """

    source: Literal["letters"]
    tasks: int = Field(16, ge=1, le=26)
    steps: int = Field(100, ge=1)
    rows: int = Field(32, ge=1)
    held_out: int = Field(200, ge=1)


class Datasets(Part):
    """Folders in LeanDojo's format, by the task's name: LeanDojo Benchmark 4 as unpacked, or `everlean export`."""

    source: Literal["datasets"]
    folders: dict[str, Path] = Field(min_length=1)


class Repository(Part):
    """A repository and its commit to trace: in full, or a branch for its newest; none: that of its HEAD."""

    url: str
    commit: str | None = None


class Repositories(Part):
    """Repositories to be fetched, built and traced by Lean first, as by the daemon.

    `state`: the state folder with the traces, made if missing. `config`: a config.toml of the daemon's, if
    any.
    """

    source: Literal["repositories"]
    state: Path
    config: Path | None = None
    repositories: tuple[Repository, ...] = Field(min_length=1)


class Premises(Part):
    """Statements of repositories and the premises in their proofs: a NAME.json of each, or NAME.json.xz.

    A file has `docs`, texts of premises with the name in `<a>`, and `queries`, lists of a text, the numbers
    of its premises, and a path. The seed divides them into texts to learn and texts to ask; no text is both.

    Attributes:
        folder: of the files; `--data` names another.
        repositories: by their files' names, a task each.
        pairs: of a statement and a premise, the most to learn.
        held_out: test statements of a task for the result, and half as many for choices.
        asked_of: premises to rank for each test statement, all of its repository.
        letters: the length of a text: of a premise the beginning, of a statement the end, where its claim is.
    """

    source: Literal["premises"]
    folder: Path
    repositories: tuple[str, ...] = Field(min_length=1)
    pairs: int = Field(1000, ge=1)
    held_out: int = Field(100, ge=2)
    asked_of: int = Field(400, ge=2)
    letters: int = Field(72, ge=8)


Tasks = Annotated[Letters | Datasets | Repositories | Premises, Field(discriminator="source")]

# ---- learning


class TinyModel(Part):
    """An encoder of T5's shape with random weights, drawn by the seed."""

    d_model: int = Field(64, ge=4, multiple_of=4)
    layers: int = Field(1, ge=1)


class Pretrained(TinyModel):
    """A tiny encoder of words after some training, in the place of the hub's checkpoint for a chain.

    Attributes:
        base: its first training, all as one task, whose own held-out statements measure how much it retains.
        training: fields of `RetrieverConfig`, over the experiment's.
    """

    base: Premises
    training: dict[str, Value] = {}


class Arm(Part):
    """A way to learn the tasks.

    Attributes:
        learned: "in turn"; "together": all of them at once, the upper bound; "apart": each from the first
            weights; "never": the first weights as they are; "by words": BM25 instead.
        training: fields of `RetrieverConfig`, over the experiment's; `lora_by_repository` gives each task an
            adapter (LoRA, Hu et al. 2021, arXiv:2106.09685) on the first weights.
    """

    learned: Literal["in turn", "together", "apart", "never", "by words"] = "in turn"
    training: dict[str, Value] = {}


Order = Literal["given", "reversed", "easiest first", "hardest first", "shuffled"]
"""Easiest: the most easy theorems, by the count of `store.curriculum`. Shuffled: by the seed."""


class Learning(Part):
    """An experiment on a retriever's learning, and its settings.

    Attributes:
        about: for the result's page.
        arms: by name; the others are compared with the first.
        orders: of the tasks; every arm in turn learns them in each.
        model: with a first training, its retention is measured too. Then a task is measured only right after
            its training and at the end, where also the statements held out for choices are.
        metric: of the retriever's evaluation, shown in percent; the log has all of them.
        keep_checkpoints: in the experiment's folder; else a trial's are removed after all its measurements.
    """

    kind: Literal["learning"]
    about: str
    seeds: Seeds
    tasks: Tasks
    model: Pretrained | TinyModel | str = TinyModel()
    training: dict[str, Value] = {}
    arms: dict[str, Arm] = Field(min_length=1)
    orders: tuple[Order, ...] = Field(("given",), min_length=1)
    metric: str = "recall@10"
    keep_checkpoints: bool = False

    @model_validator(mode="after")
    def _trainings(self) -> Learning:
        for name, arm in self.arms.items():
            try:
                self.config(arm, "a model", 0)
            except ConfigError as error:
                raise ValueError(f"the training of {name}: {error}") from error
        return self

    def with_data(self, folder: Path) -> Learning:
        """Return the experiment with another folder of premises."""
        place = {"folder": folder}
        changed: dict[str, Any] = {}
        if isinstance(self.tasks, Premises):
            changed["tasks"] = self.tasks.model_copy(update=place)
        if isinstance(self.model, Pretrained):
            changed["model"] = self.model.model_copy(
                update={"base": self.model.base.model_copy(update=place)}
            )
        return self.model_copy(update=changed)

    def config(self, arm: Arm, model: str, seed: int) -> RetrieverConfig:
        """Return the training configuration of an arm."""
        options: dict[str, Any] = {**self.training, **arm.training}
        # Tasks learned at once or apart leave nothing to forget.
        alone = {"against_forgetting": "none"} if arm.learned != "in turn" else {}
        return RetrieverConfig.from_dict({**options, **alone, "model_name": model, "seed": seed})


# ---- proving


class LibraryTheorems(Part):
    """The theorems held out of the library in `experiments/library` (`experiments.theorems`).

    `held_out`: the number to prove, from the first; `lemmas`: the number to learn from; None: all.
    """

    source: Literal["library"]
    held_out: int | None = Field(None, ge=1)
    lemmas: int | None = Field(None, ge=1)


class SorryDB(Part):
    """The sorries of a list of SorryDB's (JSON), at its commits. The other keys are those of `Repositories`."""

    source: Literal["sorrydb"]
    file: Path
    state: Path
    config: Path | None = None


class Prover(Part):
    """A rung, and the premises shown with its goals.

    Attributes:
        rung: of the ladder. For the library's theorems rung 0; for repositories all five, with the configured
            models.
        premises: for the library's theorems: the premise finder; "trained": a retriever trained here,
            "fused": its ranking and BM25's together.
        learned: the retriever's training: "library": the premises in people's proofs of all lemmas; "first
            commit": those of a quarter of the lemmas alone; "own proofs": the same, and then the search's own
            proofs of the lemmas of three more commits, with the fused premises, one training after each
            commit.
        seeds: the number to use, from the first; 1 if nothing is drawn.
    """

    rung: int = Field(ge=0, le=4)
    premises: Literal["none", "random", "bm25", "mepo", "trained", "fused"] = "none"
    learned: Literal["library", "first commit", "own proofs"] = "library"
    seeds: int | None = Field(None, ge=1)


class Proving(Part):
    """An experiment on proving, and its settings.

    Attributes:
        about: for the result's page.
        theorems: to prove; for repositories their open sorries.
        shown: the number of premises with a goal.
        budgets: rising. For the library's theorems tactics sent to Lean for each; for repositories seconds a
            sorry.
        practice: tactics for each lemma of a commit, if a retriever learns from its own proofs.
        arms: by name.
        against: arms to compare each one with; none: the first.
    """

    kind: Literal["proving"]
    about: str
    seeds: Seeds
    theorems: Annotated[LibraryTheorems | Repositories | SorryDB, Field(discriminator="source")]
    shown: int = Field(10, ge=1)
    budgets: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    practice: int = Field(50, ge=1)
    arms: dict[str, Prover] = Field(min_length=1)
    against: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> Proving:
        if list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError(f"budgets is {list(self.budgets)}: they have to rise")
        for name, arm in self.arms.items():
            if self.theorems.source in ("repositories", "sorrydb"):
                if arm.premises != "none":
                    raise ValueError(
                        f"{name}: a repository's sorries are shown what the retriever in use finds"
                    )
            elif arm.rung != 0:
                raise ValueError(f"{name}: the library's theorems have rung 0")
        for name in self.against:
            if name not in self.arms:
                raise ValueError(f"against: {name} is no arm; {suggestion(name, list(self.arms))}")
        return self


Experiment = Annotated[Learning | Proving, Field(discriminator="kind")]


def read(path: Path, data: Path | None = None) -> tuple[str, Learning | Proving]:
    """Return an experiment's text and content; `data` replaces the folder of its premises.

    Raises:
        ExperimentError: it cannot be read, or has mistakes, one a line of the message.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ExperimentError(
            f"{path} cannot be read: {error}; name a YAML file such as experiments/real/*.yaml"
        ) from error
    if not isinstance(content, dict):
        raise ExperimentError(f"{path}: it holds no keys; see experiments/real/*.yaml")
    try:
        result = TypeAdapter[Learning | Proving](Experiment).validate_python(content)
    except ValidationError as error:
        lines = [
            f"{path}: {setting_name(each['loc']) or 'the file'}: {each['msg'].removeprefix('Value error, ')}"
            for each in error.errors(include_url=False)
        ]
        raise ExperimentError("\n".join(lines)) from error
    if data is not None and isinstance(result, Learning):
        result = result.with_data(data)
    return text, result


def digest(text: str) -> str:
    """Return the SHA-256 of a file's text."""
    return hashlib.sha256(text.encode()).hexdigest()
