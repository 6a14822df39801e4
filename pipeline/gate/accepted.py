"""Verdicts of kernels on modules and exports, kept under digests of their input, so that no check asks twice.

    module   its name, the bytes of its compiled files, and the keys of its imports, down to Lean's own library
    export   its bytes, and the axioms it may hold

Both also cover the kernel: its name with its version, the bytes of its program, and those of the toolchain's libraries.
The gate makes a key from files no process of the project can write to then, and the log keeps it (`closure_judged`). A
kernel's verdict on a module rests on all its imports, and a kernel may unfold a proof too: so a key changes with any
byte below it. A kernel judges an export's content; each check compares its library constants with the library's before
a key counts (`pipeline.gate.vouched`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.gate.answers import BuiltModule

_RULES = "2"
"""Raise it if the gate ever recorded an acceptance without a kernel's judgement: earlier keys then match nothing."""
_LIBRARIES = ("*.so", "*.so.*", "*.dylib", "*.dll")
_digests: dict[tuple[object, ...], str] = {}
"""Digests of files no project can write to, by path and state: Mathlib has 5 GB of them."""


def digest_of(file: Path, *, stays: bool = False) -> str:
    """Return the SHA-256 of a file. `stays`: no project can write to it, so this process reads it once."""
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
    """Return the digest of a kernel and of the toolchain's libraries in this folder, loaded by its own programs."""
    libraries = {one for pattern in _LIBRARIES for one in (toolchain / "lib").rglob(pattern) if one.is_file()}
    return digest_of_texts(
        "kernel", _RULES, name, *(digest_of(one, stays=True) for one in (program, *sorted(libraries)))
    )


def module_keys(kernel: str, modules: Sequence[BuiltModule], *, vouched: Sequence[Path]) -> dict[str, str]:
    """Return each module's key for a kernel's digest; a module without a file, or with a missing import, has none.

    Args:
        modules: a module and all its imports.
        vouched: folders no project can write to.
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
    """Return the SHA-256 of texts with their lengths, so that their borders count."""
    made = hashlib.sha256()
    for data in (part.encode() for part in parts):
        made.update(b"%d:" % len(data))
        made.update(data)
    return made.hexdigest()
