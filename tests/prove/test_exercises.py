"""What is left for people to solve is known by its text, comments too, from the scan of it to the plan."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

from pipeline.jobs.protocol import Reporter
from pipeline.jobs.specs import ScanSpec
from pipeline.scan import scan_commit
from tests.support.specs import job_spec

FILES = {
    "Book.lean": "/-! # Exercises -/\n-- EXERCISE 1\ntheorem a : True := sorry\n",
    "Plain.lean": "theorem b : True := sorry\n",
}


def test_the_scan_counts_the_word_at_any_place(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text)

    def git(*words: str) -> str:
        identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
        command = ["git", "-C", str(project), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    parameters = {
        "mirror": str(project / ".git"),
        "repository": "local/x/demo",
        "branch": "main",
        "sha": git("rev-parse", "HEAD"),
        "base": None,
        "include": ["**/*.lean"],
        "exclude": [],
    }
    out = io.StringIO()
    spec = job_spec(ScanSpec, "scan", parameters, tmp_path / "job")
    spec.directory.mkdir()
    scan_commit(spec, Reporter(spec, out))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    events = [event for line in lines if line["line"] == "events" for event in line["events"]]
    found = {
        event["data"]["path"]: event["data"]["exercise_words"]
        for event in events
        if event["type"] == "file_scanned"
    }
    assert found == {"Book.lean": 2, "Plain.lean": 0}
