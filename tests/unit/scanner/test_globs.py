from __future__ import annotations

import pytest

from pipeline.lean.source.globs import path_filter


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**/*.lean", "A.lean", True),
        ("**/*.lean", "A/B/C.lean", True),
        ("**/*.lean", "A/B/C.lean.orig", False),
        ("*.lean", "A.lean", True),
        ("*.lean", "A/B.lean", False),
        ("A/**", "A/B/C.lean", True),
        ("A/**", "AB/C.lean", False),
        ("A/**/C.lean", "A/C.lean", True),
        ("A/**/C.lean", "A/B/B/C.lean", True),
        ("A/**/C.lean", "A/BC.lean", False),
        ("**/B/C.lean", "A/B/C.lean", True),
        ("**/B/**", "B/C.lean", True),
        ("**/B/**", "A/B/A/B/C.lean", True),
        ("**/B/**", "A/BB/C.lean", False),
        ("**/**/B/*.lean", "A/A/B/C.lean", True),
        ("?.lean", "A.lean", True),
        ("?.lean", "/.lean", False),
        ("[AB].lean", "B.lean", True),
        ("[!AB].lean", "B.lean", False),
        ("[^A].lean", "^.lean", True),
        ("A.lean", "AxLean", False),
        ("a+b(c).lean", "a+b(c).lean", True),
        ("a.lean", "A.lean", False),
        ("**/new\nline.lean", "x/new\nline.lean", True),
    ],
)
def test_a_pattern_matches_whole_paths(pattern: str, path: str, matches: bool) -> None:
    assert path_filter([pattern], [])(path) is matches


def test_exclude_wins_and_no_include_means_every_lean_file() -> None:
    meant = path_filter([], ["Old/**"])
    assert meant("A/B.lean")
    assert not meant("Old/B.lean")
    assert not meant("README.md")


def test_a_malformed_pattern_is_named() -> None:
    with pytest.raises(ValueError, match=r"\[z-a\]"):
        path_filter(["[z-a].lean"], [])


def test_a_lakefile_is_no_source_unless_it_is_named() -> None:
    meant = path_filter([], [])
    assert [path for path in ("A.lean", "lakefile.lean", "sub/lakefile.lean") if meant(path)] == ["A.lean"]
    assert path_filter(["lakefile.lean"], [])("lakefile.lean")
