"""Proofs by programs, such as agents: each runs in a sandbox, in a checkout of its own, and edits the sorry's file.

A program's statements and files are not trusted. After its end, the edited file's text in the sorry's place is an
author's answer like any other: Lean judges it in the job's own checkout, then the gate. A file with any other change is
refused, with the reason; the rest of the checkout is deleted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipeline.endpoint.errors import ExternalError, SpendingCapError, Usage
from pipeline.endpoint.spending import Spending
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import EarlierAttempt, ProgramSpec
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.lake import MOST_PROCESSES, SYSTEM_PATH, Bounds, LakeRunner, Outcome
from pipeline.lean.build.trees import copy_tree, remove_tree
from pipeline.lean.sandbox.command import SandboxError, find_program
from pipeline.lean.sandbox.network import Gateway, Rules, forwarded
from pipeline.lean.source.scanner import SourceFile, parse, scan_source
from pipeline.lean.source.worktree import read_inside
from pipeline.prove.task import Task
from pipeline.prove.whole_proof import AuthorAnswers, FailedProof, WholeAsk
from pipeline.redact import redact
from store.domain.records import Declaration
from store.text import clean, clean_block, cut, listed, one_line

TASK_VARIABLE = "EVERLEAN_TASK"
"""The environment variable with the path of the task; the program gets the task on its standard input too."""
USAGE = "everlean-usage:"
"""Prefix of a program's line with its cost in JSON; the last one counts."""
DISK_BYTES = 2 * 2**30
"""Limit of its writing into its checkout."""
GRACE_S = 5.0
"""From SIGTERM to SIGKILL, once its time is over."""
_LONGEST_PROOF = 200_000
_OUTPUT = 1500
"""Characters of its output kept by the attempt: the end."""
_NAMED = 5
_DEEPEST = 200
_MARKS = re.compile(r"</?a>")
"""Marks around the declared name in a premise's code."""


class RefusedEditError(Exception):
    """The file has no answer; the message is the reason."""


def used_by(text: str) -> Usage:
    """Read a program's report of its usage: a JSON object, of which other fields and anything but plain numbers are
    ignored.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return Usage()
    fields = answer if isinstance(answer, dict) else {}
    usd, prompt, completion = (
        _number(fields.get(name)) for name in ("usd", "prompt_tokens", "completion_tokens")
    )
    return Usage(int(prompt or 0), int(completion or 0), usd)


def _number(value: object) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if plain else None  # type: ignore[arg-type] # `plain` says that it is one


class ProgramAuthor:
    """An author (`pipeline.prove.whole_proof.Author`): a program edits the file with the sorry."""

    def __init__(
        self,
        given: ProgramSpec,
        *,
        backend: LeanBackend,
        worktree: Path,
        project: Path,
        scratch: Path,
        key: str | None = None,
        earlier: Mapping[tuple[str, int], Sequence[EarlierAttempt]] | None = None,
    ) -> None:
        """Args:
        given: the program.
        backend: its checkout's Lean and sandbox.
        worktree: the checkout to copy for each run.
        project: the Lake project's folder in it.
        scratch: a folder for the copies.
        key: for the variable named by `given`.
        earlier: earlier attempts, by the file and the first byte of the sorry.

        Raises:
            JobError: the program is missing.
        """
        program = find_program(given.run)
        if isinstance(program, str):
            raise JobError("program_missing", f"{given.name}: {program}", remedy="see `everlean doctor`")
        self._name = given.name
        self._given = given
        self._program = program
        self._backend = backend
        self._worktree = worktree
        self._folder = project.relative_to(worktree)
        self._scratch = scratch
        self._secrets = {given.key_variable: key} if given.key_variable and key else {}
        self._earlier = earlier or {}
        self._spending = Spending(ledger=given.ledger, cap_usd=given.cap_usd)

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Run the program; return its text in the sorry's place (`whole_proof.Author`).

        Raises:
            JobError: the sandbox cannot be made.
        """
        assert ask.seconds is not None, "a program has a time limit"
        stop, held = socket.socketpair()
        try:
            # Closed also at the job's end, since the job waits for its threads.
            with held:
                return await asyncio.to_thread(self._run, ask, ask.seconds, stop)
        except ExternalError as error:
            if isinstance(error, SpendingCapError) and ask.earlier:
                # The earlier runs were paid for, and their results must be recorded.
                return AuthorAnswers((), missing=f"no further run: {error}")
            return AuthorAnswers((), error=str(error), reason=error.reason)
        except SandboxError as error:
            raise JobError(
                "sandbox_missing", f"{self._name}: {error}", remedy="see `everlean doctor`"
            ) from error
        except OSError as error:
            return AuthorAnswers((), error=f"its checkout cannot be made: {error}", reason="model_failed")

    def _run(self, ask: WholeAsk, seconds: float, stop: socket.socket) -> AuthorAnswers:
        memory = resource.getrlimit(resource.RLIMIT_DATA)[0]
        bounds = Bounds(
            seconds,
            None if memory == resource.RLIM_INFINITY else memory,
            MOST_PROCESSES,
            DISK_BYTES,
            grace_s=GRACE_S,
        )
        with stop, self._checkout() as folder:
            checkout = folder / "checkout"
            before = dict(_files(checkout))
            reserved = self._spending.reserve(self._given.usd_per_run, spender=self._name)
            try:
                outcome, used, refusals = self._execute(ask, folder, bounds, stop)
            except SandboxError:
                self._spending.book(reserved, Usage())  # nothing was run
                raise
            # Its word is untrusted: it costs the settings' price at least, and at most the day that all share.
            said = min(used.usd or 0.0, self._given.cap_usd or 0.0)
            cost = Usage(usd=max(self._given.usd_per_run, said))
            self._spending.book(reserved, cost)
            changed = _changes(before, dict(_files(checkout)), str(self._folder / ask.path))
            try:
                text, refused = self._written(ask, checkout), ""
            except RefusedEditError as error:
                text, refused = "", str(error)
        ran_over = outcome.ending == "timeout"
        ended = "" if outcome.ok else f"it ended with: {outcome.explain(bounds)}"
        message = (
            "it did not say what it cost"
            if used.usd is None
            else f"by its own account it cost ${used.usd:.4f}"
        )
        note = "; ".join(filter(None, (ended, *changed, *refusals, message, self._output(outcome))))
        note = self._hidden(f"{self._name}: {note}")
        if not outcome.ok and not ran_over and refused == _UNCHANGED:
            return AuthorAnswers((), used, error=note, reason="model_failed")
        return AuthorAnswers(
            () if refused else (text,),
            used,
            f"refused: {refused}" if refused else "",
            (FailedProof("", (refused,)),) if refused else (),
            note,
        )

    @contextmanager
    def _checkout(self) -> Iterator[Path]:
        """Yield a folder with a copy of the job's checkout, and delete it after the block."""
        folder = Path(tempfile.mkdtemp(prefix="program-", dir=self._scratch))
        try:
            copy_tree(self._worktree, folder / "checkout")
            yield folder
        finally:
            remove_tree(folder)

    def _execute(
        self, ask: WholeAsk, folder: Path, bounds: Bounds, stop: socket.socket
    ) -> tuple[Outcome, Usage, list[str]]:
        """Run the program; return its end, its reported usage, and the refused hosts."""
        lean, compiles = self._lean(folder / "checkout" / self._folder)
        task = folder / "task.json"
        task.write_text(self._task(ask, compiles, bounds.timeout_s).as_text(), encoding="utf-8")
        used = Usage()

        def hear(line: str) -> None:
            nonlocal used
            if line.startswith(USAGE):
                used = used_by(line.removeprefix(USAGE))

        system = self._program.is_relative_to("/usr")
        with ExitStack() as held:
            wrap, bound = (), ()  # type: tuple[str, ...], tuple[Path, ...]
            gateway = None
            environment = {
                TASK_VARIABLE: str(task),
                "PATH": f"{lean.program.parent}:{self._program.parent}:{SYSTEM_PATH}",
            }
            if self._given.network:
                sandboxed = lean.sandbox == "bubblewrap"
                gateway = held.enter_context(Gateway(Rules(self._given.network), tcp=not sandboxed))
                if sandboxed:
                    wrap, bound = forwarded(gateway.socket)
                else:
                    environment |= {"HTTPS_PROXY": gateway.url, "HTTP_PROXY": gateway.url}
            runner = lean.with_(
                readable=(task, *bound, *(() if system else (self._program,)), *self._given.readable),
                writable=(folder / "checkout",),
                environment=environment,
                secrets=self._secrets,
                wrap=wrap,
                certificates=True,
            )
            outcome = runner.execute(
                (str(self._program), *self._given.run[1:]),
                bounds=bounds,
                stdin=task,
                on_line=hear,
                stop=stop,
            )
        refused = () if gateway is None else gateway.refusals
        named = listed([f"{one.target} ({one.reason})" for one in refused], _NAMED)
        return outcome, used, [f"hosts that it was refused: {named}"] if refused else []

    def _lean(self, project: Path) -> tuple[LakeRunner, tuple[str, ...]]:
        """Return a runner of programs with the project's Lean, and the command to compile a file there."""
        result = LakeRunner.find(self._backend, project=project)
        if isinstance(result, LakeRunner):
            return result, ("lake", "env", "lean")
        program, tools = Path(self._backend.argv[0]), self._backend.sysroot
        if tools:
            program = Path(tools) / "bin" / "lean"
        runner = LakeRunner(program, Path(tools) if tools else None, self._backend.sandbox, project)
        return runner, ("lean",)

    def _task(self, ask: WholeAsk, lean: tuple[str, ...], seconds: float) -> Task:
        sorry, data = ask.sorry, ask.declaration.data
        before = self._earlier.get((ask.path, sorry.byte_start), ())
        return Task(
            file=ask.path,
            declaration=sorry.declaration,
            line=sorry.line,
            column=sorry.column,
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
            mode=sorry.mode,
            source=ask.declaration.text,
            statement=scan_source(data, path=ask.path).declarations[sorry.index].statement,
            goal=ask.goal,
            hypotheses=ask.hypotheses,
            premises=tuple(_MARKS.sub("", one) for one in ask.premises),
            toolchain=self._backend.toolchain,
            lean=lean,
            earlier=(
                *before,
                *(
                    EarlierAttempt("this program", "refused", one.text, list(one.errors))
                    for one in ask.earlier
                ),
            ),
            seconds=round(seconds, 1),
        )

    def _written(self, ask: WholeAsk, checkout: Path) -> str:
        """Return the text in the sorry's place.

        Raises:
            RefusedEditError: the file is unchanged, has another change, or is no file.
        """
        most = len(ask.declaration.data) + 4 * _LONGEST_PROOF
        try:
            # From the checkout on: the project's own folder may be a link by now.
            after = read_inside(checkout, str(self._folder / ask.path), most_bytes=most)
        except OSError as error:
            raise RefusedEditError(f"{ask.path} is not what it was: {error.strerror}") from error
        text = after.decode(errors="replace")
        if self._hidden(text) != redact(text):
            raise RefusedEditError("the file holds the program's key")  # and the change stays secret
        return text_in_place(ask, after)

    def _hidden(self, text: str) -> str:
        return redact(text, secrets=self._secrets.values())

    def _output(self, outcome: Outcome) -> str:
        output = self._hidden(outcome.output).strip()
        return f"it said: {clean_block(cut(output[::-1], _OUTPUT)[::-1])}" if output else ""


_UNCHANGED = "the sorry is still there, as it was"


def text_in_place(ask: WholeAsk, after: bytes) -> str:
    """Return the text in a sorry's place in an edited file. Line ends at the end of the file may have changed.

    Raises:
        RefusedEditError: the sorry is unchanged, or more changed.
    """
    before, sorry = ask.declaration.data, ask.sorry
    if after == before:
        raise RefusedEditError(_UNCHANGED)
    head, tail = before[: sorry.byte_start], before[sorry.byte_end :].rstrip(b"\r\n")
    body = after.rstrip(b"\r\n")
    if not (body.startswith(head) and body.endswith(tail) and len(head) + len(tail) <= len(body)):
        raise RefusedEditError(_what_changed(ask, after))
    try:
        text = body[len(head) : len(body) - len(tail)].decode()
    except UnicodeDecodeError:
        raise RefusedEditError("what stands in the sorry's place is no text") from None
    if len(text) > _LONGEST_PROOF:
        raise RefusedEditError(f"its text has {len(text)} characters, and {_LONGEST_PROOF} may be")
    if not text.strip():
        raise RefusedEditError("nothing stands in the sorry's place")
    return text


def _what_changed(ask: WholeAsk, after: bytes) -> str:
    """Return an edit's changes beside the sorry."""
    before = ask.declaration.data
    old, new = parse(before), parse(after)
    if new.scanned.error is not None:
        return f"the file does not scan any more: {new.scanned.error}"
    if before[: old.header_end] != after[: new.header_end]:
        return "the header of the file changed"
    own = old.scanned.declarations[ask.sorry.index]
    now = next(
        (one for one in new.scanned.declarations if (one.name, one.kind) == (own.name, own.kind)), None
    )
    if now is not None and now.statement_hash != own.statement_hash:
        return f"the statement of {own.name} changed"
    there = _commands(before, old, but=own)
    kept = _commands(after, new, but=now)
    if changed := [*(one for one in there if one not in kept), *(one for one in kept if one not in there)]:
        return f"more than the sorry of {own.name} changed: {cut(listed(changed, 3), 300)}"
    return f"more of {own.name} than this sorry changed; write the proof in its place, and keep the rest"


def _commands(data: bytes, source: SourceFile, *, but: Declaration | None) -> list[str]:
    """Return the texts of a file's commands, each in one line, without the command of a declaration."""
    own = None if but is None else source.command_at(but.byte_start)
    return [
        one_line(data[one.byte_start : one.byte_end].decode(errors="replace"))
        for one in source.commands
        if one != own
    ]


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the files below a folder, each with two marks of its last change: inode and change time.

    A program cannot set the change time. Its files too deep for us, or beyond an unreadable folder, count for as little
    as the rest.
    """
    todo: list[tuple[str, int]] = [("", 0)]
    while todo:
        below, depth = todo.pop()
        try:
            entries = list(os.scandir(folder / below))
        except OSError:
            continue
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEEPEST:
                    todo.append((f"{name}/", depth + 1))
                continue
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield name, (about.st_ino, about.st_ctime_ns)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], own: str) -> list[str]:
    """Report a program's changes beside the file of the sorry."""
    named = sorted(clean(name) for name in {*before, *after} - {own} if before.get(name) != after.get(name))
    if not named:
        return []
    return [f"what else it changed counts for nothing: {cut(listed(named, _NAMED), 300)}"]
