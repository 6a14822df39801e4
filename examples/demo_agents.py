"""`make demo-agents`: two agents and one project, through `everlean mcp` and the protocol's official client.

The daemon of `make demo` finds and traces the sorries of `examples/small-project`, and searches nothing
itself. One agent claims a sorry, and another is refused; a file that states less is rejected, and so is a
false proof; a proof is recorded, judged by the gate, and seen by all.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from examples.harness import (
    COMMAND,
    EXAMPLES,
    WIDTH,
    DemoError,
    begin,
    commit,
    cut,
    main,
    new_daemon,
    new_repository,
    of_type,
    say,
)

JUDGED_S = 120.0
SAME = "constructor <;> (rintro ⟨a, b⟩; exact ⟨b, a⟩)"
WRONG = "exact Iff.rfl"


def run(directory: Path) -> None:
    """Show the whole screen."""
    begin(directory, "everlean mcp: two agents, one project")
    repository = new_repository(directory / "small")
    commit(repository, "A small project", EXAMPLES / "small-project", day=1)
    with new_daemon(directory, "[prove]\nenabled = false\n", watched=repository) as daemon:
        daemon.wait("the trace", lambda events: bool(of_type(events, "trace_measured")))
        source = (repository / "Small" / "Logic.lean").read_text(encoding="utf-8")
        asyncio.run(agents(daemon.config, source))
    say("\nAdd it to your agent: claude mcp add everlean -- everlean mcp (docs/mcp.md)")


async def agents(config: Path, source: str) -> None:
    """Play both agents, each with a server of its own."""
    command = StdioServerParameters(command=COMMAND, args=["mcp", "--config", str(config)])
    with (config.parent / "mcp.log").open("w", encoding="utf-8") as log:
        async with Client(stdio_client(command, log)) as ada, Client(stdio_client(command, log)) as bob:
            await play(ada, bob, source)


async def play(ada: Client, bob: Client, source: str) -> None:
    """Show the answers to both."""
    answer = await ask(ada, "search_sorries", limit=10)
    sorries = {one["declaration"].rpartition(".")[2]: one for one in answer["sorries"]}
    say(f"\nada: search_sorries   {answer['total']} open:\n")
    for name, one in sorries.items():
        say(f"  {one['path'] + ':' + str(one['line']):22}{name:17}{cut(one['statement'], 41)}")
    sorry = sorries["and_swap"]["sorry"]
    claim = await ask(ada, "claim_sorry", sorry=sorry, agent="ada", minutes=30)
    say(f"\nada: claim_sorry and_swap     hers until {claim['until'][11:16]} UTC")
    say(f"bob: claim_sorry and_swap     {await refused(bob, 'claim_sorry', sorry=sorry, agent='bob')}")
    say("\nada: submit_proof and_swap, three times:\n")
    restated = source.replace(": p ∧ q ↔ q ∧ p := by\n  sorry", ": True := by\n  trivial")
    mine = {"sorry": sorry, "agent": "ada", "claim": claim["claim"]}
    await tell(ada, "a file that states True", file=restated, **mine)
    await tell(ada, WRONG, proof=WRONG, **mine)
    await tell(ada, SAME, proof=SAME, **mine)
    await ask(ada, "release_sorry", claim=claim["claim"])
    seen = await ask(bob, "show_sorry", sorry=sorry)
    say("\nbob: show_sorry and_swap      what was tried:\n")
    for one in seen["proofs"]:
        say(f"  {one['verdict']:9} {cut(one['replacement'], 45)}")


async def tell(client: Client, what: str, **arguments: Any) -> None:
    """Submit a proof, wait for the gate, and show its verdict."""
    answer = await ask(client, "submit_proof", **arguments)
    end = time.monotonic() + JUDGED_S
    while answer["verdict"] == "waiting":
        if time.monotonic() > end:
            raise DemoError(f"the gate did not judge {what!r} in {JUDGED_S:.0f} s; see daemon.log")
        await asyncio.sleep(0.3)
        answer = await ask(client, "show_proof", proof=answer["proof"])
    say(f"  {cut(what, 45)}")
    # Of lake's output, the place and the reason.
    why = answer.get("why", "")
    reason = why.partition("error: ")[2] or why
    say(f"    {answer['verdict']}: {cut(reason, WIDTH - 6 - len(answer['verdict']))}")
    if any((one["step"], one["verdict"]) == ("compile", "passed") for one in answer.get("checks", ())):
        say("    Lean compiles the project with it")


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool; return its answer.

    Raises:
        DemoError: it was refused.
    """
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise DemoError(f"{tool} {json.dumps(arguments)}: {result.content}")
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must refuse; return its reason."""
    result = await client.call_tool(tool, arguments)
    if not result.is_error:
        raise DemoError(f"{tool} {json.dumps(arguments)} was not refused")
    message = " ".join(getattr(one, "text", "") for one in result.content)
    return cut((message.partition(f"tool {tool}: ")[2] or message).partition(": ")[2], 48)


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
