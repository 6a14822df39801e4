"""The published schema and what the server does agree, whatever is sent: as Schemathesis finds out."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from html import escape, unescape
from pathlib import Path

import pytest

from tests.support.serve import Served


def search(served: Served, folder: Path, *, phases: str, examples: int) -> None:
    """Have Schemathesis search for a difference. It has a process of its own: Hypothesis would read all our modules."""
    # It is made when it is asked for, and Schemathesis waits for ten seconds.
    assert served.client.get("/openapi.json").status_code == 200
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json"),
            *("--phases", phases, "--max-examples", str(examples), "--seed", "0", "--no-color"),
            *("--generation-database", "none", "--request-timeout", "60"),
            # Random names are those of no repository: that nothing is found is the answer that belongs here.
            *("--warnings", "missing_auth,validation_mismatch"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-6000:]}\n{ended.stderr[-2000:]}"
    assert "No issues found" in ended.stdout, "it searched"


@pytest.mark.timeout(300)
def test_what_the_schema_allows_and_forbids_is_what_the_server_does(served: Served, tmp_path: Path) -> None:
    search(served, tmp_path, phases="examples,fuzzing", examples=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whatever_is_sent_the_schema_holds(served: Served, tmp_path: Path) -> None:
    search(served, tmp_path, phases="examples,coverage,fuzzing", examples=300)


@pytest.mark.parametrize("method", ["TRACE", "PUT", "GET"])
def test_a_method_that_no_route_has_is_a_405_whatever_comes_with_it(served: Served, method: str) -> None:
    answer = served.client.request(method, "/check", content=b"{}")
    assert (answer.status_code, answer.json()["error"]) == (405, "wrong_method")


def test_the_documentation_is_there(served: Served) -> None:
    answer = served.client.get("/docs")
    page = answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.findall(r'src=|href="?http', page), "a machine without a way out shows it"
    paths = served.client.get("/openapi.json").json()["paths"]
    assert {"/generate", "/encode", "/retrieve", "/check", "/fill"} <= set(paths)
    for path, methods in paths.items():
        assert f"{path}</h2>" in page
        for method, about in methods.items():
            assert about["summary"], f"{method} {path} says what it does"
            assert "HTTPValidationError" not in str(about), "a problem has one shape"
    examples = paths["/generate"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert served.client.post("/generate", json=examples["said"]["value"]).status_code == 200
    commands = [shlex.split(unescape(one)) for one in re.findall(r"<pre[^>]*>(.*?)</pre>", page)]
    (said,) = [one[-1] for one in commands if json.loads(one[-1]) == examples["said"]["value"]]
    assert served.client.post("/generate", json=json.loads(said)).status_code == 200
    assert "Bearer" not in page
    guarded = served.client.get("/docs", headers={"Authorization": "Bearer x"}).text
    header = escape('-H "Authorization: Bearer $EVERLEAN_SERVE_TOKEN"')
    assert guarded.count(header) == guarded.count("<pre") > 0
