"""Run the simulator: `python -m pipeline.lean.simulator [module…] [--dialect new|old] [--root DIR] [--key=value…]`.

Prints `ready.`, then answers one request line with one reply line until a blank line or the end of its input.
Core options (`--key=value`) are accepted and, as in the REPL, change nothing for goals. `--fault` makes it go
wrong on purpose; `--help` lists how.
"""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # a check starts three of these: what they load stays, and loading it is most of what they do
    from pipeline.lean.simulator.server import main

    gc.freeze()
    gc.enable()
    sys.exit(main())
