"""Ends by callback: nothing is left behind by one that fails, and closing takes a bounded time."""

import time

import pytest

from comminsight_inject import callbacks, codes

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

BY_FUTURE = codes.TIMING_HOST_FUTURE


@pytest.fixture
def ends():
    return []


@pytest.fixture
def table(ends, monkeypatch):
    monkeypatch.setattr(callbacks, "CLOSE_WAIT_S", 0.05)
    monkeypatch.setattr(callbacks, "_LAST_WAIT_S", 0.05)
    return callbacks.Callbacks(lambda *end: ends.append(end), torch)


def test_a_future_ends_its_op_as_it_ended(table, ends):
    good, bad = torch.futures.Future(), torch.futures.Future()
    table.attach(1, good)
    table.attach(2, bad)
    good.set_result([torch.ones(1)])
    bad.set_exception(ValueError("theirs"))
    assert ends == [(1, codes.STATE_DONE, BY_FUTURE), (2, codes.STATE_FAILED, BY_FUTURE)]
    before = time.monotonic()
    table.close()
    assert time.monotonic() - before < 0.04


def test_a_future_that_is_done_already_ends_its_op_at_once(table, ends):
    future = torch.futures.Future()
    future.set_result(None)
    table.attach(1, future)
    assert ends == [(1, codes.STATE_DONE, BY_FUTURE)]


class Refusing:
    """A future that takes no callbacks, like one of a backend that is going away."""

    def add_done_callback(self, callback):
        raise RuntimeError("no")

    def done(self):
        return False


def test_a_callback_that_is_refused_leaves_nothing_to_wait_for(table, ends, monkeypatch):
    monkeypatch.setattr(table, "_collect_all", lambda futures: Refusing())
    with pytest.raises(RuntimeError):
        table.attach(1, torch.futures.Future())
    monkeypatch.setattr(callbacks, "CLOSE_WAIT_S", 60.0)
    before = time.monotonic()
    table.close()
    assert time.monotonic() - before < 5.0
    assert ends == []


@pytest.mark.parametrize("finish", ["set_result", "set_exception"])
def test_what_never_calls_back_is_cut_off_and_may_end_later(table, ends, finish):
    future = torch.futures.Future()
    table.attach(1, future)
    before = time.monotonic()
    table.close()
    assert time.monotonic() - before < 5.0
    getattr(future, finish)(ValueError("too late"))
    assert ends == [(1, codes.STATE_ABORTED, codes.TIMING_UNKNOWN)]
    table.close()


def test_a_forked_child_waits_for_none_of_its_parents_futures(table, ends, monkeypatch):
    table.attach(1, torch.futures.Future())
    table.forget()
    monkeypatch.setattr(callbacks, "CLOSE_WAIT_S", 60.0)
    before = time.monotonic()
    table.close()
    assert time.monotonic() - before < 5.0
    assert ends == []
