"""NVML for tests: GPUs that are as the test says, behind the names of nvidia-ml-py.

nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b", used_bytes=8 * 2**30))
gpus = gpus_of(tmp_path, nvml)
nvml.gpus[0].lost = True
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from daemon.jobs.gpus import Gpus

UNINITIALIZED, INVALID_ARGUMENT, DRIVER_NOT_LOADED, GPU_IS_LOST = 1, 2, 9, 15
_SAID = {
    GPU_IS_LOST: "GPU is lost",
    UNINITIALIZED: "Uninitialized",
    INVALID_ARGUMENT: "Invalid Argument",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
}


@dataclass
class FakeGpu:
    """One GPU. `users` are the process ids on it with the bytes that each holds (None where NVML does not say)."""

    uuid: str
    name: str = "Test GPU"
    memory_bytes: int = 16 * 2**30
    used_bytes: int = 0
    users: dict[int, int | None] = field(default_factory=dict)
    lost: bool = False


class FakeNvml:
    """The functions that `daemon.jobs.gpus` calls."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(_SAID[value])
            self.value = value

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.loaded = True
        """Whether the driver is."""
        self._on = False

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's names
        self._on = True
        self._check_on()

    def nvmlShutdown(self) -> None:  # noqa: N802
        try:
            self._check_on()
        finally:
            self._on = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._check_on()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        self._check_on()
        if index >= len(self.gpus):
            raise self.NVMLError(INVALID_ARGUMENT)
        return self._alive(self.gpus[index])

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:  # noqa: N802
        return self._alive(handle).uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:  # noqa: N802
        return self._alive(handle).name

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu) -> SimpleNamespace:  # noqa: N802
        gpu = self._alive(handle)
        return SimpleNamespace(total=gpu.memory_bytes, used=gpu.used_bytes)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[SimpleNamespace]:  # noqa: N802
        gpu = self._alive(handle)
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in gpu.users.items()]

    def _check_on(self) -> None:
        if not self.loaded:
            raise self.NVMLError(DRIVER_NOT_LOADED)
        if not self._on:
            raise self.NVMLError(UNINITIALIZED)

    def _alive(self, gpu: FakeGpu) -> FakeGpu:
        if gpu.lost:
            raise self.NVMLError(GPU_IS_LOST)
        return gpu


def gpus_of(folder: Path, nvml: FakeNvml | None, *, visible: str = "GPU-") -> Gpus:
    """Return these GPUs as the daemon's, with their locks in a folder: all of them, whichever it may see here."""
    return Gpus(folder, library=lambda: nvml, is_there=lambda: True, visible=visible)
