"""`everlean models export`: what it refuses before torch is loaded, and what it says of a checkpoint that it writes."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.models.config import ProgressConfig
from tests.support.models import checkpoint_removed, checkpoint_saved, describe

ID = "0123456789abcdef"


@pytest.fixture
def saved(folder: Any) -> Any:
    """A progress model whose files are there, and one whose files were removed."""
    trained = checkpoint_saved(ID, model="progress", config=ProgressConfig(model_name="b").to_dict())
    folder.add("model:progress", trained)
    folder.add("model:progress", checkpoint_saved("fedcba9876543210", model="progress"))
    folder.add("model:progress", checkpoint_removed("fedcba9876543210", model="progress"))
    folder.write()
    place = folder.state / "models" / "progress" / ID
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(b"weights")
    (place / "config.json").write_text("{}")
    describe(place)
    return folder


def test_a_checkpoint_is_written(saved: Any) -> None:
    out = saved.root / "out"
    written = saved.everlean("models", "export", ID[:4], str(out), "--json")
    assert {name: written.json[name] for name in ("checkpoint", "format", "place")} == {
        "checkpoint": ID, "format": "transformers", "place": str(out),
    }  # fmt: skip
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (ID, "out", "--repository", "example.org/a"),
            "has one model for all repositories: leave --repository out",
        ),
        (("fedcba9876543210", "out"), "its files were removed"),
        (("0000", "out"), "no checkpoint"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(
    saved: Any, arguments: tuple[str, ...], said: str
) -> None:
    refused = saved.everlean("models", "export", *arguments)
    assert refused.code != 0
    assert said in refused.err
    assert not (saved.root / "out").exists()
