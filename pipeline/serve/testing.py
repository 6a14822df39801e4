"""For tests and measurements of the server: a tiny model that says what it is told to, a log in which checkpoints are
promoted, and the application behind a real port.

    said = make_saying(folder / "said", {"simp": 0.7, "rfl": 0.3})
    with Served(order_of(folder, ModelOrder("m", "causal", str(said)))) as it:
        it.wait_ready()
        ...  # it.url
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import torch
import uvicorn
from transformers import LlamaForCausalLM

from pipeline.prove.search import Budget
from pipeline.retrieval.quiet import quiet_libraries
from pipeline.serve.app import make_app
from pipeline.serve.order import LeanOrder, ModelOrder, ServeOrder
from pipeline.tactics.models import load_tokenizer
from pipeline.tactics.tiny import make_tiny_causal
from store.events.models import ModelKind
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view.view import View
from tests.support.models import checkpoint_promoted, checkpoint_saved

_NEVER = -40.0
"""The logarithm of what is as good as impossible."""
_PATIENCE_S = 60.0


def make_saying(folder: Path, tactics: Mapping[str, float], *, hidden: int = 64) -> Path:
    """Write a tiny causal model into `folder` that answers whatever it is asked with these tactics; return it.

    Each letter follows from the one before alone: attention and the layer's own part are zero, and the head is what
    makes each letter's embedding into the logits of the next.

    Args:
        folder: made if need be.
        tactics: with their probabilities, which add up to 1. No letter may stand twice in one, nor before different
            letters in two; the first letters differ.
        hidden: at least as many as there are different letters.
    """
    make_tiny_causal(folder, hidden=hidden, layers=1)
    tokenizer = load_tokenizer(folder)
    with quiet_libraries():
        model = LlamaForCausalLM.from_pretrained(folder)
    end = int(tokenizer.eos_token_id)
    follows: dict[int, dict[int, float]] = {}
    for tactic, probability in tactics.items():
        ids = tokenizer(f"\n{tactic}", add_special_tokens=False)["input_ids"]
        follows.setdefault(ids[0], {})[ids[1]] = probability
        for this, following in zip(ids[1:], [*ids[2:], end], strict=True):
            if follows.setdefault(this, {following: 1.0}) != {following: 1.0}:
                raise ValueError(f"in {tactics} a letter stands before different ones")
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        head = torch.nn.Parameter(torch.zeros_like(embeddings))
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        known = sorted(follows)
        wanted = torch.full((len(known), len(embeddings)), _NEVER)
        for row, this in enumerate(known):
            for following, probability in follows[this].items():
                wanted[row, following] = torch.tensor(probability).log()
        read = model.model.norm(embeddings[known])
        head.copy_((torch.linalg.pinv(read.double()) @ wanted.double()).T.float())
    model.config.tie_word_embeddings = False
    model.lm_head.weight = head
    with quiet_libraries():
        model.save_pretrained(folder)
    return folder


def order_of(folder: Path, *models: ModelOrder, **changes: Any) -> ServeOrder:
    """Return an order with these models and without Lean; what the server keeps is below `folder`."""
    lean = LeanOrder(
        backend="none",
        repl="",
        sandbox="none",
        toolchains=folder / "toolchains",
        cache=folder / "cache",
        scratch=folder / "scratch",
        budget=Budget(8, 5.0, 5.0),
    )
    made = ServeOrder(
        host="127.0.0.1",
        port=0,
        view=folder / "database.db",
        events=folder / "events.db",
        checkpoints=folder / "models",
        indices=folder / "indices",
        models=models,
        lean=lean,
    )
    return replace(made, **changes)


class Promotions:
    """The log and the view of an order, in which checkpoints are promoted as the daemon does it."""

    def __init__(self, order: ServeOrder) -> None:
        order.events.parent.mkdir(parents=True, exist_ok=True)
        self._open = contextlib.ExitStack()
        self._log = self._open.enter_context(EventLog.open(order.events))
        reader = self._open.enter_context(LogReader.open(order.events))
        self._view = self._open.enter_context(View.open(order.view, reader))
        self._saved: set[str] = set()

    def promote(self, model: ModelKind, checkpoint: str, *, simulated: bool = False) -> None:
        """Put a checkpoint in use, saved before if it was not."""
        stream = f"model:{model}"
        events = [NewEvent(stream, checkpoint_promoted(checkpoint, model=model, simulated=simulated))]
        if checkpoint not in self._saved:
            self._saved.add(checkpoint)
            saved = checkpoint_saved(checkpoint, model=model, simulated=simulated)
            events.insert(0, NewEvent(stream, saved))
        self._log.append(events, expect={stream: Expect.ANY})
        self._view.catch_up()

    def __enter__(self) -> Promotions:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Not in the main thread.
        yield


class Served:
    """The application of an order behind a free port of the loopback address, on a loop in a thread of its own.

    Attributes:
        app, port, url: the application, and where it is.
        client: asks it; for any thread.
    """

    def __init__(self, order: ServeOrder, *, token: str | None = None, look_s: float = 0.05) -> None:
        """Args:
        order: what is served.
        token: what clients have to send.
        look_s: how often it looks for a checkpoint that was promoted.
        """
        self.app = make_app(order, token=token, look_s=look_s)
        config = uvicorn.Config(
            self.app,
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
            # On a slow machine a client would meet a connection that is being closed.
            timeout_keep_alive=int(_PATIENCE_S),
        )
        self._server = _Server(config)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx2.Client(base_url=self.url, timeout=_PATIENCE_S, trust_env=False, verify=False)

    def __enter__(self) -> Served:
        self._thread.start()
        end = time.monotonic() + _PATIENCE_S
        while not self._server.started:
            if time.monotonic() > end or not self._thread.is_alive():
                raise TimeoutError("the server did not start; its log says why")
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=_PATIENCE_S)
        self.client.close()
        self._listener.close()

    def wait_ready(self, *, seconds: float = _PATIENCE_S) -> None:
        """Come back when it is ready.

        Raises:
            TimeoutError: it does not become so; the message has its reason.
        """
        said = ""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = self.client.get("/ready")
            if answer.status_code == 200:
                return
            said = answer.text
            time.sleep(0.02)
        raise TimeoutError(f"the server is not ready: {said}")
