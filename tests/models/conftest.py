"""Settings of all tests that compute with tiny models."""

from __future__ import annotations

import gc

import pytest
import torch

from tests.support.job_processes import JobProcesses


@pytest.fixture(scope="module", autouse=True)
def small_computations() -> None:
    """Compute in one thread, and keep the loaded libraries out of the garbage collector's sight.

    Several threads for such small models only wait for each other, and beside other work for minutes. Trainers collect
    garbage at every run: with the libraries and earlier modules that takes longer than the training.
    """
    torch.set_num_threads(1)
    # A training turns it on for the whole process, and PyTorch then fills every new tensor with NaN.
    torch.use_deterministic_algorithms(False)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def jobs() -> JobProcesses:
    """The jobs of all models."""
    return JobProcesses(("train", "train_tactics", "train_grpo", "train_progress"))
