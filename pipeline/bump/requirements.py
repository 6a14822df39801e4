"""Update a manifest as `lake update PACKAGE` does, without running a lakefile.

Lake keeps the project's own requirements, and makes the rest anew from those packages' manifests (`reuseManifest` and
`addDependencyEntries` in its `Load/Resolve.lean`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from pipeline.jobs.protocol import JobError
from pipeline.lean.source.manifest import GitPackage, ManifestError, bare, read_manifest, unwrapped


def refused(why: str, remedy: str) -> JobError:
    """Return the permanent refusal of a bump."""
    return JobError("cannot_raise", why, remedy=remedy, deterministic=True)


@dataclass(slots=True)
class _Entry:
    """An entry with its old text ("": it is new) and its new fields; `kind` is git or path."""

    text: str
    kind: str
    fields: dict[str, Any]
    is_wrapped: bool
    changed: bool = False


class ManifestText:
    """A manifest and its text; unchanged entries keep their bytes."""

    def __init__(self, data: bytes, *, schemes: tuple[str, ...]) -> None:
        """Read it.

        Raises:
            ManifestError: the manifest is invalid.
        """
        self.packages = {one.name: one for one in read_manifest(data, schemes=schemes).packages}
        self.entries: dict[str, _Entry] = {}
        try:
            self._text = text = data.decode()
            if text.startswith("\ufeff"):
                raise ValueError("it begins with a byte order mark")
            self._begin, self._end, spans = _spans(text)
            for begin, end in spans:
                raw = json.loads(text[begin:end])
                kind, fields = unwrapped(raw)
                name = bare(fields["name"])
                if name in self.entries:
                    raise ManifestError(f"package {name}: named twice")
                self.entries[name] = _Entry(text[begin:end], kind, fields, is_wrapped=fields is not raw)
        except (ValueError, IndexError, RecursionError) as error:
            # The JSON parser also takes UTF-16 and very deep lists, which we cannot lay out.
            raise ManifestError(f"no JSON in UTF-8: {error}") from error
        self._first, self._last = (
            spans[0][0] if spans else self._begin + 1,
            spans[-1][1] if spans else self._end - 1,
        )
        self._between = text[spans[0][1] : spans[1][0]] if len(spans) > 1 else ",\n  "

    @property
    def folders(self) -> Set[str]:
        """The packages in folders beside the manifest."""
        return {name for name, one in self.entries.items() if one.kind == "path"}

    def inherited(self, name: str) -> bool:
        """Return whether a package came with another."""
        return self.entries[name].fields.get("inherited") is True

    def put(self, name: str, fields: Mapping[str, Any]) -> None:
        """Change fields of a package's entry."""
        entry = self.entries[name]
        entry.fields.update(fields)
        entry.changed = True

    def take(self, name: str, other: ManifestText, like: str) -> None:
        """Take a package's dependency from another manifest; a new entry copies the form of `like`."""
        one, model = other.packages[name], self.entries[like]
        mark, scope = "?" if model.is_wrapped else "", one.scope or model.fields.get("scope") is not None
        # In Lake's order.
        fields: dict[str, Any] = {
            "url": one.url,
            **({} if mark else {"type": "git"}),
            f"subDir{mark}": one.subdir or None,
            **({"scope": one.scope} if scope and not mark else {}),
            "rev": one.rev,
            **({"opts": {}} if mark else {}),
            "name": other.entries[name].fields["name"],
            **({} if mark else {"manifestFile": one.manifest_file}),
            f"inputRev{mark}": one.input_rev or None,
            "inherited": True,
            **({} if mark else {"configFile": one.config_file}),
        }
        if name not in self.entries:
            self.entries[name] = _Entry("", "git", {}, model.is_wrapped)
        self.put(name, fields)

    def made(self, like: str) -> str:
        """Return the text with the changes; new entries copy the layout of `like`."""
        lines = "\n" in self.entries[like].text
        texts = (_written(one, lines=lines) if one.changed else one.text for one in self.entries.values())
        made = self._text[: self._first] + self._between.join(texts) + self._text[self._last :]
        targets = [
            {"git": one.fields} if one.is_wrapped else one.fields
            for one in self.entries.values()
            if one.changed
        ]
        try:
            packages = json.loads(made)["packages"]
        except ValueError:
            packages = []
        if len(packages) != len(self.entries) or any(one not in packages for one in targets):
            raise refused(
                "the manifest cannot be written as it is laid out", "have `lake update` write it anew"
            )
        return made


ManifestOf = Callable[[str], ManifestText | None]


def update(
    manifest: ManifestText, package: GitPackage, required: Set[str], manifest_of: ManifestOf
) -> list[str]:
    """Give dependencies of packages the revisions of `lake update`; return notes for people.

    Args:
        manifest: the project's, with the package already raised.
        package: the raised one.
        required: the packages named by the project's lakefile.
        manifest_of: reads a package's own manifest; None if it has none.

    Raises:
        JobError: the package requires a folder beside it.
    """
    at = f"{package.name} at {package.rev[:12]}"
    # Lake's order of precedence.
    sources = [name for name in manifest.entries if name in required or not manifest.inherited(name)]
    if package.name not in sources:
        sources.insert(0, package.name)
    came = [name for name in manifest.entries if name not in sources]
    theirs = manifest_of(package.name)
    if theirs is None:
        return [f"{at} has no manifest, so that what came with packages stays as it is."] if came else []
    if folders := sorted(theirs.folders - manifest.entries.keys()):
        raise refused(
            f"{at} requires {folders[0]}, which is a folder beside it; only packages from git are fetched",
            f"require {folders[0]} in the lakefile from git, or name another commit of {package.name}",
        )
    taken: dict[str, tuple[str, ManifestText]] = {}
    unread: list[str] = []
    for source in sources if came or theirs.packages.keys() - set(sources) else ():
        result = theirs if source == package.name else manifest_of(source)
        if result is None:
            unread.append(source)
            continue
        for name in result.packages.keys() - set(sources):
            taken.setdefault(name, (source, result))
    notes = list(_differences(at, manifest, theirs, taken, package.name))
    gone = [name for name in came if name not in taken and manifest.entries[name].kind == "git"]
    if gone and unread:
        notes.append(f"{', '.join(gone)}: kept, since {', '.join(unread)} has no manifest that can be read.")
    for name in () if unread else gone:
        del manifest.entries[name]
    for name in sorted(taken):
        other, old = taken[name][1], manifest.packages.get(name)
        if name not in manifest.entries or (
            old is not None and old != replace(other.packages[name], inherited=True)
        ):
            manifest.take(name, other, like=package.name)
    return notes


def _differences(
    at: str,
    manifest: ManifestText,
    theirs: ManifestText,
    taken: Mapping[str, tuple[str, ManifestText]],
    package: str,
) -> list[str]:
    """Return a note for each requirement of the package at another revision than the project's."""
    notes = []
    for name, one in theirs.packages.items():
        source, result = taken.get(name, ("", manifest))
        ours = result.packages.get(name)
        if name == package or (ours is not None and (ours.url, ours.rev) == (one.url, one.rev)):
            continue
        taken_rev = ours.rev[:12] if ours is not None else "its own folder"
        whose = source or "the project itself"
        notes.append(f"{at} requires {name} at {one.rev[:12]}; taken is {taken_rev}, which {whose} requires.")
    return notes


def _spans(text: str) -> tuple[int, int, list[tuple[int, int]]]:
    """Return the borders of the list of packages, and of each of its entries."""
    decode, gap = json.JSONDecoder().raw_decode, re.compile(r"[\s,:]*")

    def after(place: int) -> int:
        match = gap.match(text, place)
        return match.end() if match else place

    begin = end = 0
    spans: list[tuple[int, int]] = []
    at = after(text.index("{") + 1)
    while text[at] != "}":
        key, at = decode(text, at)
        start = at = after(at)
        if key == "packages" and text[at] == "[":
            spans, at = [], after(at + 1)
            while text[at] != "]":
                spans.append((at, decode(text, at)[1]))
                at = after(spans[-1][1])
            at += 1
            begin, end = start, at
        else:
            at = decode(text, at)[1]
        at = after(at)
    return begin, end, spans


def _written(entry: _Entry, *, lines: bool) -> str:
    """Return an entry as Lake writes it, or in one line."""
    before = "\n   " if lines else " "
    between = f",{before}{' ' if lines and entry.is_wrapped else ''}"
    fields = between.join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.fields.items()
    )
    return f'{{"git":{before}{{{fields}}}}}' if entry.is_wrapped else f"{{{fields}}}"
