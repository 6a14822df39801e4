"""A REPL with one answer to every tactic, for `benchmarks/lean.py`: no logic, and a given think time.

python -I -S lean_repl.py --reply=FILE [--think-ms=MS] MODULE...
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

REFUSED = b'{"error":"command","desc":"Unable to parse json"}\n'
OTHERS = {
    "options.set": b"{}\n",
    "goal.delete": b"{}\n",
    "reset": b'{"nGoals":0}\n',
    "stat": b'{"nGoals":0}\n',
    "goal.start": b'{"stateId":0,"root":"_uniq.0"}\n',
}


def main(arguments: list[str]) -> None:
    options = dict(argument[2:].split("=", 1) for argument in arguments if argument.startswith("--"))
    reply = Path(options["reply"]).read_bytes()
    goals = json.loads(reply)["goals"]
    flags = {"extraMVars": [], "rootHasSorry": False, "rootHasUnsafe": False, "rootHasMVar": False}
    shown = json.dumps({"goals": goals, **flags}).encode() + b"\n"
    think_s = float(options.get("think-ms", "0")) / 1000
    os.write(1, b"ready.\n")
    for line in sys.stdin.buffer:
        # The tactics come first and are not parsed, here or behind the bare pipe.
        if line.startswith(b'{"cmd":"goal.tactic"'):
            if think_s:
                time.sleep(think_s)
            answer = reply
        else:
            request = json.loads(line)
            command, payload = request["cmd"], request["payload"]
            answer = shown if command == "goal.print" else OTHERS.get(command, REFUSED)
            if command == "goal.start" and "copyFrom" in payload:
                answer = REFUSED
        while answer:
            answer = answer[os.write(1, answer) :]


if __name__ == "__main__":
    main(sys.argv[1:])
