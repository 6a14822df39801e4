"""Paid answers, on disk by the hash of their request: a repeated request after a kill costs nothing.

Each is the endpoint's unchanged reply, in a file of its own, durable before the request counts as answered. A request
is identified by the endpoint, the model, the messages, the sampling (seed and temperature) and the number of answers;
without a seed each sampling differs, and nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.endpoint.dialect import Answer, Ask, NotUnderstoodError, read_answer
from pipeline.endpoint.errors import EndpointError
from store.files import write_whole

_log = logging.getLogger(__name__)
KEPT_S = 14 * 24 * 3600.0


class PaidAnswers:
    """A folder of an endpoint's replies, shared by several processes."""

    def __init__(self, folder: Path | None, url: str, model: str) -> None:
        """Open the folder, and remove replies older than two weeks. None: keep no reply.

        Raises:
            EndpointError: the folder is not writable: an answer that cannot be kept is not paid for.
        """
        self._folder, self._asked = folder, (url, model)
        if folder is None:
            return
        with self._usable():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)  # private projects' proofs
            with tempfile.TemporaryFile(dir=folder):  # it is writable
                pass
            for path in folder.iterdir():
                with suppress(FileNotFoundError):  # another process may sweep, too
                    if time.time() - path.stat().st_mtime > KEPT_S:
                        path.unlink()

    def name(self, ask: Ask, count: int) -> str:
        """Return the name of a request for `count` answers; "" if its reply is not kept, as without a seed."""
        if self._folder is None or ask.seed is None:
            return ""
        drawn = (ask.max_tokens, ask.temperature, ask.seed, count)
        asked = (*self._asked, [dict(one) for one in ask.messages], *drawn)
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def get(self, name: str) -> Answer | None:
        """Return the answer to an earlier request, if any.

        Raises:
            EndpointError: the reply is unreadable.
        """
        if self._folder is None or not name:
            return None
        with self._usable(), suppress(FileNotFoundError):
            try:
                return read_answer((self._folder / name).read_bytes())
            except NotUnderstoodError as error:
                _log.warning(
                    "%s: a kept answer is damaged and asked for again: %s", self._folder / name, error
                )
        return None

    def put(self, name: str, reply: bytes) -> None:
        """Keep a reply.

        Raises:
            EndpointError: the reply cannot be written.
        """
        if self._folder is not None and name:
            with self._usable():
                write_whole(self._folder / name, reply)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EndpointError(
                f"the paid answers in {self._folder} cannot be kept ({error.strerror}). Make room, or let this user "
                "write there",
                "answers_not_kept",
            ) from error
