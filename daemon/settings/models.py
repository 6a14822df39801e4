"""The sections that name models: [prove], [train] and [serve].

The fields of each model's training are checked by that training's own module; none of those imports a training library.
No token or key ever is in the file: it is systemd's credential, else the content of a file, else a variable.
"""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo, model_validator

from daemon.settings.types import (
    Flag,
    ModelName,
    Section,
    Text,
    base_of,
    duration,
    left_out,
    model_name,
    size,
    table_list,
)
from pipeline.models.config import ProgressConfig, tactics_config
from pipeline.models.endpoint.credentials import KeyPlace, read_key
from pipeline.models.endpoint.errors import CredentialError
from pipeline.models.errors import ConfigError
from pipeline.models.retriever.config import for_a_job as retriever_config
from pipeline.serve.spec import PROMOTABLE
from pipeline.serve.spec import ModelKind as ServedKind
from store.events.models import ModelKind
from store.promotion import RULES

RUNGS = ("tactics", "retrieval", "generator", "whole", "external")
"""The provers, by rung."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_SEARCH_TIME = duration(minimum_s=1, maximum_s=86400, example="5m")


def _its_own_time(value: object) -> object:
    return None if value in ("", None) else _SEARCH_TIME(value)


def _rungs(value: tuple[int, ...]) -> tuple[int, ...]:
    remedy = "write for instance rungs = [0, 2]"
    if not value:
        raise ValueError(f"names no rung; {remedy}, or enabled = false")
    for rung in value:
        if not 0 <= rung < len(RUNGS):
            raise ValueError(f"has no rung {rung}, they are 0 to {len(RUNGS) - 1}; {remedy}")
    if len(set(value)) < len(value):
        raise ValueError(f"names a rung twice; {remedy}")
    return value


def _base_url(value: str) -> str:
    if not value:
        return value
    remedy = 'write for instance base_url = "https://api.example.org/v1"'
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"is no valid URL; {remedy}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"must be an https URL; {remedy}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"carries more than a host and a path (not shown); the key is a credential, not a part of the URL; {remedy}"
        )
    if parts.scheme == "http" and host not in _LOCAL:
        raise ValueError(f"would send the key unencrypted; {remedy}")
    return value.rstrip("/")


def _name(value: str) -> str:
    if value and not all(char.isalnum() or char in "-_." for char in value):
        raise ValueError(
            "is the name of a credential or variable, and never the key itself (not shown); letters, digits, - and _"
        )
    return value


def _person(value: str) -> str:
    """A name or an e-mail address, as git writes it."""
    if not value.strip():
        raise ValueError('is empty; write a name or an e-mail address, such as "ada@example.org"')
    return value.strip()


BaseUrl = Annotated[Text, AfterValidator(_base_url)]
Name = Annotated[Text, AfterValidator(_name)]
SearchTime = Annotated[float | None, BeforeValidator(_its_own_time)]
Number = Annotated[float, Strict()]
People = Annotated[tuple[Annotated[Text, AfterValidator(_person)], ...], BeforeValidator(table_list)]
Dollars = Annotated[Number | None, BeforeValidator(left_out)]


class Generator(Section):
    """[prove.generator]: how models suggest tactics (rungs 1 and 2), and which one does at rung 1."""

    model: ModelName = Field("", examples=["./my-generator"])
    """of rung 1, which needs it: a hub name, or a folder, relative to this file"""
    device: Literal["auto", "cuda", "cpu"] = Field("auto", examples=["auto"])
    """of rungs 1 to 3: `auto` (a GPU where one works, else the processor), `cuda`, `cpu`. But with `cpu`, a job has a
    GPU for itself as long as it runs, and waits for one that another job or another process has"""
    candidates: Annotated[int, Strict()] = Field(8, ge=1, le=256, examples=[8])
    """tactics asked for at each goal; 1 to 256"""
    decoding: Literal["beam", "sample"] = Field("beam", examples=["beam"])
    """`beam` or `sample`"""
    temperature: Number = Field(0.7, gt=0, le=10, allow_inf_nan=False, examples=[0.7])
    """of sampling, and of whole proofs at rung 3; more than 0, at most 10"""
    premises: Annotated[int, Strict()] = Field(10, ge=0, le=1000, examples=[10])
    """at rung 1, how many of the retriever's stand before the goal; 0 to 1000"""
    progress_weight: Number = Field(0.5, ge=0, le=1, allow_inf_nan=False, examples=[0.5])
    """the share, 0 to 1, that the steps which the progress model in use still expects have in a state's score; 0: it
    is not asked"""
    seconds_per_sorry: SearchTime = Field(None, examples=["5m"])
    """`""` is `[prove]`'s; 1s to 1d"""


class Whole(Section):
    """[prove.whole]: how whole proofs are written and mended (rungs 3 and 4), and which model does at rung 3."""

    model: ModelName = Field("", examples=["./my-author"])
    """of rung 3, which needs it: a hub name, or a folder, relative to this file"""
    proofs: Annotated[int, Strict()] = Field(4, ge=1, le=1000, examples=[4])
    """written for one sorry; 1 to 1000"""
    repairs: Annotated[int, Strict()] = Field(2, ge=0, le=100, examples=[2])
    """of each; 0 to 100"""
    max_tokens: Annotated[int, Strict()] = Field(2048, ge=16, le=1_000_000, examples=[2048])
    """of one proof; 16 to 1000000"""
    seconds_per_sorry: SearchTime = Field(None, examples=["5m"])
    """of rung 3; `""` is `[prove]`'s; 1s to 1d"""


class External(Section):
    """[prove.external]: the endpoint of rung 4, and what it may cost. The key itself is never here."""

    base_url: BaseUrl = Field("", examples=["https://api.example.org/v1"])
    """such as `https://api.example.org/v1`; http only for this machine itself"""
    model: Text = Field("", examples=["a-model"])
    """its name there"""
    mode: Literal["whole", "tactics"] = Field("whole", examples=["whole"])
    """what it is asked for: `"whole"` proofs, as `[prove.whole]` says, or the `"tactics"` of a search: `candidates` of
    `[prove.generator]` for each state, at its `temperature`, of `max_tokens` of `[prove.whole]` at most. A search
    asks for every state that it expands, and tries no negation"""
    credential: Name = Field("unsorry-model-key", examples=["unsorry-model-key"])
    """the name of systemd's credential that holds the key"""
    key_variable: Name = Field("UNSORRY_MODEL_KEY", examples=["UNSORRY_MODEL_KEY"])
    """the name of the environment variable that holds it"""
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=1, maximum_s=3600, example="2m"))] = Field(
        120.0, alias="timeout", examples=["2m"]
    )
    """of one call; 1s to 1h"""
    retries: Annotated[int, Strict()] = Field(4, ge=0, le=100, examples=[4])
    """of a call that failed for a reason that may pass; 0 to 100"""
    usd_per_day: Dollars = Field(None, gt=0, allow_inf_nan=False, examples=[5])
    """what may be spent in a day (UTC); no call is made that could cost more, and what it kept back is tried the next
    day. Rung 4 needs it unless both prices are 0"""
    usd_per_million_prompt: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[1.25])
    """US dollars for a million tokens of prompt, 0 where it costs nothing; rung 4 needs it"""
    usd_per_million_completion: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[10])
    """and of answer; rung 4 needs it"""
    seconds_per_sorry: SearchTime = Field(None, examples=["5m"])
    """of rung 4; `""` is `[prove]`'s; 1s to 1d"""

    @property
    def free(self) -> bool:
        """Return whether both prices are 0."""
        return (self.usd_per_million_prompt, self.usd_per_million_completion) == (0, 0)


class Prove(Section):
    """[prove]: the ladder, and the budget of the search for one sorry."""

    enabled: Flag = Field(True, examples=[True])
    """whether sorries are attempted at all"""
    rungs: Annotated[
        tuple[Annotated[int, Strict()], ...], AfterValidator(_rungs), BeforeValidator(table_list)
    ] = Field((0,), examples=[[0, 2]])
    """the ladder: some of 0 to 4, in the order in which they are tried"""
    seconds_per_sorry: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=86400, example="60s"))
    ] = Field(60.0, examples=["60s"])
    """search time for one sorry at one rung; 1s to 1d. The tables below may say otherwise for theirs"""
    nodes_per_sorry: Annotated[int, Strict()] = Field(400, ge=1, le=1_000_000, examples=[400])
    """search nodes for one sorry; 1 to 1000000"""
    calls_per_sorry: Annotated[int | None, Strict(), BeforeValidator(left_out)] = Field(
        None, ge=1, le=10_000_000, examples=[5000]
    )
    """tactics that a search sends to Lean for one sorry, replays not counted; `""` is no limit; 1 to 10000000"""
    tactic_timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=0.1, maximum_s=3600, example="5s"))
    ] = Field(5.0, alias="tactic_timeout", examples=["5s"])
    """of one tactic; 100ms to 1h"""
    parallel: Annotated[int, Strict()] = Field(2, ge=1, le=256, examples=[2])
    """sorries searched at the same time inside a job; 1 to 256"""
    sorries_per_job: Annotated[int, Strict()] = Field(16, ge=1, le=10_000, examples=[16])
    """at most; fewer where their search would not end within `[jobs] timeout`; 1 to 10000"""
    seed: Annotated[int, Strict()] = Field(0, ge=0, lt=2**32, examples=[0])
    """of what models draw"""
    hours_per_day: Annotated[Number | None, BeforeValidator(left_out)] = Field(
        None, gt=0, allow_inf_nan=False, examples=[8]
    )
    """search time above rung 0, of all jobs together, from one midnight (UTC) to the next: the sum of what attempts
    took. A job begins only where what it may take at most is left. `""` is no limit. `unsorry status` says what was
    spent"""
    memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="16G"))] = Field(
        2**34, alias="memory", examples=["16G"]
    )
    """of each process of a job that runs a model (rungs 1 to 3); at least 256M"""
    opt_out_authors: People = Field((), examples=[["ada@example.org"]])
    """names or e-mail addresses as git has them: where one of them wrote the lines, no proof is proposed"""
    generator: Generator = Field(default_factory=Generator)
    whole: Whole = Field(default_factory=Whole)
    external: External = Field(default_factory=External)

    @property
    def seconds_per_day(self) -> float | None:
        """The machine time a day for the rungs above 0; None: there is no limit."""
        return None if self.hours_per_day is None else 3600 * self.hours_per_day

    def seconds(self, rung: int) -> float:
        """Return how long one sorry is searched for at a rung."""
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
    """Say what the rungs of the ladder need and the file does not give, each with the remedy."""
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
                f"has rung {rung} ({RUNGS[rung]}), which needs {key} under [prove.{table}]; write {key} = {example},"
                f" or take {rung} out of rungs"
            )
    for rung in prove.rungs:
        limit = prove.seconds_per_day
        if rung and limit is not None and prove.seconds(rung) > limit:
            yield (
                f"has rung {rung} ({RUNGS[rung]}), which may search one sorry for {prove.seconds(rung):g} s, and"
                f" hours_per_day is {limit:g} s; raise hours_per_day, or lower seconds_per_sorry"
            )


_FOLDERS = frozenset({"model_name"})
_CONFIGS: Mapping[ModelKind, Callable[[Mapping[str, Any]], Any]] = {
    "retriever": retriever_config,
    "tactics": tactics_config,
    "progress": ProgressConfig.from_dict,
}
_OWN = ("enabled", "tolerance")
"""What [train.tactics] and [train.progress] say beside the fields of the training itself."""


@dataclass(frozen=True, slots=True)
class Learning:
    """The training of one model: `config` are all fields of its job's configuration, `tolerance` is in its rule's unit.

    `named` is the model that the file itself names for the first checkpoint to begin with; "" where it names none.
    """

    model: ModelKind
    enabled: bool
    tolerance: float
    config: dict[str, Any]
    named: str


def _fields(model: ModelKind) -> Callable[[dict[str, Any], ValidationInfo], dict[str, Any]]:
    """Return the check of a table: a training's fields, and what this model's table says beside them."""
    own = () if model == "retriever" else _OWN

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
    """[train]: which models learn, from how much, and when what they learned is used.

    `retriever`, `tactics` and `progress` hold what the file says; `of` is what follows from it.
    """

    enabled: Flag = Field(True, examples=[True])
    """train at all. A repository with `opt_out` is not learned from"""
    device: Literal["cuda", "cpu", "auto"] = Field("cuda", examples=["cuda"])
    """`cuda`: on a GPU, and not at all where there is none. `cpu`: on the processor. `auto`: on a GPU where one works,
    else on the processor. A GPU that falls off the bus keeps its jobs waiting, with `cuda`, until it answers again"""
    new_theorems: Annotated[int, Strict()] = Field(100, ge=1, examples=[100])
    """a repository is due when its newest trace has so many theorems that the checkpoint in use did not learn from:
    for the retriever those with a tactic that uses a premise, for the other models those with a tactic; 1 or more"""
    tolerance_points: Annotated[float, Strict()] = Field(
        RULES["retriever"].tolerance,
        alias="tolerance",
        ge=0,
        le=RULES["retriever"].widest,
        allow_inf_nan=False,
        examples=[2],
    )
    """a trained checkpoint takes the place of the one in use only if its recall@10 on each task that the latter was
    measured on, over the same frozen test set, is lower by at most this, in points (100 points are all); 0 to 100.
    Where that is not known it stays out of use. The first checkpoint of a model comes into use whatever its figures
    are: there is nothing to compare it with. The other models have a tolerance of their own. [`unsorry
    models`](cli.md#unsorry-models) shows both sides"""
    memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="32G"))] = Field(
        2**35, alias="memory", examples=["32G"]
    )
    """of each process; at least `"256M"`"""
    timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=30 * 86400, example="2d"))
    ] = Field(172_800.0, alias="timeout", examples=["2d"])
    """of one job, at most `"30d"`. An attempt that is ended goes on from its last saved step"""
    retriever: Annotated[dict[str, Any], AfterValidator(_fields("retriever"))] = Field(default_factory=dict)
    """how to train: the table `[train.retriever]`. Its keys are the fields of `RetrieverConfig`
    (`pipeline/models/retriever/config.py` has them all with their defaults); a folder in `model_name` is relative to
    this file. Other values make another chain link: what was trained stays"""
    tactics: Annotated[dict[str, Any], AfterValidator(_fields("tactics"))] = Field(default_factory=dict)
    """the table `[train.tactics]`: `enabled` (`false` unless set), `tolerance` (points of tactic@8, 2 unless set), and
    the fields of `pipeline/models/config.py`. People's tactics are learned; training with Lean's reward
    (GRPO) is no job of the daemon, as it needs the commit's build: an [agent](agents.md) with a `GRPOTrainer` does
    it"""
    progress: Annotated[dict[str, Any], AfterValidator(_fields("progress"))] = Field(default_factory=dict)
    """the table `[train.progress]`: `enabled` (`false` unless set), `tolerance` (steps of mean absolute error, 0.1
    unless set), and the fields of `pipeline/models/config.py`"""

    def of(self, model: ModelKind) -> Learning:
        """Return how a model learns here."""
        table: dict[str, Any] = getattr(self, model)
        config = {key: item for key, item in table.items() if model == "retriever" or key not in _OWN}
        return Learning(
            model,
            enabled=self.enabled and (model == "retriever" or bool(table.get("enabled", False))),
            tolerance=self.tolerance(model),
            config=_CONFIGS[model]({**config, "device": self.device}).to_dict(),
            named=str(config.get("model_name", "")),
        )

    def tolerance(self, model: ModelKind) -> float:
        """Return how far a model may fall on a task, in the unit of its rule (`store.promotion`)."""
        if model == "retriever":
            return self.tolerance_points
        return float(getattr(self, model).get("tolerance", RULES[model].tolerance))


TOKEN_CREDENTIAL = "unsorry-serve-token"  # noqa: S105 - the name of a systemd credential, not a secret
TOKEN_VARIABLE = "UNSORRY_SERVE_TOKEN"  # noqa: S105 - the name of an environment variable
_EXAMPLE = 'write for instance name = "tactics" and kind = "tactics"'


def checked_host(value: str) -> str:
    """Return an address that a server may listen on.

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


def _token_file(value: str, info: ValidationInfo) -> str:
    if not value:
        return value
    path = os.path.normpath(base_of(info) / Path(value).expanduser())
    try:
        read_key(file=path, environment={})
    except CredentialError as error:
        raise ValueError(str(error)) from None
    return path


def _named_once(value: tuple[ServeModel, ...]) -> tuple[ServeModel, ...]:
    names = [model.name for model in value]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'has two models with the name "{name}"; give one of them another name')
    return value


def _called(value: str) -> str:
    if not value or len(value) > 200 or not value.isprintable():
        raise ValueError(f"is no name that a request can ask for; {_EXAMPLE}")
    return value


class ServeModel(Section):
    """[[serve.models]]: a model by the name that requests ask for it."""

    name: Annotated[Text, AfterValidator(_called)] = Field(examples=["tactics"])
    """up to 200 characters; no two may have the same"""
    kind: ServedKind = Field(examples=["tactics"])
    """`tactics`: a generator of tactics; `retrieval`: a retriever, and a generator that is shown what it finds;
    `causal`, `seq2seq`: a generator of Hugging Face's; `encoder`: an encoder of Hugging Face's; `retriever`: a
    retriever as an encoder; `endpoint`: a model behind an address that speaks OpenAI's chat API"""
    model: ModelName = Field("", examples=["./my-model"])
    """a hub name, a folder relative to this file, or the endpoint's name for it. `""`, for `tactics`, `retrieval` and
    `retriever` only: the checkpoint in use; when a better one is promoted it takes its place, and no request is
    dropped"""
    generator: ModelName = Field("", examples=["./my-generator"])
    """of `retrieval`, which needs it: a hub name or a folder"""
    device: Literal["", "cpu", "cuda"] = Field("", examples=["cpu"])
    """`cpu` or `cuda`; `""`: `[serve] device`. `cuda` takes `[serve] device = "cuda"`"""
    candidates: Annotated[int, Strict()] = Field(8, ge=1, le=256, examples=[8])
    """answers to a request of `/generate`; 1 to 256"""
    decoding: Literal["beam", "sample"] = Field("beam", examples=["beam"])
    """`beam` or `sample`"""
    temperature: Number = Field(0.7, gt=0, le=10, allow_inf_nan=False, examples=[0.7])
    """of sampling; more than 0, at most 10"""
    max_tokens: Annotated[int | None, BeforeValidator(left_out)] = Field(
        None, ge=1, le=1_000_000, strict=True, examples=[256]
    )
    """of an answer; 1 to 1000000. `""`: as many as the model was trained with"""
    premises: Annotated[int, Strict()] = Field(10, ge=0, le=1000, examples=[10])
    """of `retrieval`, how many stand before the goal; 0 to 1000"""
    base_url: BaseUrl = Field("", examples=["https://api.example.org/v1"])
    """of an `endpoint`: `https://api.openai.com/v1`, `https://api.anthropic.com/v1`,
    `https://generativelanguage.googleapis.com/v1beta/openai`, `https://router.huggingface.co/v1`, or a vLLM
    server's, such as `http://127.0.0.1:8000/v1`; http only for this machine itself"""
    credential: Name = Field("unsorry-model-key", examples=["unsorry-model-key"])
    """of an `endpoint`: the name of systemd's credential that holds its key"""
    key_variable: Name = Field("UNSORRY_MODEL_KEY", examples=["UNSORRY_MODEL_KEY"])
    """else the name of the environment variable that holds it"""
    retries: Annotated[int, Strict()] = Field(4, ge=0, le=100, examples=[4])
    """of a call of an `endpoint` that failed for a reason that may pass; 0 to 100"""
    usd_per_day: Dollars = Field(None, gt=0, allow_inf_nan=False, examples=[5])
    """what may be spent in a day (UTC), together with rung 4 and all other endpoints; no call is made that could cost
    more. It takes the two prices"""
    usd_per_million_prompt: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[1.25])
    """US dollars for a million tokens of prompt"""
    usd_per_million_completion: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[10])
    """and of answer"""

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


class ServeLimits(Section):
    """[serve.limits]: what a client may ask for, and how much is done at once."""

    body_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**10, example="1M"))] = Field(
        2**20, alias="body", examples=["1M"]
    )
    """of a request; a longer one is answered 413; at least `"1K"`"""
    queue: Annotated[int, Strict()] = Field(256, ge=1, le=100_000, examples=[256])
    """requests that are worked on or wait, all together; one more is answered 429, with Retry-After, and so is one
    more than half of them for one model, or for Lean. 1 to 100000"""
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=0.1, maximum_s=3600, example="1m"))] = (
        Field(60.0, alias="timeout", examples=["1m"])
    )
    """of a request; then 504; 100ms to 1h"""
    lean_timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=0.1, maximum_s=86400, example="10m"))
    ] = Field(600.0, alias="lean_timeout", examples=["10m"])
    """of a request that Lean works on (`/check`, `/fill`): then 504, or, where the answer has begun, a last event
    `error`; 100ms to 1d"""
    lean_processes: Annotated[int, Strict()] = Field(2, ge=1, le=256, examples=[2])
    """at once; 1 to 256. Their memory and calls are `[lean]`'s"""
    batch: Annotated[int, Strict()] = Field(32, ge=1, le=1024, examples=[32])
    """requests, of any clients, that a model answers together; `1`: one at a time. 1 to 1024"""


class ServeProgress(Section):
    """[serve.progress]: the model that says how many steps remain, for requests with `use_reward`."""

    model: ModelName = Field("", examples=["./my-progress-model"])
    """a hub name, or a folder, relative to this file. `""`: the progress model in use, if there is one"""
    device: Text = Field("auto", examples=["auto"])
    """`auto`, `cpu`, `cuda`, `cuda:1`; a GPU takes `[serve] device = "cuda"`, else the server does not start and says
    so"""
    template: Text = Field("", examples=["Goal: {goal}"])
    """how a step is written for the model; `""`: as our models were trained"""


class Serve(Section):
    """[serve]: where the server listens, with which models."""

    host: Annotated[Text, AfterValidator(checked_host)] = Field("127.0.0.1", examples=["127.0.0.1"])
    """the address that is listened on. One that other machines reach needs a token: without, the server does not start
    and says so"""
    port: Annotated[int, Strict()] = Field(23337, ge=1, le=65535, examples=[23337])
    """1 to 65535. 23337 is where LeanCopilot asks"""
    token_file: Annotated[Text, AfterValidator(_token_file)] = Field(
        "", examples=["/etc/unsorry/serve-token"]
    )
    """a file that holds the token as its only line, readable by its owner only (mode 600). Another token in it is
    taken up with the server's next reload"""
    device: Literal["cpu", "cuda", "auto"] = Field("cpu", examples=["cpu"])
    """where models compute: `cpu`, `cuda` or `auto`. With `cuda` the server has a GPU for itself as long as it runs,
    by the same lock as jobs, and where none is free it does not start and says so: no job gets that one meanwhile.
    `auto`: likewise where a GPU works, else on the processor, and it stays there until it is started anew"""
    models: Annotated[tuple[ServeModel, ...], BeforeValidator(table_list), AfterValidator(_named_once)] = (
        Field(())
    )
    """the tables `[[serve.models]]`; `[]`: `tactics` and `retriever`, the checkpoints in use"""
    limits: ServeLimits = Field(default_factory=ServeLimits)
    progress: ServeProgress = Field(default_factory=ServeProgress)

    @model_validator(mode="after")
    def _has_its_gpu(self) -> Serve:
        if self.device != "cuda" and any(model.device == "cuda" for model in self.models):
            raise ValueError(
                'has a model with device = "cuda", and no GPU; write device = "cuda" under [serve], or "cpu" there'
            )
        return self

    @property
    def token(self) -> KeyPlace:
        """The place of the token that clients have to send."""
        return KeyPlace(TOKEN_CREDENTIAL, TOKEN_VARIABLE, self.token_file)
