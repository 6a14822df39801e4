"""A generator that another process has loaded: the server for editors lends its own to the searches that it runs, so
that no search loads the same weights once more.

They speak over a socket that the job inherits, a line of JSON each way: some requests, and the answers in their order.
The other end is `pipeline.serve.lending`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import asdict

from pipeline.tactics.errors import ModelError
from pipeline.tactics.requests import Decoding, Request, Suggestion, Suggestions


class LentGenerator:
    """Asks the generator at the other end (`service.Suggesting`). For one thread at a time.

    Raises:
        OSError: the descriptor is no socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        # What the job starts has no business with it.
        self._socket.set_inheritable(False)
        self._lines = self._socket.makefile("rwb")

    def together(self, requests: Sequence[Request]) -> Sequence[int]:
        """Return all of them: the other end makes its own batches."""
        return range(len(requests))

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in their order.

        Raises:
            ModelError: whoever lends it is gone.
        """
        try:
            self._lines.write(requests_line(requests))
            self._lines.flush()
            line = self._lines.readline()
        except OSError as error:
            raise ModelError(f"the generator that was lent cannot be asked: {error}") from error
        if not line:
            raise ModelError("the generator that was lent is gone: whoever lent it has closed the line")
        return read_answers(line)

    def close(self) -> None:
        """Give it back."""
        try:
            self._lines.close()
        except OSError:
            pass  # what could not be written is written once more here; whoever asked it was told
        finally:
            self._socket.close()


def requests_line(requests: Sequence[Request]) -> bytes:
    """Return requests as `read_requests` takes them."""
    return json.dumps([asdict(one) for one in requests]).encode() + b"\n"


def read_requests(line: bytes) -> list[Request]:
    """Return the requests of a line."""
    return [
        Request(one["state"], tuple(one["premises"]), Decoding(**one["decoding"]), one["seed"])
        for one in json.loads(line)
    ]


def answers_line(answers: Sequence[Suggestions]) -> bytes:
    """Return answers as `read_answers` takes them."""
    told = [
        {
            "tactics": [asdict(tactic) for tactic in one.tactics],
            "left_out": dict(one.left_out),
            "error": one.error,
            "prompt_tokens": one.prompt_tokens,
            "written_tokens": one.written_tokens,
            "usd": one.usd,
            "reason": one.reason,
        }
        for one in answers
    ]
    return json.dumps(told).encode() + b"\n"


def read_answers(line: bytes) -> list[Suggestions]:
    """Return the answers of a line."""
    return [
        Suggestions(**{**one, "tactics": tuple(Suggestion(**tactic) for tactic in one["tactics"])})
        for one in json.loads(line)
    ]
