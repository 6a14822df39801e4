"""The programs of `credulous`: what each answers. Started anew for every question, so they import little."""

# ruff: noqa: T201 - programs print
from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RULES = "rules.json"
PROGRAMS = ("lake", "lean", "leanchecker", "repl")
_LIBRARY = Path(".lake", "build", "lib", "lean")


class _Says:
    """The rules that fit one file."""

    def __init__(self, sysroot: Path, text: str) -> None:
        rules = json.loads((sysroot / RULES).read_text("utf-8"))
        self._rules = [rule for rule in rules if re.search(rule["pattern"], text)]

    def get(self, key: str) -> Any:
        return next((rule[key] for rule in self._rules if rule[key]), None)


def _repl(sysroot: Path, imports: Sequence[str]) -> int:
    print("ready.", flush=True)
    missing = _Says(sysroot, "").get("missing") or ()
    modules = [name for name in ("Init", *imports) if name not in missing]
    for line in sys.stdin:
        request = json.loads(line)
        if request["cmd"] == "env.describe":
            reply: dict[str, Any] = {"imports": list(imports), "modules": modules}
        else:
            reply = _reply(sysroot, request["cmd"], request["payload"])
        print(json.dumps(reply), flush=True)
    return 0


def _reply(sysroot: Path, command: str, payload: dict[str, Any]) -> dict[str, Any]:
    if command == "goal.start" and {"expr", "copyFrom"} <= set(payload):
        return {"error": "command", "desc": "expr and copyFrom at once"}
    if not payload and command not in ("options.set", "stat", "reset"):
        return {"error": "command", "desc": "Unable to parse json: a field is missing"}
    if command == "frontend.process":
        return {"units": _units(sysroot, str(payload["file"]))}
    if command == "env.inspect":
        if payload["name"] in (_Says(sysroot, "").get("imported") or ()):
            return {"type": {"pp": "True"}, "isUnsafe": False}
        return {"error": "index", "desc": f"Symbol not found {payload['name']}"}
    if command == "frontend.track":
        return {"srcMessages": [], "dstMessages": []}
    if command == "options.set":
        return {}
    return {"error": "command", "desc": f"Unknown command {command}"}


def _units(sysroot: Path, text: str) -> list[dict[str, Any]]:
    source = _scan(text)
    declarations = source.scanned.declarations
    units = []
    for number, command in enumerate(source.commands):
        following = source.commands[number + 1 :]
        end = following[0].byte_start if following else len(text.encode())
        inside = [one for one in declarations if command.byte_start <= one.byte_start < end]
        named = [one.name for one in inside if not one.name.rsplit(".", 1)[-1].startswith("_")]
        messages = []
        if inside:
            says = _Says(sysroot, command.text)
            named += says.get("made") or []
            if error := says.get("error"):
                messages.append(_message("error", str(error), "[anonymous]"))
            if warning := says.get("sorry"):
                messages.append(_message("warning", str(warning), "[anonymous]"))
        units.append({"boundary": [command.byte_start, end], "messages": messages, "newConstants": named})
    return units


def _message(severity: str, data: str, kind: str) -> dict[str, Any]:
    place = {"line": 1, "column": 0}
    return {
        "fileName": "<anonymous>", "pos": place, "endPos": None, "keepFullRange": False, "severity": severity,
        "isSilent": False, "caption": "", "data": data, "kind": kind,
    }  # fmt: skip


def _lake(sysroot: Path, arguments: Sequence[str]) -> int:
    if arguments[0] != "build":
        print(f"error: unknown command '{arguments[0]}'")
        return 1
    for module in arguments[1:]:
        path = Path(*_parts(module.removeprefix("+"))).with_suffix(".lean")
        text = path.read_text("utf-8")
        if refusal := _Says(sysroot, text).get("build"):
            print(f"error: {path}:1:0: {refusal}")
            return 1
        declarations = _scan(text).scanned.declarations
        for one in declarations:
            own = text.encode()[one.byte_start : one.byte_end].decode()
            if warning := _Says(sysroot, own).get("sorry"):
                print(f"warning: {path}:{one.line}:{one.column + 8}: {warning}")
        output = Path(_Says(sysroot, text).get("elsewhere") or _LIBRARY) / path.with_suffix(".olean")
        output.parent.mkdir(parents=True, exist_ok=True)
        statements = {one.name: one.statement_hash for one in declarations}
        output.write_text(json.dumps({"text": text, "statements": statements}), "utf-8")
    return 0


def _lean(sysroot: Path, arguments: Sequence[str]) -> int:
    if arguments[0] == "--run":
        answer, nonce, module, constant = arguments[2:]
        return _questions(sysroot, Path(answer), nonce, _built(module), constant)
    file = Path(arguments[-1])
    *_, command = lines = file.read_text("utf-8").splitlines()
    built = _built(lines[0].removeprefix("import "))
    says = _Says(sysroot, built["text"])
    raw = says.get("printed")
    constant = command.split()[-1].removeprefix("@")
    if command.startswith("#print axioms") and raw is not None:
        print(str(raw).replace("FILE", file.name).replace("CONSTANT", constant))
        return 0
    if command.startswith("#print axioms"):
        axioms = says.get("axioms") or ()
        resting = f" depends on axioms: [{', '.join(axioms)}]" if axioms else " does not depend on any axioms"
        data = f"'{constant}'{resting}"
    else:
        data = f"{constant} : {says.get('type') or built['statements'].get(constant)}"
    message = _message("information", data, "[anonymous]")
    print(json.dumps({**message, "fileName": str(file), "pos": {"line": len(lines), "column": 0}}))
    return 0


def _questions(sysroot: Path, answer: Path, nonce: str, built: dict[str, Any], constant: str) -> int:
    says = _Says(sysroot, built["text"])
    if status := says.get("questions"):
        print("error: unknown identifier")
        return int(status)
    lines = [f"unsorry-questions 2 {nonce}", f"lean {says.get('lean') or '4.28.0'}"]
    lines += [f"axiom {name}" for name in says.get("axioms") or ()]
    lines += [f"sorried {name}" for name in says.get("sorried") or ()]
    lines += [f"native {name}" for name in says.get("native") or ()]
    lines += [
        f"statement theorem {constant}",
        *_nodes(str(says.get("type") or built["statements"].get(constant))),
    ]
    for name, statement in built["statements"].items():
        if name != constant and not name.rsplit(".", 1)[-1].startswith("_"):
            lines += [f"declared theorem {name}", *_nodes(statement)]
    answer.write_text("\n".join([*lines, f"end {nonce}", ""]), "utf-8")
    return 0


def _nodes(text: str) -> tuple[str, str]:
    return f"\ts {json.dumps(text)}", "\t= [] 0 -"


def _leanchecker(sysroot: Path, arguments: Sequence[str]) -> int:
    refusal = _Says(sysroot, _built(arguments[0])["text"]).get("replay")
    if refusal:
        print(f"uncaught exception: {refusal}")
    return 1 if refusal else 0


def _built(module: str) -> Any:
    for folder in os.environ["LEAN_PATH"].split(":"):
        file = Path(folder, *_parts(module)).with_suffix(".olean")
        if file.is_file():
            return json.loads(file.read_text("utf-8"))
    raise SystemExit(f"unknown module '{module}'")


def _scan(text: str) -> Any:
    # Half of a short program's time: only who reads source pays for it.
    from pipeline.lean.source.scanner import parse

    return parse(text.encode())


def _parts(module: str) -> list[str]:
    return [part.strip("«»") for part in module.split(".")]


def main(arguments: Sequence[str]) -> int:
    """Be the program that the first argument names, of the toolchain in the second's folder."""
    name, sysroot, *rest = arguments
    if name == "repl":
        return _repl(Path(sysroot), rest)
    programs = {"lake": _lake, "lean": _lean, "leanchecker": _leanchecker}
    return programs[name](Path(sysroot), rest)
