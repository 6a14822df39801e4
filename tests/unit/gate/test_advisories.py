"""Which proofs rest on kernels with known faults: what is not known counts as a fault, and two faults add up."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pipeline.gate.advisories import (
    Advisory,
    FeedError,
    against,
    is_sound,
    read_feed,
    shipped,
    witnesses,
)


def faults(kernel: str, toolchain: str, grade: str = "L1") -> set[str]:
    return {one.id for one in against(witnesses(grade, kernel, toolchain), shipped())}


@pytest.mark.parametrize(
    ("toolchain", "repaired", "open_"),
    [
        ("leanprover/lean4:v4.32.0", set(), {"lean4#14484", "lean4#14576", "lean4#14806"}),
        ("leanprover/lean4:v4.32.1", {"lean4#14484"}, {"lean4#14576"}),
        ("leanprover/lean4:v4.32.2", {"lean4#14484", "lean4#14576"}, {"lean4#14613"}),
        ("leanprover/lean4:v4.33.0-rc1", set(), {"lean4#14484", "lean4#14576"}),
        ("leanprover/lean4:v4.33.0", {"lean4#14484", "lean4#14576", "lean4#14616"}, {"lean4#14807"}),
        ("leanprover/lean4:v4.33.1", {"lean4#14806", "lean4#14807", "lean4#14838"}, {"lean4#15241"}),
        ("leanprover/lean4-nightly:nightly-2026-08-10", set(), {"lean4#14576"}),
        ("leanprover/lean4-nightly:nightly-2026-08-11", {"lean4#14576"}, {"lean4#14807"}),
    ],
)
def test_a_release_has_the_faults_that_were_repaired_after_it(
    toolchain: str, repaired: set[str], open_: set[str]
) -> None:
    result = faults("leanchecker", toolchain)
    assert not result & repaired
    assert open_ <= result


@pytest.mark.parametrize("toolchain", ["v4.34.1", "v4.34.2", "v4.35.0", "v4.36.0-rc1", "nightly-2026-09-25"])
def test_a_release_with_all_repairs_has_none(toolchain: str) -> None:
    assert faults("leanchecker", toolchain) == set()
    assert is_sound(toolchain, shipped())


@pytest.mark.parametrize("toolchain", ["", "stable", "somebody/lean4:v4.35.0"])
def test_a_version_that_cannot_be_read_has_all_faults(toolchain: str) -> None:
    assert {"lean4#14484", "lean4#15241"} <= faults("leanchecker", toolchain)


def test_one_kernel_without_a_fault_is_enough_and_two_with_different_ones_are_not() -> None:
    assert faults("nanoda_bin 0.4.3-beta, leanchecker", "v4.35.0") == set()
    both = faults("leanchecker, nanoda_bin 0.4.3-beta", "v4.32.2")
    assert {"lean4#14613", "lean-kernel-arena#16"} <= both


def test_a_fault_that_no_export_can_hold_is_none_of_who_reads_exports() -> None:
    result = faults("leanchecker --from-export", "v4.32.0")
    assert "lean4#14484" not in result
    assert "lean4#14576" in result


def test_a_kernel_that_nobody_has_looked_at_is_no_witness() -> None:
    assert "lean4#14576" in faults("mykernel 1.0", "v4.35.0")
    assert "lean4#14807" in faults("nanoda_bin 9.9.9", "v4.35.0"), "no release without it is known"


def test_where_no_kernel_replayed_all_the_lean_that_compiled_it_is_the_witness() -> None:
    assert [str(one) for one in witnesses("L0", "", "v4.32.0")] == ["lean v4.32.0"]
    assert faults("", "v4.35.0", "L0") == set()


def test_a_kernel_of_a_toolchain_has_the_version_that_its_name_says() -> None:
    named = "leanchecker of v4.32.1, leanchecker --from-export of v4.35.0, lean4lean of v4.35.0, nanoda_bin 0.4.17"
    assert [str(one) for one in witnesses("L2", named, "v4.30.0")] == [
        "leanchecker v4.32.1", "leanchecker --from-export v4.35.0", "lean4lean v4.35.0", "nanoda 0.4.17"
    ]  # fmt: skip
    assert faults(named, "v4.35.0", "L2") == set()


def test_the_shipped_file_names_a_source_for_each_fault() -> None:
    assert len(shipped()) >= 10
    for one in shipped():
        assert one.source.startswith("https://")
        assert one.published.year == 2026


ONE = """[[advisory]]
id = "a"
published = 2026-01-01
title = "t"
source = "s"
fixed.lean = ["v4.1.0"]
"""


def test_a_file_of_one_s_own_is_read_in_place_of_it(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(ONE, "utf-8")
    lean = (("lean", ("v4.1.0",)),)
    assert read_feed(file) == (Advisory("a", date(2026, 1, 1), "t", "s", frozenset(), lean),)


@pytest.mark.parametrize(
    "text",
    ["", "x = 1", "[[advisory]]\nid = 'a'", ONE + ONE, ONE + "more = 1", ONE.replace("v4.1.0", "new"),
     ONE.replace('"a"', '"a\\u001b[2J"'), ONE.replace("2026-01-01", '"soon"'), "\ufffd = ", ONE + "x = 1\n"],
)  # fmt: skip
def test_a_file_that_is_no_list_of_faults_is_refused_whole(text: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(FeedError, match=r"own\.toml"):
        read_feed(file)
