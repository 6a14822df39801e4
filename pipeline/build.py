"""The build job: fetch a commit's packages, build it with its own toolchain, and keep lake's products.

`python -m pipeline.build --spec spec.json`, with a `BuildSpec` as parameters. Emits `project_built`, also if only some
modules failed. A failure that no repetition can change is deterministic.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.jobs.lean import hold_that_it_is_lean
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from pipeline.jobs.specs import BuildSpec
from pipeline.lean.build import build_cache
from pipeline.lean.build.build_cache import is_ancestor
from pipeline.lean.build.dependencies import (
    Dependencies,
    DependencyError,
    Fetcher,
    PackageFiles,
    key_of,
    manifest_text,
)
from pipeline.lean.build.lake import MOST_PROCESSES, Bounds, BuildLog, LakeRunner, Outcome
from pipeline.lean.build.sources import Sources, read_sources
from pipeline.lean.sandbox.command import SandboxError
from pipeline.lean.sandbox.network import Rules
from pipeline.lean.source.manifest import (
    MANIFEST,
    MOST_BYTES,
    GitPackage,
    Manifest,
    ManifestError,
    read_manifest,
)
from pipeline.lean.source.projects import LAKEFILES, toolchain_text
from pipeline.lean.toolchain.versions import VersionError, parse_version
from store.events.jobs import ProjectBuilt
from store.files import Lock

_REQUIRES = re.compile(r"^\s*(require\b|\[\[\s*require\s*\]\])", re.MULTILINE)
_NAMED_ERRORS = 5
_LONGEST_TOOLCHAIN = 200
_LONGEST_TEXT_BYTES = 2**20


def work(spec: JobSpec[BuildSpec], reporter: Reporter) -> dict[str, Any]:
    """Build a Lake project of one commit."""
    project = spec.project(spec.parameters.folder).absolute()
    held: list[Lock] = []
    try:
        hold_that_it_is_lean(spec.parameters.lean)
        return Building(spec, reporter, project, held).run()
    except SandboxError as error:
        raise JobError("sandbox_missing", f"{project}: {error}", remedy="see `everlean doctor`") from error
    finally:
        for one in held:
            one.release()


class Building:
    """One build; its steps in the order of `run`. A bump takes the same steps in a raised worktree."""

    def __init__(self, spec: JobSpec[BuildSpec], reporter: Reporter, project: Path, held: list[Lock]) -> None:
        self._spec = spec
        self._reporter = reporter
        self._given = parameters = spec.parameters
        self._project = project
        self._cache = parameters.cache.absolute()
        self._held = held
        self._started = time.monotonic()
        self._what = f"{parameters.repository} at {parameters.sha[:12]}" + (
            f", its project {parameters.folder}" if parameters.folder else ""
        )

    def run(self) -> dict[str, Any]:
        given = self._given
        runner, like, dependencies = self.prepared()
        sources = read_sources(self._project)
        seeded = build_cache.seed(
            self._project,
            self._cache,
            like,
            sources,
            is_ancestor=lambda sha: is_ancestor(self._spec.place, sha, given.sha),
        )
        log, outcome = self.build(runner)
        failed = self.judge(log, outcome, sources)
        seconds = round(time.monotonic() - self._started, 3)
        stored = build_cache.store(
            self._cache,
            self._project,
            dataclasses.replace(like, modules_failed=failed, seconds=seconds),
            sources,
        )
        self._record(stored)
        return {
            "sha": given.sha,
            "seeded_with": seeded,
            "modules_failed": list(failed),
            "first_errors": log.errors[:_NAMED_ERRORS],
            "bytes": stored.bytes,
            "dependencies": stored.dependencies,
            "cache": dependencies.cache if dependencies else "",
            "packages_not_built": dependencies.not_built if dependencies else "",
            "refused_connections": [
                f"{one.target}: {one.reason}" for one in (dependencies.refusals if dependencies else ())
            ],
            "left_out_of_output_bytes": outcome.left_out_bytes,
            "peak_memory_bytes": outcome.peak_memory_bytes,
        }

    def prepared(self) -> tuple[LakeRunner, build_cache.Build, Dependencies | None]:
        """Fetch the packages and clear the repository's own build products; return a lake with the right to build here.

        Raises:
            JobError: the commit cannot be built, or not now.
        """
        given = self._given
        runner, toolchain = self._lake()
        manifest = self._manifest()
        dependencies = self._packages(runner, toolchain, manifest)
        like = build_cache.Build(
            repository=given.repository,
            sha=given.sha,
            project=given.folder,
            toolchain=toolchain,
            dependencies=dependencies.key if dependencies else "",
            lakefile=_lakefile_hash(self._project),
            modules_failed=(),
            nested=manifest.paths,
            bytes=0,
            seconds=0.0,
            built_at=time.time(),
        )
        # A repository may bring its own `.lake`: nothing in it was built here.
        writable = tuple(build_cache.empty_lake(self._project, tree) for tree in ("", *like.nested))
        if like.dependencies:
            packages = build_cache.hold_packages(self._cache, like.dependencies, self._held)
            (self._project / ".lake" / "packages").symlink_to(packages or "")
        return runner.with_(writable=writable), like, dependencies

    def _lake(self) -> tuple[LakeRunner, str]:
        given = self._given
        wanted = toolchain_text(self._spec.place, given.folder)[:_LONGEST_TOOLCHAIN].strip()
        if not any((self._project / name).is_file() for name in LAKEFILES):
            raise JobError(
                "lakefile_missing",
                f"{self._what}: no lakefile; lake cannot build it",
                remedy=f"the repository needs a lakefile.toml or lakefile.lean in {given.folder or 'its top folder'}",
                deterministic=True,
            )
        runner = LakeRunner.find(given.lean, project=self._project)
        if isinstance(runner, str) or (wanted and given.lean.toolchain and wanted != given.lean.toolchain):
            here = runner if isinstance(runner, str) else f"the one at hand is {given.lean.toolchain}"
            raise JobError(
                "toolchain_missing",
                f"{self._what}: toolchain {wanted or 'of no name'}: {here}",
                remedy=_installing(wanted),
            )
        return runner, wanted or given.lean.toolchain

    def _manifest(self) -> Manifest:
        """Read the manifest; a project without requirements may lack one, and then gets an empty one."""
        path = self._project / MANIFEST
        if os.path.lexists(path):
            try:
                if path.is_symlink() or not path.is_file():
                    raise ManifestError("no file but a link or a folder")
                with path.open("rb") as file:
                    return read_manifest(file.read(MOST_BYTES + 1), schemes=self._given.schemes)
            except ManifestError as error:
                raise JobError(
                    "manifest_refused",
                    f"{self._what}: {MANIFEST}: {error}",
                    remedy="the repository's authors have to mend it (`lake update` writes it anew)",
                    deterministic=True,
                ) from error
        lakefiles = (_text(self._project / name) for name in LAKEFILES)
        if any(_REQUIRES.search(text) for text in lakefiles):
            raise JobError(
                "manifest_missing",
                f"{self._what}: the lakefile requires packages and there is no {MANIFEST} that says which revisions",
                remedy="the repository's authors have to commit the manifest; `lake update` is never run here",
                deterministic=True,
            )
        path.write_text(manifest_text("project"), "utf-8")
        return Manifest((), ())

    def _packages(self, runner: LakeRunner, toolchain: str, manifest: Manifest) -> Dependencies | None:
        if not manifest.packages:
            return None
        key = key_of(toolchain, (self._project / MANIFEST).read_bytes())
        fetcher = self._fetcher(runner, self._given.timeout_s)
        while True:
            try:
                result = fetcher.ensure(toolchain=toolchain, manifest=manifest, key=key)
                build_cache.hold_packages(self._cache, key, self._held)
            except build_cache.BuildMissingError:
                continue  # a sweep removed them between the two
            except DependencyError as error:
                raise self._not_had(error) from error
            return result

    def files_of(self, package: GitPackage) -> PackageFiles:
        """Return a package's own files at its commit, without the rest of the package.

        Raises:
            JobError: the package cannot be fetched.
            OSError: its manifest is unreadable.
        """
        runner = LakeRunner.find(self._given.lean, project=self._project)
        if isinstance(runner, str):
            raise JobError(
                "toolchain_missing", f"{self._what}: {runner}", remedy=_REMEDIES["toolchain_missing"]
            )
        self._reporter.progress(0, 0, f"what package {package.name} requires")
        try:
            return self._fetcher(runner, self._bounds().timeout_s).files_of(
                package, self._spec.directory / "package"
            )
        except DependencyError as error:
            raise self._not_had(error) from error

    def _fetcher(self, runner: LakeRunner, timeout_s: float) -> Fetcher:
        given = self._given
        return Fetcher(
            cache=self._cache,
            runner=runner,
            rules=Rules(given.hosts),
            timeout_s=timeout_s,
            memory_bytes=given.memory_bytes,
            disk_bytes=given.disk_bytes,
            on_step=lambda note: self._reporter.progress(0, 0, note),
        )

    def _not_had(self, error: DependencyError) -> JobError:
        what = f"{self._what}: {error}"
        return JobError(error.reason, what, remedy=error.remedy, deterministic=not error.passing)

    def build(self, runner: LakeRunner) -> tuple[BuildLog, Outcome]:
        """Build the requested modules; return lake's log and its end."""
        log = BuildLog()

        def line(text: str) -> None:
            if step := log.line(text):
                self._reporter.progress(step.done, step.total, step.what)

        outcome = runner.run(
            "build", *self._given.modules, bounds=self._bounds(runner.writable), on_line=line
        )
        return log, outcome

    def _bounds(self, watched: tuple[Path, ...] = ()) -> Bounds:
        left = max(1.0, self._given.timeout_s - (time.monotonic() - self._started))
        return Bounds(left, self._given.memory_bytes, MOST_PROCESSES, self._given.disk_bytes, watched)

    def judge(self, log: BuildLog, outcome: Outcome, sources: Sources) -> tuple[str, ...]:
        """Return the modules that were not built, or raise if the build made nothing useful."""
        built = _built_modules(self._project)
        if outcome.ok and built:
            return ()
        if outcome.ending == "exited" and not outcome.ok and log.failed and built:
            behind = {path.removesuffix(".lean").replace("/", ".") for path in sources.importers(log.failed)}
            named = {name for name in log.failed if not sources.files_of(name)}
            return tuple(sorted((behind | named) - built)) or tuple(sorted(log.failed))
        reasons = {
            "timeout": "build_timeout",
            "disk": "build_too_large",
            "memory": "build_out_of_memory",
            "not_started": "toolchain_missing",
            "processes": "build_too_many_processes",
        }
        reason = reasons.get(outcome.ending, "build_failed")
        text = (
            f"no end after {self._given.timeout_s:g} s"
            if outcome.ending == "timeout"
            else outcome.explain(self._bounds())
        )
        what = "nothing was built" if outcome.ok else text
        errors = "".join(f"\n  {error}" for error in log.errors[:_NAMED_ERRORS])
        end = f"\nthe end of its output:\n{output}" if (output := outcome.end()) else ""
        raise JobError(
            reason,
            f"{self._what}: lake build: {what}{errors}{end}",
            remedy=_OF_A_PACKAGE if _HASH_BESIDE.search(outcome.output) else _REMEDIES[reason],
            # Killed from outside, or no program: the machine's doing, not the commit's.
            deterministic=outcome.ending != "not_started" and outcome.signal != 9,
        )

    def _record(self, stored: build_cache.Build) -> None:
        given = self._given
        body = ProjectBuilt(
            repository=given.repository,
            branch=given.branch,
            sha=given.sha,
            project=given.folder,
            toolchain=stored.toolchain,
            dependencies=stored.dependencies,
            modules_failed=stored.modules_failed,
            size_bytes=stored.bytes,
            seconds=stored.seconds,
            job=self._spec.job,
        )
        stream = f"repository:{given.repository}"
        self._reporter.events(
            [Recorded(stream, body, (given.repository, given.sha, self._spec.job, str(self._spec.attempt)))]
        )


_HASH_BESIDE = re.compile(r"file: \S+\.hash\b")
"""Lake's message if it cannot note the hash of a package's module, since packages are read-only by then."""
_OF_A_PACKAGE = (
    "only the default targets of a package are built here: "
    "import none of its other modules, or have it name them there"
)
_REMEDIES = {
    "build_timeout": "raise [build] timeout",
    "build_too_large": "raise [build] disk",
    "build_out_of_memory": "raise [build] memory",
    "build_too_many_processes": f"more than {MOST_PROCESSES} are never needed; see what the lakefile starts",
    "build_failed": "the repository's authors have to mend it; the next commit is built by itself",
    "toolchain_missing": "see `everlean doctor`",
}


def _built_modules(project: Path) -> set[str]:
    build = project / ".lake" / "build" / "lib"
    root = build / "lean" if (build / "lean").is_dir() else build
    if root.is_symlink() or not root.is_dir():
        return set()
    return {
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in root.rglob("*.olean")
        if path.is_file()
    }


def _lakefile_hash(project: Path) -> str:
    digest = hashlib.sha256()
    for name in LAKEFILES:
        path = project / name
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            digest.update(bytes(32))
    return digest.hexdigest()


def _installing(wanted: str) -> str:
    """Return the command to install the toolchain of a `lean-toolchain`."""
    try:
        return f"run `elan toolchain install {parse_version(wanted).toolchain}`"
    except VersionError as error:
        return f"name a version of Lean in lean-toolchain: {error}"


def _text(path: Path) -> str:
    """Return the beginning of a file of the repository; "" if it is missing."""
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(_LONGEST_TEXT_BYTES).decode("utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(run_job(BuildSpec, work))
