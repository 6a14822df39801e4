"""Lean 4.35.0 itself, out of a Python package and with a library of our own: what tests may rely on.

The cases are ordinary Lean files in `tests/lean/real`; each runs as one process and is judged by the lines of its
messages. See `tests.support.lean.wheel.lean` for what this Lean is and what it lacks.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import operator
import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from pipeline.gate import questions
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.source.scanner import scan_source
from pipeline.trace.program import compiled
from tests.support.lean.wheel import lean as wheel
from tests.support.trace import lean_itself

CASES = Path(__file__).parent / "real"
SECONDS = 60
Message = dict[str, Any]
Kind = Literal["error", "warning", "information"]


@dataclass(frozen=True)
class Lean:
    """One toolchain, run without any environment."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "bin/lean"

    def run(self, *arguments: str | Path, text: str = "", cwd: Path | None = None) -> str:
        """Run `lean` and return what it says on standard output."""
        return subprocess.run(
            [self.program, *arguments],
            input=text,
            cwd=cwd,
            env={},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        ).stdout

    def messages(self, text: str) -> list[Message]:
        return [json.loads(line) for line in self.run("--json", "--stdin", text=text).splitlines()]

    def said(self, text: str, kind: Kind) -> list[str]:
        return [message["data"] for message in self.messages(text) if message["severity"] == kind]


@dataclass(frozen=True)
class Case:
    name: str
    message: str
    lines: range


def cases(file: str) -> list[Case]:
    """Return the cases of a file: each goes from a line `-- name: message` to the next such line."""
    lines = (CASES / file).read_text("utf-8").splitlines()
    begin = [
        (number, *line[3:].partition(": ")[::2])
        for number, line in enumerate(lines, 1)
        if line.startswith("-- ")
    ]
    ends = [number for number, _, _ in begin[1:]] + [len(lines) + 1]
    return [Case(name, message, range(at, end)) for (at, name, message), end in zip(begin, ends, strict=True)]


@pytest.fixture(scope="session")
def errors(real_lean: Path) -> Callable[[str, Case], list[str]]:
    """Return the errors within a case of a file, each file being run once."""
    found: dict[str, list[Message]] = {}

    def of(file: str, case: Case) -> list[str]:
        if file not in found:
            found[file] = Lean(real_lean).messages((CASES / file).read_text("utf-8"))
        return [
            message["data"]
            for message in found[file]
            if message["severity"] == "error" and message["pos"]["line"] in case.lines
        ]

    return of


@pytest.fixture
def lean(real_lean: Path) -> Lean:
    return Lean(real_lean)


def test_the_program_says_which_lean_it_is_and_where(lean: Lean) -> None:
    assert lean.run("--version").startswith(f"Lean (version {wheel.VERSION},")
    assert lean.run("--print-prefix").strip() == str(lean.folder)


def test_a_toolchain_folder_works_where_it_is_put(lean: Lean, tmp_path: Path) -> None:
    moved = Lean(wheel.build(tmp_path / "toolchain"))
    assert moved.run("--print-prefix").strip() == str(tmp_path / "toolchain")
    assert moved.messages("theorem t : 1 + 1 = 2 := by decide\n") == []


@pytest.mark.parametrize("case", cases("passes.lean"), ids=lambda case: case.name)
def test_a_tactic_closes_its_goal(case: Case, errors: Callable[[str, Case], list[str]]) -> None:
    assert errors("passes.lean", case) == []


@pytest.mark.parametrize("case", cases("refused.lean"), ids=lambda case: case.name)
def test_a_wrong_proof_is_refused(case: Case, errors: Callable[[str, Case], list[str]]) -> None:
    assert any(case.message in error for error in errors("refused.lean", case))


# What the kernel computes by name, and the same in Python. A definition of another value under one of these names
# would make False provable.
COMPUTED: dict[str, Callable[[int, int], int]] = {
    "Nat.add": operator.add,
    "Nat.sub": lambda n, m: max(n - m, 0),
    "Nat.mul": operator.mul,
    "Nat.div": lambda n, m: n // m if m else 0,
    "Nat.mod": lambda n, m: n % m if m else n,
    "Nat.gcd": math.gcd,
    "Nat.land": operator.and_,
    "Nat.lor": operator.or_,
    "Nat.xor": operator.xor,
    "Nat.pow": operator.pow,
    "Nat.shiftLeft": operator.lshift,
    "Nat.shiftRight": operator.rshift,
}
COMPARED: dict[str, Callable[[int, int], bool]] = {"Nat.beq": operator.eq, "Nat.ble": operator.le}
NUMBERS = (0, 1, 3, 12)


def test_the_library_defines_what_the_kernel_computes_by_name(lean: Lean) -> None:
    assert lean.messages((CASES / "kernel.lean").read_text("utf-8")) == []


def test_the_kernel_and_the_definitions_give_the_same_numbers(lean: Lean) -> None:
    """The functions by fuel are not computed by name: there the kernel follows the definitions."""
    claims = [
        f"{name} {n} {m} = {value(n, m)}"
        for name, value in COMPUTED.items()
        for n, m in itertools.product(NUMBERS, repeat=2)
    ]
    claims += [
        f"{name} {n} {m} = {str(value(n, m)).lower()}"
        for name, value in COMPARED.items()
        for n, m in itertools.product(NUMBERS, repeat=2)
    ]
    claims += [f"Nat.log2 {n} = {max(n.bit_length() - 1, 0)}" for n in NUMBERS]
    claims += [f"Nat.log2Fuel {n} {n} = {max(n.bit_length() - 1, 0)}" for n in NUMBERS]
    for n, m in itertools.product(NUMBERS, repeat=2):
        claims += [
            f"Nat.divFuel {m} {n + 1} {n} = {COMPUTED['Nat.div'](n, m)}",
            f"Nat.gcdFuel {n} {n} {m} = {math.gcd(n, m)}",
            f"Nat.bitsFuel and {n + m} {n} {m} = {n & m}",
            f"Nat.bitsFuel or {n + m} {n} {m} = {n | m}",
            f"Nat.bitsFuel (fun a b => cond a (not b) b) {n + m} {n} {m} = {n ^ m}",
        ]
    assert lean.messages("".join(f"example : {claim} := rfl\n" for claim in claims)) == []


@pytest.mark.parametrize("name", [*COMPUTED, *COMPARED, "Nat.log2", "Lean.reduceBool", "Lean.reduceNat"])
def test_no_file_can_give_such_a_name_another_meaning(name: str, lean: Lean) -> None:
    assert any("already been declared" in error for error in lean.said(f"def {name} : Nat := 0\n", "error"))


def test_sorry_and_axioms_are_reported_in_leans_words(lean: Lean) -> None:
    text = (
        "theorem open_ : 1 = 2 := by sorry\n"
        "theorem plain (p : Prop) (h : p) : p := h\n"
        "theorem classical (p : Prop) : p ∨ ¬p := Classical.em p\n"
        "axiom wrong : False\n"
        "theorem anything : 1 = 2 := wrong.elim\n"
        "#print axioms open_\n#print axioms plain\n#print axioms classical\n#print axioms anything\n"
    )
    assert lean.said(text, "error") == []
    assert lean.said(text, "warning") == ["declaration uses `sorry`"]
    assert lean.said(text, "information") == [
        "'open_' depends on axioms: [sorryAx]",
        "'plain' does not depend on any axioms",
        "'classical' depends on axioms: [propext, Classical.choice, Quot.sound]",
        "'anything' depends on axioms: [wrong]",
    ]


def test_a_message_has_its_place(lean: Lean) -> None:
    (message,) = lean.messages("theorem t (p : Prop) : p := by\n  exact nothing\n")
    assert message["severity"] == "error"
    assert (message["pos"], message["endPos"]) == ({"line": 2, "column": 8}, {"line": 2, "column": 15})
    assert message["data"] == "Unknown identifier `nothing`"


def test_exact_suggests_a_proof(lean: Lean) -> None:
    text = "theorem t (a b c : Nat) : a * b * c = a * (b * c) := by\n  exact?\n"
    assert lean.said(text, "information") == ["Try this:\n  [apply] exact Nat.mul_assoc a b c"]


def test_a_file_may_declare_tactics_and_notations(lean: Lean) -> None:
    assert lean.said((CASES / "macros.lean").read_text("utf-8"), "error") == []


def test_a_goal_is_printed_with_the_notation_of_the_file(lean: Lean) -> None:
    text = 'infixl:65 " ⊞ " => Nat.add\nexample (n m : Nat) : n ⊞ m = 0 := by\n  skip\n'
    assert lean.said(text, "error") == ["unsolved goals\nn m : Nat\n⊢ n ⊞ m = 0"]


def running(lean: Lean, folder: Path) -> Callable[..., str]:
    """Return a function that runs `lean` in a folder which is its search path."""

    def run(*arguments: str) -> str:
        return subprocess.run(
            [lean.program, *arguments],
            cwd=folder,
            env={"LEAN_PATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        ).stdout

    return run


def test_modules_import_each_other(lean: Lean, tmp_path: Path) -> None:
    (tmp_path / "Own").mkdir()
    (tmp_path / "Own/Basic.lean").write_text(
        "def double (n : Nat) : Nat := n + n\n@[simp] theorem double_zero : double 0 = 0 := rfl\n", "utf-8"
    )
    (tmp_path / "Own.lean").write_text(
        "import Own.Basic\ntheorem t : double 0 = 0 := by simp\n#print axioms t\n", "utf-8"
    )

    run = running(lean, tmp_path)
    assert "Own.Basic does not exist" in run("Own.lean")
    assert run("-o", "Own/Basic.olean", "-i", "Own/Basic.ilean", "Own/Basic.lean") == ""
    assert (tmp_path / "Own/Basic.olean").stat().st_size > 0
    assert json.loads((tmp_path / "Own/Basic.ilean").read_text("utf-8"))["module"] == "Own.Basic"
    assert run("Own.lean") == "'t' depends on axioms: [propext]\n"


@pytest.mark.parametrize("file", ["passes.lean", "macros.lean"])
def test_what_passes_passes_in_a_module_file_too(lean: Lean, file: str) -> None:
    text = (CASES / file).read_text("utf-8")
    assert lean.said(f"module\n{text}", "error") == []


def test_a_module_file_shows_what_is_public_and_to_import_all_the_rest(lean: Lean, tmp_path: Path) -> None:
    (tmp_path / "Own.lean").write_text(
        "module\npublic section\ndef two : Nat := 2\n@[expose] def three : Nat := 3\n"
        "private theorem inner : two = 2 := rfl\n",
        "utf-8",
    )
    text = "module\npublic import Own\nexample : three = 3 := rfl\nexample : two = 2 := by rfl\n"
    (tmp_path / "Public.lean").write_text(text, "utf-8")
    (tmp_path / "All.lean").write_text(
        text.replace("public import", "import all") + "example : two = 2 := inner\n", "utf-8"
    )
    run = running(lean, tmp_path)
    assert run("-o", "Own.olean", "Own.lean") == ""
    assert run("Public.lean").startswith("Public.lean:4:24: error: Tactic `rfl` failed")
    assert run("All.lean") == ""


SORRIES = """module -- what a module file may say before a declaration
@[expose] public section
namespace N
public theorem a : True := sorry
private theorem b : True := by
  stop
  trivial
public protected noncomputable def c : Nat := sorry
meta section
@[no_expose] public instance d : Inhabited Nat := ⟨sorry⟩
end
local instance : Inhabited Nat := ⟨sorry⟩
public structure S where
  x : Nat := sorry
@[no_expose] public meta def e : Nat := sorry
@[simp] theorem f : True := trivial
end N
end
"""


def test_the_scanner_finds_the_sorries_of_a_module_file_in_the_declarations_that_lean_warns_of(
    lean: Lean,
) -> None:
    found = scan_source(SORRIES.encode(), path="A.lean")
    warned = [
        message["pos"]["line"]
        for message in lean.messages(SORRIES)
        if message["data"].startswith("declaration uses")
    ]
    names = [
        next(one.name for one in found.declarations if one.line <= line <= one.end_line) for line in warned
    ]
    assert sorted(names) == sorted(sorry.declaration for sorry in found.sorries)
    assert len(names) == 7
    assert lean.said(SORRIES, "error") == []


class Server:
    """A client of the language server: just enough of the protocol for these tests."""

    def __init__(self, program: Path, folder: Path) -> None:
        # Without the option each answer waits for 200 ms, so that an editor does not flicker.
        self._process = subprocess.Popen(
            [program, "--server", "-Dserver.reportDelayMs=0"],
            cwd=folder,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._messages: queue.Queue[Message] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._requests = itertools.count(1)
        self._version = 0
        self.uri = (folder / "Candidate.lean").as_uri()
        self.diagnostics: list[Message] = []
        self.name = self.request("initialize", {"rootUri": folder.as_uri(), "capabilities": {}})[
            "serverInfo"
        ]["name"]
        self.notify("initialized", {})

    def _read(self) -> None:
        while header := self._out.readline():
            size = int(header.removeprefix(b"Content-Length:"))
            while self._out.readline().strip():
                pass
            self._messages.put(json.loads(self._out.read(size)))

    def _send(self, message: Message) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self._in.flush()

    def notify(self, method: str, params: object) -> None:
        self._send({"method": method, "params": params})

    def request(self, method: str, params: object) -> Any:
        number = next(self._requests)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def _receive(self) -> Message:
        message = self._messages.get(timeout=SECONDS)
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics = message["params"]["diagnostics"]
        return message

    def wait_until_busy(self) -> None:
        """Wait until the worker reports that it is at the document's present version."""
        while True:
            message = self._receive()
            if (
                message.get("method") == "$/lean/fileProgress"
                and message["params"]["textDocument"]["version"] == self._version
                and message["params"]["processing"]
            ):
                return

    def write(self, text: str) -> None:
        """Open the document, or change it, and do not wait."""
        self._version += 1
        document: Message = {"uri": self.uri, "version": self._version}
        if self._version == 1:
            self.notify(
                "textDocument/didOpen", {"textDocument": document | {"languageId": "lean4", "text": text}}
            )
        else:
            self.notify(
                "textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]}
            )

    def errors(self) -> list[str]:
        """Wait for the document's diagnostics and return the errors among them."""
        self.request("textDocument/waitForDiagnostics", {"uri": self.uri, "version": self._version})
        return [found["message"] for found in self.diagnostics if found["severity"] == 1]

    def goals(self, line: int, column: int) -> list[str]:
        place = {"textDocument": {"uri": self.uri}, "position": {"line": line, "character": column}}
        goals: list[str] = self.request("$/lean/plainGoal", place)["goals"]
        return goals

    def close(self) -> None:
        """End the server, politely or not."""
        try:
            self.request("shutdown", None)
            self.notify("exit", None)
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(SECONDS)
            self._in.close()
            self._out.close()


@pytest.fixture
def server(lean: Lean, tmp_path: Path) -> Iterator[Server]:
    server = Server(lean.program, tmp_path)
    yield server
    server.close()


STATEMENT = "theorem t (p q r : Prop) (h : p ∧ (q ∨ r)) : (p ∧ q) ∨ (p ∧ r) := by\n  cases h with\n  | intro a b =>\n  "


def test_the_language_server_answers_as_a_prover_needs_it(server: Server) -> None:
    assert server.name == "Lean 4 Server"
    server.write(STATEMENT + "sorry\n")
    assert server.errors() == []
    assert [found["message"] for found in server.diagnostics] == ["declaration uses `sorry`"]
    assert server.goals(3, 2) == ["case intro\np q r : Prop\na : p\nb : q ∨ r\n⊢ p ∧ q ∨ p ∧ r"]

    server.write(STATEMENT + "exact b\n")
    (error,) = server.errors()
    assert re.match(r"Type mismatch\s+b\s+has type\s+q ∨ r", error)

    server.write(STATEMENT + "cases b\n")
    (error,) = server.errors()
    assert error.startswith("unsolved goals")

    server.write(STATEMENT + "rcases b with x | y <;> simp_all\n")
    assert server.errors() == []


def test_the_next_candidate_ends_an_endless_one(server: Server) -> None:
    server.write(STATEMENT + "sorry\n")
    assert server.errors() == []
    server.write(STATEMENT + "repeat (first | skip)\n")
    server.wait_until_busy()
    time.sleep(0.2)  # so that it has come to the tactic itself
    began = time.monotonic()
    server.write(STATEMENT + "simp_all\n")
    assert server.errors() == []
    assert time.monotonic() - began < 15, "the endless one takes half a minute to give up"


def test_of_two_that_want_it_at_once_one_builds(
    real_lean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder appears as a whole, under its last name."""
    compiled: list[Path] = []
    monkeypatch.setattr(wheel, "PLACE", tmp_path)
    monkeypatch.setattr(wheel, "_lay_out", lambda made, library: (made / "bin").mkdir(parents=True))
    monkeypatch.setattr(wheel, "_own_programs", dict)

    def compile_slowly(made: Path) -> None:
        time.sleep(0.2)
        compiled.append(made)

    monkeypatch.setattr(wheel, "_compile", compile_slowly)
    with ThreadPoolExecutor(2) as both:
        found = {one.result() for one in [both.submit(wheel.toolchain) for _ in range(2)]}
    assert found == {tmp_path / real_lean.name}
    assert len(compiled) == 1
    assert (found.pop() / "bin").is_dir()


def test_everlean_s_own_programs_are_compiled_there_and_nothing_else(real_lean: Path, tmp_path: Path) -> None:
    tools = wheel.build(tmp_path / "lean")
    (tools / "bin/lean-itself").write_text("#!/bin/sh\necho compiles >>$0.said\nexit 1\n", "utf-8")
    runner = LakeRunner(tools / "bin/lake", tools, "none", tmp_path)
    traces = asyncio.run(compiled(lean_itself(tools), memory_bytes=None, limit_s=60))
    kept = {traces, questions._questions(runner)}
    assert kept == {one.read_bytes() for one in (real_lean / "own").iterdir()}
    (tmp_path / "A.lean").write_text("theorem a : True := trivial\n", "utf-8")
    for words in (["-o", "A.olean", "A.lean"], ["-R", ".", "-o", "A.olean", "A.lean"], ["A.lean"]):
        assert subprocess.run([tools / "bin/lean", *words], cwd=tmp_path).returncode == 1
    assert (tools / "bin/lean-itself.said").read_text("utf-8") == "compiles\n" * 3


def test_without_the_package_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAN_SHARED", raising=False)
    monkeypatch.setattr(wheel, "PACKAGE", "no_such_package")
    with pytest.raises(wheel.UnavailableError, match=r"^Lean 4\.35\.0 is not here: install"):
        wheel.toolchain()


def test_a_file_that_is_no_library_of_lean_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "PLACE", tmp_path / "cache")
    monkeypatch.setenv("LEAN_SHARED", str(tmp_path / "none.so"))
    with pytest.raises(wheel.UnavailableError, match=r"none\.so"):
        wheel.toolchain()


def test_another_library_under_the_packages_name_is_not_used(
    real_lean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEAN_SHARED", raising=False)
    if wheel.shared_library() is None:
        pytest.skip("the package is not installed; LEAN_SHARED names the library")
    monkeypatch.setattr(wheel, "PLACE", tmp_path)
    monkeypatch.setattr(wheel, "_SHA256", "0" * 64)
    with pytest.raises(wheel.UnavailableError, match=r"its SHA-256 differs$"):
        wheel.toolchain()
