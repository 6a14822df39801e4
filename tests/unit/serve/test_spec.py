"""The specification of the server: it survives a round trip, and errors name the wrong field."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from daemon.planning import serve_spec
from daemon.planning.serve_spec import Lease, spec_of, why_not_servable
from daemon.settings import ConfigError, Settings, parse
from pipeline.jobs.specs import EndpointSpec
from pipeline.serve.spec import GENERATING, PROMOTED, ModelSpec, RewardSpec, ServeSpec, SpecError

EVERYTHING = """
[lean]
backend = "auto"
repl_memory = "1G"
repls = 4
[prove]
rungs = [0, 1, 2, 4]
[prove.generator]
model = "org/generator"
device = "cuda"
[prove.external]
base_url = "https://rung.example/v1"
model = "m"
credential = "rung-key"
usd_per_day = 5
usd_per_million_prompt = 1
usd_per_million_completion = 2
[train.tactics]
model_name = "org/first"
[serve]
port = 8000
token_file = ""
[serve.progress]
model = "org/progress"
[[serve.models]]
name = "far"
kind = "endpoint"
model = "a-model"
base_url = "https://api.example/v1"
credential = "far-key"
usd_per_day = 1
usd_per_million_prompt = 1
usd_per_million_completion = 1
[[serve.models]]
name = "found"
kind = "retrieval"
generator = "./generator"
[[repos]]
url = "https://github.com/owner/name"
[[repos]]
url = "https://github.com/owner/other"
enabled = false
"""
CONFIG = Path("/somewhere/config.toml")


def settings(text: str = EVERYTHING) -> Settings:
    return parse(text.encode(), path=CONFIG)


def spec(text: str = EVERYTHING, **more: Any) -> ServeSpec:
    return spec_of(settings(text), scratch="x", environment={}, **more)


def test_what_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    for made in (spec(), spec("", lease=Lease(Path("/run/gpu.lock"), None), host="::1", port=0)):
        made.write(tmp_path / "spec.json")
        assert ServeSpec.read(tmp_path / "spec.json") == made


@pytest.mark.parametrize("kind", ["tactics", "retriever"])
def test_a_model_is_served_with_a_repository_s_adapter(kind: str) -> None:
    table = '[[serve.models]]\nname = "a"\nkind = "{}"\nrepository = "github.com/owner/name"\n'
    (made,) = spec(table.format(kind)).models
    assert (made.source, made.repository) == (PROMOTED, "github.com/owner/name")
    with pytest.raises(ConfigError, match='"encoder" and names a repository'):
        settings(table.format("encoder") + 'model = "./encoder"\n')


def test_the_specification_follows_the_settings() -> None:
    result = spec()
    assert (result.host, result.port, result.device, result.open) == (
        "127.0.0.1",
        8000,
        "cpu",
        False,
    )
    assert result.limits.lean_processes == 4
    assert (result.lean.pool.processes, result.lean.pool.memory_bytes) == (4, 2**30)
    far, found = result.models
    assert far.endpoint is not None
    assert (far.source, far.endpoint.base_url, far.endpoint.cap_usd) == (
        "a-model",
        "https://api.example/v1",
        1,
    )
    assert (found.source, found.generator) == ("promoted", "/somewhere/generator")
    assert [one.key for one in result.lean.repositories] == ["github.com/owner/name"]
    assert result.progress == RewardSpec("org/progress", "auto")


def test_the_ladder_is_that_of_the_settings_and_computes_where_the_server_does() -> None:
    ladder = spec().lean.ladder
    assert (ladder.rungs, ladder.device) == ((0, 1, 2, 4), "cpu")
    assert (ladder.generator.path, ladder.tactics.path) == ("org/generator", "org/first")
    assert spec("[prove]\nenabled = false").lean.ladder.rungs == (0,)


def test_without_models_there_are_those_in_use() -> None:
    assert [(one.name, one.kind, one.source) for one in spec("").models] == [
        ("tactics", "tactics", "promoted"),
        ("retriever", "retriever", "promoted"),
    ]
    assert spec("").progress is None


def test_leandojos_variables_go_before_the_settings() -> None:
    known = {
        "LEANPROGRESS_MODEL": " org/other\n",
        "LEANPROGRESS_DEVICE": "cuda:1",
    }
    assert spec_of(settings(), scratch="x", environment=known).progress == RewardSpec("org/other", "cuda:1")
    assert spec_of(settings(""), scratch="x", environment=known).progress == RewardSpec("org/other", "cuda:1")


def test_a_folder_that_a_variable_names_is_meant_from_where_we_are_and_a_hubs_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "models"))
    whole = str(tmp_path / "models" / "mine")
    for said, meant in (
        ("models/mine", whole),
        ("./models/mine", whole),
        ("~/mine", whole),
        ("org/name", "org/name"),
    ):
        progress = spec_of(settings(""), scratch="x", environment={"LEANPROGRESS_MODEL": said}).progress
        assert progress is not None
        assert progress.source == meant


def test_a_gpu_for_the_progress_model_takes_one_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_spec, "find_spec", lambda _name: object())
    lease = Lease(Path("/run/gpu.lock"), "GPU-a")
    for device, gpu, fits in (
        ("cuda", None, False),
        ("cuda:1", None, False),
        ("cuda", lease, True),
        ("cpu", None, True),
        ("auto", None, True),
    ):
        known = {"LEANPROGRESS_MODEL": "org/m", "LEANPROGRESS_DEVICE": device}
        spec = spec_of(settings(""), scratch="x", lease=gpu, environment=known)
        reason, _, remedy = why_not_servable(spec).partition(": ")
        assert (reason == "") == fits
        assert ("[serve]" in remedy) == (not fits)


def test_an_address_that_others_reach_is_open() -> None:
    assert [spec(host=host).open for host in ("127.0.0.1", "127.8.9.1", "::1", "0.0.0.0", "::", "192.0.2.1")] == [
        False, False, False, True, True, True
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda raw: raw.update(port="23337"), "port: "),
        (lambda raw: raw.update(port=65536), "port: "),
        (lambda raw: raw.pop("view"), "view: "),
        (lambda raw: raw.update(more=1), "more: "),
        (lambda raw: raw["models"][0].update(kind="tactix"), "models.0.kind: "),
        (lambda raw: raw["models"][0].update(endpoint=None), "models.0: "),
        (lambda raw: raw["models"].append(raw["models"][0]), 'two models are called "far"'),
        (lambda raw: raw["limits"].update(queue=0), "limits.queue: "),
        (lambda raw: raw["lean"].update(backend="coq"), "lean.backend: "),
        (lambda raw: raw["lean"]["ladder"].update(rungs=["0"]), "lean.ladder.rungs.0: "),
    ],
)
def test_what_is_wrong_with_an_order_is_named_with_its_field(change: Any, named: str, tmp_path: Path) -> None:
    raw = json.loads(spec().as_json())
    change(raw)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(SpecError) as caught:
        ServeSpec.read(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_order_is_named(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    for data in (None, b"\xff", b"{", b"[]"):
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(SpecError, match=str(path)):
            ServeSpec.read(path)


def test_a_model_that_cannot_be_meant_is_refused() -> None:
    endpoint = EndpointSpec(base_url="https://x.example/v1", model="m")
    cannot_be: list[dict[str, Any]] = [
        {"kind": "endpoint"},
        {"kind": "tactics", "endpoint": endpoint},
        {"kind": "retrieval"},
        {"kind": "encoder", "source": "promoted"},
    ]
    for wrong in cannot_be:
        with pytest.raises(ValueError, match="kind is"):
            ModelSpec(**{"name": "m", "source": "s", **wrong})
    assert replace(spec().models[0], name="other").kind in GENERATING


def test_jobs_are_held_to_the_memory_that_the_plan_gives_them() -> None:
    def held(text: str) -> tuple[int, list[int]]:
        lean = spec_of(settings(text), scratch="x", environment={}).lean
        rungs, _ = lean.ladder.climb({})
        return lean.memory_bytes >> 30, [rung.memory_bytes >> 30 for rung in rungs]

    limits = '[jobs]\nmemory = "3G"\n[prove]\nmemory = "5G"\nrungs = [0, 2]\n[train.tactics]\nmodel_name = "org/m"\n'
    assert held(limits) == (3, [3, 5]), "of a rung with a model it is that of [prove]"
    own = '[jobs.limits]\nprove = { memory = "7G" }\ncheck = { memory = "1G" }\n'
    assert held(limits + own) == (1, [7, 7])
    assert held('[jobs]\nmemory = "3G"\n[prove]\nenabled = false\n') == (3, [3])
