"""Several repositories' files in one corpus.jsonl: which are the same file, what each is called, in which order.

LeanDojo's merge knows a file by its path alone: of two repositories with a `Basic.lean`, or with two versions of
mathlib, the second one's premises vanish. Here a file is its path and its *closure*: a hash of its premises and of
the closures of what it imports. The first file of a path keeps the path; another one of that path is called
`<host/owner/name>@<commit, 12 digits>/<path>`, and the theorems and imports of its repository name it so.

The order is that of ReProver's loader: no path twice, imports before their users, no cycle. It also wants a line for
every file that a theorem stands in or a proof names; one that was not traced has a line without premises. LeanDojo's
own merge, for comparison, is `PathOnly`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from store.log.errors import LogError

_NOBODYS = "a path that proofs name and no trace has"


class ImportCycleError(LogError):
    """Files of a trace import each other, so there is no order to write them in."""

    def __init__(self, trace: str, paths: Sequence[str]) -> None:
        super().__init__(
            f"{trace}: its files import each other in a circle ({' -> '.join(paths)}), which Lean does not allow and "
            "no loader accepts. Trace the commit again, or leave the repository out with --repo"
        )
        self.paths = tuple(paths)


class Names(dict[str, str]):
    """What the files of one trace are called in the export, by their paths in the repository.

    `look_ahead` is asked to claim a path that was not claimed yet, if the trace has it: where imports were not recorded
    whole, a proof may name a file that comes later.
    """

    def __init__(self, merge: Merge, repository: str, sha: str, look_ahead: Callable[[str], None]) -> None:
        super().__init__()
        self._merge = merge
        self._prefix = f"{repository}@{sha[:12]}"
        self._look_ahead = look_ahead

    def __missing__(self, path: str) -> str:
        self._look_ahead(path)
        # A premise's file that the trace does not have must not be taken for another repository's file.
        return self[path] if path in self else self.claim(path, _NOBODYS)

    def claim(self, path: str, closure: str) -> str:
        """Give a path's file its name."""
        name = self._merge.claim(path, closure, self._prefix)
        self[path] = name
        return name


class Merge(Protocol):
    """How files of several repositories come together. `by_closure`: closures count, else nobody need compute them."""

    by_closure: ClassVar[bool]

    def claim(self, path: str, closure: str, prefix: str, /) -> str:
        """Return what the file is called."""

    def line(self, data: Mapping[str, Any], names: Names, closures: Mapping[str, str], /) -> str | None:
        """Return the file's line of corpus.jsonl, None where it has one already."""

    def untraced(self, names: Names, /) -> Iterator[str]:
        """Yield the lines of files that a trace names and the corpus does not have."""


class ByClosure:
    """The merge described above.

    `imports_left_out` counts imports of files that the trace does not have, `files_untraced` lines without premises.
    """

    by_closure: ClassVar[bool] = True

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # the closure that has a name
        self._written: set[str] = set()
        self.imports_left_out = 0
        self.files_untraced = 0
        self.renamed = 0

    def claim(self, path: str, closure: str, prefix: str) -> str:
        """Return the path, or another name where a file that is not this one has the path."""
        if self._owners.setdefault(path, closure) == closure:
            return path
        # One commit may have been traced by two Lean versions: then the closure tells them apart.
        for name in (f"{prefix}/{path}", f"{prefix}.{closure[:12]}/{path}"):
            known = name in self._owners
            if self._owners.setdefault(name, closure) == closure:
                self.renamed += not known
                return name
        raise AssertionError(f"two files with the closure {closure} and the path {path}")

    def line(self, data: Mapping[str, Any], names: Names, closures: Mapping[str, str]) -> str | None:
        """Return the line, in which imports have their names here."""
        name = names[data["path"]]
        if name in self._written:
            return None
        self._written.add(name)
        imports = [names[item] for item in data["imports"] if item in closures]
        self.imports_left_out += len(data["imports"]) - len(imports)
        return corpus_line(data, name, imports)

    def untraced(self, names: Names) -> Iterator[str]:
        """Yield a line without premises for each file that has none."""
        for name in names.values():
            if name not in self._written:
                self._written.add(name)
                self.files_untraced += 1
                yield corpus_line({"premises": ()}, name, ())


class PathOnly:
    """Every path is its own name and the first file of a path is the one: LeanDojo-v2's merge."""

    by_closure: ClassVar[bool] = False

    def __init__(self) -> None:
        self._written: set[str] = set()

    def claim(self, path: str, _closure: str, _prefix: str, /) -> str:
        """Return the path."""
        return path

    def line(self, data: Mapping[str, Any], _names: Names, _closures: Mapping[str, str], /) -> str | None:
        """Return the line as it was recorded."""
        path = data["path"]
        if path in self._written:
            return None
        self._written.add(path)
        return corpus_line(data, path, data["imports"])

    def untraced(self, _names: Names, /) -> Iterator[str]:
        """Yield nothing."""
        return iter(())


def corpus_line(data: Mapping[str, Any], path: str, imports: Sequence[str]) -> str:
    """Return a `file_traced` payload's line of corpus.jsonl under this name, with these imports."""
    premises = [
        {
            "full_name": item["full_name"],
            "code": item["code"],
            "start": item["start"],
            "end": item["end"],
            "kind": item["kind"],
            **item.get("extra", {}),
        }
        for item in data["premises"]
    ]
    record = {"path": path, "imports": list(imports), "premises": premises, **data.get("extra", {})}
    return json.dumps(record) + "\n"


def closure_of(data: Mapping[str, Any], closures: Mapping[str, str]) -> str:
    """Hash a file's premises and the closures of its imports, which `closures` has by path (32 hex digits)."""
    imports = [(path, closures.get(path, "")) for path in data["imports"]]
    text = json.dumps([data["premises"], imports], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def imports_first(paths: Iterable[str], imports: Mapping[str, Sequence[str]], *, trace: str) -> list[str]:
    """Return the paths so that each comes after those that it imports, else in the order given.

    `imports` has the direct imports of each path; what is not among `paths` does not count.

    Raises:
        ImportCycleError: there is no such order. `trace` says whose files they are.
    """
    given = list(paths)
    known = set(given)
    done: set[str] = set()
    ordered: list[str] = []
    for root in given:
        if root in done:
            continue
        branch = {root: iter(imports.get(root, ()))}  # from the root down to where we are, in that order
        while branch:
            path, rest = next(reversed(branch.items()))
            below = next((item for item in rest if item in known and item not in done), None)
            if below is None:
                del branch[path]
                done.add(path)
                ordered.append(path)
            elif below in branch:
                names = list(branch)
                raise ImportCycleError(trace, [*names[names.index(below) :], below])
            else:
                branch[below] = iter(imports.get(below, ()))
    return ordered
