"""What a release consists of: the wheel and sdist, the Debian package, the image, the workflow that makes them."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from daemon.settings import parse
from tests.support import machine

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "release"
VERSION = runpy.run_path(str(RELEASE / "version.py"))["__version__"]
CONTAINERFILE = (RELEASE / "Containerfile").read_text("utf-8")


def run(*argv: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel, which is made of the sdist, of a tag v7.8.9."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-P", "-m", "hatchling", "build", "-t", "sdist", "-d", out, EVERLEAN_VERSION="7.8.9")
    sdist = out / "everlean-7.8.9.tar.gz"
    shutil.unpack_archive(sdist, out, filter="data")
    run(
        sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=out / "everlean-7.8.9"
    )
    return out


@pytest.mark.slow
def test_the_wheel_of_the_sdist_has_the_tag_s_version_and_all_that_runs(built: Path, tmp_path: Path) -> None:
    wheel = built / "everlean-7.8.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    assert {name.partition("/")[0] for name in names} == {
        "daemon",
        "store",
        "pipeline",
        "everlean-7.8.9.dist-info",
    }
    tracked = run("git", "ls-files", "daemon", "store", "pipeline").splitlines()
    assert set(tracked) <= names, "every file of the product, its Lean programs, templates and SQL among them"

    site = str(tmp_path / "site")
    where = "import daemon, sys; print(daemon.__file__)"
    assert run(sys.executable, "-P", "-c", where, cwd=tmp_path, PYTHONPATH=site).startswith(site)

    def everlean(*words: str) -> str:
        return run(sys.executable, "-P", "-m", "daemon.cli", *words, cwd=tmp_path, PYTHONPATH=site)

    assert "everlean 7.8.9" in everlean("--version")
    (tmp_path / "A.lean").write_text("theorem a : 1 = 1 := sorry\n")
    assert "1 sorry in 1 file" in everlean("scan", "A.lean")
    config = tmp_path / "config.toml"
    everlean("init", "https://github.com/owner/name", "--config", str(config))
    assert "is valid: 1 repository" in everlean("config", "check", "--config", str(config))


@pytest.mark.slow
@pytest.mark.usefixtures("users_settings")
def test_the_index_takes_what_is_built_and_uvx_runs_the_wheel(tmp_path: Path) -> None:
    """With this user's settings of the package index; without an index pip says why not."""
    tools = tmp_path / "tools" / "bin"
    run(sys.executable, "-m", "venv", tools.parent)

    def tool(name: str, *words: str | Path) -> str:
        # What people set for pip and uv, for an index of their own, is in the environment.
        own = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON": sys.executable}
        return run(tools / name, *words, cwd=ROOT, **own)

    tool("pip", "install", "--quiet", "build", "twine", "uv")
    out = tmp_path / "dist"
    tool("python", "-m", "build", "--outdir", out, ROOT)
    said = tool("twine", "check", "--strict", *out.iterdir())
    assert said.count("PASSED") == 2
    (wheel,) = out.glob("*.whl")
    version = wheel.name.split("-")[1]
    assert f"everlean {version} " in tool("uvx", "--from", wheel, "everlean", "--version")


def test_every_example_for_a_pull_request_names_the_release_s_tag() -> None:
    pages = [ROOT / "docs/pull-requests.md", ROOT / "action.yml", RELEASE / "gitlab.yml"]
    named = re.findall(r"everlean@([\w.]+)|rev: ([\w.]+)", "".join(page.read_text("utf-8") for page in pages))
    assert {first or second for first, second in named} == {f"v{VERSION}"}
    assert len(named) == 5


def test_the_debian_package_has_the_units_users_and_folders_and_starts_nothing(
    tmp_path: Path, provide: Callable[[str], Path]
) -> None:
    """Without the application, which takes the network: `make deb` puts it below /usr/lib/everlean."""
    provide("dpkg-deb")
    made = run(
        "sh", RELEASE / "deb.sh", tmp_path, "files", PYTHON=sys.executable, EVERLEAN_VERSION="7.8.9"
    ).strip()
    assert run("dpkg-deb", "--field", made, "Package", "Version").split() == [
        "Package:",
        "everlean",
        "Version:",
        "7.8.9",
    ]
    minor = sys.version_info[1]
    assert f"python3 (>= 3.{minor}), python3 (<< 3.{minor + 1}), git, bubblewrap" in run(
        "dpkg-deb", "--field", made, "Depends"
    )
    run("dpkg-deb", "--extract", made, tmp_path / "root")
    run("dpkg-deb", "--control", made, tmp_path / "control")
    for name in (
        "etc/everlean/config.toml",
        "usr/lib/systemd/system/everlean.service",
        "usr/lib/sysusers.d/everlean.conf",
        "usr/lib/tmpfiles.d/everlean.conf",
        "usr/share/doc/everlean/copyright",
    ):
        assert (tmp_path / "root" / name).is_file(), name
    assert (tmp_path / "control" / "conffiles").read_text() == "/etc/everlean/config.toml\n"
    for name in ("postinst", "prerm", "postrm"):
        script = tmp_path / "control" / name
        run("sh", "-n", script)
        assert not re.search(r"systemctl (enable|start|restart) ", script.read_text()), (
            "an administrator starts it"
        )
    run("sh", tmp_path / "control" / "postinst", "configure")


def test_the_image_runs_an_unprivileged_daemon_with_one_volume_and_no_lean() -> None:
    stages = re.split(r"^FROM ", CONTAINERFILE, flags=re.MULTILINE)[1:]
    assert len(stages) == 2
    words = [line.split() for line in stages[1].splitlines() if line and not line.startswith((" ", "#"))]
    by_word = {line[0]: line[1:] for line in words}
    assert by_word["USER"] == ["970"], "a number, which the host need not know"
    assert by_word["VOLUME"] == ["/var/lib/everlean"]
    assert "elan" not in stages[0]
    for base in (stage.split()[0] for stage in stages):
        assert not base.endswith(":latest")
        assert ":" in base, "a tag says which"
    tracked = set(run("git", "ls-files").splitlines()) | {"."}
    copied = re.findall(r"^COPY (?!--from)(\S+)", CONTAINERFILE, re.MULTILINE)
    assert copied == [".", "release/container.toml"]
    assert set(copied) <= tracked
    settings = parse((RELEASE / "container.toml").read_bytes(), path=RELEASE / "container.toml")
    assert settings.lean.install == "auto"
    assert str(settings.paths.state).startswith("/var/lib/everlean/")
    assert str(settings.paths.cache).startswith("/var/lib/everlean/")


def test_the_image_s_recipe_has_nothing_that_hadolint_would_not_write() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.is_file():
        pytest.skip("hadolint is installed on Linux and x86-64 only")
    assert run(hadolint, "--no-color", RELEASE / "Containerfile") == ""


@pytest.mark.slow
@pytest.mark.usefixtures("network", "users_settings")
@pytest.mark.timeout(1200)
def test_the_image_is_built_and_its_daemon_starts(tmp_path: Path) -> None:
    engine = None
    for name in ("docker", "podman"):
        with suppress(machine.MissingError):
            engine = machine.program(name)
    if engine is None or subprocess.run([engine, "info"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no container engine runs here")
    run(
        "make", "image", f"ENGINE={engine}", "TAG=everlean-test", HOME=str(tmp_path), EVERLEAN_VERSION="7.8.9"
    )
    assert "everlean 7.8.9" in run(engine, "run", "--rm", "everlean-test", "--version", HOME=str(tmp_path))
    name = run(engine, "run", "--detach", "everlean-test", HOME=str(tmp_path)).strip()
    try:
        run(engine, "exec", name, "sh", "-c", "sleep 5; everlean status; test $? -lt 3", HOME=str(tmp_path))
    finally:
        run(engine, "rm", "--force", name, HOME=str(tmp_path))


def test_a_tag_makes_all_of_it_with_checksums_after_the_tests() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    steps = [step.get("run", "") for step in workflow["jobs"]["release"]["steps"]]
    targets = re.findall(r"(?:^|&& )make (\w+)", "\n".join(steps), re.MULTILINE)
    assert set(targets) == {"dist", "deb", "image"}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert steps.index(".ci/run") < next(number for number, step in enumerate(steps) if "make dist" in step)
    assert "sha256sum" in steps[-1]


def test_the_forms_for_issues_ask_for_what_an_answer_needs() -> None:
    forms = {
        path.stem: yaml.safe_load(path.read_text("utf-8"))
        for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")
        if path.stem != "config"
    }
    assert set(forms) == {"false-verified", "scanner", "trouble"}
    for form in forms.values():
        assert {"name", "description", "body"} <= form.keys()
        assert any(part.get("validations", {}).get("required") for part in form["body"])
    assert "private" in (ROOT / "SECURITY.md").read_text("utf-8")


def test_without_a_tag_a_build_has_the_next_version(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    said = run(sys.executable, "-c", "import version; print(version.__version__)", cwd=RELEASE)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", said)
