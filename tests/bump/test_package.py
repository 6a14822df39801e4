"""A package that is raised from one commit to another: fetched by git, built in the sandbox, by a stand-in for lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from daemon.results.mail import series_mail
from pipeline.bump import __main__ as job
from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.dependencies import DependencyError, Fetcher, PackageFiles
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.sandbox.network import Rules
from pipeline.lean.source.manifest import GitPackage
from tests.support.bump import bump
from tests.support.daemon.remote import git
from tests.support.lean.toolchain import make_toolchain

pytestmark = pytest.mark.usefixtures("bubblewrap", "python_in_usr")
TEXT = "import Math\n\ntheorem a : True := by\n  exact old\n"


def package(folder: Path, name: str, rev_of: dict[str, str]) -> list[str]:
    """Make a package with an old and a new commit, which requires the other at its commit of the same age."""
    here = folder / name
    here.mkdir()
    (here / "lakefile.toml").write_text(f'name = "{name}"\n')
    git(here, "init", "--quiet")
    git(here, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(here, "config", "uploadpack.allowFilter", "true")
    revs = []
    for age in ("old", "new"):
        (here / f"{name.title()}.lean").write_text(f"theorem {age} : True := trivial\n")
        batt = [entry(folder, "batt", rev_of[age], inputRev="main")] if rev_of else []
        (here / "lake-manifest.json").write_text(json.dumps({"version": "1.1.0", "packages": batt}))
        git(here, "add", ".")
        git(here, "commit", "--quiet", "-m", age)
        revs.append(git(here, "rev-parse", "HEAD"))
    return revs


def entry(folder: Path, name: str, rev: str, **more: object) -> dict[str, object]:
    return {
        "type": "git",
        "name": name,
        "url": (folder / name).as_uri(),
        "rev": rev,
        "inherited": False,
        **more,
    }


def test_a_package_and_what_it_requires_are_fetched_at_their_new_commits_and_the_project_built_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "error: Demo.lean:4:8: Unknown identifier `old`"
    tools = make_toolchain(tmp_path / "tools", errors={r"exact old\b": message})
    batt = package(tmp_path, "batt", {})
    math = package(tmp_path, "math", {"old": batt[0], "new": batt[1]})
    project = tmp_path / "project"
    project.mkdir()
    packages = [
        entry(tmp_path, "math", math[0], inputRev="v1"),
        entry(tmp_path, "batt", batt[0], inherited=True),
    ]
    url = (tmp_path / "math").as_uri()
    lakefile = f'name = "demo"\n\n[[require]]\nname = "math"\ngit = "{url}"\nrev = "v1"\n'
    # The stand-in for lake fails where one of the two is of another age than the other.
    needs = "cat .lake/packages/*/[BM]*.lean | sort -u | grep -c . | grep -qx 1"
    files = {
        "lean-toolchain": f"{tools.toolchain}\n",
        "lakefile.toml": f"#! run {needs}\n{lakefile}",
        "lake-manifest.json": json.dumps({"version": "1.1.0", "packages": packages}),
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
        sandbox="bubblewrap",
        sysroot=str(tools.sysroot),
    )
    result = bump(
        tmp_path, lean, toolchain="", package="math", rev=math[1], renames={"old": "new"}, tries=1,
        schemes=("https", "file"),
    )  # fmt: skip

    (broken,) = result.built.broken
    assert (broken.declaration, broken.kind, broken.reason) == ("a", "proof", "unknown_name")
    for name in ("math", "batt"):
        (one,) = (tmp_path / "cache" / "dependencies").glob(f"*/packages/{name}/{name.title()}.lean")
        assert "theorem new" in one.read_text()
    assert not (tmp_path / "attempt" / "package").exists()
    assert result.tried[0].text == "by\n  exact new"
    assert result.series[0]["title"] == f"Raise math to {math[1][:12]}"
    git(project, "checkout", "--quiet", "--", ".")
    git(project, "am", "--quiet", data=series_mail(result.series[0], "Ada <ada@example.org>", "1/1"))
    assert f'rev = "{math[1]}"' in (project / "lakefile.toml").read_text()
    raised = json.loads((project / "lake-manifest.json").read_text())["packages"]
    assert [(one["rev"], one["inputRev"], one["inherited"]) for one in raised] == [
        (math[1], math[1], False), (batt[1], "main", True),
    ]  # fmt: skip


def test_what_a_package_says_of_itself_is_read_at_its_folder_and_from_allowed_hosts_alone(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "p" / "a ü["
    folder.mkdir(parents=True)
    (folder / "lean-toolchain").write_text("lean\n")
    (folder / "m.json").symlink_to("lean-toolchain")
    (tmp_path / "p" / "lake-manifest.json").write_text("{}")
    git(tmp_path / "p", "init", "--quiet")
    git(tmp_path / "p", "add", ".")
    git(tmp_path / "p", "commit", "--quiet", "-m", "one")
    rev, url = git(tmp_path / "p", "rev-parse", "HEAD"), (tmp_path / "p").as_uri()
    fetcher = Fetcher(tmp_path / "c", cast(LakeRunner, None), Rules(()), 60.0)

    def said(subdir: str, manifest_file: str, url: str = url) -> PackageFiles:
        package = GitPackage("p", url, rev, "", subdir, "lakefile.lean", manifest_file, inherited=False)
        return fetcher.files_of(package, tmp_path / "scratch")

    assert said("", "lake-manifest.json") == PackageFiles("", b"{}")
    assert said("a ü[", "lake-manifest.json") == PackageFiles("lean", None)
    assert said("a ü[", "m.json") == PackageFiles("lean", b"lean-toolchain"), "a link is no link here"
    assert said("b", "lake-manifest.json") == PackageFiles("", None)
    with pytest.raises(DependencyError, match=r"evil\.example/x: not on the list"):
        said("", "lake-manifest.json", "https://evil.example/x")
    assert not (tmp_path / "scratch").exists()
