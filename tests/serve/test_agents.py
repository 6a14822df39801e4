"""Agents through the protocol's official client, with all that they need running: a daemon, and the server that has
the gate judge. Both are on Lean 4.35.0 itself, with whose library here nothing is called a proof; and on a stand-in
that says yes to everything, so that what is refused there the gate refuses.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from daemon.agents.server import Tools, make_server
from daemon.planning.serve_spec import spec_of
from tests.support.agents import answer_of
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.gate import FILE
from tests.support.lean.credulous import TOOLCHAIN, Credulous, Rule
from tests.support.serve import Served, credulous_elan

ANOTHER = "leanprover/lean4:v4.2.0"
TOKEN = "what-the-server-for-editors-wants"
SOURCE = FILE.replace("HOLE", "sorry")
PROOF = "exact ⟨h.2, h.1⟩"
PAGE = Path("docs/mcp.md").read_text(encoding="utf-8")
PAIR = "theorem pair : True ∧ True := by\n  constructor\n  · exact (sorry)\n  · exact (sorry)\n"


@dataclass(frozen=True)
class Site:
    """A deployment at work, and an agent's tools there."""

    deployment: Deployment
    environment: Mapping[str, str]
    """Of the daemon; the server, which is in this process, has it too while it is asked."""
    sorry: str = ""
    pair: tuple[str, ...] = ()
    """The two sorries of one declaration."""

    def call(self, tool: str, **arguments: Any) -> tuple[bool, Any]:
        """Return whether a tool answered, and its answer; of a refusal the text."""

        async def go() -> tuple[bool, Any]:
            async with Client(make_server(Tools(self.deployment.config))) as client:
                result = await client.call_tool(tool, arguments)
            said = result.model_dump_json()
            assert TOKEN not in said
            assert str(self.deployment.folder) not in said
            return answer_of(result)

        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            return asyncio.run(go())

    def check(self, **arguments: Any) -> Any:
        done, answer = self.call("check_proof", sorry=self.sorry, **arguments)
        assert done, answer
        return answer

    def submit(self, **arguments: Any) -> Any:
        done, answer = self.call("submit_proof", sorry=self.sorry, agent="a prover", **arguments)
        assert done, answer
        return answer

    def judged(self, proof: str) -> Any:
        """Wait for the gate's verdict on a proof."""
        self.deployment.wait_for(
            lambda: self.call("show_proof", proof=proof)[1]["verdict"] != "waiting", what="the verdict"
        )
        return self.call("show_proof", proof=proof)[1]


def at_work(folder: Path, lean: LeanOfTests) -> Iterator[Site]:
    """A deployment with a project of this Lean's toolchain, and with one of another, which is not there."""
    deployment = Deployment(folder)
    remotes = {name: deployment.remote(name) for name in ("demo", "other")}
    for name, version in (("demo", lean.toolchain), ("other", ANOTHER)):
        remotes[name].commit(
            "first",
            {
                "A.lean": SOURCE,
                "B.lean": PAIR,
                "lakefile.toml": 'name = "x"\n',
                "lean-toolchain": f"{version}\n",
            },
        )
    repos = [remote.path for remote in remotes.values()]
    quiet = "[build]\nenabled = false\n[trace]\nenabled = false\n[prove]\nenabled = false\n"
    extra = lean.settings + quiet
    settings = deployment.write(repos=repos, extra=extra)
    spec = replace(spec_of(settings, scratch="agents"), models=())
    settings.paths.cache.mkdir(parents=True, exist_ok=True)
    with Served(spec, token=TOKEN) as served, pytest.MonkeyPatch.context() as patch:
        patch.setenv(settings.serve.token.variable, TOKEN)
        deployment.write(repos=repos, extra=f"{extra}[serve]\nport = {served.port}\n")
        with deployment.daemon(environment=lean.environment):
            deployment.wait_for(lambda: len(deployment.events("commit_scanned")) == 2, what="the scans")
            site = Site(deployment, lean.environment)
            _, page = site.call("search_sorries", repository="demo")
            first, *pair = (one["sorry"] for one in page["sorries"])
            yield replace(site, sorry=first, pair=tuple(pair))


@pytest.fixture(scope="module")
def served(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("served")
    yield from at_work(folder, LeanOfTests.itself(folder))


def test_what_not_all_could_be_judged_of_is_unknown_and_what_is_wrong_is_rejected(served: Site) -> None:
    answer = served.check(proof=PROOF)
    assert answer["verdict"] == "unknown"
    assert "not everything could be judged" in answer["reason"]
    wrong = served.check(proof="exact ⟨h.1, h.2⟩")
    assert wrong["verdict"] == "rejected"
    assert "mismatch" in wrong["reason"]
    assert not served.deployment.events("proof_found"), "what is only checked is not recorded"


def test_a_submitted_proof_is_recorded_once_and_judged_as_the_daemon_s_own(served: Site) -> None:
    _, claim = served.call("claim_sorry", sorry=served.sorry, agent="a prover")
    other = served.call("submit_proof", sorry=served.sorry, agent="another", proof=PROOF)
    assert (other[0], "a prover has claimed it until" in other[1]) == (False, True)
    first = served.submit(proof=PROOF, claim=claim["claim"])
    again = served.submit(file=SOURCE.replace("  sorry\n", f"  {PROOF}\n"), claim=claim["claim"])
    assert again["proof"] == first["proof"]
    verdict = served.judged(first["proof"])
    assert (verdict["verdict"], verdict["prover"]) == ("unknown", "agent")
    (found,) = served.deployment.events("proof_found")
    assert (found.actor.partition(":")[0], found.data["rung"]) == ("user", 5)
    _, shown = served.call("show_sorry", sorry=served.sorry, source=500)
    assert [(one["prover"], one["model"], one["outcome"]) for one in shown["attempts"]] == [
        ("agent", "a prover", "found")
    ]
    assert (shown["source"]["before"] + "sorry" + shown["source"]["after"]) == SOURCE
    _, near = served.call("show_sorry", sorry=served.sorry, source=1)
    lines = near["source"]["before"] + "sorry" + near["source"]["after"]
    assert lines in SOURCE
    assert (len(lines.splitlines()), near["source"]["cut"]) == (3, True)
    assert served.call("release_sorry", claim=claim["claim"])[0]


def test_two_sorries_of_a_declaration_are_claimed_checked_and_submitted_together_and_judged_once(
    served: Site,
) -> None:
    first, second = served.pair
    (shown,) = re.findall(r"^```json\n(\{\"sorry.*)\n```$", PAGE, flags=re.MULTILINE)
    asked = json.loads(shown)
    del asked["agent"]
    assert asked.keys() == {"sorry", "proof", "others"}, "as docs/mcp.md has it"
    true = asked | {"sorry": first, "proof": "True.intro", "others": {second: "True.intro"}}
    _, trap = served.call("check_proof", **{**true, "others": {second: "by admit"}})
    assert (trap["verdict"], "line 4, column 12: the word admit" in trap["reason"]) == ("rejected", True)
    _, claim = served.call("claim_sorry", sorry=second, agent="a prover")
    _, refused = served.call("submit_proof", agent="another", **true)
    assert "a prover has claimed it until" in refused
    before = len(served.deployment.events("job_started"))
    given = {"agent": "a prover", "claim": claim["claim"]}
    _, sent = served.call("submit_proof", **given, **true)
    proofs = [sent["proof"], *sent["others"].values()]
    assert [served.judged(one)["verdict"] for one in proofs] == ["unknown", "unknown"]
    assert [one["sorry"] for one in map(served.judged, proofs)] == [first, second]
    assert len(served.deployment.events("job_started")) == before + 1
    whole = PAIR.replace("sorry", "True.intro")
    _, again = served.call("submit_proof", sorry=second, file=whole, **given)
    assert [again["proof"], *again["others"].values()] == proofs[::-1], "the same text is recorded once"
    _, shown = served.call("show_sorry", sorry=second)
    assert [one["detail"] for one in shown["attempts"]] == ["together with the declaration's other 1"]
    served.call("release_sorry", claim=claim["claim"])


def found(site: Site) -> int:
    """Return how many proofs are recorded; what the daemon records by itself meanwhile is none."""
    return sum(event.type == "proof_found" for event in site.deployment.events())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"others": {"f" * 16: "rfl"}}, "is no open sorry of pair in B.lean"),
        ({"others": "the sorry of another declaration"}, "is no open sorry of pair in B.lean"),
        ({"others": "the sorry itself"}, "with `others` for other sorries"),
        ({"others": {"f": "rfl"}}, "should match pattern"),
        ({"proof": "", "file": PAIR, "others": {"f" * 16: "rfl"}}, "with `others` for other sorries"),
    ],
)
def test_sorries_that_are_not_of_one_declaration_are_not_taken_together(
    served: Site, arguments: dict[str, Any], why: str
) -> None:
    before = found(served)
    names = {"the sorry itself": served.pair[0], "the sorry of another declaration": served.sorry}
    others = arguments.get("others")
    given = arguments | ({"others": {names[others]: "rfl"}} if isinstance(others, str) else {})
    done, said = served.call(
        "submit_proof", **({"sorry": served.pair[0], "proof": "rfl", "agent": "a prover"} | given)
    )
    assert (done, why in said) == (False, True), said
    assert found(served) == before, "nothing is recorded"


@pytest.mark.parametrize(
    "change",
    [("True ∧ True", "True"), ("  · exact (True.intro)\n  ·", "  ·")],
)
def test_a_file_that_changes_more_than_a_declaration_s_sorries_is_rejected(
    served: Site, change: tuple[str, str]
) -> None:
    text = PAIR.replace("sorry", "True.intro").replace(*change)
    _, answer = served.call("check_proof", sorry=served.pair[0], file=text)
    assert answer["verdict"] == "rejected"
    assert "only the sorries of pair may be replaced: its statement" in answer["reason"]


@pytest.mark.parametrize(
    "change",
    [
        ("q ∧ p := by", "True := by"),
        ("theorem mine", "axiom cheat : False\n\ntheorem mine"),
        ("\nend Demo", "\naxiom late : False\nend Demo"),
        ("theorem helper (p : Prop) : p → p := fun h => h", "theorem helper (p : Prop) : p → p := sorry"),
    ],
)
def test_a_file_in_which_more_is_changed_than_the_sorry_is_rejected_with_the_line(
    served: Site, change: tuple[str, str]
) -> None:
    before = found(served)
    text = SOURCE.replace("  sorry\n", f"  {PROOF}\n").replace(*change)
    answer = served.check(file=text)
    assert answer["verdict"] == "rejected"
    assert "only the sorry of Demo.mine may be replaced: its statement, axioms, options" in answer["reason"]
    assert [(one["step"], one["verdict"]) for one in answer["findings"]] == [("statement", "failed")]
    submitted = served.submit(file=text)
    assert (submitted["verdict"], "proof" in submitted) == ("rejected", False)
    assert submitted["why"] == answer["reason"]
    assert found(served) == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "give either `proof`"),
        ({"proof": "rfl", "file": "x"}, "give either `proof`"),
        ({"proof": "x" * 100_001}, "at most 100000 characters"),
        ({"proof": "exact \ud800"}, "should be a valid string"),
        ({"proof": "rfl", "claim": "c1" * 8}, "its lease has ended, or it is of another sorry"),
        ({"proof": "rfl", "sorry": "f" * 16}, "no sorry has an id"),
        ({"proof": "rfl", "agent": "\u202e"}, "is no line of at most 100 characters"),
    ],
)
def test_a_submission_that_cannot_be_is_refused_and_nothing_is_recorded(
    served: Site, arguments: dict[str, Any], why: str
) -> None:
    before = found(served)
    given = {"sorry": served.sorry, "agent": "a prover"} | arguments
    done, said = served.call("submit_proof", **given)
    assert (done, why in said) == (False, True), said
    assert found(served) == before


def test_a_long_proof_reaches_the_gate_and_is_judged(served: Site) -> None:
    long = "exact ⟨h.2, h.1⟩ --" + "∧" * 90_000
    assert served.judged(served.submit(proof=long)["proof"])["verdict"] in ("unknown", "rejected")


def test_premises_of_what_is_not_traced_are_refused_with_what_to_do(served: Site) -> None:
    done, said = served.call("find_premises", sorry=served.sorry)
    assert (done, "give a goal" in said) == (False, True)
    done, said = served.call("find_premises", sorry=served.sorry, goal="⊢ True")
    assert not done
    assert "retriever" in said or "trace" in said


def test_without_the_server_for_editors_a_check_says_what_to_start(tmp_path: Path, served: Site) -> None:
    config = served.deployment.config
    elsewhere = config.with_name("elsewhere.toml")
    text = config.read_text(encoding="utf-8")
    elsewhere.write_text(text.split("[serve]")[0] + "[serve]\nport = 1\n" + text[text.index("[[repos]]") :])

    async def go() -> tuple[bool, Any]:
        async with Client(make_server(Tools(elsewhere))) as client:
            return answer_of(await client.call_tool("check_proof", {"sorry": served.sorry, "proof": "rfl"}))

    done, said = asyncio.run(go())
    assert (done, "start it with `everlean serve`" in said) == (False, True)


# --- Lean that says yes to everything


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Credulous]:
    return credulous_elan(tmp_path_factory.mktemp("elan"))


@pytest.fixture(scope="module")
def lean(tools: tuple[Path, Credulous], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    given = LeanOfTests('[lean]\nsandbox = "none"\n', {"ELAN_HOME": str(tools[0])}, TOOLCHAIN)
    yield from at_work(tmp_path_factory.mktemp("lean"), given)


def test_a_project_whose_lean_is_not_here_is_served_beside_others_and_nothing_is_known_of_its_proofs(
    lean: Site,
) -> None:
    _, found = lean.call("list_repositories")
    versions = {
        one["repository"].split("/")[-1]: one["heads"][0]["projects"][0]["toolchain"]
        for one in found["repositories"]
    }
    assert versions == {"demo": TOOLCHAIN, "other": ANOTHER}
    _, page = lean.call("search_sorries", repository="other")
    other = replace(lean, sorry=page["sorries"][0]["sorry"])
    assert other.sorry != lean.sorry
    verdict = other.check(proof=PROOF)
    assert verdict["verdict"] == "unknown"
    assert "v4.2.0" in verdict["reason"]
    done, said = lean.call("submit_proof", sorry=other.sorry, agent="a prover", proof=PROOF)
    assert (done, "no Lean here can judge it" in said) == (False, True)


def test_a_trap_that_is_submitted_stays_rejected_and_others_see_why(lean: Site) -> None:
    proof = lean.submit(proof="exact cheat\n\naxiom cheat : False")["proof"]
    verdict = lean.judged(proof)
    assert verdict["verdict"] == "rejected"
    assert "axiom" in verdict["reason"]
    _, shown = lean.call("show_sorry", sorry=lean.sorry)
    assert proof in [one["proof"] for one in shown["proofs"] if one["verdict"] == "rejected"]
    assert shown["branches"][0]["state"] == "open"


def test_what_lean_accepts_is_accepted_when_checked_and_when_submitted(
    lean: Site, tools: tuple[Path, Credulous]
) -> None:
    tools[1].believe(Rule("", axioms=("propext",)))
    answer = lean.check(proof=PROOF)
    assert (answer["verdict"], answer["axioms"]) == ("accepted", ["propext"])
    assert answer["toolchain"] == TOOLCHAIN
    verdict = lean.judged(lean.submit(proof=PROOF)["proof"])
    assert (verdict["verdict"], verdict["grade"]) == ("accepted", "L1")
    _, shown = lean.call("show_certificate", proof=verdict["proof"])
    assert (shown["certificate"]["verdict"], shown["certificate"]["proof"]) == ("verified", verdict["proof"])
    first, second = lean.pair
    _, sent = lean.call(
        "submit_proof", sorry=first, agent="a prover", proof="True.intro", others={second: "True.intro"}
    )
    ends = [lean.judged(one)["verdict"] for one in (sent["proof"], *sent["others"].values())]
    assert ends == ["accepted", "accepted"]
    late = lean.call("submit_proof", sorry=lean.sorry, agent="another", proof="trivial")
    assert (late[0], "its sorry is verified" in late[1]) == (False, True)
