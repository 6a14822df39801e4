"""What the report says of proofs: verdicts, why some were rejected, what was tried, and the newest with their trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.report.charts import Bar, bar_chart, safe
from pipeline.report.gather import Rejection, ReportData, ShownProof
from pipeline.report.html import (
    MADE_BY,
    SIMULATED,
    Section,
    Value,
    clock,
    made_by,
    moment,
    paragraph,
    shortened,
    table,
)
from pipeline.report.tree import MEANING, legend
from pipeline.report.tree_sections import MOST_CHARACTERS, tree_section
from store.view.queries.reports import Searches
from store.view.rows import ProofRow

_MOST_REASONS = 200
_MOST_SEARCHES = 200
_OPEN = 5
"""Proofs that stand there by themselves; the others are folded in together."""
_LONGEST_TEXT = 4000


def proofs(data: ReportData) -> Section:
    """Proofs by verdict, and the newest with their text and the search that found them."""
    section = Section("proofs", "Proofs")
    section.add(
        paragraph(
            "Verified: Lean compiled it, its axioms and its statement were checked. Conditional: it rests on another "
            "sorry. Candidate: nothing failed, and not all was checked; no simulated text is ever verified."
        ),
        table(
            "Proofs by verdict",
            ("Verdict", MADE_BY, "Proofs"),
            [(row.state, made_by(row.simulated), row.n) for row in data.proofs],
            empty="a search that finds one, and the check that follows it",
        ),
        _searches(data),
    )
    if not data.proofs:
        return section
    total = sum(row.n for row in data.proofs)
    verified = sum(row.n for row in data.proofs if row.state == "verified")
    if any(one.tree for one in (*data.verified, *data.others)):
        section.add(
            "<h3>How to read a tree</h3>",
            paragraph(
                "From left to right, one tactic after the other; each box is a state with its first goal, the thick "
                "way is the proof. The tables below a tree say the same in words."
            ),
            legend(MEANING),
        )
    room = MOST_CHARACTERS
    for heading, shown, of in (
        ("The newest proofs that Lean verified", data.verified, verified),
        ("The newest other texts: candidates, conditional, rejected", data.others, total - verified),
    ):
        section.add(f"<h3>{heading}</h3>")
        if not shown:
            section.add(paragraph("None yet."))
            continue
        section.add(
            paragraph(f"{len(shown):,} of {of:,}, the newest first. The text stands in the sorry's place.")
        )
        blocks = []
        for one in shown:
            block, room = _proof(one, room)
            blocks.append(block)
        section.add(*blocks[:_OPEN])
        if blocks[_OPEN:]:
            section.add(
                f"<details><summary>{len(blocks) - _OPEN} earlier ones</summary>{''.join(blocks[_OPEN:])}</details>"
            )
    return section


def rejections(data: ReportData) -> Section:
    """Why the gate rejected proofs: by the step that failed, and by the reason in full."""
    section = Section("rejections", "Verifier rejections")
    if not data.rejections:
        section.add(
            paragraph(
                "None: the gate has rejected no text. One that fails a check is counted here by its reason."
            )
        )
        return section
    steps: Counter[tuple[str, bool]] = Counter()
    for row in data.rejections:
        steps[_step(row), row.simulated] += row.n
    ordered = sorted(steps.items(), key=lambda item: (item[0][1], -item[1], item[0][0]))
    bars = [
        Bar(f"{SIMULATED} {step}" if simulated else step, n, simulated) for (step, simulated), n in ordered
    ]
    section.draw(
        "rejections",
        bar_chart("rejections-picture", "Verifier rejections by the step that failed, in proofs", bars=bars,
                  form=lambda n: f"{n:,.0f}"),
    )  # fmt: skip
    shown = data.rejections[:_MOST_REASONS]
    section.add(
        table(
            "Rejections by the step that failed",
            ("Step", MADE_BY, "Proofs"),
            [(step, made_by(simulated), n) for (step, simulated), n in ordered],
        ),
        table(
            "Verifier rejections by reason",
            ("Reason", "Verdict", MADE_BY, "Proofs"),
            [
                (row.reason, "conditional" if row.conditional else "rejected", made_by(row.simulated), row.n)
                for row in shown
            ],
            long=("Reason",),
        ),
    )
    left = len(data.rejections) - len(shown)
    if left:
        section.add(
            paragraph(f"{len(shown):,} of {len(data.rejections):,} reasons are shown, the most frequent.")
        )
    return section


def _step(row: Rejection) -> str:
    """The gate writes a reason as "step: what is wrong"."""
    step, colon, _ = row.reason.partition(":")
    return f"{step}, conditional" if row.conditional else step if colon else "unknown"


def _searches(data: ReportData) -> str:
    rows: list[tuple[Value, ...]] = [
        (
            f"{row.prover} {row.model}".strip(),
            made_by(row.simulated),
            row.rung,
            row.attempts,
            row.found,
            row.disproved,
            clock(row.seconds),
            None if row.model and not row.tokens else row.tokens,
            _dollars(row),
        )
        for row in data.searches[:_MOST_SEARCHES]
    ]
    left = len(data.searches) - len(rows)
    return table(
        "What was tried on sorrys, by prover and model; the newest attempt of each on each sorry",
        ("Prover and model", MADE_BY, "Rung", "Attempts", "Found a text", "Disproved", "Time (h:mm:ss)", "Tokens",
         "US dollars"),
        rows,
        empty="a search on an open sorry",
    ) + (paragraph(f"{left:,} more are left out.") if left else "")  # fmt: skip


def _dollars(row: Searches) -> str | None:
    """What was paid, and where only some attempts have a price, for how many of them that is."""
    if row.usd is None:
        return None
    part = f" for {row.priced:,} of {row.attempts:,}" if row.priced < row.attempts else ""
    return f"{row.usd:.2f}{part}"


def _proof(one: ShownProof, room: int) -> tuple[str, int]:
    """Return a proof's block, and how many characters of trees there is still room for."""
    row = one.row
    mark = f"{SIMULATED}, " if row.simulated else ""
    said: Sequence[str] = ("",)
    if one.tree is None:
        no_tree = one.no_tree
    elif room <= 0:
        no_tree = "the page is full of trees already"
    else:
        no_tree = ""
        said = (tree_section(one.tree, proof=row.proof, simulated=row.simulated),)
        room -= len(said[0])
    if no_tree:
        said = (paragraph(f"The tree of its search is not shown: {no_tree}.", dim=True),)
    names = [f"<bdi>{safe(shortened(name))}</bdi>" for name in (row.declaration, row.repository)]
    block = (
        f"<details><summary>{' in '.join(names)}: {mark}{safe(row.state)}</summary>"
        f"<pre><bdi>{safe(shortened(row.replacement, _LONGEST_TEXT))}</bdi></pre>"
        f"{paragraph('; '.join(map(shortened, _known(one))), dim=True)}{''.join(said)}</details>"
    )
    return block, room


def _known(one: ShownProof) -> Iterable[str]:
    row: ProofRow = one.row
    yield f"proof {row.proof}"
    yield f"{row.path}, commit {row.sha[:9]}, found {moment(row.found_at)} UTC by {row.prover}, rung {row.rung}"
    if row.simulated:
        yield f"{SIMULATED}: the simulator made it, and it is no proof"
    yield f"tactics: {', '.join(row.tactics)}" if row.tactics else "tactics: not recorded"
    if one.attempt is not None:
        yield f"{one.attempt.nodes:,} state{'' if one.attempt.nodes == 1 else 's'} in {one.attempt.seconds:.1f} s"
    if row.state == "verified":
        yield f"axioms: {', '.join(row.axioms) or 'none'}"
    if row.not_checked:
        yield f"not checked: {', '.join(row.not_checked)}"
    if row.reason:
        yield f"reason: {row.reason}"
    if row.pull_request_url:
        yield f"pull request: {row.pull_request_url}"
