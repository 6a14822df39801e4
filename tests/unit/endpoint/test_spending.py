from __future__ import annotations

import fcntl
import json
import multiprocessing
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.endpoint.errors import SpendingCapError, SpendingError
from pipeline.endpoint.spending import Prices, Spending, file_of

PRICES = Prices(usd_per_million_prompt=1.0, usd_per_million_completion=10.0)
"""A request of 100 000 and 90 000 tokens costs a dollar."""
MOST = (100_000, 90_000)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = "2026-03-01"


def spending(ledger: Path, *, cap_usd: float | None = 3.0, at: datetime = NOON) -> Spending:
    return Spending(ledger=ledger, prices=PRICES, cap_usd=cap_usd, now=lambda: at)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "spending.jsonl"


def test_what_was_really_used_is_booked_in_the_place_of_the_worst_case(ledger: Path) -> None:
    today = spending(ledger)
    reserved = today.reserve(*MOST)
    assert today.spent_usd() == pytest.approx(1.0)
    usage = today.book(reserved, (50_000, 5_000))
    assert usage.usd == pytest.approx(0.1)
    assert not usage.estimated
    assert today.spent_usd() == pytest.approx(0.1)


def test_an_answer_without_usage_is_booked_at_the_worst_case(ledger: Path) -> None:
    today = spending(ledger)
    usage = today.book(today.reserve(*MOST), None)
    assert usage.usd == pytest.approx(1.0)
    assert usage.estimated
    assert today.spent_usd() == pytest.approx(1.0)


def test_a_request_that_cost_nothing_gives_its_reservation_back(ledger: Path) -> None:
    today = spending(ledger)
    today.release(today.reserve(*MOST))
    assert today.spent_usd() == 0


def test_the_cap_holds_before_the_request_and_says_when_it_frees(ledger: Path) -> None:
    today = spending(ledger)
    for _ in range(3):
        today.reserve(*MOST)
    with pytest.raises(SpendingCapError, match=r"\$3 a day.*\$3.0000 are spent.*\$1.0000.*2026-03-02 00:00"):
        today.reserve(*MOST)


def test_a_cap_reached_to_the_cent_is_no_trouble_of_rounding(ledger: Path) -> None:
    today = Spending(ledger=ledger, prices=Prices(0.1, 0.0), cap_usd=0.3, now=lambda: NOON)
    for _ in range(3):
        today.reserve(1_000_000, 0)


def test_the_next_day_begins_anew_in_utc(ledger: Path) -> None:
    for _ in range(3):
        spending(ledger).reserve(*MOST)
    east = datetime(2026, 3, 2, 0, 30, tzinfo=UTC).astimezone()
    spending(ledger, at=east).reserve(*MOST)
    assert spending(ledger).spent_usd() == pytest.approx(3.0)


def test_a_process_that_lives_over_midnight_begins_anew(ledger: Path) -> None:
    times = [NOON]
    lasting = Spending(ledger=ledger, prices=PRICES, cap_usd=1.0, now=lambda: times[-1])
    kept = lasting.reserve(*MOST)
    times.append(NOON + timedelta(days=1))
    assert lasting.spent_usd() == 0
    lasting.reserve(*MOST)
    # What was reserved yesterday is yesterday's, whenever the answer comes.
    lasting.book(kept, (0, 10_000))
    assert lasting.spent_usd() == pytest.approx(1.0)
    assert spending(ledger).spent_usd() == pytest.approx(0.1)


def test_one_request_that_costs_more_than_a_day_says_so(ledger: Path) -> None:
    with pytest.raises(SpendingCapError, match=r"No day has room.*lower max_tokens") as raised:
        spending(ledger, cap_usd=0.5).reserve(*MOST)
    spending(ledger, cap_usd=1).reserve(*MOST)
    with pytest.raises(SpendingCapError) as spent:
        spending(ledger, cap_usd=1).reserve(*MOST)
    assert (raised.value.reason, spent.value.reason) == ("above_cap", "spending_cap")


def test_a_process_sees_what_another_one_wrote_meanwhile(ledger: Path) -> None:
    one, other = spending(ledger), spending(ledger)
    kept = one.reserve(*MOST)
    assert other.spent_usd() == pytest.approx(1.0)
    one.book(kept, (0, 1_000))
    assert other.spent_usd() == pytest.approx(0.01)


def test_a_reservation_of_a_process_that_was_killed_counts_in_full(ledger: Path) -> None:
    spending(ledger).reserve(*MOST)
    assert spending(ledger).spent_usd() == pytest.approx(1.0)


def test_a_torn_last_line_swallows_nothing(ledger: Path) -> None:
    today = spending(ledger)
    today.reserve(*MOST)
    with file_of(ledger, DAY).open("ab") as file:
        file.write(b'{"kind":"booked","id":"abc","us')
    assert spending(ledger).spent_usd() == pytest.approx(1.0)
    today.reserve(*MOST)
    assert today.spent_usd() == pytest.approx(2.0)
    assert spending(ledger).spent_usd() == pytest.approx(2.0)
    assert [line[:1] for line in file_of(ledger, DAY).read_text().splitlines()] == ["{"] * 3


def test_the_ledger_is_only_appended_to_and_only_its_owner_reads_it(ledger: Path) -> None:
    today = spending(ledger)
    reserved = today.reserve(*MOST, model="org/model")
    path = file_of(ledger, DAY)
    before = path.read_bytes()
    today.book(reserved, (1, 2))
    assert path.read_bytes().startswith(before)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["reserved", "booked"]
    assert lines[0]["model"] == "org/model"
    assert (lines[1]["prompt_tokens"], lines[1]["completion_tokens"]) == (1, 2)
    assert path.stat().st_mode & 0o077 == 0


def reserve_until_refused(ledger: Path, made: multiprocessing.Queue[int]) -> None:
    number = 0
    try:
        while True:
            spending(ledger).reserve(10_000, 9_000)
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
    spending(ledger).reserve(*MOST)
    reserving = threading.Thread(target=spending(ledger).reserve, args=MOST)
    with file_of(ledger, DAY).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        reserving.start()
        reserving.join(timeout=0.1)
        assert reserving.is_alive()
    reserving.join(timeout=10)
    assert spending(ledger).spent_usd() == pytest.approx(2.0)


def test_a_ledger_that_cannot_be_written_lets_nothing_be_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpendingError, match="cannot be used"):
        spending(tmp_path / "file" / "ledger.jsonl").reserve(*MOST)


def test_a_cap_without_prices_is_refused(ledger: Path) -> None:
    with pytest.raises(SpendingError, match="no prices are set"):
        Spending(ledger=ledger, cap_usd=1.0)


def test_a_cap_of_nothing_lets_only_free_models_be_asked(ledger: Path) -> None:
    Spending(ledger=ledger, prices=Prices(0.0, 0.0), cap_usd=0.0).reserve(*MOST)
    with pytest.raises(SpendingCapError):
        spending(ledger, cap_usd=0.0).reserve(1, 0)


def test_a_cap_without_a_ledger_is_refused() -> None:
    with pytest.raises(SpendingError, match="no ledger"):
        Spending(prices=PRICES, cap_usd=1.0)


def test_without_prices_tokens_are_counted_and_dollars_are_unknown() -> None:
    free = Spending(now=lambda: NOON + timedelta(days=1))
    usage = free.book(free.reserve(*MOST), (7, 8))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.usd) == (7, 8, None)
