"""`make demo-certificates`: one screen, a certificate is written, signed, verified, forged, and recalled.

The gate's own check job judged the proof, but with a stand-in for Lean, as the frame states: only a Lean with
its own kernel replay gives a proof a certificate, and none is here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from examples.harness import COMMAND, DemoError, main, prepare, say, say_answer
from pipeline.lean.toolchain.standins import SWITCH
from tests.support.certified import PROOF, judge, record

FRAME = """│ A stand-in for Lean said yes to this proof: it is made up. What writes, signs,
│ verifies and recalls its certificate is real."""
_COMMIT = re.compile(r"\b([0-9a-f]{10})[0-9a-f]{30}\b")
ADVISORY = """[[advisory]]
id = "lean4#1"
published = 2027-01-01
title = "False can be proved"
source = "https://example.org"
fixed.lean = []
fixed.leanchecker = []
"""


def run(directory: Path) -> None:
    """Make the log with one verified proof, and show its certificate's life."""
    say("everlean certificate: what the gate found, for others to check\n")
    say(f"{FRAME}\n")
    prepare(directory)
    os.environ[SWITCH] = "1"
    (directory / "made").mkdir()
    state = record(directory / "made", judge(directory / "judged"))
    key = state.root / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (state.root / "allowed_signers").write_text(f"daemon@example.org {key.with_suffix('.pub').read_text()}")
    with state.config.open("a", encoding="utf-8") as config:
        config.write(f"[certificates]\nsigning_key = {json.dumps(str(key))}\n")
    ask(state.root, "show", PROOF[:8], "--out", "certificates", config=state.config)
    (file,) = (state.root / "certificates").glob("*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    say(f"  {content['declaration']} {content['material']['statement']}")
    say(f"  axioms {content['axioms'] or 'none'}, {content['grade']} by {', '.join(content['kernels'])}\n")
    name = str(file.relative_to(state.root))
    ask(state.root, "verify", name, "--signers", "allowed_signers")
    say("\nSomebody writes another theorem into it:\n")
    file.write_text(
        file.read_text(encoding="utf-8").replace("Demo.mine", "Demo.riemann", 1), encoding="utf-8"
    )
    ask(state.root, "verify", name, "--signers", "allowed_signers", code=1)
    ask(state.root, "show", PROOF[:8], "--out", "certificates", config=state.config, quiet=True)
    say("\nA fault of the kernel that replayed the proof becomes known:\n")
    (state.root / "advisories.toml").write_text(ADVISORY, encoding="utf-8")
    ask(
        state.root,
        "verify",
        name,
        *("--signers", "allowed_signers", "--advisories", "advisories.toml"),
        code=1,
    )
    say("\nThe daemon does it by itself, tells people, and checks the proof again: docs/certificates.md")


def ask(folder: Path, *words: str, code: int = 0, config: Path | None = None, quiet: bool = False) -> None:
    """Run the verb as a person would, and show its output.

    Raises:
        DemoError: it exits with another status.
    """
    command = ["certificate", *words]
    if not quiet:
        say(f"$ everlean {' '.join(command)}")
    options = [] if config is None else ["--config", str(config)]
    done = subprocess.run(
        [COMMAND, *command, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    if (done.returncode != 0) != (code != 0):
        raise DemoError(f"everlean {' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    text = "" if quiet else (done.stdout + done.stderr).replace(f"{folder}/", "")
    for line in text.splitlines():
        if "the daemon is not running" not in line:
            say_answer(_COMMIT.sub(r"\1", line))


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
