"""The cache of builds: attached as copies, swept by last use, never under a job's feet, never half there."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.build import build_cache
from pipeline.lean.build.build_cache import Build, BuildKey
from pipeline.lean.build.dependencies import read_dependencies
from pipeline.lean.build.sources import read_sources
from pipeline.lean.build.trees import remove_tree

REPOSITORY = "github.com/ada/demo"
KEY = "d" * 64


def sha(letter: str) -> str:
    return letter * 40


def a_build(letter: str, **changes: Any) -> Build:
    fields: dict[str, Any] = {
        "repository": REPOSITORY,
        "sha": sha(letter),
        "project": "",
        "toolchain": "leanprover/lean4:v4.21.0",
        "dependencies": "",
        "lakefile": "f" * 64,
        "modules_failed": (),
        "nested": (),
        "bytes": 0,
        "seconds": 1.0,
        "built_at": 1000.0 + ord(letter),
    }
    return Build(**{**fields, **changes})


def worktree(folder: Path, name: str, modules: dict[str, str]) -> Path:
    """Make a checkout with compiled files of its modules."""
    tree = folder / name
    for module, text in modules.items():
        source = tree / (module.replace(".", "/") + ".lean")
        olean = tree / ".lake/build/lib/lean" / (module.replace(".", "/") + ".olean")
        for path, content in ((source, text), (olean, f"compiled {text}")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    return tree


def stored(tmp_path: Path, letter: str, **changes: Any) -> Path:
    """Store a build of 40 kB and return the cache."""
    tree = worktree(tmp_path, f"made-{letter}", {"Demo": letter * 40_000})
    build_cache.store(tmp_path / "cache", tree, a_build(letter, **changes), read_sources(tree))
    return tmp_path / "cache"


def packages(cache: Path, key: str = KEY, size: int = 40_960) -> Path:
    """Make packages as they lie in the cache."""
    folder = cache / "dependencies" / key
    (folder / "packages/mathlib").mkdir(parents=True)
    (folder / "packages/mathlib/Mathlib.lean").write_text("", "utf-8")
    (folder / "lock").touch()
    described = {
        "schema": 1,
        "key": key,
        "toolchain": "",
        "packages": ["mathlib"],
        "cache": "",
        "not_built": "",
    }
    (folder / "dependency.json").write_text(
        json.dumps({**described, "refusals": [], "bytes": size, "seconds": 1.0}), "utf-8"
    )
    return folder


def used_at(folder: Path, seconds: float) -> None:
    os.utime(folder / "lock", (seconds, seconds))


def entry(cache: Path, letter: str) -> Path:
    return cache / "builds" / "github.com+ada+demo" / sha(letter)


def commits(cache: Path) -> set[str]:
    return {one.sha[0] for one in build_cache.present(cache)}


# --- attaching ------------------------------------------------------------------------------------------------


def test_a_job_gets_a_copy_that_it_may_write(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    with build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("a"))) as attached:
        olean = fresh / ".lake/build/lib/lean/Demo.olean"
        kept = entry(cache, "a") / "build/lib/lean/Demo.olean"
        assert attached.build.sha == sha("a")
        assert olean.stat().st_ino != kept.stat().st_ino
        olean.write_text("changed", "utf-8")
    assert kept.read_text("utf-8").startswith("compiled")


def test_the_packages_are_a_link_into_the_cache(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a", dependencies=KEY)
    folder = packages(cache)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    with build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("a"))) as attached:
        assert attached.packages == folder / "packages"
        assert (fresh / ".lake/packages").readlink() == folder / "packages"


def test_what_was_not_built_says_so_and_changes_nothing(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a", dependencies=KEY)
    fresh = worktree(tmp_path, "fresh", {"Own": ""})

    with pytest.raises(build_cache.BuildMissingError, match="no build in"):
        build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("b")))
    with pytest.raises(build_cache.BuildMissingError, match="packages are gone"):
        build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("a")))
    assert build_cache.present(cache) == set()
    assert (fresh / ".lake/build/lib/lean/Own.olean").is_file()


def test_packages_that_are_folders_of_the_project_keep_their_own_builds(tmp_path: Path) -> None:
    tree = worktree(tmp_path, "one", {"Demo": "x"})
    worktree(tree, "sub/part", {"Part": "y"})
    cache = tmp_path / "cache"
    build_cache.store(cache, tree, a_build("a", nested=("sub/part",)), read_sources(tree))
    fresh = worktree(tmp_path, "fresh", {})
    (fresh / "sub/part").mkdir(parents=True)
    with build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("a"))):
        assert (fresh / "sub/part/.lake/build/lib/lean/Part.olean").is_file()


def test_a_folder_that_leads_out_of_the_worktree_is_not_written(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "sub").symlink_to(outside)

    with pytest.raises(build_cache.BuildMissingError, match="leads out"):
        build_cache.empty_lake(fresh, "sub")
    assert list(outside.iterdir()) == []


# --- seeding --------------------------------------------------------------------------------------------------


def seeded(tmp_path: Path, before: dict[str, str], now: dict[str, str], **changes: Any) -> set[str]:
    tree = worktree(tmp_path, "before", before)
    build_cache.store(tmp_path / "cache", tree, a_build("a"), read_sources(tree))
    new = tmp_path / "now"
    for module, text in now.items():
        path = new / (module.replace(".", "/") + ".lean")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    build_cache.empty_lake(new)
    sources = read_sources(new)
    build_cache.seed(new, tmp_path / "cache", a_build("b", **changes), sources, is_ancestor=lambda _sha: True)
    return {path.stem for path in (new / ".lake").rglob("*.olean")}


def test_only_modules_whose_imports_are_the_same_are_seeded(tmp_path: Path) -> None:
    before = {"Low": "1", "Mid": "import Low", "Top": "import Mid", "Side": "2", "Gone": "3"}
    now = {**before, "Low": "changed"}
    del now["Gone"]

    assert seeded(tmp_path, before, now) == {"Side"}


def test_another_toolchain_lakefile_or_manifest_seeds_nothing(tmp_path: Path) -> None:
    assert seeded(tmp_path, {"A": "1"}, {"A": "1"}, toolchain="leanprover/lean4:v4.22.0") == set()


def test_modules_in_a_circle_are_never_taken_for_the_same(tmp_path: Path) -> None:
    circle = {"A": "import B", "B": "import A", "C": "import B", "D": "1"}

    assert seeded(tmp_path, circle, circle) == {"D"}


def test_a_long_chain_of_imports_is_followed_without_recursion(tmp_path: Path) -> None:
    chain = {f"M{number}": f"import M{number + 1}" for number in range(1200)}
    for module, text in chain.items():
        (tmp_path / f"{module}.lean").write_text(text, "utf-8")
    sources = read_sources(tmp_path)

    assert all(sources.hashes.values())
    assert len(sources.importers(["M1199"])) == 1200


def test_only_a_build_of_an_ancestor_is_seeded(tmp_path: Path) -> None:
    """The newest is another branch's, whose code no one has merged and may have forged what it compiled."""
    for letter in "abc":
        cache = stored(tmp_path, letter)
    new = worktree(tmp_path, "now", {"Demo": "b" * 40_000})
    build_cache.empty_lake(new)
    sources = read_sources(new)

    def seed(*ancestors: str) -> str:
        return build_cache.seed(
            new, cache, a_build("d"), sources, is_ancestor=lambda sha: sha[0] in ancestors
        )

    assert seed("a", "b") == sha("b")
    assert seed() == ""


# --- what strangers leave -------------------------------------------------------------------------------------


def test_a_folder_can_be_removed_whatever_is_in_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open(b"\xff" * 255, os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    (folder / "out").symlink_to(kept)
    os.mkfifo(folder / "pipe")
    (folder / "closed" / "inside").mkdir(parents=True)
    (folder / "closed").chmod(0)
    remove_tree(folder)
    remove_tree(folder)

    assert not folder.exists()
    assert (kept / "file").exists()


def test_a_link_in_place_of_a_folder_is_not_followed_to_remove_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(NotADirectoryError, match="link"):
        remove_tree(tmp_path / "link")

    assert (tmp_path / "kept").is_dir()


def test_two_who_remove_the_same_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for number in range(300):
        (folder / str(number) / "a" / "b").mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(remove_tree, [folder, folder]))

    assert not folder.exists()


AS_NOBODY = """
import os, sys
from pathlib import Path
from pipeline.lean.build.build_cache import settle
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
folder = Path(sys.argv[1]) / "made"
(folder / "closed").mkdir(parents=True)
(folder / "closed" / "Leak.olean").symlink_to("/etc/passwd")
(folder / "closed" / "program").touch(mode=0o755)
(folder / "closed" / "program").chmod(0o4755)
(folder / "closed" / "unreadable").touch(mode=0)
(folder / "closed").chmod(0)
taken = settle(folder, keep=sys.argv[2] == "keep")
left = sorted((path.name, oct(path.stat().st_mode & 0o7777)) for path in folder.rglob("*"))
print(taken, left)
"""


@pytest.mark.parametrize(
    ("keep", "modes"), [("keep", ("0o555", "0o555", "0o444")), ("write", ("0o755", "0o755", "0o600"))]
)
def test_a_folder_that_was_closed_hides_no_link_from_what_is_kept(keep: str, modes: tuple[str, ...]) -> None:
    """Run as no one where the tests run as root, to whom no folder is closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        command = [sys.executable, "-c", AS_NOBODY, name, keep]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        remove_tree(Path(name) / "made")
    names = ("closed", "program", "unreadable")

    assert done.stdout.split(" ", 1)[1].strip() == str(list(zip(names, modes, strict=True))), done.stderr
    assert int(done.stdout.split()[0]) >= 3 * 4096


def test_a_sources_name_that_is_no_text_is_kept_as_it_is(tmp_path: Path) -> None:
    tree = worktree(tmp_path, "one", {"Demo": "x"})
    Path(os.fsdecode(os.fsencode(tree) + b"/\xff.lean")).write_text("theorem", "utf-8")
    sources = read_sources(tree)
    build_cache.store(tmp_path / "cache", tree, a_build("a"), sources)
    written = json.loads((entry(tmp_path / "cache", "a") / "sources.json").read_text("ascii"))

    assert written == dict(sources.hashes)
    assert len(written) == 2


# --- sweeping -------------------------------------------------------------------------------------------------


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    for letter, moment in (("a", 300), ("b", 100), ("c", 200)):
        cache = stored(tmp_path, letter)
        used_at(entry(cache, letter), moment)
    taken = build_cache.usage(cache)
    swept = build_cache.sweep(cache, taken.bytes - 1)

    assert taken.builds == 3
    assert swept.removed_builds == ((REPOSITORY, sha("b")),)
    assert commits(cache) == {"a", "c"}
    assert swept.left_bytes == build_cache.usage(cache).bytes == taken.bytes - swept.freed_bytes


def test_what_is_kept_of_lean_s_constants_goes_after_three_months(tmp_path: Path) -> None:
    files = [tmp_path / build_cache.CONSTANTS / "ab" / name for name in ("abcd", "abce")]
    for file, days in zip(files, (89, 91), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (0, time.time() - days * 86400))
    build_cache.sweep(tmp_path, 0)
    assert [file.exists() for file in files] == [True, False]


def test_attaching_counts_as_use(tmp_path: Path) -> None:
    for letter in "ab":
        cache = stored(tmp_path, letter)
        used_at(entry(cache, letter), 100 + ord(letter))
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("a"))).close()
    build_cache.sweep(cache, build_cache.usage(cache).bytes - 1)

    assert commits(cache) == {"a"}


def test_what_a_job_uses_is_not_removed_nor_its_packages(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a", dependencies=KEY)
    packages(cache)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    with build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("a"))):
        swept = build_cache.sweep(cache, 0)
        assert (swept.removed_builds, swept.removed_dependencies) == ((), ())
        assert swept.kept_in_use == 2
        assert commits(cache) == {"a"}
    assert build_cache.sweep(cache, 0).left_bytes == 0
    assert commits(cache) == set()


def test_what_a_job_is_about_to_use_is_not_removed(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a", dependencies=KEY)
    packages(cache)
    build_cache.sweep(cache, 0, in_use={(REPOSITORY, sha("a"))})

    assert commits(cache) == {"a"}


def test_a_build_goes_with_its_packages(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a", dependencies=KEY)
    used_at(packages(cache), 1)
    swept = build_cache.sweep(cache, build_cache.usage(cache).bytes - 1)

    assert swept.removed_dependencies == (KEY,)
    assert swept.removed_builds == ((REPOSITORY, sha("a")),)
    assert build_cache.usage(cache) == build_cache.Usage(0, 0, 0)


def test_a_job_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    program = (
        "import sys; from pathlib import Path; from pipeline.lean.build.build_cache import BuildKey, attach\n"
        f"held = attach(Path({str(fresh)!r}), Path({str(cache)!r}), BuildKey({REPOSITORY!r}, {sha('a')!r}))\n"
        "print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"up\n"
        assert build_cache.sweep(cache, 0).removed_builds == ()
        job.kill()
    assert build_cache.sweep(cache, 0).removed_builds == ((REPOSITORY, sha("a")),)


def test_leftovers_of_a_crash_are_removed_and_running_work_is_not(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a")
    for place in ("builds/.trash-1", "builds/github.com+ada+demo/.trash-2", "dependencies/.trash-3"):
        (cache / place / "x").mkdir(parents=True)
    for name in ("builds/.new-dead", "builds/.new-alive"):
        (cache / name).mkdir()
        (cache / name / "lock").touch()
    begun = cache / f"dependencies/.new-{KEY}"
    begun.mkdir()
    (cache / f"dependencies/.{KEY}.lock").touch()
    with (cache / "builds/.new-alive/lock").open("rb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        build_cache.sweep(cache, 10**9)

    hidden = {path.name for path in cache.rglob(".*") if path.is_dir()}
    assert hidden == {".new-alive"}
    assert commits(cache) == {"a"}


def test_an_entry_that_does_not_say_what_it_is_is_removed(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a")
    stored(tmp_path, "b")
    (entry(cache, "a") / "build.json").write_text("{half", "utf-8")
    build_cache.sweep(cache, 10**9)

    assert not entry(cache, "a").exists()
    assert commits(cache) == {"b"}


def test_storing_a_commit_again_replaces_it(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a")
    tree = worktree(tmp_path, "again", {"Other": "x"})
    build_cache.store(cache, tree, a_build("a"), read_sources(tree))
    names = {path.name for path in entry(cache, "a").rglob("*.olean")}

    assert names == {"Other.olean"}
    assert [path.name for path in (cache / "builds").rglob(".*")] == []


def test_a_store_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = stored(tmp_path, "a")
    tree = worktree(tmp_path, "again", {"Other": "x"})

    def full(_path: Path, _content: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build_cache, "write", full)
    with pytest.raises(OSError, match="No space"):
        build_cache.store(cache, tree, a_build("a"), read_sources(tree))

    assert {path.name for path in entry(cache, "a").rglob("*.olean")} == {"Demo.olean"}
    assert [path.name for path in (cache / "builds").rglob(".*")] == []


def test_read_only_packages_can_be_removed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = packages(cache)
    (folder / "packages/mathlib/Mathlib.lean").chmod(0o444)
    (folder / "packages/mathlib").chmod(0o555)
    build_cache.sweep(cache, 0)

    assert not folder.exists()


def test_packages_without_their_lock_count_as_not_there(tmp_path: Path) -> None:
    folder = packages(tmp_path)
    assert read_dependencies(tmp_path, KEY) is not None
    (folder / "lock").unlink()
    assert read_dependencies(tmp_path, KEY) is None


def test_asking_what_is_present_is_quick_with_many_builds(tmp_path: Path) -> None:
    for number in range(300):
        folder = tmp_path / "builds" / "r" / f"{number:040x}"
        folder.mkdir(parents=True)
        described = {"schema": 1, **dataclasses.asdict(a_build("a")), "sha": f"{number:040x}"}
        (folder / "build.json").write_text(json.dumps(described), "utf-8")
    started = time.process_time()
    found = build_cache.present(tmp_path)

    assert len(found) == 300
    assert time.process_time() - started < 1.0


def test_a_project_below_the_root_has_a_build_of_its_own(tmp_path: Path) -> None:
    cache = stored(tmp_path, "a")
    below = worktree(tmp_path, "below", {"Demo": "another"})
    build_cache.store(cache, below, a_build("a", project="lean/four"), read_sources(below))
    key = BuildKey(REPOSITORY, sha("a"), "lean/four")
    assert build_cache.present(cache) == {BuildKey(REPOSITORY, sha("a")), key}
    fresh = tmp_path / "fresh"
    (fresh / "lean/four/.lake/build").mkdir(parents=True)
    with build_cache.attach(fresh, cache, key):
        assert (fresh / "lean/four/.lake/build/lib/lean/Demo.olean").read_text().endswith("another")
        assert not (fresh / ".lake").exists()
    assert len(build_cache.sweep(cache, 0).removed_builds) == 2


@pytest.mark.parametrize("kind", ["link", "nothing"])
def test_a_build_is_attached_to_no_folder_behind_a_link(tmp_path: Path, kind: str) -> None:
    cache = stored(tmp_path, "a", project="lean")
    fresh, outside = tmp_path / "fresh", tmp_path / "outside"
    fresh.mkdir()
    outside.mkdir()
    if kind == "link":
        (fresh / "lean").symlink_to(outside)
    with pytest.raises(build_cache.BuildMissingError, match="lean: no folder, or behind a link"):
        build_cache.attach(fresh, cache, BuildKey(REPOSITORY, sha("a"), "lean"))
    assert not [*outside.iterdir()]
