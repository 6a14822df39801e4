"""Log by structlog on standard error: JSON for machines, sentences for a terminal, never a secret.

Owns the configuration and the filter. Everything, the libraries' stdlib logging included, goes through one
handler. Field order and names: `event` (constant snake_case), `level`, `ts`, then the caller's fields.
`sentence` is the line for people; at a terminal it stands behind the time, and without one the fields follow
the `event`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, MutableMapping
from typing import IO, Any, ClassVar

import structlog

from pipeline.connections import OnceAMinute
from pipeline.redact import redact
from store.text import clean

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_CHATTY = ("apscheduler", "httpx2", "httpcore2", "httpx", "httpcore", "uvicorn", "asyncio", "watchdog")

_SPARING = OnceAMinute()
"""A library's repeated message, such as about a refused connection, is one line a minute."""


class SecretFilter:
    """A structlog processor that hides secrets in every value of a record, at any depth."""

    def __init__(self, secrets: Callable[[], tuple[str, ...]] = tuple) -> None:
        self._secrets = secrets

    def __call__(
        self, _logger: Any, _method: str, record: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        secrets = self._secrets()
        return {key: self._clean(value, secrets) for key, value in record.items()}

    def _clean(self, value: Any, secrets: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            return redact(value, secrets=secrets)
        if isinstance(value, dict):
            return {self._clean(key, secrets): self._clean(item, secrets) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean(item, secrets) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return redact(str(value), secrets=secrets)


class SentenceRenderer:
    """A structlog processor that makes one line for a terminal: the time, the level if bad, and a
    sentence."""

    _ESCAPES: ClassVar[dict[str, str]] = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
    _UNSAID: ClassVar[frozenset[str]] = frozenset(("event", "sentence", "level", "ts", "logger", "exception"))

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _logger: Any, _method: str, record: MutableMapping[str, Any]) -> str:
        level = str(record.get("level", ""))
        bad = f"{level}: " if level in self._ESCAPES else ""
        text = bad + clean(record.get("sentence") or self._of_fields(record))
        if bad and self._colours:
            text = f"{self._ESCAPES[level]}{text}\x1b[0m"
        line = f"{record.get('ts', '')}  {text}"
        return f"{line}\n{record['exception']}" if record.get("exception") else line

    def _of_fields(self, record: MutableMapping[str, Any]) -> str:
        fields = ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in record.items()
            if name not in self._UNSAID and value not in (None, "", [], ())
        )
        event = str(record.get("event", "")).replace("_", " ")
        return f"{event}: {fields}" if fields else event


def configure(
    *,
    level: str = "info",
    log_format: str = "auto",
    stream: IO[str] | None = None,
    secrets: Callable[[], tuple[str, ...]] = tuple,
) -> None:
    """Set logging up for the whole process. May be called again after a reload."""
    stream = sys.stderr if stream is None else stream
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        # journald stamps every line itself; JOURNAL_STREAM is set if it listens.
        *(
            [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="ts")]
            if console
            else []
            if "JOURNAL_STREAM" in os.environ
            else [structlog.processors.TimeStamper(fmt="iso", key="ts")]
        ),
        structlog.processors.format_exc_info,
    ]
    last = (
        SentenceRenderer(colours=stream.isatty() and "NO_COLOR" not in os.environ)
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                SecretFilter(secrets),
                last,
            ],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])
    for name in _CHATTY:
        # Skipped ticks and every HTTP request are not news; our own lines report events.
        logging.getLogger(name).setLevel(max(_LEVELS[level], logging.WARNING))
        logging.getLogger(name).addFilter(_SPARING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
