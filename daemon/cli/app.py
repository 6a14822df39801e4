"""The top of the command line: which verbs there are, and how their errors become exit codes."""

from __future__ import annotations

import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from daemon.cli.context import CliError, ExitCode

VERBS = (
    "run",
    "status",
    "repos",
    "sorries",
    "theorems",
    "proofs",
    "jobs",
    "models",
    "events",
    "scan",
    "import",
    "export",
    "curriculum",
    "report",
    "serve",
    "db",
    "config",
    "toolchain",
    "doctor",
    "poll",
    "pause",
    "resume",
    "trigger",
    "version",
)
"""Every verb; `daemon.cli.<verb>`, or the module in `_MODULES`, defines `register(app)`."""

COMPLETING = "_UNSORRY_COMPLETE"
"""Set by Typer's scripts as they ask for candidates, and to print one: `_UNSORRY_COMPLETE=source_bash unsorry`."""
_MODULES = {
    "serve": "run",
    "curriculum": "models",
    "import": "exchange",
    "export": "exchange",
    "poll": "work",
    "pause": "work",
    "resume": "work",
    "trigger": "work",
    "version": "doctor",
}
"""The modules that have several verbs."""


def main() -> None:
    """Run one verb and exit with its code (docs/cli.md lists them)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Lean is full of characters that an ASCII locale cannot write, and an answer is better than an error.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        if "UNSORRY_COMPLETING" in os.environ:
            return  # the script of an earlier version asks for candidates: its words are no command to run
        gc.disable()  # what is loaded here stays: to look at it while it grows finds nothing
        app = build(asked_for(_words()))
        gc.freeze()
        gc.enable()
        app(prog_name="unsorry")
    except CliError as error:
        print(f"unsorry: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        if not _is_ours(error):
            raise
        print(f"unsorry: {error}", file=sys.stderr)
        sys.exit(ExitCode.FAILURE)
    finally:
        _flush()


def build(verbs: tuple[str, ...] = VERBS) -> typer.Typer:
    """Return the application with these verbs."""
    app = typer.Typer(
        # Not where one verb runs: the two options cost time.
        add_completion=verbs == VERBS or COMPLETING in os.environ,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Watch Lean 4 repositories, record what happens there, fill sorries with checked proofs.",
        epilog="Every verb has --help. Documentation: docs/cli.md. Exit codes: "
        + ", ".join(f"{int(code)} {code.name.lower().replace('_', ' ')}" for code in ExitCode)
        + ".",
    )

    @app.callback(invoke_without_command=True)
    def top(
        show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    ) -> None:
        if show_version:
            from daemon.cli.doctor import text

            print(text())
            raise typer.Exit

    for module in dict.fromkeys(_MODULES.get(verb, verb) for verb in verbs):
        importlib.import_module(f"daemon.cli.{module}").register(app)
    return app


def _flush() -> None:
    """Write what is left while an error can still be caught; at exit Python would complain about a closed pipe."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.FAILURE)


def asked_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """The one verb to load; all of them where the command line does not begin with one (help, a typing error)."""
    return (arguments[0],) if arguments and arguments[0] in VERBS else VERBS


def _words() -> Sequence[str]:
    """Return the words after `unsorry`: of the command line, or of the line that a shell completes."""
    if COMPLETING not in os.environ:
        return sys.argv[1:]
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _is_ours(error: Exception) -> bool:
    """Return whether the error's message is made for people; any other one is a bug and keeps its traceback."""
    from daemon.http.control_client import ControlError
    from daemon.lock import FolderError
    from store.errors import LogError

    return isinstance(error, LogError | ControlError | FolderError)
