#!/usr/bin/env python3
"""Ask a model at an OpenAI-compatible endpoint for a proof, and send Lean's messages back.

A program for [[prove.programs]]:

    run = ["./ask_endpoint.py", "--url", "https://api.example.org/v1", "--model", "a-model"]

The key is in $OPENAI_API_KEY, if one is needed. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

FENCE = re.compile(r"```[a-z0-9]*\n(.*?)```", re.DOTALL)


def first_messages(task: dict[str, Any]) -> list[dict[str, Any]]:
    attempts = [f"{one['text']}\n{' '.join(one['messages'])}".strip() for one in task["earlier"]]
    form = "tactics" if task["mode"] == "tactic" else "a term, or `by` and tactics,"
    return [
        {
            "role": "system",
            "content": f"You prove theorems in Lean 4 ({task['toolchain']}). Answer with one fenced block that holds"
            f" the {form} to stand in the place of the sorry, and nothing else of the declaration.",
        },
        {
            "role": "user",
            "content": "\n\n".join(
                filter(
                    None,
                    [
                        f"```lean\n{task['source']}\n```",
                        f"The goal of the sorry in line {task['line']}:\n{task['goal']}",
                        "Possibly of use:\n" + "\n".join(task["premises"]) if task["premises"] else "",
                        "Tried before, in vain:\n" + "\n".join(attempts) if attempts else "",
                    ],
                )
            ),
        },
    ]


def ask(url: str, model: str, messages: list[dict[str, Any]], seconds: float) -> tuple[str, dict[str, Any]]:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    body = json.dumps({"model": model, "messages": messages}).encode()
    request = urllib.request.Request(f"{url}/chat/completions", body, headers)  # noqa: S310 - the address is an argument
    with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310
        content = json.load(answer)
    return content["choices"][0]["message"]["content"], content.get("usage") or {}


def proof_in(answer: str, task: dict[str, Any]) -> str:
    """Return the proof in an answer, its later lines below the column of the sorry."""
    fenced = FENCE.findall(answer)
    lines = (fenced[-1] if fenced else answer).strip("\n").rstrip().split("\n")
    inner = " " * (task["column"] if task["mode"] == "tactic" else 2)
    return "\n".join([lines[0].strip(), *(inner + line for line in lines[1:])])


def main() -> int:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--usd-per-million", type=float, nargs=2, metavar=("PROMPT", "COMPLETION"))
    options = parser.parse_args()
    task = json.load(sys.stdin)
    ends = time.monotonic() + task["seconds"] - 2
    file = Path(task["file"])
    source = file.read_bytes()
    messages, tokens = first_messages(task), [0, 0]
    for _ in range(options.turns):
        answer, usage = ask(options.url, options.model, messages, max(1.0, ends - time.monotonic()))
        tokens = [tokens[0] + usage.get("prompt_tokens", 0), tokens[1] + usage.get("completion_tokens", 0)]
        used = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
        if options.usd_per_million:
            used["usd"] = sum(n * usd / 1e6 for n, usd in zip(tokens, options.usd_per_million, strict=True))
        print("everlean-usage:", json.dumps(used), flush=True)
        proof = proof_in(answer, task)
        file.write_bytes(source[: task["byte_start"]] + proof.encode() + source[task["byte_end"] :])
        done = subprocess.run([*task["lean"], task["file"]], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            print("Lean has nothing against:", proof)
            return 0
        messages += [
            {"role": "assistant", "content": answer},
            {
                "role": "user",
                "content": f"Lean says:\n{done.stdout[-4000:]}\nAnswer with the whole proof again.",
            },
        ]
    return 0


if __name__ == "__main__":
    sys.exit(main())
