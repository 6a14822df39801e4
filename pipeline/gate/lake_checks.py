"""Checks 3 to 6, asked of the project's own toolchain: compile, axioms, statement, kernel replay.

The file without the proof is built and questioned first, so a project that does not build anyway, or a Lean that cannot
answer, leads to "not checked" with the reason and never to a rejection. The evidence names the commands that were run,
the toolchain, the module, and the SHA-256 of the bytes that were built.

`lake build` applies the project's options. It evaluates the lakefile, which is code, so it may write to `.lake` of the
job's own worktree and nowhere else. Questions are answered by `lean` alone, in a process that can write to one new
folder with a random name, and `Questions.lean` runs none of the module's initializers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline.gate.preconditions import other_lean, shadowed_library
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.lake import MOST_PROCESSES, Bounds, LakeRunner, Outcome
from pipeline.lean.client.process import lean_path
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.source.imports import local_file
from pipeline.lean.source.scanner import scan_source
from store.events.proofs import CheckVerdict, StepName


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `axioms`, and of them those that use sorry (`sorried`), where Lean named them."""

    step: StepName
    verdict: CheckVerdict
    by: str
    evidence: str
    axioms: tuple[str, ...] | None = None
    sorried: tuple[str, ...] = ()


# ---- answers
# Readers return what they read, or one sentence on why they could not: a text with a line too many, too few or of
# another shape is refused. An answer carries the mark of its question (a nonce, or the random name of the asking
# file), so text that the project prints cannot pass for one.


FORMAT = 2
ALLOWED_AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
_ELIDED = "⋯"
_KEPT_OUTPUT = 2000
_PRINTED = re.compile(r"'(?P<name>.+)' depends on axioms: \[(?P<axioms>[^\[\]]+)\]")
_PRINTED_NONE = re.compile(r"'(?P<name>.+)' does not depend on any axioms")
_KINDS = "axiom|definition|theorem|opaque|quotient|inductive|constructor|recursor"
_SECTION = re.compile(rf"(?P<head>statement|premise|declared) (?P<kind>{_KINDS}) (?P<name>\S.*)")
_VERSION = re.compile(r"lean (?P<version>\S.*)")
_FACT = re.compile(r"(?P<fact>axiom|sorried|native|unsafe) (?P<name>\S.*)")
_NODE = re.compile(r"\t(?:[A-Za-z0-9]+|=)(?: .*)?")
# Both texts that Lean's versions have, and what lake writes before them.
_SORRY_WARNING = re.compile(
    r"warning: (?:\./)*(?P<path>[^\n:]+):(?P<line>\d+):(?P<column>\d+): declaration uses ['`]sorry['`]"
)


@dataclass(frozen=True, slots=True)
class Section:
    """One constant as the kernel has it: its kind and its nodes. Equal texts, equal constants."""

    kind: str
    nodes: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of `Questions.lean` about one build: see there for each part.

    `lean` is the version of Lean that answered, as it says it. `axioms`, `sorried`, `native` and `unsafe` are names of
    constants that the asked one rests on, as far down as it goes. `premises` are what its statement rests on in its
    module, `declared` the module's other constants.
    """

    lean: str
    axioms: tuple[str, ...]
    sorried: tuple[str, ...]
    native: tuple[str, ...]
    unsafe: tuple[str, ...]
    statement: Section
    premises: Mapping[str, Section]
    declared: Mapping[str, Section]

    @property
    def digest(self) -> str:
        """SHA-256 of the statement and of everything that it rests on in its module."""
        parts = [self.statement, *(self.premises[name] for name in sorted(self.premises))]
        text = "\n".join(f"{part.kind}\n{part.nodes}" for part in parts)
        return hashlib.sha256(text.encode()).hexdigest()


def read_answer(text: str, *, nonce: str, constant: str) -> Answer | str:
    """Read the file that `Questions.lean` wrote about `constant`; a text says why it is no answer."""
    lines = text.split("\n")
    if lines[-1] != "" or len(lines) < 5:
        return f"the answer has no end: {end_of(text)}"
    if lines[0] != f"unsorry-questions {FORMAT} {nonce}" or lines[-2] != f"end {nonce}":
        return f"the answer does not carry the question's mark: {end_of(text)}"
    version = _VERSION.fullmatch(lines[1])
    if version is None:
        return f"the answer does not say which Lean it is by: {end_of(lines[1])}"
    facts: dict[str, list[str]] = {"axiom": [], "sorried": [], "native": [], "unsafe": []}
    sections: dict[str, dict[str, Section]] = {"statement": {}, "premise": {}, "declared": {}}
    at = 2
    while at < len(lines) - 2 and (found := _FACT.fullmatch(lines[at])):
        facts[found["fact"]].append(found["name"])
        at += 1
    while at < len(lines) - 2:
        head = _SECTION.fullmatch(lines[at])
        stop = at + 1
        while stop < len(lines) - 2 and _NODE.fullmatch(lines[stop]):
            stop += 1
        nodes = lines[at + 1 : stop]
        if (
            head is None
            or not nodes
            or not nodes[-1].startswith("\t= ")
            or head["name"] in sections[head["head"]]
        ):
            return f"line {at + 1} of the answer cannot be read: {end_of(lines[at])}"
        sections[head["head"]][head["name"]] = Section(head["kind"], "\n".join(nodes))
        at = stop
    if list(sections["statement"]) != [constant]:
        return f"the answer is about {', '.join(sections['statement']) or 'nothing'}, not about {constant}"
    return Answer(
        lean=version["version"],
        axioms=tuple(facts["axiom"]),
        sorried=tuple(facts["sorried"]),
        native=tuple(facts["native"]),
        unsafe=tuple(facts["unsafe"]),
        statement=sections["statement"][constant],
        premises=sections["premise"],
        declared=sections["declared"],
    )


def differences(before: Answer, after: Answer, *, declared: Iterable[str]) -> list[str]:
    """Return what the proof changed besides itself, one sentence each.

    Args:
        before, after: the answers about the build with the sorry and the build with the proof.
        declared: the file's own declarations by name. What Lean makes on the way (equations, matchers) comes and
            goes with a proof and is not looked at.
    """
    found = []
    if before.statement.kind != "theorem" or after.statement.kind != "theorem":
        found.append(
            f"it is a {before.statement.kind} without the proof and a {after.statement.kind} with it"
        )
    if before.statement.nodes != after.statement.nodes:
        found.append("its type or its universe parameters are others than without the proof")
    if set(before.premises) != set(after.premises):
        names = ", ".join(sorted(set(before.premises) ^ set(after.premises)))
        found.append(f"its statement rests on other constants than without the proof: {names}")
    found += [
        f"{name}, on which its statement rests, is another than without the proof"
        for name in sorted(set(before.premises) & set(after.premises))
        if before.premises[name] != after.premises[name]
    ]
    found += [
        f"{name} is another than without the proof"
        for name in sorted(set(declared) & set(before.declared))
        if before.declared[name] != after.declared.get(name)
    ]
    return found


@dataclass(frozen=True, slots=True)
class TypeText:
    """A constant's type with everything printed, universe parameters included: equal texts, equal types."""

    text: str


def one_message(output: str, *, file_name: str, lines: range) -> str | None:
    """Return the text of the one message that `lean --json` gave for these lines of the asking file.

    Only what carries that file's random name counts, unknown to the project; two such messages, or one that is no
    information, are no answer. Other lines are lake's, or the project's initializers'.
    """
    found: list[str] = []
    for text in output.splitlines():
        try:
            message = json.loads(text)
        except ValueError:
            if file_name in text:
                return None
            continue
        if not isinstance(message, dict) or PurePosixPath(str(message.get("fileName"))).name != file_name:
            continue
        position, data = message.get("pos"), message.get("data")
        told = message.get("severity") == "information" and isinstance(data, str)
        if not told or not isinstance(position, dict) or position.get("line") not in lines:
            return None
        found.append(str(data))
    return found[0] if len(found) == 1 else None


def read_axioms(data: str, declaration: str) -> tuple[str, ...] | str:
    """Read what `#print axioms` said; a text says why it could not be read."""
    text = " ".join(data.split())  # Lean wraps long lists
    found = _PRINTED.fullmatch(text)
    if found is not None and found["name"] == declaration:
        names = tuple(name.strip() for name in found["axioms"].split(","))
        if all(name and " " not in name for name in names):
            return names
    none = _PRINTED_NONE.fullmatch(text)
    if none is not None and none["name"] == declaration:
        return ()
    return f"`#print axioms` answered: {end_of(data)}"


def read_type(data: str, declaration: str) -> TypeText | str:
    """Read what `#check @declaration` said with everything printed."""
    text = " ".join(data.split())
    named = text.removeprefix("@")
    if not named.startswith((f"{declaration} :", f"{declaration}.{{")):
        return f"`#check @{declaration}` answered: {end_of(data)}"
    if _ELIDED in text:
        return f"`#check @{declaration}` left something out: the type is too large to print"
    return TypeText(text)


def sorry_warnings(output: str, *, path: str) -> tuple[int, ...]:
    """Return the lines of `path` for which a build said that a declaration uses sorry, in either of its texts.

    None said is no evidence of none used: a file can switch the warning off. The axioms are what decides.
    """
    wanted = PurePosixPath(path)
    return tuple(
        int(found["line"])
        for found in _SORRY_WARNING.finditer(output)
        if PurePosixPath(found["path"]) == wanted or found["path"].endswith(f"/{path}")
    )


def end_of(output: str) -> str:
    """Return the end of a program's output on one line, for people."""
    return " ".join(output[-_KEPT_OUTPUT:].split()) or "nothing"


# ---- questions


_DISK_BYTES = 4 * 2**30
"""By how much what the runner may write can grow; one file is compiled, or asked about."""
BUILD_BOUNDS = Bounds(timeout_s=1500.0, processes=MOST_PROCESSES, disk_bytes=_DISK_BYTES)
ASK_BOUNDS = Bounds(timeout_s=600.0, processes=MOST_PROCESSES, disk_bytes=_DISK_BYTES)
OWN_CHECKER = "leanchecker"
"""The kernel replay that comes with a toolchain; a project that has built one may have built another."""
QUESTIONS = Path(__file__).with_name("Questions.lean")
_WHOLE = ("pp.all true", "pp.deepTerms true", "pp.maxSteps 10000000", "pp.proofs true")
_MAX_ANSWER_BYTES = 256 * 1024 * 1024
# What a build leaves of one module: its files in the folder of its library, and those of its native code.
_OUTPUTS = re.compile(r"\.(?:olean|ilean|ir|trace|hash|setup|c|bc|o)\b.*")


@dataclass(frozen=True, slots=True)
class Checker:
    """A kernel replay: how it is called in evidence, and its program."""

    name: str
    program: Path


def leads_outside(runner: LakeRunner) -> str | None:
    """Return why the worktree may not be built in, None where it may: what is built must be the worktree's own.

    Asked again after a build: evaluating a lakefile runs code, which may write into `.lake`, links too.
    """
    project = runner.project.resolve()
    place = runner.project / ".lake"
    for folder in (
        place,
        place / "build",
        place / "build" / "lib",
        place / "build" / "ir",
        place / "unsorry",
    ):
        if not folder.resolve().is_relative_to(project):
            return f"{folder} leads out of the worktree, and a build of a candidate must not reach what others use"
    return None


def build(runner: LakeRunner, *modules: str) -> Outcome:
    """Build modules of the worktree with lake, with the project's own options."""
    place = runner.project / ".lake"
    place.mkdir(exist_ok=True)
    # `+`: a module, not the library or package of that name.
    return runner.with_(writable=(place,)).run(
        "build", *(f"+{name}" for name in modules), bounds=BUILD_BOUNDS
    )


def module_of(path: str) -> str:
    """Return the module name of a file of the project: `Demo/Logic.lean` is `Demo.Logic`."""
    parts = path.removesuffix(".lean").split("/")
    return ".".join(part if re.fullmatch(r"[^\W\d][\w'!?]*", part) else f"«{part}»" for part in parts)


@contextmanager
def patched_in_place(project: Path, path: str, patched: bytes) -> Iterator[None]:
    """Put the patched bytes into the worktree, and remove what was built of the old ones, for the length of the block.

    What the build has of the file is put aside, so that lake has to build the patched bytes, and put back afterwards:
    nothing that was built from a candidate stays.
    """
    file = project / path
    before = file.read_bytes()
    with _outputs_aside(project, path):
        try:
            _write(file, patched)
            yield
        finally:
            _write(file, before)


@contextmanager
def _outputs_aside(project: Path, path: str) -> Iterator[None]:
    aside = _new_folder(project)
    try:
        kept = {output: aside / str(number) for number, output in enumerate(_outputs(project, path))}
        for output, place in kept.items():
            output.replace(place)
        try:
            yield
        finally:
            for output in _outputs(project, path):
                output.unlink()
            for output, place in kept.items():
                # Where the build took them away, or put a link to another place, nothing of ours is to be put back.
                if _own(project, place) and _own(project, output.parent):
                    place.replace(output)
    finally:
        _remove(project, aside)


def _outputs(project: Path, path: str) -> list[Path]:
    """Return the files that a build has made of one file, in each place that lakes put them."""
    stem = Path(path).with_suffix("")
    found: list[Path] = []
    for place in ("lib/lean", "lib", "ir"):
        folder = project.joinpath(".lake", "build", place, stem.parent)
        if folder.is_dir() and _own(project, folder):
            names = (one for one in sorted(folder.iterdir()) if one.is_file() and not one.is_symlink())
            found += [
                one
                for one in names
                if one.name.startswith(f"{stem.name}.") and _OUTPUTS.fullmatch(one.name[len(stem.name) :])
            ]
    return found


def not_built_here(project: Path, path: str) -> str | None:
    """Return why the file's module is not what the last build made, where `patched_in_place` had put aside the old one.

    A lakefile can have its build elsewhere; a package's module of the same name would then answer for this one.
    """
    made = [one for one in _outputs(project, path) if one.suffix == ".olean" and "lib" in one.parts]
    if made:
        return None
    return f"lake build left no {Path(path).stem}.olean in {project / '.lake' / 'build' / 'lib'}: it builds elsewhere"


def ask_exactly(runner: LakeRunner, *, module: str, declaration: str) -> Answer | str:
    """Run `Questions.lean` on the built module; a text says why there is no answer.

    The answer is a file in a folder that is made for the question and that only its process can write to.
    """
    folder = _new_folder(runner.project)
    try:
        script, answer, nonce = folder / QUESTIONS.name, folder / "answer", secrets.token_hex(16)
        script.write_bytes(QUESTIONS.read_bytes())
        ran = _lean(runner, folder, "--run", str(script), str(answer), nonce, module, declaration)
        if not ran.ok:
            return f"{QUESTIONS.name}: {ran.explain(ASK_BOUNDS)}: {end_of(ran.output)}"
        if answer.is_symlink() or not answer.is_file():
            return f"{QUESTIONS.name} wrote no answer: {end_of(ran.output)}"
        if answer.stat().st_size > _MAX_ANSWER_BYTES:
            return f"{QUESTIONS.name}: an answer of {answer.stat().st_size} bytes"
        try:
            text = answer.read_bytes().decode()
        except UnicodeDecodeError as error:
            return f"{QUESTIONS.name}: the answer is no UTF-8: {error}"
        return read_answer(text, nonce=nonce, constant=declaration)
    finally:
        _remove(runner.project, folder)


def axioms_of(runner: LakeRunner, *, module: str, declaration: str) -> tuple[str, ...] | str:
    """Return the constant's axioms as another process prints them, which imports the built module; a text says why not.

    The candidate's own file could redefine `#print`; the asking file holds nothing of it.
    """
    said = _message(runner, module=module, commands=(f"#print axioms {declaration}",))
    return read_axioms(said.text, declaration) if isinstance(said, TypeText) else said


def type_of(runner: LakeRunner, *, module: str, declaration: str) -> TypeText | str:
    """Return the constant's type, printed whole, in the same way; a text is the reason why it cannot be printed."""
    options = tuple(f"set_option {option} in" for option in _WHOLE)
    said = _message(runner, module=module, commands=(*options, f"#check @{declaration}"))
    return read_type(said.text, declaration) if isinstance(said, TypeText) else said


def _message(runner: LakeRunner, *, module: str, commands: tuple[str, ...]) -> TypeText | str:
    """Return the one message that the last of these commands makes."""
    folder = _new_folder(runner.project)
    try:
        file = folder / f"Q{secrets.token_hex(16)}.lean"
        file.write_text("\n".join((f"import {module}", *commands, "")), encoding="utf-8")
        ran = _lean(runner, folder, "--json", str(file))
        if not ran.ok:
            return f"lean: {ran.explain(ASK_BOUNDS)}: {end_of(ran.output)}"
        # `set_option … in` is one command with what follows; its message may be placed at either.
        data = one_message(ran.output, file_name=file.name, lines=range(2, len(commands) + 2))
        return f"lean answered: {end_of(ran.output)}" if data is None else TypeText(data)
    finally:
        _remove(runner.project, folder)


def find_checker(runner: LakeRunner) -> Checker | str:
    """Return the kernel replay that is here: the toolchain's own, or the one that the project has built."""
    own = runner.program.parent / OWN_CHECKER
    if own.is_file():
        return Checker(OWN_CHECKER, own)
    built = (
        runner.project / ".lake" / "packages" / "lean4checker" / ".lake" / "build" / "bin" / "lean4checker"
    )
    if built.is_file():
        return Checker("lean4checker", built)
    return f"{own.parent} has no {OWN_CHECKER}, and the project no lean4checker among its packages"


def replay(runner: LakeRunner, checker: Checker, *, module: str) -> Outcome:
    """Replay every declaration of the built module in the kernel, in a fresh process."""
    asking = runner.with_(writable=(), environment={"LEAN_PATH": lean_path(runner.project)})
    return asking.execute((str(checker.program), module), bounds=ASK_BOUNDS)


def _lean(runner: LakeRunner, folder: Path, *arguments: str) -> Outcome:
    """Run lean by itself on what is built, with one folder to write into."""
    asking = runner.with_(writable=(folder,), environment={"LEAN_PATH": lean_path(runner.project)})
    return asking.execute((str(runner.program.with_name("lean")), *arguments), bounds=ASK_BOUNDS)


def _new_folder(project: Path) -> Path:
    folder = project / ".lake" / "unsorry" / secrets.token_hex(16)
    folder.mkdir(parents=True)
    if not _own(project, folder):
        folder.rmdir()
        raise SandboxError(f"{folder.parent} leads out of the worktree; a build has put a link there")
    return folder


def _own(project: Path, path: Path) -> bool:
    """Return whether it exists inside the worktree: a link out of it leads to another project's files."""
    return path.exists() and path.resolve().is_relative_to(project.resolve())


def _remove(project: Path, folder: Path) -> None:
    if _own(project, folder):
        shutil.rmtree(folder)


def _write(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(file)


def build_imports(backend: LeanBackend, project: Path, imports: Sequence[str]) -> None:
    """Build what a file imports of the project with lake; a REPL that misses it reports that when it starts."""
    runner = LakeRunner.find(backend, project=project)
    own = [name for name in imports if local_file(project, name) is not None]
    if own and not isinstance(runner, str):
        built = build(runner, *own)
        if not built.ok:
            print(f"lake build: {built.explain(BUILD_BOUNDS)}: {built.end()}", file=sys.stderr)  # noqa: T201


def findings(
    backend: LeanBackend,
    *,
    project: Path,
    path: str,
    patched: bytes,
    declaration: str,
    made: frozenset[str],
    declared: frozenset[str],
) -> Generator[Finding, None, None]:
    """Yield what the toolchain says of the patched file, in order; the caller stops at the first that failed.

    While it is not closed the patched bytes may be in the worktree, so the caller closes it.

    Args:
        made: the constants of the proof's own command, as Lean names them.
        declared: those of the whole file.
    """
    runner = LakeRunner.find(backend, project=project)
    reason = runner if isinstance(runner, str) else leads_outside(runner)
    by = f"lake {backend.toolchain}".strip()
    if reason is None and declaration.rsplit(".", 1)[-1].startswith("_"):
        reason = f"{declaration} makes no constant that could be asked about"
    if reason is None and declaration not in made:
        # The scanner's name may be another one's: an answer would then speak of that.
        names = ", ".join(sorted(made)) or "nothing"
        reason = f"the command makes {names} and not {declaration}, which could not be asked about by name"
    if reason is not None or isinstance(runner, str):
        yield from _unjudged("nobody", reason or str(runner))
        return
    try:
        yield from _Inquiry(runner, backend.toolchain, by, path, patched, declaration, declared).findings()
    except SandboxError as error:
        yield from _unjudged(by, str(error))


@dataclass(frozen=True, slots=True)
class _Inquiry:
    """One proof and the lake that builds it."""

    runner: LakeRunner
    toolchain: str
    by: str
    path: str
    patched: bytes
    declaration: str
    declared: frozenset[str]

    def findings(self) -> Iterator[Finding]:
        module = module_of(self.path)
        built = build(self.runner, module)
        if not built.ok:
            why = f"{built.explain(BUILD_BOUNDS)}: {built.end(400)}"
            yield from _unjudged(self.by, f"the project does not build here even without the proof: {why}")
            return
        linked = leads_outside(self.runner)
        if linked is not None:
            yield from _unjudged(self.by, linked)
            return
        before = self._stated(module)
        untold = shadowed_library(self.runner.project) or self._whose(before)
        if untold is not None:
            yield from _unjudged(self.by, untold)
            return
        refused = None
        with patched_in_place(self.runner.project, self.path, self.patched):
            yield self._built(module, build(self.runner, module))
            elsewhere = leads_outside(self.runner) or not_built_here(self.runner.project, self.path)
            if elsewhere is not None:
                yield from _unjudged(self.by, elsewhere)
                return
            after = self._stated(module)
            printed = axioms_of(self.runner, module=module, declaration=self.declaration)
            yield judge_axioms(after.exact, printed, declaration=self.declaration, by=self.by, module=module)
            yield self._statement(before, after)
            checker = find_checker(self.runner)
            if isinstance(checker, str):
                yield Finding("kernel", "not_checked", "nobody", checker)
                return
            ran = replay(self.runner, checker, module=module)
            if ran.ok:
                yield Finding(
                    "kernel", "passed", checker.name, f"`{checker.name} {module}`: every declaration replayed"
                )
                return
            refused = (
                f"{checker.name} refuses {module} ({ran.explain(ASK_BOUNDS)}): {end_of(ran.output)[-300:]}"
            )
        # Its refusal speaks against the proof only if it takes the module without the proof.
        control = replay(self.runner, checker, module=module)
        if control.ok:
            yield Finding("kernel", "failed", checker.name, refused)
        else:
            yield Finding(
                "kernel", "not_checked", checker.name, f"{refused}; and it refuses it without the proof too"
            )

    def _whose(self, stated: _StatementAnswer) -> str | None:
        """Return why the Lean that answers is not the toolchain's: a lake on PATH may be any version's."""
        if isinstance(stated.exact, Answer):
            return other_lean(stated.exact.lean, toolchain=self.toolchain)
        if self.runner.toolchain is None:
            return f"{self.runner.program} does not say which Lean it has: {stated.exact}"
        return None

    def _built(self, module: str, built: Outcome) -> Finding:
        digest = hashlib.sha256(self.patched).hexdigest()
        file = self.runner.project / self.path
        if not built.ok:
            return Finding(
                "compile",
                "failed",
                self.by,
                f"lake build +{module}: {built.explain(BUILD_BOUNDS)}: {built.end(400)}",
            )
        if file.read_bytes() != self.patched:
            return Finding("compile", "failed", self.by, f"{self.path} was changed while it was built")
        lines = range(*self._lines())
        warned = [line for line in sorry_warnings(built.output, path=self.path) if line in lines]
        if warned:
            return Finding(
                "compile",
                "failed",
                self.by,
                f"lake build +{module}: line {warned[0]}: {self.declaration} uses sorry",
            )
        told = f"`lake build +{module}` with the project's own options: exit status 0; built from sha256 {digest}"
        return Finding("compile", "passed", self.by, told)

    def _lines(self) -> tuple[int, int]:
        """Return the declaration's first line in the patched file and the one after its last."""
        for one in scan_source(self.patched, path=self.path).declarations:
            if one.name == self.declaration:
                return one.line, one.end_line + 1
        return 0, 0

    def _stated(self, module: str) -> _StatementAnswer:
        exact = ask_exactly(self.runner, module=module, declaration=self.declaration)
        if isinstance(exact, Answer):
            return _StatementAnswer(exact, "not asked")
        return _StatementAnswer(exact, type_of(self.runner, module=module, declaration=self.declaration))

    def _statement(self, before: _StatementAnswer, after: _StatementAnswer) -> Finding:
        """Check that Lean gives the constant the same statement as without the proof, whatever the source says."""
        if isinstance(before.exact, Answer) and isinstance(after.exact, Answer):
            found = differences(before.exact, after.exact, declared=self.declared - {self.declaration})
            if found:
                return Finding("statement", "failed", self.by, "; ".join(found))
            told = (
                f"the same type and universe parameters as without the proof, node by node, and the same"
                f" {len(before.exact.premises)} constants of its module below it: sha256 {after.exact.digest}"
            )
            return Finding("statement", "passed", self.by, told)
        if isinstance(before.exact, Answer) != isinstance(after.exact, Answer):
            silent = before.exact if isinstance(before.exact, str) else after.exact
            return Finding("statement", "not_checked", self.by, f"it could not be compared: {silent}")
        if isinstance(before.type, TypeText) and isinstance(after.type, TypeText):
            if before.type != after.type:
                why = f"its type became {after.type.text}; it was {before.type.text}"
                return Finding("statement", "failed", self.by, why)
            missing = end_of(str(after.exact))[-160:]
            how = f"as printed ({QUESTIONS.name} did not run: {missing})"
            told = f"the same type as without the proof, {how}: {after.type.text}"
            return Finding("statement", "passed", self.by, told)
        unread = before.type if isinstance(before.type, str) else after.type
        return Finding("statement", "not_checked", self.by, f"its type could not be compared: {unread}")


@dataclass(frozen=True, slots=True)
class _StatementAnswer:
    """Lean's answer on one build, or the reason for none; the printed type is read only where there is no exact one."""

    exact: Answer | str
    type: TypeText | str


def judge_axioms(
    exact: Answer | str, printed: tuple[str, ...] | str, *, declaration: str, by: str, module: str
) -> Finding:
    """Judge by all that Lean said: what either answer names has to be allowed, and both have to agree."""
    voices: list[tuple[str, tuple[str, ...]]] = []
    silent: list[str] = []
    sorried: tuple[str, ...] = ()
    if isinstance(exact, Answer):
        voices.append((QUESTIONS.name, exact.axioms))
        sorried = tuple(name for name in exact.sorried if name != declaration)
        if exact.unsafe:
            why = f"{declaration} rests on what is unsafe: {', '.join(exact.unsafe)}"
            return Finding("axioms", "failed", by, why, axioms=exact.axioms)
        if exact.native:
            why = f"{declaration} rests on compiled code that the kernel believed: {', '.join(exact.native)}"
            return Finding("axioms", "failed", by, why, axioms=exact.axioms)
    else:
        silent.append(exact)
    if isinstance(printed, str):
        silent.append(printed)
    else:
        voices.append(("#print axioms", printed))
    if not voices:
        return Finding("axioms", "not_checked", by, "; ".join(silent))
    axioms = tuple(dict.fromkeys(name for _, names in voices for name in names))
    foreign = [name for name in axioms if name not in ALLOWED_AXIOMS]
    asked = " and ".join(name for name, _ in voices)
    if "sorryAx" in axioms:
        why = f"{declaration} is conditional: it rests on sorryAx ({asked})"
        return Finding("axioms", "failed", by, why, axioms=axioms, sorried=sorried)
    if foreign:
        why = "; ".join(f"{declaration} rests on {name}" for name in foreign)
        return Finding("axioms", "failed", by, f"{why} ({asked})", axioms=axioms)
    if len({frozenset(names) for _, names in voices}) != 1:
        said = "; ".join(f"{name}: {', '.join(names) or 'none'}" for name, names in voices)
        return Finding("axioms", "not_checked", by, f"two answers do not agree: {said}")
    told = f"only {', '.join(axioms)}" if axioms else "no axiom at all"
    also = f"; not answered: {silent[0]}" if silent else ""
    evidence = f"{told}, by {asked} in another process that imports {module}{also}"
    return Finding("axioms", "passed", by, evidence, axioms=axioms)


def _unjudged(by: str, why: str) -> Iterator[Finding]:
    steps: tuple[StepName, ...] = ("axioms", "statement", "kernel")
    verdict: CheckVerdict = "not_checked"
    yield from (Finding(step, verdict, by, why) for step in steps)
