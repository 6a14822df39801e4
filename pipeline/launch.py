"""Start a job: `python -m pipeline.launch MODULE --spec spec.json`.

Takes the lock of the GPU that the job is lent, if it is lent one (`pipeline.leased`), then is the job. Until it is
(`pipeline.protocol.run_job`), nothing is collected: what modules make while they are loaded stays, and to look at it
again and again took an eighth of a check's processor time.
"""

from __future__ import annotations

import gc
import runpy
import sys


def main() -> int:
    gc.disable()
    # Not before: most of what there is to load comes with it.
    from pipeline.leased import arrive

    module, *words = sys.argv[1:]
    if not arrive(words):
        return 1
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
