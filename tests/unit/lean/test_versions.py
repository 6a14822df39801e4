"""Names of Lean versions, as people and `lean-toolchain` files write them."""

from __future__ import annotations

import pytest

from pipeline.lean.toolchain.versions import VersionError, parse_version


@pytest.mark.parametrize(
    ("text", "toolchain"),
    [
        ("v4.21.0", "leanprover/lean4:v4.21.0"),
        ("4.21.0", "leanprover/lean4:v4.21.0"),
        ("leanprover/lean4:v4.21.0\n", "leanprover/lean4:v4.21.0"),
        ("leanprover/lean4:4.1.0", "leanprover/lean4:v4.1.0"),
        ("v4.22.0-rc3", "leanprover/lean4:v4.22.0-rc3"),
        ("nightly-2025-08-01", "leanprover/lean4-nightly:nightly-2025-08-01"),
        ("leanprover/lean4:nightly-2023-08-12", "leanprover/lean4-nightly:nightly-2023-08-12"),
        ("leanprover/lean4-nightly:nightly-2025-08-01", "leanprover/lean4-nightly:nightly-2025-08-01"),
        ("nightly-2025-08-01-rev2", "leanprover/lean4-nightly:nightly-2025-08-01-rev2"),
    ],
)
def test_every_way_to_write_a_version_is_one_version(text: str, toolchain: str) -> None:
    assert parse_version(text).toolchain == toolchain


@pytest.mark.parametrize(
    "text",
    ["", "../x", "-rf", "v4.21.0 -rf", "v4.21.0/../../x", "v4.21", "4", "/opt/lean", "v4.21.0\nv4.22.0", "v4.21.0;id",
     "leanprover/lean4:", "leanprover/lean4:../x", "v٤.٢١.٠", "v4.21.0-evil", "nightly-2025-8-1", "x" * 10_000],
)  # fmt: skip
def test_what_names_no_version_is_refused(text: str) -> None:
    with pytest.raises(VersionError, match="no Lean version") as caught:
        parse_version(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["stable", "nightly", "leanprover/lean4:beta", "leanprover/lean4:stable"])
def test_a_channel_is_no_version(text: str) -> None:
    with pytest.raises(VersionError, match="another version from day to day"):
        parse_version(text)


@pytest.mark.parametrize(
    "text", ["evil/lean4:v4.21.0", "leanprover/lean4-pr-releases:v4.21.0", "leanprover/lean4-nightly:v4.21.0"]
)
def test_another_users_compiler_is_no_lean(text: str) -> None:
    with pytest.raises(VersionError, match="what another compiler accepts is no proof"):
        parse_version(text)


def test_elans_folder_is_named_as_elan_names_it() -> None:
    assert parse_version("4.21.0").sysroot.name == "leanprover--lean4---v4.21.0"
