"""A package that is raised from one commit to another: fetched by git, built in the sandbox, by a stand-in for lake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.bump import __main__ as job
from pipeline.lean.backend import LeanBackend
from pipeline.lean.sandbox.command import bubblewrap_problem
from tests.support.bump import bump, git
from tests.support.lean.toolchain import Answer, make_toolchain

pytestmark = pytest.mark.skipif(
    bubblewrap_problem() is not None, reason=f"no sandbox: {bubblewrap_problem()}"
)
TEXT = "import Base\n\ntheorem a : True := by\n  exact old\n"


def test_a_package_is_fetched_at_its_new_commit_and_the_project_built_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "error: Demo.lean:4:8: Unknown identifier `old`"
    tools = make_toolchain(tmp_path / "tools", answers=[Answer("build", r"exact old\b", said, 1)])
    if not tools.sandboxed:
        pytest.skip("no Python in /usr for the stand-in lake to run in a sandbox")
    package = tmp_path / "base"
    package.mkdir()
    (package / "lakefile.toml").write_text('name = "base"\n')
    git(package, "init", "--quiet")
    git(package, "config", "uploadpack.allowAnySHA1InWant", "true")
    revs = []
    for name in ("old", "new"):
        (package / "Base.lean").write_text(f"theorem {name} : True := trivial\n")
        git(package, "add", ".")
        git(package, "commit", "--quiet", "-m", name)
        revs.append(git(package, "rev-parse", "HEAD"))
    project = tmp_path / "project"
    project.mkdir()
    entry = {"type": "git", "name": "base", "url": package.as_uri(), "rev": revs[0], "inputRev": "v1"}
    lakefile = f'name = "demo"\n\n[[require]]\nname = "base"\ngit = "{package.as_uri()}"\nrev = "v1"\n'
    files = {
        "lean-toolchain": f"{tools.toolchain}\n",
        "lakefile.toml": lakefile,
        "lake-manifest.json": json.dumps({"version": "1.1.0", "packages": [entry]}),
        "Demo.lean": TEXT,
    }
    for name, text in files.items():
        (project / name).write_text(text)
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "one")
    monkeypatch.setattr(job.Bump, "_climb", lambda _: None)
    lean = LeanBackend(
        "server",
        ("/usr/bin/false",),
        "",
        tools.toolchain,
        simulated=False,
        sandbox="bubblewrap",
        sysroot=str(tools.sysroot),
    )
    found = bump(
        tmp_path, lean, toolchain="", package="base", rev=revs[1], renames={"old": "new"}, tries=1,
        schemes=("https", "file"),
    )  # fmt: skip

    (broken,) = found.built.broken
    assert (broken.declaration, broken.kind, broken.reason) == ("a", "proof", "unknown_name")
    (one,) = (tmp_path / "cache" / "dependencies").glob("*/packages/base/Base.lean")
    assert "theorem new" in one.read_text()
    assert found.tried[0].text == "by\n  exact new"
    assert found.series[0]["title"] == f"Raise base to {revs[1][:12]}"
    git(project, "checkout", "--quiet", "--", ".")
    git(project, "apply", "--index", "-", data=found.series[0]["diff"].encode())
    assert f'rev = "{revs[1]}"' in (project / "lakefile.toml").read_text()
    (raised,) = json.loads((project / "lake-manifest.json").read_text())["packages"]
    assert (raised["rev"], raised["inputRev"]) == (revs[1], revs[1])
