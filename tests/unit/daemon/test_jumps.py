"""Clocks that were set and machines that slept, told apart."""

from __future__ import annotations

import pytest

from daemon.state.clock import ClockWatch


class Machine:
    def __init__(self) -> None:
        self.wall, self.awake, self.always = 1_800_000_000.0, 50.0, 70.0
        self.jumps = ClockWatch(wall=lambda: self.wall, awake=lambda: self.awake, always=lambda: self.always)

    def run(self, seconds: float, *, set_by: float = 0.0, asleep: float = 0.0) -> None:
        self.awake += seconds
        self.always += seconds + asleep
        self.wall += seconds + asleep + set_by


def test_time_that_only_passes_is_no_jump_nor_is_a_clock_kept_in_time() -> None:
    machine = Machine()
    for _ in range(1000):
        machine.run(5.0)
        assert machine.jumps.look() is None
    machine.run(5.0, set_by=-2.0)
    assert machine.jumps.look() is None
    assert machine.jumps.lately() is None


def test_small_steps_in_one_direction_are_noticed_once_they_add_up() -> None:
    machine = Machine()
    result = []
    for _ in range(10):
        machine.run(5.0, set_by=4.0)
        result.append(machine.jumps.look())
    (jump,) = [one for one in result if one is not None]
    assert jump.set_s == pytest.approx(32.0)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_set_is_a_jump_and_no_sleep(seconds: float) -> None:
    machine = Machine()
    machine.run(5.0, set_by=seconds)
    jump = machine.jumps.look()
    assert jump is not None
    assert (round(jump.set_s), jump.slept_s) == (seconds, 0.0)
    assert machine.jumps.look() is None


def test_a_sleep_is_no_set_clock_and_both_at_once_are_both() -> None:
    machine = Machine()
    machine.run(5.0, asleep=8 * 3600.0)
    jump = machine.jumps.look()
    assert jump is not None
    assert (jump.set_s, round(jump.slept_s)) == (0.0, 8 * 3600)
    machine.run(5.0, asleep=60.0, set_by=-7200.0)
    jump = machine.jumps.look()
    assert jump is not None
    assert (round(jump.set_s), round(jump.slept_s)) == (-7200, 60)


def test_a_jump_is_reported_for_an_hour_in_which_the_machine_is_awake() -> None:
    machine = Machine()
    machine.run(5.0, set_by=-3600.0)
    machine.jumps.look()
    told = machine.jumps.lately()
    assert told is not None
    assert (told.set_s, told.slept_s) == (-3600, 0)
    machine.run(3500.0)
    assert machine.jumps.lately() == told
    machine.run(200.0)
    assert machine.jumps.lately() is None
