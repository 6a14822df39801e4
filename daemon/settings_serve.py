"""[serve] of config.toml: the server for editors and other programs, its models by name, and what a client may ask for.

The token itself never stands here: it is systemd's credential, else the content of `token_file`, else a variable.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo, model_validator

from daemon.settings_fields import (
    ModelName,
    Section,
    Text,
    base_of,
    duration,
    left_out,
    size,
    table_list,
)
from daemon.settings_prove import BaseUrl, Dollars, Name, Number
from pipeline.external.credentials import KeyPlace, read_key
from pipeline.external.errors import CredentialError
from pipeline.serve.order import PROMOTABLE, ModelKind

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
    kind: ModelKind = Field(examples=["tactics"])
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


_GONE = {
    "enabled": "the daemon does not run the server; remove the line and run: systemctl enable --now unsorry-serve",
    "memory": "the service manager bounds the server's memory; remove the line and set MemoryMax= of"
    " unsorry-serve.service",
}
"""Settings of earlier versions, and what replaces them."""


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

    @model_validator(mode="before")
    @classmethod
    def _has_nothing_of_earlier_versions(cls, value: object) -> object:
        if isinstance(value, dict):
            for name, remedy in _GONE.items():
                if name in value:
                    raise ValueError(f'has "{name}", which is no setting any more: {remedy}')
        return value

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
