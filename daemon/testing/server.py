"""A server that does nothing, for tests of what keeps one running: `python -m daemon.testing.server ORDER.json`.

It says that it listens, as `pipeline.serve` does, and is there until it is told to end.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path


def main() -> int:
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    place = {"host": order["host"], "port": order["port"]}
    print(json.dumps({"listening": place}), flush=True)  # noqa: T201 - what it says is its protocol
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
