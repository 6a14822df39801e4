from __future__ import annotations

import io
from pathlib import Path

import pytest

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import TrainRetrieverSpec
from pipeline.models.datasets import TaskData, dataset_of
from pipeline.models.errors import DatasetError
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.job import RetrieverJob


def asked(chain: Path) -> TaskData:
    # What is there is taken, so there need be no inputs.
    order = TrainRetrieverSpec(repository="r", chain=chain, parent=None, indices=chain)
    spec = JobSpec("job", "train", 1, chain / "attempt", order)
    return RetrieverJob(RetrieverConfig(model_name="m"), spec, Reporter(spec, io.StringIO())).task()


def kept(chain: Path, metadata: str) -> Path:
    place = dataset_of(chain, "job")
    place.mkdir(parents=True)
    (place / "metadata.json").write_text(metadata, encoding="utf-8")
    return place


def test_a_dataset_that_is_there_is_taken_as_it_is(tmp_path: Path) -> None:
    place = kept(tmp_path, '{"everlean": {"position": 12}}')
    assert asked(tmp_path) == asked(tmp_path) == TaskData("r", place, 12)


@pytest.mark.parametrize("metadata", ["", "[]", "{}", '{"everlean": {"position": "x"}}'])
def test_a_dataset_that_is_damaged_is_named_with_what_to_do(tmp_path: Path, metadata: str) -> None:
    place = kept(tmp_path, metadata)
    with pytest.raises(DatasetError, match=rf"metadata\.json does not say .* Remove {place}"):
        asked(tmp_path)
