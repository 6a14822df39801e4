"""The page of a report: each section's tables and pictures, and what the templates write around them.

Every picture has a table beside it. Each section bounds itself. The page is never larger than `MOST_BYTES`: the largest
sections are left out until it is not, and both the page's top and the section's place say so. The prose is in
`templates/`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.prove.tree import Tree, TreeNode
from pipeline.report import tree
from pipeline.report.charts import (
    Mark,
    Scale,
    Series,
    bar_chart,
    change_scale,
    column_chart,
    error_scale,
    heat_map,
    lane_chart,
    line_chart,
    rising_scale,
)
from pipeline.report.gather import (
    DEVICES,
    FINE,
    SORRY_COLUMNS,
    TRAINED_BY,
    OverTime,
    Rejection,
    ReportData,
    RepositoryState,
    ShownProof,
)
from pipeline.report.html import (
    DATA_OF,
    MADE_BY,
    SIMULATED,
    Table,
    Value,
    clock,
    data_of,
    environment,
    made_by,
    many,
    marked,
    measure,
    moment,
    shortened,
    size,
    span,
    written,
)
from pipeline.report.matrix import Cell, Forgetting, Matrix, Task
from store.view.queries.reports import Searches
from store.view.rows import CheckpointRow, EvaluationRow, ProofRow

if TYPE_CHECKING:
    from store.events.models import ModelKind

MOST_BYTES = 8 << 20
"""Of the page, in UTF-8."""
_REST_BYTES = 1 << 18
"""Kept for what is around the sections."""
MOST_TREE_CHARACTERS = 1 << 20
"""Characters that the trees of a page take together, with the one that exceeds it."""
_MOST_REPOSITORIES, _MOST_REASONS, _MOST_SEARCHES = 1000, 200, 200
_MOST_CHECKPOINTS, _MOST_FAILED, _MOST_EVALUATIONS = 300, 300, 2000
_MOST_TASKS, _MOST_LINKS = 60, 120
"""Of a matrix; of more, pictures and tables have the newest, and the measures are over all."""
_MOST_STATES, _LONGEST_GOAL = 40, 600
"""Of a search tree."""


# ---- the page


@dataclass(frozen=True, slots=True)
class Page:
    """The report as text: the page, and the pictures in it by the name of their file."""

    html: str
    pictures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, and the name of its file without .svg."""

    name: str
    svg: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page below a heading of its own, and its pictures."""

    identity: str
    heading: str
    html: str
    pictures: tuple[Picture, ...]


def render(data: ReportData, *, most_bytes: int = MOST_BYTES) -> Page:
    """Make the page. It loads nothing: no script, no font, no picture from elsewhere.

    Args:
        data: what it shows.
        most_bytes: that it may have.
    """
    sections, left_out = ([], []) if data.empty else _bounded(_sections(data), most_bytes)
    failed = [
        (simulated, jobs)
        for simulated in (False, True)
        if (jobs := Counter({row.kind: row.failed for row in data.machine_time
                             if row.failed and row.simulated == simulated}))
    ]  # fmt: skip
    html = environment().get_template("report.html").render(
        title="unsorry: report",
        data=data,
        lean=_lean(data),
        sections=sections,
        left_out=left_out,
        most=_mebibytes(most_bytes),
        lead=_lead(data),
        figures=list(_figures(data)),
        trouble=[row for row in data.repositories if row.watched and row.enabled and row.state not in FINE],
        failed=failed,
    )  # fmt: skip
    pictures = {f"{one.name}.svg": f"{one.svg}\n" for section in sections for one in section.pictures}
    return Page(html, pictures)


def _bounded(sections: Sequence[Section], most_bytes: int) -> tuple[list[Section], list[str]]:
    """Return the sections, the largest of them left out as far as need be, and the headings of those."""
    found = list(sections)
    bytes_of = [len(one.html.encode()) for one in found]
    left_out: list[str] = []
    for at in sorted(range(len(found)), key=lambda at: -bytes_of[at]):
        if sum(bytes_of) <= most_bytes - _REST_BYTES:
            break
        takes, most = _mebibytes(bytes_of[at]), _mebibytes(most_bytes)
        found[at] = _section(found[at].identity, found[at].heading, "too_large", takes=takes, most=most)
        bytes_of[at] = len(found[at].html.encode())
        left_out.append(found[at].heading)
    return found, left_out


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f}"


def _sections(data: ReportData) -> list[Section]:
    return [
        _sorries(data),
        _repositories(data),
        _proofs(data),
        _rejections(data),
        *_matrices(data),
        _training(data),
        _evaluations(data),
        _machine_time(data),
    ]


def _macro(name: str, /, **parts: Any) -> str:
    """Return what a macro of the templates makes of its parts."""
    # As it comes, so that a template that gets it does not escape it again.
    made: str = getattr(environment().get_template("macros.html").module, name)(**parts)
    return made


def _section(identity: str, heading: str, macro: str, **parts: Any) -> Section:
    html = _macro("section", identity=identity, heading=heading, body=_macro(macro, **parts))
    return Section(identity, heading, html, tuple(one for one in parts.values() if isinstance(one, Picture)))


# ---- the top


def _lean(data: ReportData) -> str:
    service = data.service
    if service is None:
        return "not known, no daemon has run yet"
    lean = f"{SIMULATED}, the simulator" if service.lean == "simulator" else service.lean
    detail = service.lean_detail not in ("", service.lean)
    return f"{lean} ({shortened(service.lean_detail, 200)})" if detail else lean


def _lead(data: ReportData) -> str:
    watched = [row for row in data.repositories if row.watched]
    with_open = sum(1 for row in watched if row.left)
    now = data.sorries
    left = now["open"] + now["verified"]
    among = many(len(watched), "watched repository", "watched repositories")
    if not watched:
        where = "No repository is watched."
    elif not any(now.values()):
        return f"No sorry was seen yet in {among}."
    elif not left:
        where = f"No sorry is left in {among}."
    else:
        proved = {0: "none has", 1: "1 has"}.get(now["verified"], f"{now['verified']:,} have")
        where = (
            f"{many(left, 'sorry is left', 'sorries are left')} in {with_open:,} of {among}; "
            f"{proved} a proof that Lean verified."
        )
    return f"{where} People filled {now['by_people']:,}, unsorry filled {now['by_us']:,}."


def _figures(data: ReportData) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the figures that matter most: name, figure, and what it does not say by itself."""
    now = data.sorries
    yield (
        "Sorries in the source",
        written(now["open"] + now["verified"]),
        [f"{now['verified']:,} of them with a verified proof"],
    )
    more = [f"{now['by_people']:,} by people"]
    if now["by_simulation"]:
        more.append(f"{now['by_simulation']:,} more with a {SIMULATED} text")
    yield "Filled by us", written(now["by_us"]), more
    real = {row.state: row.n for row in data.proofs if not row.simulated}
    made_up = sum(row.n for row in data.proofs if row.simulated)
    more = [f"{real.get('rejected', 0):,} rejected, {real.get('conditional', 0):,} conditional"]
    if made_up:
        more.append(f"{made_up:,} {SIMULATED} texts, which are no proofs")
    yield "Proofs verified by Lean", written(real.get("verified", 0)), more
    yield _retriever(data)
    on = {
        device: sum(row.seconds_on.get(device, 0.0) for row in data.machine_time if not row.simulated)
        for device in DEVICES
    }
    jobs = sum(row.jobs for row in data.machine_time if not row.simulated)
    more = [f"{span(on['gpu'])} of it with a GPU", f"{jobs:,} jobs"]
    if on["unknown"]:
        more.insert(1, f"{span(on['unknown'])} on what is not recorded")
    simulated = [row.seconds for row in data.machine_time if row.simulated]
    if simulated:
        more.append(f"{span(sum(simulated))} more of {SIMULATED} jobs")
    yield "Machine time", span(sum(on.values())), more


def _retriever(data: ReportData) -> tuple[str, str, list[str]]:
    trained = [row for row in data.trainings if row.model == "retriever"]
    in_use = next((row for row in trained if row.promoted), None)
    if in_use is None:
        counted = [many(len(trained), "checkpoint", "checkpoints")] if trained else []
        return "Retriever in use", "none", counted
    more = [f"checkpoint {in_use.checkpoint}, of {len(trained):,}"]
    wanted = ("retriever", in_use.simulated)
    matrix = next((one for one in data.matrices if (one.model, one.simulated) == wanted), None)
    average = matrix.averages[-1] if matrix else None
    name = f"{f'{SIMULATED} retriever' if in_use.simulated else 'Retriever'} in use: mean recall@10"
    if matrix is None or average is None:
        return name, "unknown", more
    over = f"over {many(len(matrix.tasks), 'task', 'tasks')}, split {matrix.split}"
    return name, f"{average * 100:.1f} %", [over, *more]


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
"""In the order of the colours of the lines of the chart of all time, which begins with those still there."""


def _small(name: str) -> str:
    return name[0].lower() + name[1:]


def _sorries(data: ReportData) -> Section:
    now = "; ".join(
        f"{n:,} {_small(_COLUMNS[name])}" for name, n in data.sorries.items() if n or name != "by_simulation"
    )
    lines = over_time = columns = by_period = None
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
        columns, by_period = _by_period(data)
    before = ", ".join(f"{int(n):,} {_small(_FLOWS[name])}" for name, n in flows.before.items())
    return _section(
        "sorrys", "Sorries over time", "sorries",
        now=now, lines=lines, over_time=over_time, columns=columns, by_period=by_period, before=before, flows=flows,
    )  # fmt: skip


def _by_period(data: ReportData) -> tuple[Picture, Table]:
    flows = data.flows
    nothing = (0,) * len(flows.begins)
    rows = [
        Series(words, flows.amounts.get(name, nothing), name == "by_simulation", colour=number)
        for number, (name, words) in enumerate(_FLOWS.items(), start=1)
        if name in flows.amounts or name != "by_simulation"
    ]
    caption = "Sorries that came and went"
    return _columns("sorrys-by-period", f"{caption}, {flows.said}", flows, rows, whole=True)


def _columns(
    name: str, title: str, over: OverTime[Any], rows: Sequence[Series], *, whole: bool
) -> tuple[Picture, Table]:
    """Return columns in time and their table; the amounts are whole numbers or seconds."""
    labels = [begin.isoformat() for begin in over.begins]
    picture = column_chart(
        f"{name}-picture", f"{title} (UTC)", positions=labels, rows=rows, per=over.unit,
        form=(lambda n: f"{n:,.0f}") if whole else span,
    )  # fmt: skip
    cells = [
        (label, *(int(row.values[at] or 0) if whole else clock(row.values[at] or 0) for row in rows))
        for at, label in enumerate(labels)
    ]
    caption = title if whole else f"{title}, in h:mm:ss"
    return Picture(name, picture), Table(caption, (over.heading, *(row.name for row in rows)), cells)


def _without_repeats(times: Sequence[str]) -> list[str]:
    """Return times without what is the same in all of them, and no finer than their span asks for."""
    if times[0][:10] == times[-1][:10]:
        return [time[11:] for time in times]
    return [time[:16] if times[0][:7] == times[-1][:7] else time[:10] for time in times]


def _repositories(data: ReportData) -> Section:
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
    return _section(
        "repositories", "Repositories", "repositories", states=states, total=len(data.repositories)
    )


def _urgency(row: RepositoryState) -> tuple[bool, bool, int, str]:
    return not row.watched, not row.enabled or row.state in FINE, -row.left, row.repository


# ---- proofs


def _proofs(data: ReportData) -> Section:
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
            search, no_tree = "", one.no_tree
            if one.tree is not None:
                if room > 0:
                    search = _search(one.tree, proof=one.row.proof, simulated=one.row.simulated)
                    room -= len(search)
                else:
                    no_tree = "the page is full of trees already"
            facts = "; ".join(map(shortened, _facts(one)))
            blocks.append(_macro("proof", row=one.row, facts=facts, tree=search, no_tree=no_tree))
        shown.append((heading, blocks, of))
    verdicts = Table(
        "Proofs by verdict",
        ("Verdict", MADE_BY, "Proofs"),
        [(row.state, made_by(row.simulated), row.n) for row in data.proofs],
        empty="a search that finds one, and the check that follows it",
    )
    return _section(
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
    if row.not_checked:
        yield f"not checked: {', '.join(row.not_checked)}"
    if row.reason:
        yield f"reason: {row.reason}"
    if row.pull_request_url:
        yield f"pull request: {row.pull_request_url}"


def _search(found: Tree, *, proof: str, simulated: bool) -> str:
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
    return _macro(
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


def _rejections(data: ReportData) -> Section:
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
    return _section(
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


# ---- matrices


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a model's matrix: `stem` begins the names of its pictures and its section, `caption` its table."""

    stem: str
    heading: str
    caption: str
    trained: str
    meaning: str


_WORDS: Mapping[ModelKind, _Words] = {
    "retriever": _Words(
        "recall", "Recall and forgetting", "Recall matrix", "retriever",
        "recall@10 is the share, in percent, of the premises that a proof step uses which are among the first ten "
        "retrieved, mean over steps.",
    ),
    "tactics": _Words(
        "tactics", "Tactics and forgetting", "Tactic matrix", "tactic model",
        "tactic@8 is the share, in percent, of the steps whose own tactic is among the eight likeliest that the model "
        "writes.",
    ),
    "progress": _Words(
        "progress", "Steps remaining and forgetting", "Error matrix", "progress model",
        "mae is by how many steps the model's prediction of the steps that a proof still needs is off, mean over "
        "steps; less is better.",
    ),
}  # fmt: skip
_MEASURES = {
    "FM": ("lower", "forgetting measure: best earlier figure of a task less its last, mean over tasks",
           "the script compares different tasks"),
    "WF5": ("lower", "windowed forgetting: deepest fall of a task within five evaluations, mean over tasks",
            "the script looks at the falls of the average, whose tasks grow"),
    "BWT": ("higher", "backward transfer: last figure of a task less its first, mean over tasks", ""),
    "EBWT": ("higher", "extended backward transfer: as BWT, after every later task",
             "the script leaves the last checkpoint out and counts each task's own"),
    "final_average": ("higher", "mean over all tasks at the end", ""),
    "learning_accuracy": ("higher", "mean of each task right after it was learned", ""),
    "CFR": ("higher", "", "catastrophic forgetting resilience: lowest average over highest, a ratio"),
    "WP5": ("higher", "", "windowed plasticity: gain of the average over five tasks"),
    "IP": ("higher", "", "incremental plasticity: mean change of the validation figure from task to task"),
}  # fmt: skip
_MEAN = "Mean over the tasks seen"


def _matrices(data: ReportData) -> Iterator[Section]:
    """Yield a section for each matrix; for a model without one, a section that says so, if there is such a model."""
    for model, words in _WORDS.items():
        of_model = [matrix for matrix in data.matrices if matrix.model == model]
        if not of_model and (model == "retriever" or any(row.model == model for row in data.trainings)):
            yield _section(words.stem, words.heading, "missing", trained=words.trained)
        for simulated in (False, True):
            of_kind = [matrix for matrix in of_model if matrix.simulated == simulated]
            for number, matrix in enumerate(of_kind, start=1):
                name = ("-simulated" if simulated else "") + (f"-{number}" if len(of_kind) > 1 else "")
                yield matrix_section(matrix, name)


def matrix_section(matrix: Matrix, name: str) -> Section:
    """Return the section of one matrix; `name` is put at the end of the names of its pictures."""
    return _MatrixSection(matrix, name).section()


class _MatrixSection:
    """One matrix as a section. `first` is the number of checkpoints of its beginning that are not shown."""

    def __init__(self, matrix: Matrix, name: str) -> None:
        self.matrix, self.name = matrix, name
        self.rule, self.words = matrix.rule, _WORDS[matrix.model]
        self.mark = f"{SIMULATED}: " if matrix.simulated else ""
        self.errors = self.rule.lower_is_better
        self.unit = "steps" if self.errors else "percent"
        # Points to one decimal, steps to two.
        self.digits = 1 if self.rule.scale > 1 else 2
        self.first = max(0, len(matrix.checkpoints) - _MOST_LINKS)
        self.columns = matrix.checkpoints[self.first :]
        self.numbers = [str(self.first + at) for at in range(1, len(self.columns) + 1)]
        self.tasks = matrix.tasks[-_MOST_TASKS:]
        self.cells = [
            [None if cell is None else cell.value * self.rule.scale for cell in task.cells[self.first :]]
            for task in self.tasks
        ]

    def section(self) -> Section:
        matrix, shown = self.matrix, ""
        if self.first or len(self.tasks) < len(matrix.tasks):
            shown = (
                f"the newest {len(self.tasks):,} of {len(matrix.tasks):,} test sets and "
                f"{len(self.columns):,} of {len(matrix.checkpoints):,} checkpoints"
            )
        scale = (error_scale if self.errors else rising_scale)(_known(self.cells))
        grid = self._heat("matrix", f"{self.rule.metric} in {self.unit}", self.cells, scale, self._plain)
        lines = change = None
        if len(self.columns) > 1:
            lines = self._lines()
            gains = [task.gains[self.first :] for task in self.tasks]
            unit, metric = self.rule.unit, self.rule.metric
            won = f"How much better {metric} became" if self.errors else f"Change of {metric}"
            scale = change_scale(_known(gains), unit=unit, step=0.5 if unit == "steps" else 5.0)
            title = f"{won} since a task's first measurement, in {unit}"
            change = self._heat("change", title, gains, scale, self._signed)
        return _section(
            f"{self.words.stem}{self.name}", f"{self.mark}{self.words.heading}, split {matrix.split}", "matrix",
            one=matrix, meaning=self.words.meaning, shown=shown, grid=grid, lines=lines, change=change,
            values=self._values(), forgetting=self._forgetting(),
            lifelong=matrix.forgetting and _lifelong(matrix.forgetting, self.mark),
        )  # fmt: skip

    def _heat(
        self, kind: str, title: str, cells: Sequence[Sequence[float | None]], scale: Scale, form: Any
    ) -> Picture:
        name = f"{self.words.stem}-{kind}{self.name}"
        svg = heat_map(
            f"{name}-picture",
            f"{self.mark}{title}, split {self.matrix.split}",
            rows=[task.name for task in self.tasks],
            columns=self.columns,
            cells=cells,
            scale=scale,
            form=form,
            framed=[task.begins - self.first for task in self.tasks],
            first=self.first + 1,
        )
        return Picture(name, svg)

    def _lines(self) -> Picture:
        lines = [Series(task.name, tuple(row)) for task, row in zip(self.tasks, self.cells, strict=True)]
        if len(lines) > 1:
            means = self.matrix.averages[self.first :]
            scaled = tuple(None if value is None else value * self.rule.scale for value in means)
            lines.append(Series(_MEAN, scaled, heavy=True))
        known = _known(self.cells)
        low, high = 10 * (min(known, default=0.0) // 10), max(known, default=100.0)
        name = f"{self.words.stem}-over-time{self.name}"
        begins = "" if self.errors else f", from {low:g} on"
        svg = line_chart(
            f"{name}-picture",
            f"{self.mark}{self.rule.metric} per task over the chain, split {self.matrix.split}",
            positions=self.numbers,
            lines=lines,
            unit=f"{self.unit}{begins}; across: checkpoints of the chain",
            ends=None if self.errors else (low, min(100.0, 10 * math.ceil((high + 0.01) / 10))),
        )
        return Picture(name, svg)

    def _values(self) -> Table:
        rows: list[tuple[Value, ...]] = [
            (task.name, task.dataset[:8], task.n, *map(self._cell, task.cells[self.first :]))
            for task in self.tasks
        ]
        if len(rows) > 1:
            means = self.matrix.averages[self.first :]
            averages = ["not measured" if value is None else self._scaled(value) for value in means]
            rows.append((_MEAN, "", sum(task.n for task in self.matrix.tasks), *averages))
        names = [f"{number}: {name}" for number, name in zip(self.numbers, self.columns, strict=True)]
        caption = (
            f"{self.mark}{self.words.caption}: {self.rule.metric} in {self.unit}, with its 95 % interval where one was "
            "recorded"
        )
        return Table(caption, ("Task", "Dataset", "Examples", *names), rows, folded=len(names) > 6)

    def _forgetting(self) -> Table:
        since, lost = "Change since the first", "Forgotten: best earlier less last"
        if self.errors:
            since, lost = "Better since the first by", "Forgotten: last less best earlier"
        units = self.unit if self.unit == self.rule.unit else f"{self.unit} and {self.rule.unit}"
        return Table(
            f"{self.mark}Forgetting, task by task, in {units}",
            ("Task", "First", "Best", "Last", since, lost),
            [self._kept(task) for task in self.tasks],
        )

    def _kept(self, task: Task) -> tuple[Value, ...]:
        first, last = task.known[0].value, task.known[-1].value
        values = (task.name, *map(self._scaled, (first, task.best(task.known), last)))
        if task.forgotten is None:
            return (*values, "measured once", "measured once")
        return (*values, self._signed(self.rule.lost(last, first)), self._plain(task.forgotten))

    def _cell(self, cell: Cell | None) -> str:
        if cell is None:
            return "not measured"
        interval = f" ({' to '.join(map(self._scaled, cell.interval))})" if cell.interval else ""
        return self._scaled(cell.value) + interval

    def _scaled(self, value: float) -> str:
        """Write a value as it was measured in the unit of the page."""
        return self._plain(value * self.rule.scale)

    def _plain(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    def _signed(self, value: float) -> str:
        return f"{value:+.{self.digits}f}" if abs(value) >= 0.5 * 10**-self.digits else self._plain(0)


def _known(cells: Sequence[Sequence[float | None]]) -> list[float]:
    return [value for row in cells for value in row if value is not None]


def _lifelong(found: Forgetting, mark: str) -> Table:
    def value(form: Mapping[str, float | None], name: str) -> str:
        return measure(form[name]) if name in form else "no such measure"

    meant = "What it is"
    return Table(
        f"{mark}Lifelong measures over {many(found.n_tasks, 'task', 'tasks')}, in points of percent (CFR: a ratio)",
        ("Measure", "Textbook", "LeanAgent's script", "Better when", meant),
        [
            (name, value(found.textbook, name), value(found.leanagent, name), better, "; ".join(filter(None, said)))
            for name, (better, *said) in _MEASURES.items()
        ],
        long=(meant,),
        folded=False,
    )  # fmt: skip


# ---- training and evaluations

_STANDING = "In use, and why or why not"
_TELLING = ("against_forgetting", "lambda_value", "loss", "lr", "max_epochs")
_SHOWN = {
    "retriever": ("recall@1", "recall@10", "mrr"),
    "tactics": ("tactic@1", "tactic@8", "token_accuracy"),
    "progress": ("mae", "mse", "within_1"),
}
_UNITS = {"mae": "steps", "mse": "steps squared"}


def _training(data: ReportData) -> Section:
    """List checkpoints with their origin and state, and the runs that made none."""
    left = max(0, len(data.trainings) - _MOST_CHECKPOINTS)
    shown = data.trainings[left:]
    telling = {
        model: _telling([row for row in shown if row.model == model])
        for model in {row.model for row in shown}
    }
    rows: list[tuple[Value, ...]] = [
        (
            row.checkpoint,
            moment(row.saved_at),
            data_of(row.simulated),
            row.parent or f"base: {row.base}",
            _standing(row),
            ", ".join(f"{name} {_setting(row, name)}" for name in telling[row.model]) or "the same in all",
            row.steps,
            row.seconds,
            row.device,
            str(row.seed),
            f"event {row.data_seq}",
            size(row.size_bytes),
            row.model,
        )
        for row in shown
    ]
    checkpoints = Table(
        "Checkpoints, oldest first",
        ("Checkpoint", "Saved (UTC)", DATA_OF, "Trained from", _STANDING, "Settings", "Steps", "Seconds", "Device",
         "Seed", "Data up to", "Size", "Model"),
        rows, long=(_STANDING, "Settings", "Trained from"),
        empty="a training, which is due when a traced repository has enough new theorems ([train] new_theorems)",
    )  # fmt: skip
    failed = Table(
        "Training runs that failed or were interrupted at their newest attempt, newest first",
        ("Job", MADE_BY, "What", "Attempt", "State", "Reason", "Message", "Remedy"),
        [
            (
                row.job, made_by(row.simulated), row.describes, row.attempt, row.state, row.reason, row.message,
                row.remedy,
            )
            for row in data.failed_trainings[:_MOST_FAILED]
        ],
        long=("What", "Message", "Remedy"),
    )  # fmt: skip
    settings = None
    if shown:
        every = sorted({**shown[-1].config, **shown[-1].versions}.items())
        settings = Table(
            f"All settings and versions of {shown[-1].checkpoint}", ("Name", "Value"),
            [(name, str(value)) for name, value in every], folded=True,
        )  # fmt: skip
    return _section(
        "training", "Training history", "training",
        lanes=_lanes(data), checkpoints=checkpoints, left=left, settings=settings, failed=failed,
        failed_left=max(0, len(data.failed_trainings) - _MOST_FAILED),
    )  # fmt: skip


def _lanes(data: ReportData) -> Picture | None:
    """Draw the runs as marks in time, a lane for each model."""
    lanes: dict[tuple[bool, str], list[Mark]] = {}
    ends: list[str] = []

    def mark(simulated: bool, model: str, ended_at: str, shape: str, words: str) -> None:
        at = datetime.fromisoformat(ended_at).timestamp()
        lanes.setdefault((simulated, model), []).append(Mark(at, shape, words))
        ends.append(ended_at)

    for row in data.trainings[-_MOST_CHECKPOINTS:]:
        shape = (
            "in use" if row.promoted
            else "refused" if row.refused_at is not None
            else "was in use" if row.promoted_at is not None
            else "undecided"
        )  # fmt: skip
        words = f"{row.checkpoint}, saved {moment(row.saved_at)} UTC: {shape}"
        mark(row.simulated, row.model, row.saved_at, shape, words)
    for job in data.failed_trainings[:_MOST_FAILED]:
        if job.ended_at is not None:
            words = shortened(f"{job.job}: {job.state}, {job.reason}")
            mark(job.simulated, TRAINED_BY[job.kind], job.ended_at, "failed or interrupted", words)
    if not lanes:
        return None
    svg = lane_chart(
        "training-picture", "Training runs by when they ended, and what became of them",
        lanes=[(marked(model, simulated), marks) for (simulated, model), marks in sorted(lanes.items())],
        ends=(moment(min(ends)), moment(max(ends))),
    )  # fmt: skip
    return Picture("training", svg)


def _standing(row: CheckpointRow) -> str:
    """Say whether a checkpoint is or was in use, or why not."""
    if row.refused_at is not None:
        before = f" (it was put in use {moment(row.promoted_at)})" if row.promoted_at else ""
        return f"refused {moment(row.refused_at)}: {row.refused_reason}{before}"
    if row.promoted_at is None:
        return "nobody decided on it yet"
    return f"{'in use since' if row.promoted else 'was put in use'} {moment(row.promoted_at)}: {row.reason}"


def _telling(rows: Sequence[CheckpointRow]) -> list[str]:
    """Return the settings that tell most of a run, and those in which these runs differ."""
    names = sorted({name for row in rows for name in row.config})
    return [name for name in names if name in _TELLING or len({_setting(row, name) for row in rows}) > 1]


def _setting(row: CheckpointRow, name: str) -> str:
    return str(row.config[name]) if name in row.config else "not recorded"


def _evaluations(data: ReportData) -> Section:
    """List the newest evaluations as they were recorded, in a table for each model."""
    left = max(0, len(data.measurements) - _MOST_EVALUATIONS)
    shown = data.measurements[left:]
    tables = []
    for model, words in _WORDS.items():
        of_model = [row for row in shown if row.model == model]
        if of_model or (model == "retriever" and not shown):
            tables.append(_evaluations_of(f"Evaluations of the {words.trained}", _SHOWN[model], of_model))
    return _section("evaluations", "Evaluations", "evaluations", tables=tables, left=left)


def _evaluations_of(caption: str, names: Sequence[str], shown: Sequence[EvaluationRow]) -> Table:
    headed = [f"{name} ({_UNITS[name]})" if name in _UNITS else name for name in names]
    return Table(
        f"{caption}, oldest first; measures in 0 to 1 where no unit is said, with their 95 % intervals where recorded",
        ("Checkpoint", "Repository", "Split", "Dataset", DATA_OF, "Examples", *headed, "Other measures",
         "Recorded (UTC)"),
        [
            (
                row.checkpoint, row.repository or "several repositories", row.split, row.dataset[:8],
                data_of(row.simulated), row.n, *(_measured(row, name) for name in names), _others(row, names),
                moment(row.recorded_at),
            )
            for row in shown
        ],
        long=("Repository", "Other measures"),
        empty="a checkpoint, which is measured on every test set",
    )  # fmt: skip


def _measured(row: EvaluationRow, name: str) -> str:
    value = row.metrics.get(name)
    low, high = row.metrics.get(f"{name}_low"), row.metrics.get(f"{name}_high")
    if value is None:
        return "not recorded"
    return f"{value:.4f}" + ("" if low is None or high is None else f" ({low:.4f} to {high:.4f})")


def _others(row: EvaluationRow, names: Sequence[str]) -> str:
    shown = {f"{name}{end}" for name in names for end in ("", "_low", "_high")}
    others = [f"{name} {value:.4f}" for name, value in sorted(row.metrics.items()) if name not in shown]
    return ", ".join(others) or "none"


# ---- the machine's time


def _machine_time(data: ReportData) -> Section:
    """Add up the time of jobs of each kind, by device, and over time."""
    name, periods = "machine-time", data.machine_periods
    columns = by_period = bars = None
    if periods.begins:
        keys = sorted(periods.amounts, key=lambda key: (key[1], -sum(periods.amounts[key]), key[0]))
        rows = [Series(marked(*key), periods.amounts[key], key[1]) for key in keys]
        columns, by_period = _columns(
            f"{name}-over-time", f"Machine time {periods.said}", periods, rows, whole=False
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
    return _section(
        name, "Machine time", "machine_time",
        columns=columns, by_period=by_period, periods=periods, earlier=sum(periods.before.values()), bars=bars,
        by_kind=by_kind,
    )  # fmt: skip
