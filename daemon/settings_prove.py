"""[prove] of config.toml: which rungs of the ladder are climbed, with which models, and on what budget.

A rung is a way to search for proofs; `RUNGS` names them. What a rung needs and the file does not say is `lacking`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Strict

from daemon.settings_fields import Flag, ModelName, Section, Text, duration, left_out, size, table_list

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
        raise ValueError('names nobody; write a name or an e-mail address, such as "ada@example.org"')
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
    engine: Literal["transformers", "vllm"] = Field("transformers", examples=["transformers"])
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
    if prove.generator.engine == "vllm" and prove.generator.decoding != "sample" and {1, 2} & {*prove.rungs}:
        yield (
            'has a rung whose engine is vllm, which draws samples and knows no beams; write decoding = "sample" under'
            ' [prove.generator], or engine = "transformers"'
        )
    for rung in prove.rungs:
        limit = prove.seconds_per_day
        if rung and limit is not None and prove.seconds(rung) > limit:
            yield (
                f"has rung {rung} ({RUNGS[rung]}), which may search one sorry for {prove.seconds(rung):g} s, and"
                f" hours_per_day is {limit:g} s; raise hours_per_day, or lower seconds_per_sorry"
            )
