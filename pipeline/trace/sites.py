"""Where the constants that Lean names are defined: by the scanner in the sources that are here, else by Lean's word.

Asked with the name of a constant and a REPL that knows it. What a library defines is looked up once; what the project
defines is asked in each file, for two files that do not import each other may define one name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from pipeline.lean.client.repl import Repl, ReplRefused
from pipeline.trace.source import FileSource, Site, owner_site, plain_name
from pipeline.trace.tree import CORE, Tree
from store.traced import ConstantUse

_CORE_MODULES = frozenset({"Init", "Std", "Lean", "Lake"})


class Sites:
    """The definition sites of one commit, shared by all of its files."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._by_file: dict[str, dict[str, Site]] = {}
        self._library: dict[str, Site | None] = {}

    async def uses(self, names: Iterable[str], *, own: FileSource, repl: Repl) -> dict[str, ConstantUse]:
        """Return the constants with their sites, by name. `own` is the file that the REPL has just processed."""
        return {name: ConstantUse(name, await self._site(name, own, repl)) for name in names}

    async def _site(self, name: str, own: FileSource, repl: Repl) -> Site | None:
        here = own.sites.get(plain_name(name))
        if here is not None:
            return here
        if name in self._library:
            return self._library[name]
        try:
            found = await repl.env_inspect(name, source=True)
        except ReplRefused:
            return None  # a name that Lean shows and does not take back: private, or with macro scopes
        if found.module is None:
            return owner_site(own.sites, name)
        file = self._tree.find(found.module)
        if file is not None and file.problem is None:
            if file.path not in self._by_file:
                self._by_file[file.path] = FileSource.read(file.path, file.data()).sites
            site = owner_site(self._by_file[file.path], name)
            if file.path in self._tree.files:
                return site
        else:
            site = None
        if site is None and found.source_start is not None and found.source_end is not None:
            path = _path(found.module) if file is None else file.path
            if path is not None:
                start, end = found.source_start, found.source_end
                site = (path, (start.line, start.column + 1), (end.line, end.column + 1))
        self._library[name] = site
        return site


def _path(module: str) -> str | None:
    """What LeanDojo calls the file of a module of Lean itself; the package of any other is not known."""
    parts = module.split(".")
    if parts[0] not in _CORE_MODULES:
        return None
    return str(PurePosixPath(CORE, *parts)) + ".lean"
