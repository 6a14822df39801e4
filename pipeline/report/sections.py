"""The sections on sorries, repositories, proofs, rejections and the machine's time: their tables and pictures.

Every picture has a table beside it. The prose around them is in `templates/macros.html`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.report import tree
from pipeline.report.charts import (
    Series,
    bar_chart,
    line_chart,
)
from pipeline.report.gather import (
    DEVICES,
    FINE,
    SORRY_COLUMNS,
    OverTime,
    Rejection,
    ReportData,
    RepositoryState,
    ShownProof,
)
from pipeline.report.html import (
    MADE_BY,
    SIMULATED,
    Picture,
    Section,
    Table,
    Value,
    clock,
    macro,
    made_by,
    many,
    marked,
    moment,
    section,
    shortened,
    size,
    span,
)
from store.view.report_queries import Searches
from store.view.rows import ProofRow

if TYPE_CHECKING:
    from pipeline.prove.tree import Tree, TreeNode

MOST_TREE_CHARACTERS = 1 << 20
"""Characters that the trees of a page take together, with the one that exceeds it."""
_MOST_REPOSITORIES, _MOST_REASONS, _MOST_SEARCHES = 1000, 200, 200
_MOST_STATES, _LONGEST_GOAL = 40, 600
"""Of a search tree."""


# ---- sorries and repositories

_COLUMNS = {
    "open": "Open",
    "verified": "Verified, still in the source",
    "by_people": "Filled by people",
    "by_us": "Filled by us",
    "by_simulation": f"Filled with a {SIMULATED} text",
    "removed": "Removed",
}
_FLOWS = {
    "opened": "Opened",
    "by_people": "Filled by people",
    "by_us": "Filled by us",
    "removed": "Removed with their declaration",
    "by_simulation": _COLUMNS["by_simulation"],
}


def _small(name: str) -> str:
    return name[0].lower() + name[1:]


def sorries(data: ReportData) -> Section:
    now = "; ".join(
        f"{n:,} {_small(_COLUMNS[name])}" for name, n in data.sorries.items() if n or name != "by_simulation"
    )
    lines = over_time = in_periods = by_period = None
    flows = data.flows
    if data.history:
        names = {"open": "Still in the source", **_FLOWS}
        if not any(one.by_simulation for one in data.history):
            del names["by_simulation"]
        times = [moment(one.at) for one in data.history]
        caption = "Sorries over time"
        lines = Picture(
            "sorrys-over-time",
            line_chart(
                "sorrys-picture",
                f"{caption}, of the branches watched now",
                positions=_without_repeats(times),
                lines=[
                    Series(
                        names[name],
                        tuple(getattr(one, name) for one in data.history),
                        name == "by_simulation",
                    )
                    for name in names
                ],
                unit="sorries; all but those still in the source count from the beginning on",
                at=[datetime.fromisoformat(one.at).timestamp() for one in data.history],
            ),
        )
        rows = [
            (time, *(getattr(one, name) for name in names))
            for time, one in zip(times, data.history, strict=True)
        ]
        over_time = Table(caption, ("Time (UTC)", *names.values()), rows)
        in_periods, by_period = _by_period(data)
    before = ", ".join(f"{int(n):,} {_small(_FLOWS[name])}" for name, n in flows.before.items())
    return section(
        "sorrys", "Sorries over time", "sorries",
        now=now, lines=lines, over_time=over_time, in_periods=in_periods, by_period=by_period, before=before,
        flows=flows,
    )  # fmt: skip


def _by_period(data: ReportData) -> tuple[Picture, Table]:
    flows = data.flows
    nothing = (0,) * len(flows.begins)
    rows = [
        Series(words, flows.amounts.get(name, nothing), name == "by_simulation")
        for name, words in _FLOWS.items()
        if name in flows.amounts or name != "by_simulation"
    ]
    caption = "Sorries that came and went"
    return _periods("sorrys-by-period", f"{caption}, {flows.said}", flows, rows, int, unit="sorries")


def _periods(
    name: str,
    title: str,
    over: OverTime[Any],
    rows: Sequence[Series],
    form: Callable[[float], Value],
    *,
    unit: str,
) -> tuple[Picture, Table]:
    """Return the amounts of each period as lines and as a table, whose cells `form` makes."""
    labels = [begin.isoformat() for begin in over.begins]
    picture = line_chart(
        f"{name}-picture", f"{title} (UTC)", positions=labels, lines=rows, unit=f"{unit} in a {over.unit}"
    )
    cells = [(label, *(form(row.values[at] or 0) for row in rows)) for at, label in enumerate(labels)]
    caption = title if form is int else f"{title}, in h:mm:ss"
    return Picture(name, picture), Table(caption, (over.heading, *(row.name for row in rows)), cells)


def _without_repeats(times: Sequence[str]) -> list[str]:
    """Return times without what is the same in all of them, and no finer than their span asks for."""
    if times[0][:10] == times[-1][:10]:
        return [time[11:] for time in times]
    return [time[:16] if times[0][:7] == times[-1][:7] else time[:10] for time in times]


def repositories(data: ReportData) -> Section:
    """List every repository: those in trouble first, then those with the most left to do."""
    columns = [name for name in SORRY_COLUMNS if name != "by_simulation" or data.sorries[name]]
    rows: list[tuple[Value, ...]] = [
        (
            row.repository,
            row.state + (", no longer watched" if not row.watched else "" if row.enabled else ", not enabled"),
            *(row.sorries[name] for name in columns),
            moment(row.checked_at or "never"),
            "; ".join(part for part in (row.reason, row.remedy) if part),
        )
        for row in sorted(data.repositories, key=_urgency)[:_MOST_REPOSITORIES]
    ]  # fmt: skip
    last = "Trouble and remedy"
    states = Table(
        "State of each repository; sorries are those of its watched branches now",
        ("Repository", "State", *(_COLUMNS[name] for name in columns), "Last asked (UTC)", last),
        rows, long=(last,), folded=False, empty="an entry [[repos]] in config.toml",
    )  # fmt: skip
    return section(
        "repositories", "Repositories", "repositories", states=states, total=len(data.repositories)
    )


def _urgency(row: RepositoryState) -> tuple[bool, bool, int, str]:
    return not row.watched, not row.enabled or row.state in FINE, -row.left, row.repository


# ---- proofs


def proofs(data: ReportData) -> Section:
    """Show proofs by verdict, and the newest with their text and the search that found them."""
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
        shown.append((heading, blocks, of))
    verdicts = Table(
        "Proofs by verdict",
        ("Verdict", MADE_BY, "Proofs"),
        [(row.state, made_by(row.simulated), row.n) for row in data.proofs],
        empty="a search that finds one, and the check that follows it",
    )
    return section(
        "proofs", "Proofs", "proofs",
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
        empty="a search on an open sorry",
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
        yield f"{many(one.attempt.nodes, 'state', 'states')} in {one.attempt.seconds:.1f} s"
    if row.state == "verified":
        yield f"axioms: {', '.join(row.axioms) or 'none'}"
        yield row.graded
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
    counted = tree.counted(found)
    drawn = tree.drawing(
        found, name=f"{mark}search tree of proof {proof}: {counted}; the table has them", most=_MOST_STATES
    )
    states = len(found.nodes) + found.nodes_left_out
    if states > len(drawn.states):
        more = f"; {len(drawn.states)} are shown, `unsorry proofs tree {proof}` has all."
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
        counted=counted + more,
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


def rejections(data: ReportData) -> Section:
    """Count why the gate rejected proofs: by the step that failed, and by the reason in full."""
    steps: Counter[tuple[bool, str]] = Counter()
    for row in data.rejections:
        steps[row.simulated, _step(row)] += row.n
    ordered = sorted(steps.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    bars = Picture(
        "rejections",
        bar_chart(
            "rejections-picture", "Verifier rejections by the step that failed, in proofs", form=lambda n: f"{n:,.0f}",
            bars=[Series(marked(step, simulated), (n,), simulated) for (simulated, step), n in ordered],
        ),
    )  # fmt: skip
    return section(
        "rejections", "Verifier rejections", "rejections",
        bars=bars if data.rejections else None,
        by_step=Table(
            "Rejections by the step that failed",
            ("Step", MADE_BY, "Proofs"),
            [(step, made_by(simulated), n) for (simulated, step), n in ordered],
        ),
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


def machine_time(data: ReportData) -> Section:
    """Add up the time of jobs of each kind, by device, and over time."""
    name, periods = "machine-time", data.machine_periods
    in_periods = by_period = bars = None
    if periods.begins:
        keys = sorted(periods.amounts, key=lambda key: (key[1], -sum(periods.amounts[key]), key[0]))
        rows = [
            Series(marked(*key), tuple(seconds / 3600 for seconds in periods.amounts[key]), key[1])
            for key in keys
        ]
        in_periods, by_period = _periods(
            f"{name}-over-time",
            f"Machine time {periods.said}",
            periods,
            rows,
            lambda hours: clock(hours * 3600),
            unit="hours",
        )
    if data.machine_time:
        of_kinds = [
            Series(marked(row.kind, row.simulated), (row.seconds,), row.simulated)
            for row in data.machine_time
        ]
        title = "Machine time by kind of job"
        bars = Picture(name, bar_chart(f"{name}-picture", title, bars=of_kinds, form=span))
    by_kind = Table(
        "Machine time by kind of job, in h:mm:ss",
        ("Kind", MADE_BY, "Jobs", "Failed", "Running", "Ended attempts", "Time", "With a GPU", "Processor alone",
         "Not recorded which", "Largest peak memory"),
        [
            (
                row.kind, made_by(row.simulated), row.jobs, row.failed, row.running, row.attempts, clock(row.seconds),
                *(clock(row.seconds_on.get(device, 0.0)) for device in DEVICES), size(row.peak_rss_bytes),
            )
            for row in data.machine_time
        ],
        empty="a job, which begins when there is a commit to scan",
    )  # fmt: skip
    return section(
        name, "Machine time", "machine_time",
        in_periods=in_periods, by_period=by_period, periods=periods, earlier=sum(periods.before.values()), bars=bars,
        by_kind=by_kind,
    )  # fmt: skip
