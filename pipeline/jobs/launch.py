"""Start a job: `python -m pipeline.jobs.launch MODULE --spec spec.json`.

Takes the locks of the job's GPUs (`pipeline.jobs.gpu_lock`), then runs the module. The garbage collector is off until
`pipeline.jobs.protocol.run_job` turns it on: objects made while loading modules stay to the end, and collecting
meanwhile took an eighth of a check's processor time.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys


def main() -> int:
    gc.disable()
    # No installed package has a pydantic plugin for us, and the search would read the metadata of all of them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Not before: most modules come with it.
    from pipeline.jobs.gpu_lock import arrive

    module, *words = sys.argv[1:]
    if not arrive(words):
        return 1
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
