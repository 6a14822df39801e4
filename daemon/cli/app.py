"""The top of the command line: the verbs, and their errors as exit codes."""

from __future__ import annotations

import errno
import gc
import importlib
import inspect
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from daemon.cli.context import GROUPS as GROUP_HELP
from daemon.cli.context import VERBS as LOADED
from daemon.cli.context import CliError, ExitCode
from daemon.cli.options import AsOf, Config, Json
from store.text import clean_block

GROUPS = {
    "Watch": {
        "init": "everlean init https://github.com/owner/name",
        "repos": "everlean repos add https://github.com/owner/name",
        "run": "everlean run --config mine.toml",
        "poll": "everlean poll mathlib4",
        "scan": "everlean scan .",
        "diff": "everlean diff origin/main --fail-on opened,axiom,statement,unread",
    },
    "Look": {
        "status": "everlean status --watch",
        "sorries": "everlean sorries --repo FLT --since 7d",
        "theorems": "everlean theorems --text limit_unique",
        "events": "everlean events --since yesterday",
        "report": "everlean report --out report",
    },
    "Prove": {
        "proofs": "everlean proofs --state verified",
        "certificate": "everlean certificate verify mine.certificate.json",
        "bump": "everlean bump FLT --to v4.35.0",
        "serve": "everlean serve --port 8765",
        "mcp": "everlean mcp --config mine.toml",
    },
    "Learn": {
        "models": "everlean models",
        "curriculum": "everlean curriculum",
        "import": "everlean import leandojo dynamic_database.json",
        "export": "everlean export leandojo dataset",
        "benchmark": "everlean benchmark make bench FLT --day 2026-03-01",
        "trace": "everlean trace https://github.com/owner/name@main --out dataset",
        "leandojo": "everlean leandojo run sft.py",
    },
    "Operate": {
        "setup": "everlean setup",
        "doctor": "everlean doctor",
        "config": "everlean config check",
        "jobs": "everlean jobs --state failed",
        "pause": "everlean pause prove --reason maintenance",
        "resume": "everlean resume prove",
        "trigger": "everlean trigger prove FLT",
        "db": "everlean db backup everlean.backup",
        "standby": "everlean standby --take-over",
        "schema": "everlean schema sorry",
        "version": "everlean version",
    },
}
"""All verbs by purpose, each with an example. Its module is `daemon.cli.<verb>` unless `_MODULES` names
another."""
EXAMPLES = {verb: example for verbs in GROUPS.values() for verb, example in verbs.items()}
VERBS = tuple(EXAMPLES)

COMPLETING = "_EVERLEAN_COMPLETE"
"""Set by Typer's scripts to ask for candidates, and to print one: `_EVERLEAN_COMPLETE=source_bash
everlean`."""
_MODULES = {
    "init": "repos",
    "curriculum": "models",
    "import": "exchange",
    "export": "exchange",
    "trace": "leandojo",
    "poll": "jobs",
    "pause": "jobs",
    "resume": "jobs",
    "trigger": "jobs",
    "doctor": "setup",
    "version": "setup",
    "standby": "run",
}
"""The modules with several verbs."""
_GLOBAL = ("--config", "--as-of", "--json")
"""Options that may also stand before the verb."""


def main() -> None:
    """Run one verb and exit with its code (docs/cli.md lists them)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Lean is full of characters that an ASCII locale cannot write, and an answer is better than an
            # error.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    _watch_output()
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()  # while an error can still be caught
    except OutputError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest at exit
        if error.reason.errno == errno.EPIPE:
            sys.exit(ExitCode.OUTPUT_CLOSED)
        print(f"everlean: standard output: {error.reason.strerror}; write it elsewhere", file=sys.stderr)
        sys.exit(ExitCode.FAILURE)


def _run() -> None:
    try:
        gc.disable()  # everything loaded here stays: a collection meanwhile finds nothing
        words = _words()
        app = build(asked_for(words))
        gc.freeze()
        gc.enable()
        app(words, prog_name="everlean")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        print(f"everlean: {clean_block(str(error))}", file=sys.stderr)
        sys.exit(code)


class OutputError(Exception):
    """Standard output takes no more. No OSError: a verb that catches those means its own files."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Output(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from error


def _watch_output() -> None:
    """Have errors of standard output raised as `OutputError`."""
    stream = sys.stdout
    if stream is None:  # closed by the caller, as by the shell's >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    elif stream is sys.__stdout__ and isinstance(stream, io.TextIOWrapper):
        raw = _Output(stream.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            raw if stream.write_through else io.BufferedWriter(raw),
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )


def build(verbs: tuple[str, ...] = VERBS) -> typer.Typer:
    """Return the application with these verbs."""
    app = typer.Typer(
        # Not for a single verb: the two options cost time.
        add_completion=verbs == VERBS or COMPLETING in os.environ,
        cls=Verbs,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Watch Lean 4 repositories, and fill their sorries with checked proofs.",
        epilog="Each verb has --help, with an example. --config, --as-of and --json stand before the verb or after it. "
        "Documentation: docs/cli.md. Exit codes: "
        + ", ".join(f"{int(code)} {code.name.lower().replace('_', ' ')}" for code in ExitCode)
        + ".",
    )

    @app.callback(invoke_without_command=True)
    def top(
        show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
        # For help, and for a shell's completion; `in_order` moves them behind the verb.
        config: Config = None,  # noqa: ARG001
        as_of: AsOf = None,  # noqa: ARG001
        as_json: Json = False,  # noqa: ARG001
    ) -> None:
        if show_version:
            from daemon.cli.verbs.setup import version_text

            print(version_text())
            raise typer.Exit

    for module in dict.fromkeys(_MODULES.get(verb, verb) for verb in verbs):
        importlib.import_module(f"daemon.cli.verbs.{module}")
    for name in verbs:
        example = f"Example: {EXAMPLES[name]}"
        if name in GROUP_HELP:
            app.add_typer(_group(name, example), name=name)
        else:
            app.command(name, help=LOADED[name].help, epilog=example)(LOADED[name].run)
    return app


def _group(name: str, example: str) -> typer.Typer:
    """Return a group's application. Its bare name runs the verb of that name, if there is one."""
    bare = LOADED.get(name)
    group = typer.Typer(
        cls=Verbs, help=GROUP_HELP[name], epilog=example, no_args_is_help=bare is None, rich_markup_mode=None
    )
    if bare is not None:
        group.callback(invoke_without_command=True)(_bare(bare.run))
        group.command("list", hidden=True)(bare.run)
    for one in LOADED.values():
        above, _, own = one.name.partition(" ")
        if own and above == name:
            group.command(own, help=one.help, context_settings=one.context_settings)(one.run)
    return group


def _bare(rows: Callable[..., None]) -> Callable[..., None]:
    """Return the function for a group's bare name; options before one of its verbs mean the same as behind
    it."""

    def run(context: typer.Context, **options: Any) -> None:
        if context.invoked_subcommand is None:
            rows(**options)
            return
        # Click reads a verb's missing options from here.
        values = {name: value for name, value in options.items() if value not in (None, False, "")}
        context.default_map = {context.invoked_subcommand: values}

    own = inspect.signature(rows)
    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    return run


class Verbs(TyperGroup):
    """The verbs of a group, each with its whole help; at the top under their purpose."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        below = {name: str(one.help) for name, one in self.commands.items() if not one.hidden}
        titled = {title: [verb for verb in verbs if verb in below] for title, verbs in GROUPS.items()}
        if ctx.parent is not None:
            titled = {"Commands": list(below)}
        for title, verbs in titled.items():
            if verbs:
                with formatter.section(title):
                    formatter.write_dl([(verb, below[verb]) for verb in verbs])
                    if ctx.parent is None:
                        formatter.write_text(f"Example: {EXAMPLES[verbs[0]]}")


def in_order(words: Sequence[str]) -> list[str]:
    """Return the words with the options before the verb moved behind it, and `help VERB` as `VERB --help`."""
    before: list[str] = []
    left = list(words)
    while left and left[0].partition("=")[0] in _GLOBAL:
        takes_value = left[0] in _GLOBAL[:2]
        before += left[: 1 + takes_value]
        left = left[1 + takes_value :]
    if not left or left[0].startswith("-"):
        return [*before, *left]
    if left[0] == "help":
        return [*left[1:], "--help"]
    end = left.index("--") if "--" in left else len(left)
    return [*left[:end], *before, *left[end:]]


def asked_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the one verb to load; all of them if the command line begins with none (help, a typing
    error)."""
    return (arguments[0],) if arguments and arguments[0] in VERBS else VERBS


def _words() -> Sequence[str]:
    """Return the words after `everlean`: of the command line, or of the line to complete."""
    if COMPLETING not in os.environ:
        return in_order(sys.argv[1:])
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


_CODES = {
    "daemon.agents.server:AgentError": ExitCode.FAILURE,
    "daemon.leandojo.session:AgentError": ExitCode.FAILURE,
    "daemon.place.control_client:ControlError": ExitCode.FAILURE,
    "daemon.place.control_client:DaemonNotRunningError": ExitCode.NOT_RUNNING,
    "daemon.place.instance:InstanceError": ExitCode.FAILURE,
    "daemon.place.instance:NoConfigError": ExitCode.BAD_CONFIG,
    "daemon.place.lock:AlreadyRunningError": ExitCode.ALREADY_RUNNING,
    "daemon.place.lock:FolderError": ExitCode.FAILURE,
    "daemon.polling.github:ProposalError": ExitCode.FAILURE,
    "daemon.results.bumps:SeriesError": ExitCode.FAILURE,
    "daemon.results.lean_eval:WorkspaceError": ExitCode.FAILURE,
    "daemon.results.local_clone:CloneError": ExitCode.FAILURE,
    "daemon.results.mail:NoPatchError": ExitCode.FAILURE,
    "daemon.planning.serve_spec:ServeError": ExitCode.FAILURE,
    "daemon.settings.watchlist:EditError": ExitCode.FAILURE,
    "daemon.settings.watchlist:RefusedTextError": ExitCode.BAD_CONFIG,
    "daemon.health.setup:SetupError": ExitCode.FAILURE,
    "pipeline.diff:CloneError": ExitCode.FAILURE,
    "pipeline.fills:BenchmarkError": ExitCode.FAILURE,
    "pipeline.gate.advisories:FeedError": ExitCode.FAILURE,
    "pipeline.gate.certificate:CertificateError": ExitCode.FAILURE,
    "pipeline.jobs.protocol:JobError": ExitCode.FAILURE,
    "pipeline.lean.install:BusyError": ExitCode.ALREADY_RUNNING,
    "pipeline.endpoint.errors:CredentialError": ExitCode.BAD_CONFIG,
    "pipeline.models.errors:LearningError": ExitCode.FAILURE,
    "pipeline.prove.tree:TreeError": ExitCode.FAILURE,
    "pipeline.report.writing:NotOursError": ExitCode.FAILURE,
    "store.documents.checkpoints:NotComparableError": ExitCode.FAILURE,
    "store.documents.lookup:UnresolvedError": ExitCode.FAILURE,
    "store.errors:LogError": ExitCode.FAILURE,
    "store.sorrydb:SorryDBError": ExitCode.FAILURE,
}
"""Errors with messages for people, by name: only the raising code has to load their modules.

Their subclasses are too, unless they are named themselves.
"""


def exit_code_of(error: Exception) -> ExitCode | None:
    """Return the exit code of an error with a message for people; any other one is a bug: None."""
    if isinstance(error, CliError):
        return error.code
    names = (f"{cls.__module__}:{cls.__qualname__}" for cls in type(error).__mro__)
    return next((_CODES[name] for name in names if name in _CODES), None)
