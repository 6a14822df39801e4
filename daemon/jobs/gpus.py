"""Leases of GPUs: NVML lists the devices, their memory and users; a lock file holds each lease.

A job leasing a GPU takes the lock file's flock itself (`pipeline.jobs.launch`), so the kernel releases it at
any death of the job. NVML's library is looked for at first need; torch never is, here or below. A GPU that
falls off the bus stays in the list as lost, with NVML's message, until it answers again.

With a device file but without NVML, there is one nameless GPU, for one job at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import psutil

from daemon.place.answers import Gpu as Gpu
from daemon.place.lock import holder
from store.text import gigabytes

NVIDIA = "nvidiactl"
DEVICES = Path("/dev")
_IDLE_BYTES = 2**30
"""Memory used by the driver and a display on an idle GPU; more means a process uses it."""
_ANSWERS_WITHIN_S = 10.0
_SILENCES = 2
"""The looks without an answer after which the GPUs are lost; a single one may be a busy machine's."""
_LOST = "look at `dmesg | grep -i nvrm` and reset the GPU (nvidia-smi --gpu-reset) or restart the machine"
_FOREIGN = "wait for its end, or end it"


def cuda_is_there(*, devices: Path = DEVICES) -> bool:
    """Return whether a GPU is visible, that is not hidden by a sandbox.

    `devices` is the folder of the device files.
    """
    return (devices / NVIDIA).exists()


class NoGpuError(Exception):
    """No GPU is free; `remedy` is for a person."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class Gpus:
    """The GPUs of this machine.

    Args:
        folder: for the lock files.
        library: returns NVML, None if it is not installed (`load`; tests give another).
        is_there: whether a GPU's device file is visible.
        visible: the GPUs allowed, in the form of CUDA_VISIBLE_DEVICES; None: all.
    """

    def __init__(
        self,
        folder: Path,
        *,
        library: Callable[[], Any] | None = None,
        is_there: Callable[[], bool] = cuda_is_there,
        visible: str | None = None,
    ) -> None:
        self.now: tuple[Gpu, ...] = ()
        """As of the last look."""
        self._folder = folder
        self._library = library or load
        self._is_there = is_there
        self._visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
        self._nvml: Any = None
        self._on = False
        self._known: dict[int, Gpu] = {}
        # Its own thread: a hung driver holds up nothing else, and nothing else makes it look hung.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nvml")
        self._looking: asyncio.Future[tuple[Gpu, ...]] | None = None
        self._silences = 0

    def lock(self, uuid: str) -> Path:
        """Return the lock file of this GPU."""
        return self._folder / f"{uuid or 'gpu'}.lock"

    async def look(self, lent: Mapping[str, str]) -> tuple[Gpu, ...]:
        """Query the driver on a thread. Without an answer no GPU is free; after more silence all are lost.

        Args:
            lent: the job (as shown to people) with a lease on each GPU, by UUID.
        """
        if self._looking is None and not self._is_there():
            return self.now  # none yet: not worth a thread's turn
        if self._looking is None or self._looking.done():
            loop = asyncio.get_running_loop()
            self._looking = loop.run_in_executor(self._thread, self.seen, dict(lent))
        done, _ = await asyncio.wait({self._looking}, timeout=_ANSWERS_WITHIN_S)
        if done:
            self._silences = 0
            self.now = self._looking.result()
            return self.standing(lent)
        self._silences += 1
        silent = f"the driver has not answered for {self._silences * _ANSWERS_WITHIN_S:g} s"
        for_good = self._silences >= _SILENCES
        self.now = tuple(
            replace(gpu, state="lost" if for_good else "busy", detail=silent, remedy=_LOST)
            if for_good or gpu.state == "free"
            else gpu
            for gpu in self.now
        )
        return self.now

    def standing(self, lent: Mapping[str, str]) -> tuple[Gpu, ...]:
        """Return the last look's, less those taken since it began: another caller may have begun it."""
        self.now = tuple(
            replace(gpu, state="lent", detail=lent[gpu.uuid])
            if gpu.state == "free" and gpu.uuid in lent
            else gpu
            for gpu in self.now
        )
        return self.now

    def close(self) -> None:
        """Stop looking, without waiting for a query under way."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def seen(self, lent: Mapping[str, str]) -> tuple[Gpu, ...]:
        """Return the leasable GPUs, as they are now. Blocks as long as the driver does."""
        if not self._is_there():
            return tuple(self._all_lost("its device file is gone"))
        if self._nvml is None:
            self._nvml = self._library()
        # A part of a GPU is no whole one of NVML's list.
        if self._nvml is None or (self._visible or "").startswith("MIG-"):
            return (self._judged(Gpu("", 0, "GPU"), lent, ()),)
        try:
            if not self._on:
                self._nvml.nvmlInit()
                self._on = True
            count = int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            self._off()
            return tuple(self._all_lost(str(error))) or self._silent(str(error))
        result = {
            index: self._one(index, lent)
            for index in range(max([count, *(number + 1 for number in self._known)]))
        }
        self._known.update({index: gpu for index, gpu in result.items() if gpu.uuid})
        if any(gpu.state == "lost" for gpu in result.values()):
            self._off()  # handles from before its reset are of no use
        return tuple(gpu for gpu in result.values() if self._may_be_lent(gpu))

    def _one(self, index: int, lent: Mapping[str, str]) -> Gpu:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            users = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            gpu = Gpu(
                _text(nvml.nvmlDeviceGetUUID(handle)),
                index,
                _text(nvml.nvmlDeviceGetName(handle)),
                int(memory.total),
                int(memory.used),
            )
        except nvml.NVMLError as error:
            last = self._known.get(index, Gpu("", index, "unknown"))
            return replace(last, used_bytes=0, state="lost", detail=str(error), remedy=_LOST)
        # A trainer of LeanDojo's face leaves a context in this process: only its memory counts.
        others = [(int(user.pid), user.usedGpuMemory) for user in users if int(user.pid) != os.getpid()]
        return self._judged(gpu, lent, others)

    def _judged(self, gpu: Gpu, lent: Mapping[str, str], users: Sequence[tuple[int, int | None]]) -> Gpu:
        if gpu.uuid in lent:
            return replace(gpu, state="lent", detail=lent[gpu.uuid])
        pid = holder(self.lock(gpu.uuid))
        if pid is not None:
            # The server for editors, or a dead daemon's job about to end.
            return replace(gpu, state="lent", detail=f"process {pid}, which holds its lock")
        if users:
            names = ", ".join(_process(pid, held) for pid, held in users[:3])
            return replace(gpu, state="busy", detail=f"used by {names}", remedy=_FOREIGN)
        if gpu.used_bytes > _IDLE_BYTES:
            held = f"{gigabytes(gpu.used_bytes)} of its memory is held by a process that cannot be seen"
            return replace(gpu, state="busy", detail=held, remedy=_FOREIGN)
        return gpu

    def _all_lost(self, why: str) -> list[Gpu]:
        gpus = (gpu for gpu in self._known.values() if self._may_be_lent(gpu))
        return [replace(gpu, used_bytes=0, state="lost", detail=why, remedy=_LOST) for gpu in gpus]

    def _silent(self, why: str) -> tuple[Gpu, ...]:
        """Return a device file without a driver behind it, as a lost GPU."""
        return (Gpu("", 0, "GPU", state="lost", detail=f"NVML: {why}", remedy=_LOST),)

    def _off(self) -> None:
        if not self._on:
            return
        self._on = False
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # it is off then, too

    def _may_be_lent(self, gpu: Gpu) -> bool:
        if self._visible is None:
            return True
        parts = [part.strip() for part in self._visible.split(",") if part.strip()]
        return any(part == str(gpu.index) or (gpu.uuid and gpu.uuid.startswith(part)) for part in parts)


def chosen(gpus: Sequence[Gpu], *, device: Literal["cuda", "auto"]) -> Gpu | None:
    """Return a GPU for a process outside jobs; None if only the processor is left.

    Args:
        device: "cuda": a GPU and nothing else; "auto": the processor if no GPU works. A working one is waited
            for.

    Raises:
        NoGpuError: none is free.
    """
    free = next((gpu for gpu in gpus if gpu.state == "free"), None)
    lost = [gpu for gpu in gpus if gpu.state == "lost"]
    if free is not None or (device == "auto" and len(lost) == len(gpus)):
        return free
    there = "; ".join(f"{gpu.called} is {gpu.state}: {gpu.detail}" for gpu in gpus) or "none is to be seen"
    raise NoGpuError(f"no GPU is free ({there})", lost[0].remedy if lost else "wait for one")


def load() -> Any:
    """Return NVML's bindings; None if they are not installed (nvidia-ml-py, of the extra `train`)."""
    try:
        return import_module("pynvml")
    except ModuleNotFoundError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _process(pid: int, held_bytes: int | None) -> str:
    try:
        name = psutil.Process(pid).name()
    except psutil.Error:
        name = ""
    memory = "" if held_bytes is None else f" with {gigabytes(held_bytes)}"
    return f"process {pid}{f' ({name})' if name else ''}{memory}"
