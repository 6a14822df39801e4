from __future__ import annotations

import subprocess
import sys


def test_whole_proofs_by_an_endpoint_need_no_training_library() -> None:
    program = (
        "import sys\n"
        "import pipeline.endpoint.client, pipeline.prove.authors, pipeline.prove.rungs\n"
        "print(sorted({'torch', 'numpy', 'transformers', 'jinja2'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
