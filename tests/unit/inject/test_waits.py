"""Ops that end when somebody waits: which Works are kept, for how long, and what never raises."""

import gc
import weakref

import pytest

from comminsight_inject import codes, waits
from comminsight_inject.waits import Waits

UNSEEN = (codes.STATE_UNOBSERVABLE, codes.TIMING_UNKNOWN)
WAITED = (codes.STATE_DONE, codes.TIMING_HOST_WAIT)


class Ends(dict):
    """What each handle ended as."""

    def __call__(self, handle, state, timing_source):
        assert handle not in self
        self[handle] = (state, timing_source)


class Result:
    """A weak reference of a storage."""

    def __init__(self, cdata, is_gone=False):
        self.cdata, self.is_gone = cdata, is_gone

    def expired(self):
        return self.is_gone


class Storage:
    def __init__(self, cdata):
        self._cdata = cdata


@pytest.fixture
def work_type():
    class Work:
        def wait(self, answer=True):
            if answer is None:
                raise ValueError("theirs")
            return answer

    return Work


@pytest.fixture
def ends():
    return Ends()


@pytest.fixture
def table(ends, work_type):
    return Waits(ends, work_type)


def test_wait_ends_the_op_and_passes_everything_through(table, ends, work_type):
    done, broken = work_type(), work_type()
    table.add(1, 1, done)
    table.add(2, 1, broken)
    assert done.wait(answer=7) == 7
    with pytest.raises(ValueError, match="theirs"):
        broken.wait(None)
    assert done.wait() is True  # once more: not ours any longer
    assert ends == {1: WAITED, 2: (codes.STATE_FAILED, codes.TIMING_HOST_WAIT)}


@pytest.mark.parametrize("method", ["__hash__", "__eq__"])
def test_a_work_that_neither_hashes_nor_compares_is_waited_for(method, table, ends, work_type):
    def refuse(*_):
        raise TypeError("unhashable")

    odd = type("Odd", (work_type,), {method: refuse})
    tracked, unknown = odd(), odd()
    table.add(1, 1, tracked)
    assert (tracked.wait(), unknown.wait()) == (True, True)
    assert ends == {1: WAITED}


@pytest.mark.parametrize("n_held", [0, 8, 100])
def test_abandoned_works_do_not_pile_up_behind_held_ones(table, ends, work_type, n_held):
    held = [work_type() for _ in range(n_held)]
    for handle, work in enumerate(held, start=1):
        table.add(handle, 1, work)
    alive, peak = weakref.WeakSet(), 0
    for handle in range(1000, 2000):
        work = work_type()
        alive.add(work)
        table.sweep()
        table.add(handle, 1, work)
        del work
        peak = max(peak, len(alive))
    assert peak <= 8 + n_held // 4
    assert not set(ends) & set(range(1, n_held + 1))
    assert [work.wait() for work in held] == [True] * n_held


def test_more_held_works_than_the_table_takes(table, ends, work_type):
    held = [work_type() for _ in range(waits.MAX_WAITING + 5)]
    for handle, work in enumerate(held, start=1):
        table.sweep()
        table.add(handle, 1, work)
    assert ends == dict.fromkeys(range(1, 6), UNSEEN)


def test_a_result_ends_the_op_that_nobody_holds(table, ends, work_type):
    table.add(1, 1, work_type(), Result(cdata=5))
    for _ in range(3):
        table.sweep()
    assert ends == {}
    assert (table.take_result(Storage(6)), table.take_result(Storage(5))) == (0, 1)
    assert table.take_result(Storage(5)) == 0


def test_a_result_that_is_gone_or_never_waited_for_is_given_up(table, ends, work_type, monkeypatch):
    gone = Result(5)
    table.add(1, 1, work_type(), gone)
    table.add(2, 1, work_type(), Result(6))
    gone.is_gone = True
    table.sweep()
    assert ends == {1: UNSEEN}
    monkeypatch.setattr(waits, "_RESULT_PATIENCE_NS", 0)
    table.sweep()
    assert ends == {1: UNSEEN, 2: UNSEEN}


def test_a_result_written_twice_belongs_to_the_later_op(table, ends, work_type):
    first = work_type()
    table.add(1, 1, first, Result(5))
    table.add(2, 1, work_type(), Result(5))
    first.wait()
    assert table.take_result(Storage(5)) == 2


def test_a_communicator_that_goes_takes_its_ops_along(table, ends, work_type):
    works = [work_type() for _ in range(4)]
    for handle, work in enumerate(works, start=1):
        table.add(handle, handle % 2, work)
    table.settle(1)
    assert ends == {1: UNSEEN, 3: UNSEEN}
    table.close()
    assert ends == dict.fromkeys((1, 2, 3, 4), UNSEEN)


def test_a_forked_child_keeps_the_parents_works_and_ends_nothing(table, ends, work_type):
    work = work_type()
    alive = weakref.ref(work)
    table.add(1, 1, work)
    table.forget()
    assert work.wait() is True
    del work
    gc.collect()
    table.close()
    assert alive() is not None
    assert ends == {}
