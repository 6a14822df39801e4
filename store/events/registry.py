"""Every event type by its name: frozen, versioned, documented.

An event's `type` is snake_case past tense and never a Python path; renaming a class here changes nothing on
disk. A change of shape is a new `schema_version` and an upcast in `upcast.py`; old rows are never rewritten.
Every field name ends in its unit where it has one.

Streams: `repository:<key>` (watching, commits, scans, sorries), `job:<id>`, `proof:<id>`, `work`, `notify:<channel>`,
`config`, `daemon`, `log`.
"""

from __future__ import annotations

from store.events import bumps, jobs, models, proofs, repositories, scans, service, traces
from store.events.base import EventBody

EVENT_TYPES: dict[str, type[EventBody]] = {
    one.type: one
    for module in (bumps, jobs, models, proofs, repositories, scans, service, traces)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, EventBody) and "type" in vars(one)
}
"""Every event type of this version, by name: the classes of these modules with one."""
