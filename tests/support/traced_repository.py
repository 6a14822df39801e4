"""Made-up traces for tests, demonstrations and benchmarks: lifelike in what stores and exports must cope with.

A repository has a root file that everything imports in the end, imports without cycles, premises of which few are
used often and most hardly ever, tactics whose marks agree with their premises, names with Unicode and «quotes»,
theorems proved by a term (no tactics), proofs that end in a sorry, and declarations without a name. The same
arguments make the same files.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from store.domain.records import Premise, PremiseUse, TracedFile, TracedTactic, TracedTheorem
from store.events.base import BlobRef, EventBody
from store.events.traces import CommitTraced, SorryStated, TracedFileRemoved, TraceMeasured, TraceWithdrawn
from store.recording import Log, RecordedTrace, TraceHead, file_event, record_trace
from store.view.trace_queries import branch_line
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_saved,
    evaluation_finished,
)

REPOSITORY = "example.org/demo/logic"
STREAM = f"repository:{REPOSITORY}"

TERM_PROOFS = 0.12
"""Share of theorems that are proved by a term; a trace has no tactics of them."""
SORRIES = 0.05
"""Share of tactic proofs that end in a sorry."""

_SPACES = ("Nat", "Finset", "Order.Hom", "MeasureTheory", "Ωmega.Limit", "Set", "Polynomial", "«odd name»")
_WORDS = (
    "add_comm",
    "le_of_lt",
    "map_sum",
    "μ_compl",
    "sub_le₃",
    "exists_iff",
    "sorry_free",
    "zero_ne",
    "symm'",
)
_FORMS = (
    ("rw [{}]", 1),
    ("simp only [{}, {}]", 2),
    ("exact {} h", 1),
    ("apply {}", 1),
    ("intro h", 0),
    ("omega", 0),
    ("refine ⟨{}, ?_⟩", 1),
    ("calc _ = _ := {}\n  _ ≤ _ := by gcongr", 1),
)


class _Library:
    """The premises made so far, in order, and which files each file can see."""

    def __init__(self) -> None:
        self.uses: list[PremiseUse] = []
        self.files: list[int] = []
        self.seen: list[int] = []  # bit j of element i: file i imports file j, if only through others

    def add(self, use: PremiseUse, file: int) -> None:
        self.uses.append(use)
        self.files.append(file)

    def pick(self, rng: random.Random, file: int) -> PremiseUse:
        """Return a premise that `file` may use: the k-th is taken about 1/k as often as the first."""
        for _ in range(8):
            number = int(len(self.uses) ** rng.random()) - 1
            owner = self.files[number]
            if owner == file or self.seen[file] >> owner & 1:
                return self.uses[number]
        return self.uses[0]  # of the root file, which all can see


def make_traced_repository(
    seed: int = 0, n_files: int = 10, theorems_per_file: int = 5, tactics_per_theorem: int = 3
) -> Iterator[TracedFile]:
    """Yield the files of a made-up trace, imported ones first; the first tenth lie in dependencies' folders."""
    rng = random.Random(seed)
    library = _Library()
    paths: list[str] = []
    for number in range(n_files):
        paths.append(_path(number, n_files))
        wanted = {rng.randrange(number) for _ in range(rng.randrange(1, 4))} if number else set()
        seen = 0
        for other in wanted:
            seen |= library.seen[other] | 1 << other
        library.seen.append(seen)
        imports = tuple(paths[other] for other in sorted(wanted, reverse=True))
        yield _file(
            rng,
            library,
            number,
            paths[number],
            imports,
            theorems_per_file=theorems_per_file,
            tactics_per_theorem=tactics_per_theorem,
        )


def grown(file: TracedFile, *, name: str, like: int = 0) -> TracedFile:
    """Return the file with one theorem more at its end, and its premise: what a later commit may have.

    The proof is that of the file's theorem number `like`.
    """
    old = file.theorems[like]
    ends = [item.end for item in file.premises] + [item.end for item in file.theorems]
    line = max(ends)[0] + 2
    statement = f"theorem {name} (a b : ℕ) : a + {name} = b :="
    end = (line + 1 + len(old.tactics), 10)
    theorem = replace(old, full_name=name, statement=statement, start=(line, 1), end=end)
    premise = Premise(name, statement.removesuffix(" :="), (line, 1), end, "commanddeclaration")
    return replace(file, premises=(*file.premises, premise), theorems=(*file.theorems, theorem))


def head(
    sha: str = "1" * 40, *, repository: str = REPOSITORY, branch: str = "main", **changes: object
) -> TraceHead:
    """Return the head of a made-up trace of a branch, with changes."""
    values: dict[str, object] = {
        "repository": repository,
        "sha": sha,
        "url": f"https://{repository}",
        "name": repository.partition("/")[2],
        "lean_version": "v4.20.0",
        "tracer": "made-up",
        "tracer_version": "1",
        "source": "lean",
        "line": branch_line(branch),
    }
    return TraceHead(**(values | changes))  # type: ignore[arg-type] # the fields' own types, by name


def closing(trace: TraceHead, files: Sequence[TracedFile]) -> CommitTraced:
    """Return the event that closes a trace of these files."""
    return CommitTraced(
        trace=trace.trace,
        repository=trace.repository,
        line=trace.on,
        sha=trace.sha,
        url=trace.url,
        name=trace.name,
        lean_version=trace.lean_version,
        tracer=trace.tracer,
        tracer_version=trace.tracer_version,
        source=trace.source,
        metadata=dict(trace.metadata),
        pr_url=trace.pr_url,
        files_traced=len(files),
        files_failed=0,
        n_theorems=sum(len(file.theorems) for file in files),
        n_premises=sum(len(file.premises) for file in files),
        n_tactics=sum(len(theorem.tactics) for file in files for theorem in file.theorems),
        manifest=None,
        seconds=2.5,
    )


def measured(trace: TraceHead, files: Sequence[TracedFile]) -> tuple[TraceMeasured, bytes]:
    """Return the event that says how complete a trace of these files is, with one gap, and its payload."""
    payload = json.dumps([[files[0].path, "tactics", "Nat.foo", "Lean reported no step"]]).encode()
    n_theorems = sum(len(file.theorems) for file in files)
    n_tactics = sum(len(theorem.tactics) for file in files for theorem in file.theorems)
    body = TraceMeasured(
        trace=trace.trace,
        repository=trace.repository,
        line=trace.on,
        sha=trace.sha,
        files_seen=len(files),
        files_traced=len(files),
        theorems_seen=n_theorems + 1,
        theorems_traced=n_theorems,
        tactics_seen=n_tactics,
        tactics_traced=n_tactics,
        n_dependencies=0,
        gaps={"tactics": 1},
        details=BlobRef(sha256=hashlib.sha256(payload).hexdigest(), size_bytes=len(payload)),
    )
    return body, payload


def sorry_stated(goal: str = "⊢ True", *, before: str | None = None, sha: str = "1" * 40) -> SorryStated:
    """Return the event that says the goal of a sorry of the made-up repository."""
    return SorryStated(
        repository=REPOSITORY,
        branch="main",
        sha=sha,
        sorry="0123456789abcdef",
        statement_hash="1" * 16,
        context_hash="2" * 16,
        goal=goal,
        before=before,
        same_text=before is not None,
    )


def sample_events() -> tuple[list[EventBody], list[bytes]]:
    """Return one valid body of every event type of traces, and the payloads that they cite."""
    (file,) = make_traced_repository(n_files=1, theorems_per_file=1)
    trace = head()
    traced, payload = file_event(trace, file, key="0123456789abcdef")
    measure, details = measured(trace, [file])
    where = {"repository": trace.repository, "line": trace.on, "sha": trace.sha}
    return [
        traced,
        TracedFileRemoved(**where, path="Logic/Gone.lean"),
        closing(trace, [file]),
        measure,
        sorry_stated("p : Prop\n⊢ p", before="⊢ True"),
        TraceWithdrawn(trace=trace.trace, repository=trace.repository, reason="the toolchain was another"),
    ], [payload, details]


def record_made_up(
    log: Log,
    stage: Path,
    *,
    sha: str = "1" * 40,
    repository: str = REPOSITORY,
    seed: int = 0,
    n_files: int = 10,
    theorems_per_file: int = 5,
    tactics_per_theorem: int = 3,
) -> RecordedTrace:
    """Make a repository and record it as a trace of its branch main."""
    files = make_traced_repository(seed, n_files, theorems_per_file, tactics_per_theorem)
    return record_trace(log, trace=head(sha, repository=repository), files=files, stage=stage)


class TraceStory:
    """A random history of traces and models; `tell` returns the next events with the payloads that they cite."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(-1 - seed)
        self.files = list(make_traced_repository(seed, n_files=3, theorems_per_file=2))

    def tell(self) -> tuple[list[EventBody], list[bytes]]:
        """Return mostly nothing, else some files of a trace, which are not always closed, nor by the same trace."""
        rng = self.random
        if rng.random() < 0.7:
            return [], []
        trace = head(str(rng.randrange(3)) * 40, branch=rng.choice(["main", "dev"]))
        bodies: list[EventBody] = []
        payloads = []
        for index in rng.sample(range(len(self.files)), rng.randrange(1, 4)):
            if rng.random() < 0.4:
                self.files[index] = grown(self.files[index], name=f"new_{rng.randrange(100)}")
            error = rng.choice([None, None, "Lean ran out of memory"])
            body, payload = file_event(trace, self.files[index], error=error, key=f"key{rng.randrange(2)}")
            bodies.append(body)
            payloads.append(payload)
        path = rng.choice(self.files).path
        measure, details = measured(trace, self.files)
        payloads.append(details)
        checkpoint = f"retriever-{rng.randrange(3)}"
        rest: list[tuple[float, EventBody]] = [
            (0.2, TracedFileRemoved(repository=trace.repository, line=trace.on, sha=trace.sha, path=path)),
            (0.7, closing(trace, self.files)),
            (0.5, measure),
            (0.3, sorry_stated(rng.choice(["⊢ True", "p : Prop\n⊢ p"]), before=rng.choice([None, "⊢ True"]))),
            (0.1, TraceWithdrawn(trace=trace.trace, repository=trace.repository, reason="it was a test")),
            (0.4, checkpoint_saved(checkpoint, parent=rng.choice([None, "retriever-0"]))),
            (0.4, checkpoint_promoted(checkpoint)),
            (0.3, checkpoint_refused(checkpoint)),
            (0.4, evaluation_finished(checkpoint, recall=rng.random())),
        ]
        return bodies + [body for likely, body in rest if rng.random() < likely], payloads


def _path(number: int, n_files: int) -> str:
    if number == 0:
        return ".lake/packages/lean4/src/lean/Init/Prelude.lean"
    if number < n_files // 10:
        return f".lake/packages/mathlib/Mathlib/Part{number % 7}/File{number}.lean"
    return f"Logic/Part{number % 11}/File{number}.lean"


def _file(
    rng: random.Random,
    library: _Library,
    number: int,
    path: str,
    imports: tuple[str, ...],
    *,
    theorems_per_file: int,
    tactics_per_theorem: int,
) -> TracedFile:
    space = rng.choice(_SPACES)
    line = 3
    premises = []
    theorems = []
    # A definition first: theorems are about something, and the root file must have a premise to use.
    name = f"{space}.Thing{number}"
    code = f"structure {name} where\n  carrier : Set ℕ"
    premises.append(Premise(name, code, (line, 1), (line + 1, 18), "commanddeclaration"))
    library.add(PremiseUse(name, path, (line, 11), (line, 11 + len(name))), number)
    line += 4
    if rng.random() < 0.1:
        code = f"instance : Inhabited {name} := ⟨⟨∅⟩⟩"
        premises.append(Premise(None, code, (line, 1), (line, 1 + len(code)), "commanddeclaration"))
        line += 2
    for index in range(theorems_per_file):
        name = f"{space}.{rng.choice(_WORDS)}_{number}_{index}"
        steps = 0 if rng.random() < TERM_PROOFS else tactics_per_theorem
        start, end = (line, 1), (line + 1 + steps, 12)
        statement = f"theorem {name} (a b : ℕ) (h : a ≤ {number}) :\n    a + {index} ≤ b + {number} :="
        # Before its own premise is known: a proof does not use itself.
        tactics = tuple(_tactics(rng, library, number, steps, goal=f"a + {index} ≤ b + {number}"))
        theorems.append(TracedTheorem(name, statement, start, end, tactics))
        premises.append(Premise(name, statement.removesuffix(" :="), start, end, "commanddeclaration"))
        library.add(PremiseUse(name, path, (line, 9), (line, 9 + len(name))), number)
        line = end[0] + 2
    return TracedFile(path, imports, tuple(premises), tuple(theorems))


def _tactics(
    rng: random.Random, library: _Library, file: int, steps: int, *, goal: str
) -> Iterator[TracedTactic]:
    context = f"a b : ℕ\nh : a ≤ {file}"
    sorry = rng.random() < SORRIES
    for step in range(steps):
        before = f"{context}\n⊢ {goal}" if step == 0 else f"{context}\nh{step} : 0 < {step}\n⊢ {goal}"
        last = step == steps - 1
        after = "no goals" if last else f"{context}\nh{step + 1} : 0 < {step + 1}\n⊢ {goal}"
        form, holes = ("sorry", 0) if last and sorry else rng.choice(_FORMS)
        uses = tuple(library.pick(rng, file) for _ in range(holes))
        words = [use.full_name for use in uses]
        marked = [f"<a>{word}</a>" for word in words]
        yield TracedTactic(form.format(*words), form.format(*marked), uses, before, after)
