from __future__ import annotations

import fcntl
import json
import multiprocessing
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.endpoint.errors import SpendingCapError, SpendingError, Usage
from pipeline.endpoint.spending import Spending, file_of
from tests.support.spending import spent_usd

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = "2026-03-01"


def spending(ledger: Path, *, cap_usd: float | None = 3.0, at: datetime = NOON) -> Spending:
    return Spending(ledger=ledger, cap_usd=cap_usd, now=lambda: at)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "spending.jsonl"


def test_what_was_really_used_is_booked_in_the_place_of_the_worst_case(ledger: Path) -> None:
    today = spending(ledger)
    reserved = today.reserve(1.0)
    assert spent_usd(ledger, DAY) == pytest.approx(1.0)
    today.book(reserved, Usage(usd=0.1))
    assert spent_usd(ledger, DAY) == pytest.approx(0.1)


def test_a_request_that_cost_nothing_gives_its_reservation_back(ledger: Path) -> None:
    today = spending(ledger)
    today.book(today.reserve(1.0), Usage())
    assert spent_usd(ledger, DAY) == 0


def test_the_cap_holds_before_the_request_and_says_when_it_frees(ledger: Path) -> None:
    today = spending(ledger)
    for _ in range(3):
        today.reserve(1.0)
    with pytest.raises(SpendingCapError, match=r"\$3 a day.*\$3.0000 are spent.*\$1.0000.*2026-03-02 00:00"):
        today.reserve(1.0)


def test_a_cap_reached_to_the_cent_is_no_trouble_of_rounding(ledger: Path) -> None:
    today = Spending(ledger=ledger, cap_usd=0.3, now=lambda: NOON)
    for _ in range(3):
        today.reserve(0.1)


def test_the_next_day_begins_anew_in_utc(ledger: Path) -> None:
    for _ in range(3):
        spending(ledger).reserve(1.0)
    east = datetime(2026, 3, 2, 0, 30, tzinfo=UTC).astimezone()
    spending(ledger, at=east).reserve(1.0)
    assert spent_usd(ledger, DAY) == pytest.approx(3.0)


def test_a_process_that_lives_over_midnight_begins_anew(ledger: Path) -> None:
    times = [NOON]
    lasting = Spending(ledger=ledger, cap_usd=1.0, now=lambda: times[-1])
    kept = lasting.reserve(1.0)
    times.append(NOON + timedelta(days=1))
    assert spent_usd(ledger, "2026-03-02") == 0
    lasting.reserve(1.0)
    # What was reserved yesterday is yesterday's, whenever the answer comes.
    lasting.book(kept, Usage(usd=0.1))
    assert spent_usd(ledger, "2026-03-02") == pytest.approx(1.0)
    assert spent_usd(ledger, DAY) == pytest.approx(0.1)


def test_one_request_that_costs_more_than_a_day_says_so(ledger: Path) -> None:
    with pytest.raises(SpendingCapError, match=r"No day has room.*lower max_tokens") as raised:
        spending(ledger, cap_usd=0.5).reserve(1.0)
    spending(ledger, cap_usd=1).reserve(1.0)
    with pytest.raises(SpendingCapError) as spent:
        spending(ledger, cap_usd=1).reserve(1.0)
    assert (raised.value.reason, spent.value.reason) == ("above_cap", "spending_cap")


def test_a_process_sees_what_another_one_wrote_meanwhile(ledger: Path) -> None:
    one, other = spending(ledger), spending(ledger)
    kept = one.reserve(3.0)
    with pytest.raises(SpendingCapError):
        other.reserve(1.0)
    one.book(kept, Usage(usd=0.01))
    other.reserve(1.0)


def test_a_reservation_of_a_process_that_was_killed_counts_in_full(ledger: Path) -> None:
    spending(ledger).reserve(1.0)
    assert spent_usd(ledger, DAY) == pytest.approx(1.0)


def test_a_torn_last_line_swallows_nothing(ledger: Path) -> None:
    today = spending(ledger)
    today.reserve(1.0)
    with file_of(ledger, DAY).open("ab") as file:
        file.write(b'{"kind":"booked","id":"abc","us')
    today.reserve(2.0)
    with pytest.raises(SpendingCapError, match=r"\$3.0000 are spent"):
        today.reserve(1.0)
    assert [line[:1] for line in file_of(ledger, DAY).read_text().splitlines()] == ["{"] * 3


def test_a_long_day_is_not_read_again_for_each_request(ledger: Path) -> None:
    today = spending(ledger, cap_usd=1000.0)
    for _ in range(400):
        today.book(today.reserve(1.0), Usage(usd=0.25))
    path = file_of(ledger, DAY)
    assert (
        json.loads(path.read_text().splitlines()[-1])["total"] == pytest.approx(spent_usd(ledger, DAY)) == 100
    )
    lines = path.read_bytes()
    path.write_bytes(b"x" * len(lines[: -(1 << 16)]) + lines[-(1 << 16) :])
    with pytest.raises(SpendingCapError, match=r"\$100.0000 are spent"):
        today.reserve(901.0)
    path.write_bytes(b"x" * len(lines))
    with pytest.raises(
        SpendingError, match=r"no line at the end of the ledger .* can be read.*Cut the damaged end off"
    ):
        today.reserve(1.0)


def test_the_ledger_is_only_appended_to_and_only_its_owner_reads_it(ledger: Path) -> None:
    today = spending(ledger)
    reserved = today.reserve(1.0, spender="org/model")
    path = file_of(ledger, DAY)
    before = path.read_bytes()
    today.book(reserved, Usage(1, 2, 0.5))
    assert path.read_bytes().startswith(before)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["reserved", "booked"]
    assert lines[0]["spender"] == "org/model"
    assert (lines[1]["prompt_tokens"], lines[1]["completion_tokens"]) == (1, 2)
    assert path.stat().st_mode & 0o077 == 0


def reserve_until_refused(ledger: Path, made: multiprocessing.Queue[int]) -> None:
    number = 0
    try:
        while True:
            spending(ledger).reserve(0.1)
            number += 1
    except SpendingCapError:
        made.put(number)


def test_processes_share_one_cap(ledger: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[int] = context.Queue()
    processes = [context.Process(target=reserve_until_refused, args=(ledger, queue)) for _ in range(3)]
    for process in processes:
        process.start()
    total = sum(queue.get(timeout=30) for _ in processes)
    for process in processes:
        process.join()
    assert total == 30


def test_the_ledger_is_not_read_while_another_process_decides(ledger: Path) -> None:
    spending(ledger).reserve(1.0)
    reserving = threading.Thread(target=spending(ledger).reserve, args=(1.0,))
    with file_of(ledger, DAY).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        reserving.start()
        reserving.join(timeout=0.1)
        assert reserving.is_alive()
    reserving.join(timeout=10)
    assert spent_usd(ledger, DAY) == pytest.approx(2.0)


def test_a_ledger_that_cannot_be_written_lets_nothing_be_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpendingError, match="cannot be used"):
        spending(tmp_path / "file" / "ledger.jsonl").reserve(1.0)


def test_a_cap_of_nothing_lets_only_free_models_be_asked(ledger: Path) -> None:
    Spending(ledger=ledger, cap_usd=0.0).reserve(0.0)
    with pytest.raises(SpendingCapError):
        spending(ledger, cap_usd=0.0).reserve(0.01)


def test_a_cap_without_a_ledger_is_refused() -> None:
    with pytest.raises(SpendingError, match="no ledger"):
        Spending(cap_usd=1.0)
