"""The sections on sorries over time, proofs, rejections and the machine's time: their tables and pictures.

Each is None where there is nothing to show. No table repeats a picture: each picture says its numbers in words to who
does not see it. The prose around them is in `templates/macros.html`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pipeline.report import tree
from pipeline.report.charts import (
    Series,
    bar_chart,
    line_chart,
)
from pipeline.report.front import SIMULATED
from pipeline.report.gather import (
    DEVICES,
    Rejection,
    ReportData,
    ShownProof,
)
from pipeline.report.html import (
    MADE_BY,
    Picture,
    Section,
    Table,
    Value,
    clock,
    macro,
    made_by,
    marked,
    moment,
    section,
    shortened,
    size,
)
from store.documents.grades import grade_text
from store.text import counted
from store.view.report_queries import Searches
from store.view.rows import ProofRow

if TYPE_CHECKING:
    from pipeline.prove.tree import Tree, TreeNode

MOST_TREE_CHARACTERS = 1 << 20
"""Characters that the trees of a page take together, with the one that exceeds it."""
_MOST_REASONS, _MOST_SEARCHES = 200, 200
_MOST_STATES, _LONGEST_GOAL = 40, 600
"""Of a search tree."""
_HISTORY, _REJECTIONS, _MACHINE_TIME = PICTURES = ("sorries-over-time", "rejections", "machine-time")
"""The names of the pictures."""


# ---- sorries

_FLOWS = {
    "open": "Still in the source",
    "opened": "Opened until then",
    "by_people": "Filled by people",
    "by_us": "Filled by everlean",
    "removed": "Removed with their declaration",
    "by_simulation": f"Filled with a {SIMULATED} text",
}


def history(data: ReportData) -> Section | None:
    """Draw how many sorries were open, opened, filled and removed at each moment; None where nothing changed yet."""
    if len(data.history) < 2:
        return None
    names = [name for name in _FLOWS if any(getattr(one, name) for one in data.history)]
    title = "Sorries of the branches that are watched now"
    picture = line_chart(
        "sorries-picture",
        title,
        positions=_without_repeats([moment(one.at) for one in data.history]),
        lines=[
            Series(_FLOWS[name], tuple(getattr(one, name) for one in data.history), name == "by_simulation")
            for name in names
        ],
        unit="sorries",
        at=[datetime.fromisoformat(one.at).timestamp() for one in data.history],
    )
    return section("history", "Over time", "drawn", picture=Picture(_HISTORY, picture))


def _without_repeats(times: Sequence[str]) -> list[str]:
    """Return times without what is the same in all of them, and no finer than their span asks for."""
    if times[0][:10] == times[-1][:10]:
        return [time[11:] for time in times]
    return [time[:16] if times[0][:7] == times[-1][:7] else time[:10] for time in times]


# ---- proofs


def proofs(data: ReportData) -> Section | None:
    """Show proofs by verdict, and the newest with their text and the search that found them."""
    if not (data.proofs or data.searches):
        return None
    total = sum(row.n for row in data.proofs)
    verified = sum(row.n for row in data.proofs if row.state == "verified")
    room = MOST_TREE_CHARACTERS
    shown = []
    for heading, proofs, of in (
        ("The newest proofs that Lean verified", data.verified, verified),
        ("The newest other texts: candidates, conditional, rejected", data.others, total - verified),
    ):
        blocks = []
        for one in proofs:
            found, no_tree = "", one.no_tree
            if one.tree is not None:
                if room > 0:
                    found = search(one.tree, proof=one.row.proof, simulated=one.row.simulated)
                    room -= len(found)
                else:
                    no_tree = "the page is full of trees already"
            facts = "; ".join(map(shortened, _facts(one)))
            blocks.append(macro("proof", row=one.row, facts=facts, tree=found, no_tree=no_tree))
        if blocks:
            shown.append((heading, blocks, of))
    verdicts = Table(
        "Proofs by verdict",
        ("Verdict", MADE_BY, "Proofs"),
        [(row.state, made_by(row.simulated), row.n) for row in data.proofs],
    )
    return section(
        "proofs", "Verdicts and attempts", "proofs",
        verdicts=verdicts, searches=_searches(data), searches_left=max(0, len(data.searches) - _MOST_SEARCHES),
        shown=shown, trees=any(one.tree for one in (*data.verified, *data.others)), legend=tree.legend(), total=total,
    )  # fmt: skip


def _searches(data: ReportData) -> Table:
    rows: list[tuple[Value, ...]] = [
        (
            f"{row.prover} {row.model}".strip(), made_by(row.simulated), row.rung, row.attempts, row.found,
            row.disproved, clock(row.seconds), None if row.model and not row.tokens else row.tokens, _dollars(row),
        )
        for row in data.searches[:_MOST_SEARCHES]
    ]  # fmt: skip
    return Table(
        "What was tried on sorries, by prover and model; the newest attempt of each on each sorry",
        ("Prover and model", MADE_BY, "Rung", "Attempts", "Found a text", "Disproved", "Time (h:mm:ss)", "Tokens",
         "US dollars"),
        rows,
    )  # fmt: skip


def _dollars(row: Searches) -> str | None:
    """Return what was paid, and, if only some attempts have a price, for how many of them that is."""
    if row.usd is None:
        return None
    return f"{row.usd:.2f}" + (
        f" for {row.priced:,} of {row.attempts:,}" if row.priced < row.attempts else ""
    )


def _facts(one: ShownProof) -> Iterator[str]:
    row: ProofRow = one.row
    yield f"proof {row.proof}"
    yield f"{row.path}, commit {row.sha[:9]}, found {moment(row.found_at)} UTC by {row.prover}, rung {row.rung}"
    if row.simulated:
        yield f"{SIMULATED}: the simulator made it, and it is no proof"
    yield f"tactics: {', '.join(row.tactics)}" if row.tactics else "tactics: not recorded"
    if one.attempt is not None:
        yield f"{counted(one.attempt.nodes, 'state')} in {one.attempt.seconds:.1f} s"
    if row.state == "verified":
        yield f"axioms: {', '.join(row.axioms) or 'none'}"
        yield grade_text(row.grade, row.doubts)
    if row.not_checked:
        yield f"not checked: {', '.join(row.not_checked)}"
    if row.reason:
        yield f"reason: {row.reason}"
    if row.pull_request_url:
        yield f"pull request: {row.pull_request_url}"


def search(found: Tree, *, proof: str, simulated: bool) -> str:
    """Show a search: its steps with the goals after each, its tree, and the tree's states in a table."""
    mark = f"{SIMULATED}: " if simulated else ""
    by_number = {node.number: node for node in found.nodes}
    totals = tree.totals(found)
    drawn = tree.drawing(
        found, name=f"{mark}search tree of proof {proof}: {totals}; the table has them", most=_MOST_STATES
    )
    states = len(found.nodes) + found.nodes_left_out
    if states > len(drawn.states):
        more = f"; {len(drawn.states)} are shown, `everlean proofs tree {proof}` has all."
    else:
        more = "."
    steps = [
        (str(at), node.tactic or "the goal", _goals(node))
        for at, node in enumerate(by_number[number] for number in found.proof[: _MOST_STATES + 1])
    ]
    part = f", the first {_MOST_STATES} of {len(found.proof) - 1:,}" if len(steps) < len(found.proof) else ""
    return macro(
        "search",
        proof=proof,
        counted=totals + more,
        svg=drawn.svg,
        steps=Table(
            f"{mark}The proof step by step{part}",
            ("Step", "Tactic", "Goals after it"),
            steps,
            long=("Tactic", "Goals after it"),
            folded=False,
        ),
        states=Table(
            f"{mark}States of the search, proof {proof}",
            ("State", "Outcome", "Tactic", "From state", "Goals"),
            [
                (
                    f"{node.number}{', on the way of the proof' if node.number in found.proof else ''}",
                    node.outcome,
                    node.tactic or "the goal",
                    "none" if node.parent is None else str(node.parent),
                    _goals(node),
                )
                for node in drawn.states
            ],
            long=("Tactic", "Goals"),
            folded=True,
        ),
    )


def _goals(node: TreeNode) -> str:
    return shortened("\n\n".join(node.goals), _LONGEST_GOAL) if node.goals else "no goals left"


def rejections(data: ReportData) -> Section | None:
    """Count why the gate rejected proofs: by the step that failed, and by the reason in full."""
    if not data.rejections:
        return None
    steps: Counter[tuple[bool, str]] = Counter()
    for row in data.rejections:
        steps[row.simulated, _step(row)] += row.n
    ordered = sorted(steps.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    bars = Picture(
        _REJECTIONS,
        bar_chart(
            "rejections-picture", "Verifier rejections by the step that failed, in proofs", form=lambda n: f"{n:,.0f}",
            bars=[Series(marked(step, simulated), (n,), simulated) for (simulated, step), n in ordered],
        ),
    )  # fmt: skip
    return section(
        "rejections", "Why the gate rejected texts", "rejections",
        bars=bars,
        by_reason=Table(
            "Verifier rejections by reason",
            ("Reason", "Verdict", MADE_BY, "Proofs"),
            [
                (row.reason, "conditional" if row.conditional else "rejected", made_by(row.simulated), row.n)
                for row in data.rejections[:_MOST_REASONS]
            ],
            long=("Reason",),
        ),
        total=len(data.rejections),
    )  # fmt: skip


def _step(row: Rejection) -> str:
    """Return the gate's step: it writes a reason as "step: the fault"."""
    step, colon, _ = row.reason.partition(":")
    return f"{step}, conditional" if row.conditional else step if colon else "unknown"


# ---- the machine's time


def machine_time(data: ReportData) -> Section | None:
    """Add up the time of jobs of each kind, by device, and draw it over time."""
    if not data.machine_time:
        return None
    over, drawn = data.machine_periods, None
    if len(over.begins) > 1:
        keys = sorted(over.amounts, key=lambda key: (key[1], -sum(over.amounts[key]), key[0]))
        picture = line_chart(
            "machine-time-picture",
            f"Machine time {over.said} (UTC)",
            positions=[begin.isoformat() for begin in over.begins],
            lines=[
                Series(marked(*key), tuple(seconds / 3600 for seconds in over.amounts[key]), key[1])
                for key in keys
            ],
            unit=f"hours in a {over.unit}",
        )
        drawn = Picture(_MACHINE_TIME, picture)
    by_kind = Table(
        "By kind of job, in h:mm:ss",
        ("Kind", MADE_BY, "Jobs", "Failed", "Running", "Ended attempts", "Time", "With a GPU", "Processor alone",
         "Not recorded which", "Largest peak memory"),
        [
            (
                row.kind, made_by(row.simulated), row.jobs, row.failed, row.running, row.attempts, clock(row.seconds),
                *(clock(row.seconds_on.get(device, 0.0)) for device in DEVICES), size(row.peak_rss_bytes),
            )
            for row in data.machine_time
        ],
    )  # fmt: skip
    return section(
        "machine-time", "Jobs", "machine_time",
        drawn=drawn, periods=over, earlier=sum(over.before.values()), by_kind=by_kind,
    )  # fmt: skip
