"""python -m experiments FILE [--folder DIR] [--out DIR]: run an experiment, write its table and chart.

Results in its log are not measured again: after a kill, or a change of its file, a run does the rest. Ends
with 1 and a message if the file is wrong, a task cannot be made, or a model cannot be learned or measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.file import ExperimentError, Learning, Proving, read
from pipeline.models.errors import LearningError
from store.errors import LogError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments", description="Run an experiment.")
    parser.add_argument("file", type=Path, help="such as experiments/real/proving.yaml")
    parser.add_argument(
        "--folder", type=Path, help="for its log and checkpoints, on a local disk (else experiments-run/NAME)"
    )
    parser.add_argument("--out", type=Path, help="for NAME.md and NAME.svg (else that folder)")
    parser.add_argument(
        "--data", type=Path, help="the folder of the files of `source: premises`, in place of the file's"
    )
    options = parser.parse_args(arguments)
    name = options.file.stem
    folder = options.folder or Path("experiments-run") / name
    try:
        text, experiment = read(options.file, options.data)
        # Only an explicit setting asks the hub.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from experiments import learning, proving, results
        from experiments.lab import Lab

        with Lab(folder, name, text, say) as lab:
            match experiment:
                case Learning():
                    result = learning.run(experiment, lab)
                case Proving():
                    result = proving.run(experiment, lab)
            page = results.write(result, experiment, lab, text, options.out or folder, str(options.file))
    except (ExperimentError, LearningError, LogError) as error:
        print(error, file=sys.stderr)
        return 1
    print(result.table)
    print(f"\n{page}")
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
