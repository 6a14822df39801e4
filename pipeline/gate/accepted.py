"""What kernels accepted once: by keys that are digests of all that was read, so that no check asks them again.

    module   its name, the bytes of its compiled files, and the keys of what it imports, down to Lean's own library
    export   its bytes, and the axioms that it may hold

and with either the kernel: its name, which has a version, and the bytes of its program, with those of the toolchain's
libraries. A key is made by the gate, of files that no process of the project can write to then, and is a fact in the
log (`closure_judged`). A kernel's word on a module rests on all that the module imports, and a kernel may unfold a
proof too: so a key changes with any byte below it. Of an export a kernel says that it holds: that its constants of the
library are the library's is found out in each check, before a key counts (`pipeline.gate.vouched`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.gate.answers import BuiltModule

_RULES = "2"
"""Raised when the gate has taken for accepted what a kernel did not judge: earlier keys are then no one's."""
_LIBRARIES = ("*.so", "*.so.*", "*.dylib", "*.dll")
_digests: dict[tuple[object, ...], str] = {}
"""Of files that no project can write to, by what changes with them: Mathlib has 5 GB of them."""


def digest_of(file: Path, *, stays: bool = False) -> str:
    """Return the SHA-256 of a file. `stays`: no project can write to it, so that it is read once in this process."""
    about: tuple[object, ...] = ()
    if stays:
        state = file.stat()
        about = (file, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if about in _digests:
            return _digests[about]
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    if stays:
        _digests[about] = digest
    return digest


def kernel_digest(name: str, program: Path, *, toolchain: Path) -> str:
    """Return the digest of a kernel with the libraries of the toolchain in this folder, which its own programs load."""
    libraries = {one for pattern in _LIBRARIES for one in (toolchain / "lib").rglob(pattern) if one.is_file()}
    return digest_of_texts(
        "kernel", _RULES, name, *(digest_of(one, stays=True) for one in (program, *sorted(libraries)))
    )


def module_keys(kernel: str, modules: Sequence[BuiltModule], *, vouched: Sequence[Path]) -> dict[str, str]:
    """Return the key of each module for a kernel's digest; one has none that imports what is not here, or has no file.

    Args:
        modules: all that one module imports, itself included.
        vouched: folders that no project can write to.
    """
    found: dict[str, str] = {}
    todo = {one.name: one for one in modules}
    stack = [one.name for one in modules]
    open_ = set[str]()
    while stack:
        name = stack[-1]
        one = todo.get(name)
        if name in found or one is None:
            stack.pop()
            continue
        missing = [each for each in one.imports if each not in found and each in todo]
        if missing and name not in open_:
            open_.add(name)
            stack += missing
            continue
        stack.pop()
        del todo[name]
        if one.files and all(each in found for each in one.imports):
            found[name] = _module_key(one, found, stays=any(one.lies_in(folder) for folder in vouched))
    return {name: digest_of_texts("module", kernel, key) for name, key in found.items()}


def _module_key(module: BuiltModule, keys: Mapping[str, str], *, stays: bool) -> str:
    files = [part for file in module.files for part in (file.name, digest_of(file, stays=stays))]
    imports = [part for name in sorted(set(module.imports)) for part in (name, keys[name])]
    return digest_of_texts(module.name, *files, "imports", *imports)


def export_key(kernel: str, export: Path, *, axioms: Sequence[str]) -> str:
    """Return the key of an export for a kernel's digest."""
    return digest_of_texts("export", kernel, digest_of(export), *axioms)


def digest_of_texts(*parts: str) -> str:
    """Return the SHA-256 of texts, told apart by their lengths."""
    made = hashlib.sha256()
    for data in (part.encode() for part in parts):
        made.update(b"%d:" % len(data))
        made.update(data)
    return made.hexdigest()
