"""Verbs of the command line run in this process: a process of its own would take seven times as long.

done = verbs.everlean("status", "--json", environment=os.environ, folder=folder)
assert done.returncode == 0

What is about processes (signals, an output that takes no more, what an interpreter loads) needs the installed command.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import logging
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import structlog

from daemon.cli.app import build
from daemon.cli.context import VERBS
from daemon.cli.verbs.schema import class_of
from store.documents.schema import schema_of

ROOT = Path(__file__).resolve().parents[2]


def everlean(
    *arguments: str, environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a verb by the entry point that pyproject.toml names, without a standard input.

    Args:
        environment: the whole of it.
        folder: where it runs.
    """
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    module, function = scripts["everlean"].split(":")
    main = getattr(importlib.import_module(module), function)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code = 0
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    umask = os.umask(0o022)
    os.umask(umask)
    on_signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", ["everlean", *arguments]),
        Path(os.devnull).open(encoding="utf-8") as nothing,
        mock.patch.object(sys, "stdin", nothing),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            gc.unfreeze()  # a verb freezes what it loaded, for it expects to be all that its process does
            out.flush()
            err.flush()
            logger.handlers[:] = handlers
            logger.setLevel(level)
            structlog.reset_defaults()
            os.umask(umask)  # a verb that makes files keeps them for its user
            for number, handler in on_signals.items():
                signal.signal(number, handler)
    said, told = (stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
    return subprocess.CompletedProcess(["everlean", *arguments], code, said, told)


_HEAD = ("schema", "daemon", "as_of")
"""Begin the documents of almost every verb; `status` has its own `daemon`."""


def hold_to_schema(verb: str, document: Mapping[str, Any]) -> None:
    """Check that a document of `--json` is what `everlean schema VERB` says; `verb` may have an argument behind it."""
    build()
    found = VERBS[verb if verb in VERBS else verb.split()[0]].document
    assert found is not None
    schema = schema_of(class_of(found))
    for name in _HEAD[1:]:
        schema["properties"].pop(name, None)
    schema["required"] = [name for name in schema["required"] if name in schema["properties"]]
    jsonschema.validate({key: value for key, value in document.items() if key not in _HEAD}, schema)
