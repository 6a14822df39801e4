"""[report] of config.toml: whether the report is served over HTTP, and how often it is made for that."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from daemon.settings_fields import Flag, Section, duration
from daemon.settings_notify import Metrics


class Report(Section):
    """[report]: the page of `unsorry report`, beside the numbers of [metrics]."""

    serve: Flag = Field(False, examples=[False])
    every_s: Annotated[float, BeforeValidator(duration(minimum_s=1, maximum_s=86400, example="1m"))] = Field(
        60.0, alias="every", examples=["1m"]
    )


def unreachable(report: Report, metrics: Metrics) -> list[str]:
    """Say why a report that shall be served could not be reached; nothing where it can."""
    if not report.serve or metrics.listen:
        return []
    return [
        'has no address to be served at; write listen = "127.0.0.1:9464" below [metrics], or serve = false'
    ]
