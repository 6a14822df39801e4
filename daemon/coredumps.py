"""Keep this process's memory, which holds tokens and keys, out of core dumps."""

from __future__ import annotations

import resource
from pathlib import Path

_FILTER = Path("/proc/self/coredump_filter")


def forbid_core_dumps() -> None:
    """No core file of this process and of those that it starts from now on, and nothing in what a crash handler gets.

    The limit alone would not do: the kernel does not apply it where core_pattern names a program (core(5)), and so are
    systemd-coredump and apport called. The filter says which memory such a dump has: none. Both are inherited.

    Raises:
        OSError: the filter of a kernel that has one cannot be set.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _FILTER.exists():  # a kernel built without core dumps has none
        _FILTER.write_text("0", encoding="ascii")
