"""Counting failed tries to come in."""

import pytest

from holdfast.auth.login_throttle import Tries
from holdfast.domain.limits import TRIES_ADDRESSES_MAX


class Time:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def fail(tries: Tries, address: str, times: int) -> None:
    for _ in range(times):
        tries.count(address)


def test_an_address_that_has_failed_too_often_waits_for_the_rest_of_the_minute() -> None:
    time = Time()
    tries = Tries(time, per_address=3, in_all=100, window_s=60)
    fail(tries, "10.0.0.1", 2)
    assert tries.wait_s("10.0.0.1") == 0
    time.s += 20
    fail(tries, "10.0.0.1", 1)
    assert (tries.wait_s("10.0.0.1"), tries.wait_s("10.0.0.2")) == (40, 0)
    time.s += 40
    assert tries.wait_s("10.0.0.1") == 0


def test_one_address_that_fails_and_fails_locks_out_no_other() -> None:
    tries = Tries(Time())
    for number in range(1, 50):
        while tries.wait_s(f"10.0.0.{number}") == 0:
            fail(tries, f"10.0.0.{number}", 1)
    assert tries.wait_s("10.0.1.1") == 0


def test_all_addresses_together_have_a_limit_too() -> None:
    tries = Tries(Time(), per_address=3, in_all=10)
    for number in range(10):
        assert tries.wait_s(f"10.0.0.{number}") == 0
        fail(tries, f"10.0.0.{number}", 1)
    assert tries.wait_s("10.0.0.99") > 0


def test_a_try_that_succeeds_is_taken_back() -> None:
    tries = Tries(Time(), per_address=1, in_all=10)
    tries.count("10.0.0.1")
    tries.take_back("10.0.0.1")
    assert tries.wait_s("10.0.0.1") == 0
    tries.take_back("10.0.0.1")
    tries.count("10.0.0.1")
    assert tries.wait_s("10.0.0.1") > 0, "taking back what was not counted gives nothing away"


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_the_addresses_of_one_network_count_as_one(one: str, other: str, is_one: bool) -> None:
    tries = Tries(Time(), per_address=1, in_all=10)
    tries.count(one)
    assert (tries.wait_s(other) > 0) == is_one


def test_what_is_kept_of_a_flood_is_bounded() -> None:
    tries = Tries(Time(), per_address=1, in_all=10**9)
    for number in range(TRIES_ADDRESSES_MAX + 1_000):
        tries.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(tries._counts) <= TRIES_ADDRESSES_MAX + 1
    assert tries.wait_s("192.0.2.1") > 0, "those that came too late to be told apart share one count"
