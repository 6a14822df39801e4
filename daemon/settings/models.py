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
from pipeline.models.endpoint.credentials import KeyPlace, read_key
from pipeline.models.endpoint.errors import CredentialError
from pipeline.models.errors import ConfigError
from pipeline.models.progress.config import for_a_job as progress_config
from pipeline.models.retriever.config import for_a_job as retriever_config
from pipeline.models.tactics.config import for_a_job as tactics_config
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
    device: Literal["auto", "cuda", "cpu"] = Field("auto", examples=["auto"])
    candidates: Annotated[int, Strict()] = Field(8, ge=1, le=256, examples=[8])
    decoding: Literal["beam", "sample"] = Field("beam", examples=["beam"])
    temperature: Number = Field(0.7, gt=0, le=10, allow_inf_nan=False, examples=[0.7])
    premises: Annotated[int, Strict()] = Field(10, ge=0, le=1000, examples=[10])
    progress_weight: Number = Field(0.5, ge=0, le=1, allow_inf_nan=False, examples=[0.5])
    seconds_per_sorry: SearchTime = Field(None, examples=["5m"])


class Whole(Section):
    """[prove.whole]: how whole proofs are written and mended (rungs 3 and 4), and which model does at rung 3."""

    model: ModelName = Field("", examples=["./my-author"])
    proofs: Annotated[int, Strict()] = Field(4, ge=1, le=1000, examples=[4])
    repairs: Annotated[int, Strict()] = Field(2, ge=0, le=100, examples=[2])
    max_tokens: Annotated[int, Strict()] = Field(2048, ge=16, le=1_000_000, examples=[2048])
    seconds_per_sorry: SearchTime = Field(None, examples=["5m"])


class External(Section):
    """[prove.external]: the endpoint of rung 4, and what it may cost. The key itself is never here."""

    base_url: BaseUrl = Field("", examples=["https://api.example.org/v1"])
    model: Text = Field("", examples=["a-model"])
    mode: Literal["whole", "tactics"] = Field("whole", examples=["whole"])
    credential: Name = Field("unsorry-model-key", examples=["unsorry-model-key"])
    key_variable: Name = Field("UNSORRY_MODEL_KEY", examples=["UNSORRY_MODEL_KEY"])
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=1, maximum_s=3600, example="2m"))] = Field(
        120.0, alias="timeout", examples=["2m"]
    )
    retries: Annotated[int, Strict()] = Field(4, ge=0, le=100, examples=[4])
    usd_per_day: Dollars = Field(None, gt=0, allow_inf_nan=False, examples=[5])
    usd_per_million_prompt: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[1.25])
    usd_per_million_completion: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[10])
    seconds_per_sorry: SearchTime = Field(None, examples=["5m"])

    @property
    def free(self) -> bool:
        """Whether the file says that nothing costs anything."""
        return (self.usd_per_million_prompt, self.usd_per_million_completion) == (0, 0)


class Prove(Section):
    """[prove]: the ladder, and the budget of the search for one sorry."""

    enabled: Flag = Field(True, examples=[True])
    rungs: Annotated[
        tuple[Annotated[int, Strict()], ...], AfterValidator(_rungs), BeforeValidator(table_list)
    ] = Field((0,), examples=[[0, 2]])
    seconds_per_sorry: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=86400, example="60s"))
    ] = Field(60.0, examples=["60s"])
    nodes_per_sorry: Annotated[int, Strict()] = Field(400, ge=1, le=1_000_000, examples=[400])
    calls_per_sorry: Annotated[int | None, Strict(), BeforeValidator(left_out)] = Field(
        None, ge=1, le=10_000_000, examples=[5000]
    )
    tactic_timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=0.1, maximum_s=3600, example="5s"))
    ] = Field(5.0, alias="tactic_timeout", examples=["5s"])
    parallel: Annotated[int, Strict()] = Field(2, ge=1, le=256, examples=[2])
    sorries_per_job: Annotated[int, Strict()] = Field(16, ge=1, le=10_000, examples=[16])
    seed: Annotated[int, Strict()] = Field(0, ge=0, lt=2**32, examples=[0])
    hours_per_day: Annotated[Number | None, BeforeValidator(left_out)] = Field(
        None, gt=0, allow_inf_nan=False, examples=[8]
    )
    memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="16G"))] = Field(
        2**34, alias="memory", examples=["16G"]
    )
    opt_out_authors: People = Field((), examples=[["ada@example.org"]])
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


_FOLDERS = frozenset({"model_name", "tokenizer_model_name"})
_CONFIGS: Mapping[ModelKind, Callable[[Mapping[str, Any]], Any]] = {
    "retriever": retriever_config,
    "tactics": tactics_config,
    "progress": progress_config,
}
_OWN = ("enabled", "tolerance")
"""What [train.tactics] and [train.progress] say beside the fields of the training itself."""


@dataclass(frozen=True, slots=True)
class Learning:
    """How one model learns: `config` are all fields of its job's configuration, `tolerance` is in its rule's unit.

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
    device: Literal["cuda", "cpu", "auto"] = Field("cuda", examples=["cuda"])
    new_theorems: Annotated[int, Strict()] = Field(100, ge=1, examples=[100])
    tolerance_points: Annotated[float, Strict()] = Field(
        RULES["retriever"].tolerance,
        alias="tolerance",
        ge=0,
        le=RULES["retriever"].widest,
        allow_inf_nan=False,
        examples=[2],
    )
    memory_bytes: Annotated[int, BeforeValidator(size(minimum_bytes=2**28, example="32G"))] = Field(
        2**35, alias="memory", examples=["32G"]
    )
    timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=1, maximum_s=30 * 86400, example="2d"))
    ] = Field(172_800.0, alias="timeout", examples=["2d"])
    retriever: Annotated[dict[str, Any], AfterValidator(_fields("retriever"))] = Field(default_factory=dict)
    tactics: Annotated[dict[str, Any], AfterValidator(_fields("tactics"))] = Field(default_factory=dict)
    progress: Annotated[dict[str, Any], AfterValidator(_fields("progress"))] = Field(default_factory=dict)

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
    kind: ServedKind = Field(examples=["tactics"])
    model: ModelName = Field("", examples=["./my-model"])
    generator: ModelName = Field("", examples=["./my-generator"])
    device: Literal["", "cpu", "cuda"] = Field("", examples=["cpu"])
    candidates: Annotated[int, Strict()] = Field(8, ge=1, le=256, examples=[8])
    decoding: Literal["beam", "sample"] = Field("beam", examples=["beam"])
    temperature: Number = Field(0.7, gt=0, le=10, allow_inf_nan=False, examples=[0.7])
    max_tokens: Annotated[int | None, BeforeValidator(left_out)] = Field(
        None, ge=1, le=1_000_000, strict=True, examples=[256]
    )
    premises: Annotated[int, Strict()] = Field(10, ge=0, le=1000, examples=[10])
    base_url: BaseUrl = Field("", examples=["https://api.example.org/v1"])
    credential: Name = Field("unsorry-model-key", examples=["unsorry-model-key"])
    key_variable: Name = Field("UNSORRY_MODEL_KEY", examples=["UNSORRY_MODEL_KEY"])
    retries: Annotated[int, Strict()] = Field(4, ge=0, le=100, examples=[4])
    usd_per_day: Dollars = Field(None, gt=0, allow_inf_nan=False, examples=[5])
    usd_per_million_prompt: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[1.25])
    usd_per_million_completion: Dollars = Field(None, ge=0, allow_inf_nan=False, examples=[10])

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
    queue: Annotated[int, Strict()] = Field(256, ge=1, le=100_000, examples=[256])
    timeout_s: Annotated[float, BeforeValidator(duration(minimum_s=0.1, maximum_s=3600, example="1m"))] = (
        Field(60.0, alias="timeout", examples=["1m"])
    )
    lean_timeout_s: Annotated[
        float, BeforeValidator(duration(minimum_s=0.1, maximum_s=86400, example="10m"))
    ] = Field(600.0, alias="lean_timeout", examples=["10m"])
    lean_processes: Annotated[int, Strict()] = Field(2, ge=1, le=256, examples=[2])
    batch: Annotated[int, Strict()] = Field(32, ge=1, le=1024, examples=[32])


class ServeProgress(Section):
    """[serve.progress]: the model that says how many steps remain, for requests with `use_reward`."""

    model: ModelName = Field("", examples=["./my-progress-model"])
    device: Text = Field("auto", examples=["auto"])
    template: Text = Field("", examples=["Goal: {goal}"])


class Serve(Section):
    """[serve]: where the server listens, with which models."""

    host: Annotated[Text, AfterValidator(checked_host)] = Field("127.0.0.1", examples=["127.0.0.1"])
    port: Annotated[int, Strict()] = Field(23337, ge=1, le=65535, examples=[23337])
    token_file: Annotated[Text, AfterValidator(_token_file)] = Field(
        "", examples=["/etc/unsorry/serve-token"]
    )
    device: Literal["cpu", "cuda", "auto"] = Field("cpu", examples=["cpu"])
    models: Annotated[tuple[ServeModel, ...], BeforeValidator(table_list), AfterValidator(_named_once)] = (
        Field(())
    )
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
        """Where the token is that clients have to send."""
        return KeyPlace(TOKEN_CREDENTIAL, TOKEN_VARIABLE, self.token_file)
