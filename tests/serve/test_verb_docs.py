"""docs/editors.md says what is so: its commands are run, its configuration is read, its names are there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon.planning.serve_spec import spec_of as spec_of_settings
from daemon.settings import parse
from pipeline.serve.measures import Measures
from pipeline.serve.spec import ModelSpec, RewardSpec
from tests.support.serve import Served, make_saying, spec_of
from tests.support.tiny_models import make_tiny

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "editors.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:23337"
TOKEN = "t0ken"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def command(route: str, *, holds: str = "") -> str:
    (found,) = (
        one for one in blocks("sh") if f"{ADDRESS}{route} " in f"{one} ".replace("\n", " ") and holds in one
    )
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    spec = spec_of(
        folder,
        ModelSpec(
            "tactics", "tactics", str(make_saying(folder / "said", {"simp": 0.6, "rfl": 0.4})), max_tokens=8
        ),
        ModelSpec("retriever", "encoder", str(make_tiny("encoder", folder / "encoder"))),
        progress=RewardSpec(str(make_tiny("classifier", folder / "progress")), device="cpu"),
    )
    with Served(spec) as it:
        it.wait_ready()
        yield it


def run(served: Served, text: str) -> tuple[int, Any]:
    """Run a command of the page against this server; return the status and what was answered."""
    asked = text.replace(ADDRESS, served.url).replace(
        "curl -s", "curl --noproxy '*' -w '\\n%{http_code}' -s", 1
    )
    done = subprocess.run(
        ["sh", "-c", asked],
        capture_output=True,
        text=True,
        timeout=60,
        env={"EVERLEAN_SERVE_TOKEN": TOKEN, "PATH": os.environ["PATH"]},
    )
    answer, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(answer)


@pytest.mark.usefixtures("curl")
def test_the_models_are_listed(served: Served) -> None:
    for text in (
        command("/models", holds="curl -s http://127.0.0.1:23337/models\n"),
        command("/models", holds="Bearer"),
    ):
        status, answer = run(served, text)
        assert status == 200
        assert [model["name"] for model in answer["models"]] == ["tactics", "retriever"]


@pytest.mark.usefixtures("curl")
def test_tactics_and_their_rewards_and_vectors_are_answered(served: Served) -> None:
    status, answer = run(served, command("/generate", holds='"prefix"'))
    assert (status, [one["output"] for one in answer["outputs"]][:2]) == (200, ["simp", "rfl"])
    status, answer = run(served, command("/generate", holds='"use_reward"'))
    assert status == 200
    assert all(one["score"] == one["reward"] == -one["steps_remaining"] for one in answer["outputs"])
    status, answer = run(served, command("/encode"))
    assert status == 200
    assert all(isinstance(number, float) for number in answer["outputs"])


@pytest.mark.usefixtures("curl")
@pytest.mark.parametrize(
    ("route", "holds", "refused"),
    [
        ("/retrieve", "", (503, "no_view")),
        ("/check", "add_zero", (404, "unknown_repository")),
        ("/check", "others", (404, "unknown_repository")),
        ("/fill", "", (404, "unknown_repository")),
    ],
)
def test_what_asks_about_a_repository_is_understood(
    route: str, holds: str, refused: tuple[int, str], served: Served
) -> None:
    """This server has no view and watches no repository: what is refused is that, and not the request."""
    status, answer = run(served, command(route, holds=holds))
    assert (status, answer["error"]) == refused, answer
    assert set(answer) == {"error", "reason", "remedy", "detail"}


def test_its_configuration_is_valid_and_its_lean_asks_for_models_that_there_are(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for text in blocks("toml"):
        spec = spec_of_settings(parse(text.encode(), path=config), scratch="x")
        assert spec.models
    default = spec_of_settings(parse(b"", path=config), scratch="x")
    assert (default.host, default.port) == ("127.0.0.1", 23337)
    (lean,) = blocks("lean")
    asked = dict(re.findall(r": (External\w+) := \{ name := \"(\w+)\" \}", lean))
    kinds = {model.kind: model.name for model in default.models}
    assert asked == {"ExternalGenerator": kinds["tactics"], "ExternalEncoder": kinds["retriever"]}


def test_every_number_is_listed_with_its_labels_and_no_other_is() -> None:
    measures = Measures()
    measures.answered("/generate", "POST", 200, 0.1)
    measures.queued(1)
    measures.waiting("m", 1)
    measures.batch("m", 1)
    measures.swapped("m")
    there = {
        family.name + ("_total" if family.type == "counter" else ""): {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for family in text_string_to_metric_families(measures.text().decode())
    }
    rows = re.findall(r"^- `(everlean_serve_[a-z_]+)`(?: \(([^)]*)\))?$", TEXT, re.MULTILINE)
    assert {name: set(re.findall(r"`([a-z]+)`", labels)) for name, labels in rows} == there
