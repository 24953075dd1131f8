"""Counting failed tries to come in."""

import pytest

from holdfast.auth.login_throttle import LoginThrottle
from holdfast.domain.limits import LOGIN_ATTEMPTS_ADDRESSES_MAX


class ManualTime:
    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def fail(tries: LoginThrottle, address: str, times: int) -> None:
    for _ in range(times):
        tries.record_attempt(address)


def test_an_address_with_too_many_failures_waits_until_the_window_ends() -> None:
    time = ManualTime()
    tries = LoginThrottle(time, per_address_max=3, total_max=100, window_s=60)
    fail(tries, "10.0.0.1", 2)
    assert tries.retry_after_s("10.0.0.1") == 0
    time.s += 20
    fail(tries, "10.0.0.1", 1)
    assert (tries.retry_after_s("10.0.0.1"), tries.retry_after_s("10.0.0.2")) == (40, 0)
    time.s += 40
    assert tries.retry_after_s("10.0.0.1") == 0


def test_a_throttled_address_does_not_lock_out_others() -> None:
    tries = LoginThrottle(ManualTime())
    for number in range(1, 50):
        while tries.retry_after_s(f"10.0.0.{number}") == 0:
            fail(tries, f"10.0.0.{number}", 1)
    assert tries.retry_after_s("10.0.1.1") == 0


def test_all_addresses_together_have_a_limit_too() -> None:
    tries = LoginThrottle(ManualTime(), per_address_max=3, total_max=10)
    for number in range(10):
        assert tries.retry_after_s(f"10.0.0.{number}") == 0
        fail(tries, f"10.0.0.{number}", 1)
    assert tries.retry_after_s("10.0.0.99") > 0


def test_a_successful_attempt_is_not_counted() -> None:
    tries = LoginThrottle(ManualTime(), per_address_max=1, total_max=10)
    tries.record_attempt("10.0.0.1")
    tries.undo_attempt("10.0.0.1")
    assert tries.retry_after_s("10.0.0.1") == 0
    tries.undo_attempt("10.0.0.1")
    tries.record_attempt("10.0.0.1")
    assert tries.retry_after_s("10.0.0.1") > 0, "taking back what was not counted gives nothing away"


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
    tries = LoginThrottle(ManualTime(), per_address_max=1, total_max=10)
    tries.record_attempt(one)
    assert (tries.retry_after_s(other) > 0) == is_one


def test_the_throttle_memory_is_bounded() -> None:
    tries = LoginThrottle(ManualTime(), per_address_max=1, total_max=10**9)
    for number in range(LOGIN_ATTEMPTS_ADDRESSES_MAX + 1_000):
        tries.record_attempt(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(tries._counts) <= LOGIN_ATTEMPTS_ADDRESSES_MAX + 1
    assert tries.retry_after_s("192.0.2.1") > 0, "those that came too late to be told apart share one count"
