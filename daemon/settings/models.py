"""The sections about models: [prove], [train] and [serve].

Each training's own module checks the fields of its table; none of these modules imports a training library.
No token or key is ever in the file: it is systemd's credential, else the content of a file, else a variable.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from daemon.settings.types import (
    Duration,
    Flag,
    Integer,
    ModelName,
    Section,
    Size,
    Text,
    base_of,
    check_host,
    command_line,
    key_file,
    left_out,
    model_name,
    table_list,
)
from pipeline.endpoint.address import private_address
from pipeline.jobs.spec import KeyPlace
from pipeline.jobs.specs import GrpoSpec
from pipeline.models.config import ProgressConfig, TacticsConfig
from pipeline.models.errors import ConfigError
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.serve.spec import PROMOTABLE
from pipeline.serve.spec import ModelKind as ServedKind
from store.documents.ladder import PROVERS
from store.events.models import ModelKind
from store.promotion import RULES


def _rungs(value: tuple[int, ...]) -> tuple[int, ...]:
    remedy = "write for instance rungs = [0, 2]"
    if not value:
        raise ValueError(f"names no rung; {remedy}, or enabled = false")
    for rung in value:
        if not 0 <= rung < len(PROVERS):
            raise ValueError(f"has no rung {rung}, they are 0 to {len(PROVERS) - 1}; {remedy}")
    if len(set(value)) < len(value):
        raise ValueError(f"names a rung twice; {remedy}")
    return value


def _base_url(value: str) -> str:
    return value and private_address(value)


def _name(value: str) -> str:
    if value and not all(char.isalnum() or char in "-_." for char in value):
        raise ValueError(
            "is the name of a credential, and never the key itself (not shown); letters, digits, - and _"
        )
    return value


def _person(value: str) -> str:
    """Return a name or an e-mail address in git's form."""
    if not value.strip():
        raise ValueError('is empty; write a name or an e-mail address, such as "ada@example.org"')
    return value.strip()


BaseUrl = Annotated[Text, AfterValidator(_base_url)]
Name = Annotated[Text, AfterValidator(_name)]
SearchTime = Annotated[float | None, Duration("1s", "1d")]
Number = Annotated[float, Strict()]
People = Annotated[tuple[Annotated[Text, AfterValidator(_person)], ...], BeforeValidator(table_list)]
Dollars = Annotated[Number | None, BeforeValidator(left_out)]


def key_place(credential: str) -> KeyPlace:
    """Return the place of the key of this name: a credential, else a variable of the name in capitals."""
    return KeyPlace(credential, re.sub("[-.]", "_", credential).upper())


class Generator(Section):
    """[prove.generator]: how models suggest tactics (rungs 1 and 2), and the model of rung 1."""

    model: ModelName = Field("", examples=["./my-generator"])
    """Model of rung 1: a hub name, or a folder relative to this file. Set it to have rung 1 before a tactic
    model of your own is trained"""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    """Device of rungs 1 to 3: `auto` (a GPU if one works), `cuda` or `cpu`. Except with `cpu`, a job holds
    one GPU while it runs, and waits for a GPU held by another job or process. `cpu` if the GPU is for
    trainings alone"""
    candidates: Integer = Field(8, ge=1, le=256)
    """Number of tactics suggested for each state. Raise it to search wider, for more time in each state"""
    temperature: Number = Field(0.7, gt=0, le=10, allow_inf_nan=False)
    """Temperature of whole proofs at rung 3, and of an endpoint's tactics. Raise it if proofs are too much
    alike"""
    premises: Integer = Field(10, ge=0, le=1000)
    """Premises shown to every rung for a goal in a traced repository. The retriever in use, BM25 or both find
    them, whichever finds most on the test sets; the training rows of the tactic model have them too. Lower it
    for models with a short context; 0 shows none"""
    seconds_per_sorry: SearchTime = None
    """As in `[prove]`, at rungs 1 and 2. Raise it if the models are
    slow"""


class Whole(Section):
    """[prove.whole]: how whole proofs are written and mended (rungs 3 and 4), and the model of rung 3."""

    model: ModelName = Field("", examples=["./my-author"])
    """Model of rung 3: a hub name, or a folder relative to this file. Set it to have rung 3"""
    proofs: Integer = Field(4, ge=1, le=1000)
    """Number of proofs written for one sorry. Raise it if time or money allows more samples"""
    repairs: Integer = Field(2, ge=0, le=100)
    """Repairs of each proof. Raise it for models good at mending, 0 for others"""
    max_tokens: Annotated[int | None, BeforeValidator(left_out)] = Field(
        None, ge=16, le=1_000_000, strict=True, examples=[8192]
    )
    """Tokens of one proof, with the model's thinking. `""`: 8192 at rung 3, though at most half of the
    model's context, and 2048 at rung 4, since they cost money. Raise it if proofs are cut off"""
    enable_thinking: Flag = True
    """`true`: the model of rung 3 thinks before it answers, if it can. Turn it off if thinking takes the
    proofs' time"""
    seconds_per_sorry: SearchTime = None
    """As in `[prove]`, at rung 3. Raise it for large models"""

    def tokens(self, rung: int) -> int:
        """Return the tokens of one proof at rung 3 or 4."""
        return self.max_tokens or (8192 if rung == 3 else 2048)


class External(Section):
    """[prove.external]: the endpoint of rung 4 and its costs. The key itself is never here."""

    base_url: BaseUrl = Field("", examples=["https://api.example.org/v1"])
    """Address of the endpoint, such as `https://api.example.org/v1`. Plain http only to this machine. Set it to
    have rung 4"""
    model: Text = Field("", examples=["a-model"])
    """Name of the model at the endpoint. Set it with `base_url`"""
    mode: Literal["whole", "tactics"] = "whole"
    """`"whole"` (whole proofs) or `"tactics"` (tactics of a search). Whole proofs have the settings of
    `[prove.whole]`. `"tactics"`: it suggests tactics to a search, `candidates` of `[prove.generator]` for
    each state, at its `temperature`, each at most `max_tokens` of `[prove.whole]` long. The search sends one
    request for every expanded state, and does not try the negation. Choose `tactics` for a model trained to
    suggest them"""
    credential: Name = Field("everlean-model-key", examples=["everlean-model-key"])
    """Name of the key, as a systemd credential or, in capitals, as a variable: `$EVERLEAN_MODEL_KEY`. Change
    it to use another program's key"""
    timeout_s: Annotated[float, Duration("1s", "1h")] = 120.0
    """Time limit of one call. Raise it for models with long thinking"""
    usd_per_day: Dollars = Field(None, gt=0, allow_inf_nan=False)
    """Spending limit of a day (UTC), in US dollars. A call that could exceed it is not sent; its sorry is
    tried again the next day. Rung 4 requires it unless both prices are 0. Set it to your budget for a day"""
    usd_per_million_prompt: Dollars = Field(None, ge=0, allow_inf_nan=False)
    """US dollars for a million prompt tokens. 0 if they are free. Rung 4 requires it. Set it to the
    provider's price"""
    usd_per_million_completion: Dollars = Field(None, ge=0, allow_inf_nan=False)
    """US dollars for a million completion tokens. 0 if they are free. Rung 4 requires it. Set it to the
    provider's price"""
    seconds_per_sorry: SearchTime = None
    """As in `[prove]`, at rung 4. Raise it if the endpoint is slow"""

    @property
    def key(self) -> KeyPlace:
        """The place of the key."""
        return key_place(self.credential)

    @property
    def free(self) -> bool:
        """Return whether both prices are 0."""
        return (self.usd_per_million_prompt, self.usd_per_million_completion) == (0, 0)


def _program(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if not value:
        raise ValueError('names no program; write for instance run = ["./my-agent", "--turns", "20"]')
    return command_line(value, info)


def _paths(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    return tuple(os.path.normpath(base_of(info) / Path(path).expanduser()) for path in value)


def _variable(value: str) -> str:
    if value and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise ValueError('is no name of a variable; write for instance variable = "OPENAI_API_KEY"')
    if value in ("PATH", "HOME") or value.startswith(("LD_", "EVERLEAN_")):
        raise ValueError(
            f"is {value}, which the sandbox sets or needs; name the variable that the program reads"
        )
    return value


def _one_of_each(value: tuple[Any, ...]) -> tuple[Any, ...]:
    names = [one.name for one in value]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'has the name "{name}" twice; give one of them another name')
    return value


def _plain_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise ValueError('is no name for records; letters, digits, ".", "_" and "-", such as "claude-code"')
    return value


class Program(Section):
    """[[prove.programs]]: a program, such as an agent, that edits the file with the sorry (rung 5)."""

    name: Annotated[Text, AfterValidator(_plain_name)] = Field(examples=["try-tactics"])
    """Its name in attempts and proofs. Rename it to have it try earlier sorries again"""
    run: Annotated[tuple[Text, ...], AfterValidator(_program), BeforeValidator(table_list)] = Field(
        examples=[["./try_tactics.sh"]]
    )
    """The program and its arguments. It is a name on the daemon's PATH, or a path relative to this file. Set
    it to the agent's command without a terminal"""
    seconds: Annotated[float, Duration("1s", "1d")] = 600.0
    """Time for one sorry, repairs included. Raise it for slow agents; `[jobs] timeout` must be longer"""
    network: Annotated[
        tuple[Annotated[Text, AfterValidator(check_host)], ...], BeforeValidator(table_list)
    ] = Field((), examples=[["api.example.org"]])
    """Hosts in its reach, at ports 443 and 80. A proxy passes them; `[]`: none. Set it to the host of its
    model"""
    readable: Annotated[tuple[Text, ...], AfterValidator(_paths), BeforeValidator(table_list)] = Field(
        (), examples=[["/opt/agent"]]
    )
    """Readable folders and files beside `/usr`, Lean and its checkout. Set it if the program is installed in
    parts"""
    repairs: Integer = Field(1, ge=0, le=100)
    """Runs after the first for one sorry, each with Lean's messages: 0 for a program without a use for them"""
    credential: Name = Field("", examples=["agent-key"])
    """Name of its key, as a systemd credential or, in capitals, as a variable. Set it with `variable`"""
    variable: Annotated[Text, AfterValidator(_variable)] = Field("", examples=["OPENAI_API_KEY"])
    """Environment variable for its key. Set it to the program's own variable"""
    usd_per_run: Dollars = Field(None, ge=0, allow_inf_nan=False)
    """Least cost of each run in US dollars, 0 if it is free. It counts whatever the program reports. Required
    with `network` or `credential`. Set it to your estimate for a run"""
    usd_per_day: Dollars = Field(None, gt=0, allow_inf_nan=False)
    """Spending limit of a day (UTC), shared with rung 4 and all endpoints. A run that could exceed it is not
    begun. Required unless a run is free. Set it to your budget for a day"""

    @property
    def key(self) -> KeyPlace | None:
        """The place of the key; None without one."""
        return key_place(self.credential) if self.credential else None

    @model_validator(mode="after")
    def _is_whole(self) -> Program:
        if bool(self.credential) != bool(self.variable):
            raise ValueError(
                'has one of credential and variable, and a key needs both; write credential = "agent-key" and'
                ' variable = "OPENAI_API_KEY"'
            )
        if self.usd_per_run is None and (self.network or self.credential or self.usd_per_day):
            raise ValueError(
                "may cost money and has no usd_per_run; write usd_per_run = 1 or what a run may cost, 0 if it is free"
            )
        if self.usd_per_run and self.usd_per_day is None:
            raise ValueError(
                "costs money and has no usd_per_day; write usd_per_day = 5 or what a day may cost"
            )
        return self


class Prove(Section):
    """[prove]: the ladder, and the budget of the search for one sorry."""

    enabled: Flag = True
    """`false`: no proof is searched. Turn it off to watch and trace only"""
    rungs: Annotated[tuple[Integer, ...], AfterValidator(_rungs), BeforeValidator(table_list)] = Field(
        (0,), examples=[[0, 2]]
    )
    """Rungs from 0 to 5, in the order to try them. Add a rung once its model is there"""
    seconds_per_sorry: Annotated[float, Duration("1s", "1d")] = 60.0
    """Search time for one sorry at one rung. The tables below can set another for theirs. Raise it if the
    machine has time to spare"""
    nodes_per_sorry: Integer = Field(400, ge=1, le=1_000_000)
    """Search nodes for one sorry. Raise it if attempts end at it with time left"""
    tactic_timeout_s: Annotated[float, Duration("100ms", "1h")] = 5.0
    """Time limit of one tactic. Raise it for projects with slow automation"""
    sorries_per_job: Integer = Field(16, ge=1, le=10_000)
    """Most sorries of one job. It has fewer if their search would exceed `[jobs] timeout`. Lower it to give
    other work its turn sooner"""
    hours_per_day: Annotated[Number | None, BeforeValidator(left_out)] = Field(
        None, gt=0, allow_inf_nan=False, examples=[8]
    )
    """Search time a day (UTC) above rung 0, over all jobs. A job begins only if the rest of it covers the
    job's longest time. `""`: no limit. `everlean status` shows the time spent. Set it if the machine is not
    for everlean alone"""
    memory_bytes: Annotated[int, Size("256M")] = 2**34
    """Memory of each process of a job with a model. Raise it for larger models"""
    opt_out_authors: People = Field((), examples=[["ada@example.org"]])
    """Authors (name or e-mail in git) for whose lines no proof is proposed. Add an author on request"""
    generator: Generator = Field(default_factory=Generator)
    whole: Whole = Field(default_factory=Whole)
    external: External = Field(default_factory=External)
    programs: Annotated[tuple[Program, ...], BeforeValidator(table_list), AfterValidator(_one_of_each)] = (
        Field(())
    )
    """The tables `[[prove.programs]]`, tried in their order. Add one to have an agent prove"""

    @property
    def seconds_per_day(self) -> float | None:
        """The machine time a day for the rungs above 0; None without a limit."""
        return None if self.hours_per_day is None else 3600 * self.hours_per_day

    @property
    def searches(self) -> list[tuple[int, float, str]]:
        """The ladder's searches in their order: the rung, the seconds for one sorry, and their setting."""
        result = []
        for rung in self.rungs:
            if rung == 5:
                result += [(5, one.seconds, f"seconds of {one.name}") for one in self.programs]
            else:
                result.append((rung, self.seconds(rung), "seconds_per_sorry"))
        return result

    def seconds(self, rung: int) -> float:
        """Return the seconds for one sorry at a rung from 0 to 4; each program has a time of its own."""
        match rung:
            case 0:
                own = None
            case 1 | 2:
                own = self.generator.seconds_per_sorry
            case 3:
                own = self.whole.seconds_per_sorry
            case _:
                own = self.external.seconds_per_sorry
        return self.seconds_per_sorry if own is None else own


def lacking(prove: Prove) -> Iterator[str]:
    """Yield the settings missing for the rungs of the ladder, each with the remedy."""
    external = prove.external
    needed = [
        (1, "generator", "model", prove.generator.model, '"./my-generator"'),
        (3, "whole", "model", prove.whole.model, '"./my-author"'),
        (4, "external", "base_url", external.base_url, '"https://api.example.org/v1"'),
        (4, "external", "model", external.model, '"a-model"'),
        (4, "external", "usd_per_day", 0 if external.free else external.usd_per_day, "5"),
        (4, "external", "usd_per_million_prompt", external.usd_per_million_prompt, "0 for a free one"),
        (
            4,
            "external",
            "usd_per_million_completion",
            external.usd_per_million_completion,
            "0 for a free one",
        ),
    ]
    for rung, table, key, value, example in needed:
        if rung in prove.rungs and value in ("", None):
            yield (
                f"has rung {rung} ({PROVERS[rung]}), which needs {key} under [prove.{table}]; write {key} = {example},"
                f" or take {rung} out of rungs"
            )
    if 5 in prove.rungs and not prove.programs:
        yield (
            "has rung 5 (program), and there are no [[prove.programs]]; add one, with a name and run ="
            ' ["./my-agent"], or take 5 out of rungs'
        )
    limit = prove.seconds_per_day
    for rung, seconds, setting in prove.searches:
        if rung and limit is not None and seconds > limit:
            yield (
                f"has rung {rung} ({PROVERS[rung]}), which may search one sorry for {seconds:g} s, and"
                f" hours_per_day is {limit:g} s; raise hours_per_day, or lower {setting}"
            )


_FOLDERS = frozenset({"model_name"})
_CONFIGS: Mapping[ModelKind, Callable[[Mapping[str, Any]], Any]] = {
    "retriever": RetrieverConfig.from_dict,
    "tactics": TacticsConfig.from_dict,
    "progress": ProgressConfig.from_dict,
}


class GrpoSettings(GrpoSpec):
    """[train.tactics.grpo]: training with Lean's reward, and its condition.

    Attributes:
        enabled: whether it is done.
        goals: the number of theorems with a tactic a repository's trace must have.
    """

    enabled: bool = False
    goals: Annotated[int, Field(ge=1)] = 100

    def spec(self) -> GrpoSpec:
        """Return the job's part."""
        return GrpoSpec(**self.model_dump(exclude={"enabled", "goals"}))


def _grpo(value: Any) -> GrpoSettings:
    """Return the table's settings.

    Raises:
        ValueError: with the field and the reason.
    """
    try:
        return GrpoSettings.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("grpo", *map(str, first["loc"])))
        fields = ", ".join(GrpoSettings.model_fields)
        raise ValueError(
            f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}; its fields are {fields}"
        ) from None


_OWN: Mapping[ModelKind, tuple[str, ...]] = {
    "retriever": (),
    "tactics": ("enabled", "tolerance", "grpo"),
    "progress": ("enabled", "tolerance"),
}
"""The settings of the models' tables beside the fields of the training itself."""


@dataclass(frozen=True, slots=True)
class Learning:
    """The training of one model.

    `config` are all fields of its job's configuration, `tolerance` is in its rule's unit. `named` is the
    file's own first model to begin with; "" if it names none. `grpo` is the tactic model's training with
    rewards; None: there is none.
    """

    model: ModelKind
    enabled: bool
    tolerance: float
    config: dict[str, Any]
    named: str
    grpo: GrpoSettings | None = None


def _fields(model: ModelKind) -> Callable[[dict[str, Any], ValidationInfo], dict[str, Any]]:
    """Return the check of a table: a training's fields, and this model's other settings."""
    own = _OWN[model]

    def read(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "device" in value:
            raise ValueError('takes no device; write device = "cuda", "cpu" or "auto" under [train]')
        settled = {
            key: model_name(item, info) if key in _FOLDERS and isinstance(item, str) else item
            for key, item in value.items()
        }
        if "enabled" in own and not isinstance(settled.get("enabled", False), bool):
            raise ValueError("enabled must be true or false; write enabled = true")
        if "tolerance" in own:
            _check_tolerance(settled.get("tolerance", 0), model)
        if "grpo" in own:
            _grpo(settled.get("grpo", {}))
        try:
            _CONFIGS[model]({key: item for key, item in settled.items() if key not in own})
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return settled

    return read


def _check_tolerance(value: Any, model: ModelKind) -> None:
    rule = RULES[model]
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not 0 <= value <= rule.widest:
        raise ValueError(
            f"tolerance must be a number of {rule.unit} from 0 to {rule.widest:g}; write tolerance = {rule.tolerance:g}"
        )


class Train(Section):
    """[train]: the models to train, the data that starts a training, and the conditions of promotion.

    `retriever`, `tactics` and `progress` are the file's tables; `of` completes them.
    """

    enabled: Flag = True
    """`false`: no training. A repository with `opt_out` is never learned from. Turn it off on a machine
    without models to train"""
    device: Literal["cuda", "cpu", "auto"] = "cuda"
    """`cuda` (a GPU only), `cpu`, or `auto` (a GPU if one works). `cpu`: train on the CPU. `auto`: on a GPU
    if one works, else on the CPU. With `cuda`, the jobs of a GPU that fails wait until it answers again.
    `cpu` or `auto` for small models on a machine without a GPU"""
    gpus: Integer = Field(1, ge=1, le=64)
    """Most GPUs of one training. Trainings that begin together share the free ones: none gets a second one
    before each has one. Later ones wait for a free one. Each GPU has a process with `memory` of its own and
    its share of each step, so the number of GPUs divides the training's `batch_size`. The number does not
    change the result, and an interrupted training may resume with another. Training with Lean's reward has
    one. Raise it if GPUs stand idle; on a cluster, to the number of each machine"""
    new_theorems: Integer = Field(100, ge=1)
    """New theorems in a trace that start a training. They are new to the checkpoint in use. For the
    retriever, theorems with a tactic that uses a premise count; for the other models, theorems with a tactic.
    Lower it to learn small repositories"""
    new_proofs: Integer = Field(50, ge=1)
    """New verified proofs of everlean's that start a training of the tactic model. They are new to the
    checkpoint in use. Lower it if proofs are rare"""
    keep: Integer = Field(3, ge=2)
    """Number of checkpoints, in use now or before, whose files stay. The best of each task stays too, and so
    do undecided checkpoints and those refused in comparison with the present one. The others' files are
    removed, with an event. Lower it if checkpoints fill the disk"""
    tolerance_points: Annotated[float, Strict()] = Field(
        RULES["retriever"].tolerance,
        ge=0,
        le=RULES["retriever"].widest,
        allow_inf_nan=False,
    )
    """Allowed fall of recall@10 on an earlier task's frozen test set, in percentage points. Tasks are those
    on which the checkpoint in use was measured. A checkpoint that loses more, and not by chance, is refused,
    and so is one without these measurements ([the rule](design/how-it-works.md#what-may-be-promoted)). The
    first checkpoint of a model is promoted whatever its figures, but a retriever finds no premises before it
    finds more than BM25. The other models have tolerances of their own. Raise it if new tasks matter more
    than earlier ones"""
    report_to: Literal["none", "tensorboard"] = "none"
    """`tensorboard`: each training writes its losses below `state_dir`/tensorboard. Nothing leaves the
    machine. `none`: the curves are in the log alone. Set it to watch a training while it runs (`tensorboard
    --logdir`; the extra `tensorboard`)"""
    memory_bytes: Annotated[int, Size("256M")] = 2**35
    """Memory of each training process. Raise it for larger models"""
    timeout_s: Annotated[float, Duration("1s", "30d")] = 172_800.0
    """Time limit of one training job. An interrupted attempt resumes from its last saved step. Raise it for a
    slow device"""
    retriever: Annotated[dict[str, Any], AfterValidator(_fields("retriever"))] = Field(default_factory=dict)
    """The fields of `RetrieverConfig` (`pipeline/models/retriever/config.py`), in the table
    `[train.retriever]` ([more](#the-retrievers-defaults)). A folder in `model_name` is relative to this file,
    and holds a T5, a BERT or another encoder, or a decoder, pooled by the rule in its own files. Changed
    values apply to the next checkpoint of the chain; earlier checkpoints stay. With `lora_by_repository` (`false`)
    each repository has an adapter of its own, on a base that no training changes. Change it if a GPU has too little
    memory, or for another model"""
    tactics: Annotated[dict[str, Any], AfterValidator(_fields("tactics"))] = Field(default_factory=dict)
    """`enabled`, `tolerance` (2 points of tactic@8), and the fields of `pipeline/models/config.py`. The table
    is `[train.tactics]`; `enabled` is `false` unless it is set. The model, causal or an encoder-decoder,
    learns people's tactics and those of our own verified proofs. It sees the provers' premises, except in the
    share `premise_dropout` of the rows (0.25). Rows of earlier repositories are replayed, the share
    `replay_share` (0.25) of all. `lr` is 2e-5 unless it is set, for LoRA 2e-4. With `lora_by_repository`
    (`false`) each repository has an adapter of its own. `grpo` is the table
    `[train.tactics.grpo]`, training with [Lean's reward](design/how-it-works.md#training-with-leans-reward):
    `enabled` (default `false`), `goals` (the least number of theorems with a tactic in a trace; 100), the
    fields of `GrpoSpec` (`pipeline/jobs/specs.py`), and `trl` for arguments of TRL's `GRPOConfig`. Enable it
    to have rung 2"""
    progress: Annotated[dict[str, Any], AfterValidator(_fields("progress"))] = Field(default_factory=dict)
    """`enabled`, `tolerance` (0.1 steps of mean absolute error), and the fields of
    `pipeline/models/config.py`. The table is `[train.progress]`; `enabled` is `false` unless it is set. It is
    replayed like the tactic model. Enable it to order the search by its predictions"""

    def of(self, model: ModelKind) -> Learning:
        """Return the settings of a model's training."""
        table: dict[str, Any] = getattr(self, model)
        config = {key: item for key, item in table.items() if key not in _OWN[model]}
        grpo = _grpo(table.get("grpo", {})) if model == "tactics" else None
        return Learning(
            model,
            enabled=self.enabled and (model == "retriever" or bool(table.get("enabled", False))),
            tolerance=self.tolerance(model),
            config=_CONFIGS[model]({**config, "device": self.device}).to_dict(),
            named=str(config.get("model_name", "")),
            grpo=grpo if grpo is not None and grpo.enabled else None,
        )

    def tolerance(self, model: ModelKind) -> float:
        """Return a model's allowed fall on a task, in the unit of its rule (`store.promotion`)."""
        if model == "retriever":
            return self.tolerance_points
        return float(getattr(self, model).get("tolerance", RULES[model].tolerance))


TOKEN_CREDENTIAL = "everlean-serve-token"  # noqa: S105 - the name of a systemd credential, not a secret
TOKEN_VARIABLE = "EVERLEAN_SERVE_TOKEN"  # noqa: S105 - the name of an environment variable
_EXAMPLE = 'write for instance name = "tactics" and kind = "tactics"'


def checked_host(value: str) -> str:
    """Return an address for a server to listen on.

    Raises:
        ValueError: with the reason and the remedy.
    """
    if value == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise ValueError(
            f'must be an address of this machine (got "{value[:60]}"); write "127.0.0.1", or "0.0.0.0" for all'
        ) from None


def _called(value: str) -> str:
    if not value or len(value) > 200 or not value.isprintable():
        raise ValueError(f"is no name that a request can ask for; {_EXAMPLE}")
    return value


class ServeModel(Section):
    """[[serve.models]]: a model, by its name in requests."""

    name: Annotated[Text, AfterValidator(_called)] = Field(examples=["tactics"])
    """Name in requests, at most 200 characters. Each name may be listed once. Choose the name that the
    editor's plugin asks for"""
    kind: ServedKind = Field(examples=["tactics"])
    """`tactics`, `retrieval`, `retriever`, `encoder` or `endpoint`. `tactics`: a generator of tactics, a
    causal model or an encoder-decoder. `retrieval`: a retriever with a generator that receives the premises.
    `encoder`: a Hugging Face encoder. `retriever`: a retriever used as an encoder. `endpoint`: a model behind
    OpenAI's chat API. Choose the one for your model"""
    model: ModelName = Field("", examples=["./my-model"])
    """Hub name, folder relative to this file, or the endpoint's model. `""`, for `tactics`, `retrieval` and
    `retriever` only: the checkpoint in use; a promoted checkpoint replaces it without dropping a request. Set
    it to serve another model"""
    repository: Text = Field("", examples=["github.com/owner/name"])
    """For `tactics` and `retriever`: the repository whose adapter is served. It is named by its key in `everlean
    repos`; the checkpoint was trained with `lora_by_repository`. Set it to suggest in one project's style"""
    generator: ModelName = Field("", examples=["./my-generator"])
    """Generator of `retrieval`: a hub name or a folder. Set it with `retrieval`"""
    candidates: Integer = Field(8, ge=1, le=256)
    """Answers to one request of `/generate`. Raise it for more suggestions, at a slower answer"""
    max_tokens: Annotated[int | None, BeforeValidator(left_out)] = Field(
        None, ge=1, le=1_000_000, strict=True, examples=[256]
    )
    """Tokens of one answer. `""`: the number from the model's training. Lower it for a model that writes on,
    and for an endpoint that costs money"""
    base_url: BaseUrl = Field("", examples=["https://api.example.org/v1"])
    """Address of an `endpoint`, such as `https://api.openai.com/v1`. Others: `https://api.anthropic.com/v1`,
    `https://generativelanguage.googleapis.com/v1beta/openai`, `https://router.huggingface.co/v1`, or a vLLM
    server's, such as `http://127.0.0.1:8000/v1`; plain http only to this machine. Set it for an `endpoint`"""
    credential: Name = Field("everlean-model-key", examples=["everlean-model-key"])
    """Name of an `endpoint`'s key, as in [`[prove.external]`](#proveexternal). Change it if the endpoint has
    a key of its own"""
    usd_per_day: Dollars = Field(None, gt=0, allow_inf_nan=False)
    """Spending limit of a day (UTC), shared with rung 4 and all other endpoints. A call that could exceed it
    is not sent. Requires the two prices. Set it to your budget for a day"""
    usd_per_million_prompt: Dollars = Field(None, ge=0, allow_inf_nan=False)
    """US dollars for a million prompt tokens. Set it to the provider's price"""
    usd_per_million_completion: Dollars = Field(None, ge=0, allow_inf_nan=False)
    """US dollars for a million completion tokens. Set it to the provider's price"""

    @property
    def key(self) -> KeyPlace:
        """The place of the key of an endpoint."""
        return key_place(self.credential)

    @model_validator(mode="after")
    def _is_whole(self) -> ServeModel:
        if self.kind not in PROMOTABLE and not self.model:
            raise ValueError(
                f'is of kind "{self.kind}" and names no model; write for instance model = "./my-model"'
            )
        if self.kind == "retrieval" and not self.generator:
            raise ValueError(
                'is of kind "retrieval" and names nothing that the premises are shown to; write for instance'
                ' generator = "./my-generator"'
            )
        if self.repository and self.kind not in ("tactics", "retriever"):
            raise ValueError(
                f'is of kind "{self.kind}" and names a repository, whose adapter only "tactics" and "retriever" serve; '
                "remove it"
            )
        if (self.kind == "endpoint") != bool(self.base_url):
            raise ValueError(
                'must have a base_url where kind = "endpoint", and only there; write for instance base_url ='
                ' "https://api.example.org/v1"'
            )
        prices = (self.usd_per_million_prompt, self.usd_per_million_completion)
        if self.usd_per_day is not None and None in prices:
            raise ValueError(
                "has usd_per_day, which cannot be held without prices; write usd_per_million_prompt and"
                " usd_per_million_completion"
            )
        return self


class ServeProgress(Section):
    """[serve.progress]: the model of the remaining steps, for requests with `use_reward`."""

    model: ModelName = Field("", examples=["./my-progress-model"])
    """Hub name, or folder relative to this file. `""`: the progress model in use, if there is one. Set it to
    rate by another model"""


class Serve(Section):
    """[serve]: the address and the models of the server."""

    host: Annotated[Text, AfterValidator(checked_host)] = "127.0.0.1"
    """Address to listen on. An address within other machines' reach requires a token: without it the server
    reports this and does not start. Change it for editors on other machines"""
    port: Integer = Field(23337, ge=1, le=65535)
    """Port to listen on. 23337 is LeanCopilot's default. Change it if it is taken"""
    token_file: Annotated[Text, AfterValidator(key_file)] = Field("", examples=["/etc/everlean/serve-token"])
    """File with the token in one line, of mode 600. A changed token takes effect at the server's next reload.
    Set it if others than you reach the port"""
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    """Device of the models: `cpu`, `cuda` or `auto`. With `cuda` the server holds one GPU while it runs, by
    the same lock as jobs; if none is free, it reports this and does not start. `auto`: a GPU if one works,
    else the CPU, until the server restarts. `cuda` if a GPU is left for editors"""
    models: Annotated[tuple[ServeModel, ...], BeforeValidator(table_list), AfterValidator(_one_of_each)] = (
        Field(())
    )
    """The tables `[[serve.models]]`. `[]`: `tactics` and `retriever`, the checkpoints in use. Add one to
    serve more than the models in use"""
    progress: ServeProgress = Field(default_factory=ServeProgress)

    @property
    def token(self) -> KeyPlace:
        """The place of the token for clients to send."""
        return KeyPlace(TOKEN_CREDENTIAL, TOKEN_VARIABLE, self.token_file)
