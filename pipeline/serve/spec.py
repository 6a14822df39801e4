"""The specification of the server: its address, its models, the limits of a request, and the backend of Lean.

Written by `everlean serve` and by the daemon (`daemon.planning.serve_spec`), read by
`python -m pipeline.serve SPEC.json`. It holds no secret: it names the places of the token and the keys
(`pipeline.endpoint.credentials`).
Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pipeline.jobs.ladder import Ladder
from pipeline.jobs.spec import KeyPlace
from pipeline.jobs.specs import EndpointSpec
from pipeline.lean.backend import START_TIMEOUT_S
from pipeline.lean.pool import PoolLimits
from pipeline.loopback import is_loopback

ModelKind = Literal["tactics", "retrieval", "encoder", "retriever", "endpoint"]
Device = Literal["auto", "cuda", "cpu"]

GENERATING = frozenset({"tactics", "retrieval", "endpoint"})
"""The kinds for `/generate`."""
ENCODING = frozenset({"encoder", "retriever"})
"""The kinds for `/encode`."""
PROMOTABLE = frozenset({"tactics", "retrieval", "retriever"})
"""The kinds with checkpoints."""
PROMOTED = "promoted"
"""The source that follows promotion: the checkpoint in use, replaced when another is promoted."""

_STRICT = ConfigDict(extra="forbid")
_Port = Annotated[int, Field(ge=0, le=65535)]
_Positive = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class SpecError(Exception):
    """The specification cannot be read; the message names the file, the field and its fault."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """A model's origin.

    Attributes:
        checkpoint: its id; "" for a model from elsewhere.
    """

    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model and its name.

    Attributes:
        name: the `name` in a request.
        kind: "tactics": a generator, causal or an encoder-decoder; "retrieval": a retriever with the generator
            `generator`; "encoder": an encoder of transformers; "retriever": a retriever as an encoder; "endpoint": a
            model behind `endpoint`.
        source: "promoted" (tactics, retrieval, retriever), a folder, a name on the hub, or the endpoint's name for it.
        repository: for "tactics" and "retriever": the key of the repository whose adapter to serve, from a checkpoint
            with several.
        generator: for "retrieval": the folder or hub name of the model that reads the premises.
        candidates, max_tokens: see `pipeline.models.tactics.requests.Decoding`; max_tokens None: the model's own.
        endpoint: for "endpoint" alone.
    """

    __pydantic_config__ = _STRICT

    name: _Name
    kind: ModelKind
    source: _Name
    repository: str = ""
    generator: str = ""
    candidates: _Positive = 8
    max_tokens: _Positive | None = None
    endpoint: EndpointSpec | None = None

    def __post_init__(self) -> None:
        if (self.kind == "endpoint") != (self.endpoint is not None):
            raise ValueError(
                f'kind is "{self.kind}": "endpoint" has the table endpoint, and no other kind has'
            )
        if self.kind == "retrieval" and not self.generator:
            raise ValueError('kind is "retrieval": it needs a generator')
        if self.source == PROMOTED and self.kind not in PROMOTABLE:
            raise ValueError(f'kind is "{self.kind}": only tactics, retrieval and retriever are promoted')


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """The progress model behind `use_reward`."""

    __pydantic_config__ = _STRICT

    source: _Name
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a request.

    Attributes:
        body_bytes: of a request.
        queue: requests under way or waiting, in all; further ones are refused, as are those beyond half of them for one
            model, or for Lean (`limits.share`).
        seconds: for one request, from its first byte to its answer's last.
        lean_seconds: for one with work for Lean (`/check`, `/fill`).
        lean_processes: at once.
        batch: maximum of requests in one call of a model; 1: one at a time.
    """

    __pydantic_config__ = _STRICT

    body_bytes: _Positive = 2**20
    queue: _Positive = 256
    seconds: _Seconds = 60.0
    lean_seconds: _Seconds = 600.0
    lean_processes: _Positive = 2
    batch: _Positive = 32


@dataclass(frozen=True, slots=True)
class RepositorySpec:
    """A watched repository: its key, and its bare copy here (possibly not there yet)."""

    __pydantic_config__ = _STRICT

    key: _Name
    mirror: Path


@dataclass(frozen=True, slots=True)
class LeanSpec:
    """The backend of Lean, for `pipeline.lean.backend.find_leans`, and the watched repositories.

    Attributes:
        backend, repl, sandbox, start_timeout_s, as_root: the arguments of `find_leans`.
        second_kernel: for the gate, from `[lean]`.
        advisories: known faults of kernels, from `[certificates]`.
        pool: of the REPLs; `processes` is `Limits.lean_processes`.
        cache: the root of the builds (`pipeline.lean.build.build_cache`).
        scratch: a folder for worktrees and files of this server alone; emptied when it starts.
        repositories: the watched ones.
        ladder: for `/fill`.
        seed: of the models' sampling.
        built: whether a project's commit must be built before Lean checks it.
        memory_bytes: of each process of a check job; a prove job's is its rung's.
    """

    __pydantic_config__ = _STRICT

    backend: Literal["auto", "none"]
    repl: str
    sandbox: Literal["bubblewrap", "none"]
    cache: Path
    scratch: Path
    ladder: Ladder
    pool: PoolLimits = field(default_factory=PoolLimits)
    repositories: tuple[RepositorySpec, ...] = ()
    seed: int = 0
    built: bool = True
    memory_bytes: _Positive = 2**32
    start_timeout_s: _Seconds = START_TIMEOUT_S
    second_kernel: str = "auto"
    advisories: str = ""
    as_root: bool = True


@dataclass(frozen=True, slots=True)
class ServeSpec:
    """The whole specification of the server.

    Attributes:
        port: 0 for any free one.
        view: database.db, read only.
        events: events.db, read only (the source of the corpora of premises).
        checkpoints: one folder for each model ("retriever", "tactics", "progress"), and there one for each checkpoint.
        indices: the folder of premises' embeddings.
        progress: the configuration's model for `use_reward`; None: none.
        device: the default device of the models.
        token: the place of the bearer token. Without one, the server answers every client that reaches the port; an
            `open` server does not start.
        gpu_lock: the file to lock before using a GPU; None: no lock.
        visible: the value of CUDA_VISIBLE_DEVICES for the server; None: unchanged.
        reload: the command to read the settings again and become the server; SIGHUP runs it. Empty: SIGHUP ends the
            server.
    """

    __pydantic_config__ = _STRICT

    host: str
    port: _Port
    view: Path
    events: Path
    checkpoints: Path
    indices: Path
    models: tuple[ModelSpec, ...]
    lean: LeanSpec
    progress: RewardSpec | None = None
    limits: Limits = field(default_factory=Limits)
    device: Device = "cpu"
    token: KeyPlace = field(default_factory=KeyPlace)
    gpu_lock: Path | None = None
    visible: str | None = None
    reload: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for model in self.models:
            if model.name in seen:
                raise ValueError(f'two models are called "{model.name}"')
            seen.add(model.name)

    @property
    def open(self) -> bool:
        """True if other machines can reach the server."""
        return not is_loopback(self.host)

    def as_json(self) -> str:
        """Return the specification as `read` takes it."""
        return _SPEC.dump_json(self, indent=2).decode("utf-8")

    def write(self, path: Path) -> None:
        """Write the specification for the server's process.

        Raises:
            OSError: the file cannot be written.
        """
        path.write_text(self.as_json() + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ServeSpec:
        """Read a specification.

        Raises:
            SpecError: the file cannot be read, or a field of it.
        """
        try:
            return cls.from_json(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: cannot be read: {error}; it is written by `everlean serve`") from error
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from error.__cause__

    @classmethod
    def from_json(cls, text: str) -> ServeSpec:
        """Read the result of `as_json`.

        Raises:
            SpecError: a field is missing, unknown or invalid.
        """
        try:
            return _SPEC.validate_json(text, strict=True)
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'the specification'}: {one['msg']}"
                for one in error.errors()
            )
            raise SpecError(wrong) from error


_SPEC = TypeAdapter(ServeSpec)
