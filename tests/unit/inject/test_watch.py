"""Whatever fails on our side, the job goes on and the op gets an end."""

from types import SimpleNamespace

import pytest

from comminsight_inject import codes
from comminsight_inject.watch import Form, Group, Watch

GLOO, OTHER = Group(1, 0, 2), Group(2, 0, 2, is_gloo=False)
SEND = Form(codes.OP_SEND, (), peer_or_root=1)
UNSEEN = (codes.STATE_UNOBSERVABLE, codes.TIMING_UNKNOWN)


class Recorder:
    """Counts handles; ``broken`` names the calls that raise."""

    def __init__(self, broken=()):
        self.broken, self.n_begun, self.ends = broken, 0, {}

    def _enter(self, name):
        if name in self.broken:
            raise OSError(name)

    def begin(self, *_):
        self._enter("begin")
        self.n_begun += 1
        return self.n_begun

    def launched(self, _):
        self._enter("launched")

    def end(self, handle, *how):
        self._enter("end")
        self.ends[handle] = how


class Future:
    def add_done_callback(self, callback):
        raise RuntimeError("the backend is going away")

    def done(self):
        return False


def work_type():
    class Work:
        def get_future(self):
            return Future()

        def wait(self):
            return True

    return Work


def watch_of(recorder, work):
    torch = SimpleNamespace(_C=SimpleNamespace(_collect_all=lambda futures: futures[0]))
    return Watch(recorder, torch, SimpleNamespace(Work=work))


@pytest.mark.parametrize("broken", [(), ("launched",)])
def test_an_op_for_whose_end_there_is_no_way_is_unobservable(broken):
    recorder, work = Recorder(broken), work_type()
    watch = watch_of(recorder, work)
    watch.follow(watch.begin(GLOO, SEND), GLOO, work(), "allreduce_")
    assert recorder.ends == {1: UNSEEN}
    watch.close()  # would wait for a callback that is still owed


@pytest.mark.parametrize("broken", [("end",), ("begin",), ("launched",), ("begin", "end")])
def test_a_recorder_that_raises_never_reaches_the_job(broken):
    recorder, work = Recorder(broken), work_type()
    watch = watch_of(recorder, work)
    for group in (GLOO, OTHER):
        mine = work()
        watch.follow(watch.begin(group, SEND), group, mine, "send")
        assert mine.wait() is True
    watch.failed(watch.begin(GLOO, SEND))
    watch.follow(watch.begin(GLOO, SEND), GLOO, None, "monitored_barrier_")
    watch.settle(1)
    watch.close()


def test_a_result_that_cannot_be_watched_leaves_the_wait_for_the_work():
    recorder, work = Recorder(), work_type()
    watch, mine = watch_of(recorder, work), work()
    watch.follow(watch.begin(OTHER, SEND), OTHER, mine, "reduce_scatter", result=object())
    mine.wait()
    assert recorder.ends == {1: (codes.STATE_DONE, codes.TIMING_HOST_WAIT)}
