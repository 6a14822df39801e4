"""The programs of `credulous`: what each answers. Started anew for every question, so they import little."""

# ruff: noqa: T201 - programs print
from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.lean.exported import Exported

RULES = "rules.json"
SCANS = "scans.json"
"""The scanner's results, keyed by source text. A program scans a text that is missing here itself."""
PROGRAMS = ("lake", "lean", "leanchecker")
ASKED = "asked.jsonl"
"""What was asked about the library: its search path, modules, and the constants that were written out."""
AXIOMS = ("propext", "Classical.choice", "Quot.sound", "sorryAx", "Lean.ofReduceBool", "Lean.trustCompiler")
LIBRARY = (*AXIOMS, "Nat.le", "Nat.lt")
_LIBRARY = Path(".lake", "build", "lib", "lean")


class _Says:
    """The rules that fit one file."""

    def __init__(self, sysroot: Path, text: str) -> None:
        rules = json.loads((sysroot / RULES).read_text("utf-8"))
        self._rules = [rule for rule in rules if re.search(rule["pattern"], text)]

    def get(self, key: str) -> Any:
        return next((rule[key] for rule in self._rules if rule[key]), None)


def _lake(sysroot: Path, arguments: Sequence[str]) -> int:
    if arguments[0] != "build":
        print(f"error: unknown command '{arguments[0]}'")
        return 1
    todo, seen = [module.removeprefix("+") for module in arguments[1:]], set()
    left: dict[Path, str] = {}
    while todo:
        module = todo.pop()
        path = Path(*_parts(module)).with_suffix(".lean")
        if module in seen or not path.is_file():
            continue
        seen.add(module)
        text = path.read_text("utf-8")
        source = _scan(sysroot, text)
        todo += source["imports"]
        if refusal := _Says(sysroot, text).get("build"):
            print(f"error: {path}:1:0: {refusal}")
            return 1
        for one in source["declarations"]:
            own = text.encode()[one["byte_start"] : one["byte_end"]].decode()
            if warning := _Says(sysroot, own).get("sorry"):
                print(f"warning: {path}:{one['line']}:{one['column'] + 8}: {warning}")
        output = Path(_Says(sysroot, text).get("elsewhere") or _LIBRARY) / path.with_suffix(".olean")
        output.parent.mkdir(parents=True, exist_ok=True)
        statements = {one["name"]: one["statement_hash"] for one in source["declarations"]}
        built = {
            "text": text,
            "statements": statements,
            "imports": source["imports"],
            "sorried": source["sorried"],
        }
        output.write_text(json.dumps(built), "utf-8")
        if place := _Says(sysroot, text).get("writes"):
            left[Path(place)] = json.dumps({**built, "text": "-- another one\n"})
    for file, data in left.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data, "utf-8")
    return 0


def _lean(sysroot: Path, arguments: Sequence[str]) -> int:
    if arguments[0] == "--run":
        answer, export, nonce, scope, _, first, *rest = arguments[2:]
        if scope == "constants":
            return _constants(sysroot, Path(answer), Path(export), nonce, Path(first))
        return _questions(
            sysroot, Path(answer), Path(export), nonce, first, rest[0], whole=scope == "closure"
        )
    file = Path(arguments[-1])
    imported, command = file.read_text("utf-8").splitlines()
    says, constant = _Says(sysroot, _built(imported.removeprefix("import "))["text"]), command.split()[-1]
    if raw := says.get("printed"):
        print(str(raw).replace("FILE", file.name).replace("CONSTANT", constant))
        return 0
    axioms = says.get("axioms") or ()
    resting = f" depends on axioms: [{', '.join(axioms)}]" if axioms else " does not depend on any axioms"
    place = {"fileName": str(file), "pos": {"line": 2, "column": 0}}
    print(json.dumps({**place, "severity": "information", "data": f"'{constant}'{resting}"}))
    return 0


def _questions(
    sysroot: Path, answer: Path, export: Path, nonce: str, module: str, constant: str, *, whole: bool
) -> int:
    """Answer as `Questions.lean` does; each type is a text, and a proof is its own statement."""
    built = _built(module)
    says = _Says(sysroot, built["text"])
    if status := says.get("questions"):
        print("error: unknown identifier")
        return int(status)
    version = says.get("lean") or "4.34.1"
    exported = Exported(str(version))
    lines = [f"everlean-questions 1 {nonce}", f"lean {version}"]
    for name, file, imports in _modules(sysroot, module):
        lines += [f"module\t{name}\t{file}", *(f"import\t{name}\t{one}" for one in imports)]
    axioms = list(says.get("axioms") or ())
    if constant in built["sorried"] and "sorryAx" not in axioms:
        axioms.append("sorryAx")
    for name in axioms:
        number = exported.name(name)
        exported.record("axiom", name=number, levelParams=[], type=exported.text("an axiom"), isUnsafe=False)
        lines.append(f"axiom\t{name}\t{says.get('home') or 'Init.Core'}\t{number}")
    lines += [f"sorried\t{name}" for name in says.get("sorried") or ()]
    lines += [f"native\t{name}" for name in says.get("native") or ()]
    type_ = exported.text(
        str((whole and says.get("closure")) or says.get("type") or built["statements"].get(constant))
    )
    number = exported.name(constant)
    if whole:
        for name in says.get("holds") or ():
            _library_s(exported, name, says.get("forges") or "")
        proof = exported.text(str(says.get("proof") or f"a proof of {constant}"))
        exported.record("thm", name=number, levelParams=[], type=type_, value=proof, all=[number])
    lines.append(f"statement\tthm\t{constant}\t{number}\t[]\t{type_}")
    if not whole:
        lines += [
            f"type\twhole\t{constant}\t{says.get('type') or 'A'}",
            "more\t0",
            f"rests\t{module}\t{constant}",
        ]
    declared = {} if whole else {**built["statements"], **dict.fromkeys(says.get("made") or (), "")}
    for name, statement in declared.items():
        if name != constant and not name.rsplit(".", 1)[-1].startswith("_"):
            lines.append(f"declared\tthm\t{name}\t{exported.name(name)}\t[]\t{exported.text(statement)}")
            lines.append(f"apart\t{name}")
    exported.write(export)
    answer.write_text("\n".join([*lines, f"lines\t{len(exported.lines)}", f"end {nonce}", ""]), "utf-8")
    return 0


def _library_s(exported: Exported, name: str, forged: str = "") -> None:
    """Write a constant of the library, or where it is forged another one of that name."""
    kind, type_ = ("axiom", "an axiom") if name in AXIOMS else ("opaque", "a relation")
    number = exported.name(name)
    more = {} if kind == "axiom" else {"value": exported.text(forged), "all": [number]}
    exported.record(kind, name=number, levelParams=[], type=exported.text(type_), isUnsafe=False, **more)


def _constants(sysroot: Path, answer: Path, export: Path, nonce: str, asked: Path) -> int:
    """Answer as `Questions.lean` does about names of the library; each question leaves a line in a file."""
    lines = [line.split("\t") for line in asked.read_text("utf-8").splitlines()]
    names = [".".join(parts) for kind, *parts in lines if kind != "module"]
    writes = any(kind == "write" for kind, *_ in lines)
    rules = json.loads((sysroot / RULES).read_text("utf-8"))
    if any(rule["constants"] for rule in rules):
        print("error: unknown module prefix")
        return 1
    known = [(number, name) for number, name in enumerate(names) if name in LIBRARY]
    exported = Exported(next((rule["lean"] for rule in rules if rule["lean"]), "4.34.1"))
    for _, name in known if writes else ():
        _library_s(exported, name)
    exported.write(export)
    place = sysroot / "lib" / "lean" / "Init" / "Core.olean"
    told = [f"module\tInit.Core\t{place}", *(f"home\t{number}\tInit.Core" for number, _ in known)]
    head, end = (
        [f"everlean-questions 1 {nonce}", "lean 4.34.1"],
        [f"lines\t{len(exported.lines)}", f"end {nonce}", ""],
    )
    answer.write_text("\n".join([*head, *told, *end]), "utf-8")
    with (sysroot / ASKED).open("a", encoding="utf-8") as file:
        said = {
            "path": os.environ["LEAN_PATH"],
            "modules": [parts[0] for kind, *parts in lines if kind == "module"],
            "written": [name for _, name in known] if writes else [],
        }
        file.write(json.dumps(said) + "\n")
    return 0


def _modules(sysroot: Path, module: str) -> list[tuple[str, str, list[str]]]:
    """The module and all below it, as Lean finds them: with its file, and what it imports."""
    library = sysroot / "lib" / "lean"
    found: dict[str, tuple[str, str, list[str]]] = {
        name: (name, str(library.joinpath(*_parts(name)).with_suffix(".olean")), imports)
        for name, imports in (("Init.Prelude", []), ("Init.Core", ["Init.Prelude"]), ("Init", ["Init.Core"]))
    }
    todo = [module]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        file = _file(name)
        if file is None:
            found[name] = (name, str(library.joinpath(*_parts(name)).with_suffix(".olean")), ["Init"])
            continue
        text = json.loads(file.read_text("utf-8"))
        start = [] if text["text"].startswith("prelude") else ["Init"]
        found[name] = (name, str(file), start + text.get("imports", []))
        todo += text.get("imports", [])
    return list(found.values())


def _leanchecker(sysroot: Path, arguments: Sequence[str]) -> int:
    """Replay each module whose name begins with one that is asked for, as the real one does; it reads no quotes."""
    names = [one for one in arguments if not one.startswith("-")]
    modules: list[tuple[str, Path]] = []
    for name in names:
        wanted = name.split(".")
        found = [one for one in _compiled() if list(_parts(one[0]))[: len(wanted)] == wanted]
        if not found or "«" in name:
            print(f"uncaught exception: Could not find any oleans for: {name}")
            return 1
        modules += found
    for module, file in modules:
        if "-v" in arguments:
            print(f"replaying {module}")
        if refusal := _Says(sysroot, json.loads(file.read_text("utf-8"))["text"]).get("replay"):
            print(f"leanchecker found a problem in {module}\nuncaught exception: {refusal}")
            return 1
    return 0


def _compiled() -> Iterator[tuple[str, Path]]:
    """Yield the modules of the search path with their files; each has the name of its place, links followed."""
    folders = [Path(folder).resolve() for folder in os.environ["LEAN_PATH"].split(":")]
    for found in (one for folder in folders for one in sorted(folder.glob("**/*.olean"))):
        file = found.resolve()
        for folder in [one for one in folders if file.is_relative_to(one)][:1]:
            parts = file.relative_to(folder).with_suffix("").parts
            plain = (one if re.fullmatch(r"[^\W\d]\w*", one) else f"«{one}»" for one in parts)
            yield ".".join(plain), file


def _built(module: str) -> Any:
    file = _file(module)
    if file is None:
        raise SystemExit(f"unknown module '{module}'")
    return json.loads(file.read_text("utf-8"))


def _file(module: str) -> Path | None:
    folders = os.environ["LEAN_PATH"].split(":")
    files = (Path(folder, *_parts(module)).with_suffix(".olean") for folder in folders)
    return next((file for file in files if file.is_file()), None)


def _scan(sysroot: Path, text: str) -> Any:
    scans = json.loads((sysroot / SCANS).read_text("utf-8"))
    return scans[text] if text in scans else scan(text)


def scan(text: str) -> dict[str, object]:
    """Return what the programs need of what the scanner reads in a text."""
    # Two thirds of a short program's time: only who asks the scanner itself pays for it.
    from pipeline.lean.source.scanner import parse

    source = parse(text.encode())
    of_each = ("name", "byte_start", "byte_end", "line", "column", "statement_hash")
    return {
        "declarations": [{key: getattr(one, key) for key in of_each} for one in source.scanned.declarations],
        "imports": source.imports,
        "sorried": [one.declaration for one in source.scanned.sorries],
    }


def _parts(module: str) -> list[str]:
    return [part.strip("«»") for part in module.split(".")]


def main(arguments: Sequence[str]) -> int:
    """Be the program that the first argument names, of the toolchain in the second's folder."""
    name, sysroot, *rest = arguments
    programs = {"lake": _lake, "lean": _lean, "leanchecker": _leanchecker}
    return programs[name](Path(sysroot), rest)
