"""The base of event bodies: the frozen class, shared values, and the text forms of hashes."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from store.events.places import OBJECT_ID

Sha = Annotated[str, Field(pattern=f"^{OBJECT_ID}$")]
"""A git object id, SHA-1 or SHA-256, in full."""
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hex: the key of a blob."""


class EventBody(BaseModel):
    """The content of an event. Subclasses set `type`; pydantic refuses unknown fields."""

    # NaN and infinity have no JSON: they would be stored as null and could not be read back. Built at first
    # use: a process loads all sorts of events, and most jobs and verbs meet a few.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    type: ClassVar[str]
    schema_version: ClassVar[int] = 1
    alone: ClassVar[bool] = False
    """It stays true, and claims nothing too good, if events before it in its stream are lost."""


class Part(BaseModel):
    """A value inside an event body."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class BlobRef(Part):
    """A payload in the log's blob table: JSON, compressed there, named by the hash of its bytes."""

    sha256: Digest
    size_bytes: int
