"""A forked child never touches what its parent recorded, and records only what is its own."""

from __future__ import annotations

import pytest

from tests.unit.native.reading import read_box, read_session

# fork() runs the handlers; the bare system call does not, and only the wiped page tells the child.
FORKS = {"fork": "os.fork()", "bare": "ctypes.CDLL(None).syscall(57)"}
BARE_ONLY_X86 = pytest.mark.skipif(
    "__import__('platform').machine() != 'x86_64'", reason="number of fork on x86_64"
)


@pytest.mark.parametrize("how", ["fork", pytest.param("bare", marks=BARE_ONLY_X86)])
def test_child_is_inert_until_it_has_a_communicator(stage, how):
    told = stage.run(f"""
        c = d.register(1, desc=b"parent")
        d.ops(c, 10)
        open_op = d.begin(c)
        d.flush()
        r, w = os.pipe()
        pid = {FORKS[how]}
        if pid == 0:
            before = (d.ops(c, 3), d.end(open_op), d.inert, d.box, d.close(), d.flush())
            own = d.register(2, desc=b"child")
            foreign = d.ops(c, 4)
            done = d.ops(own, 5)
            d.flush()
            tell(before=before, own=own, foreign=foreign, done=done, child_box=d.box,
                 child=d.stats(), child_pid=os.getpid())
            d.close()
            os._exit(0)
        os.waitpid(pid, 0)
        tell(after=d.ops(c, 10), late=d.end(open_op), box=d.box, stats=d.stats(), closed=d.close())
    """)
    assert told["before"] == [0, 0, "forked: no communicator of its own yet", "", 0, 0]
    assert (told["own"], told["foreign"], told["done"]) == (0x10001, 0, 5)
    assert told["child"]["fork_depth"] == 1
    assert told["child"]["by_reason"][13] == 3 + 4  # FORKED: before and after it had a box
    assert (told["after"], told["late"], told["stats"]["lost"]) == (10, 1, 0)
    streams = {s.comms["desc"][0]: s for s in map(read_session, stage.sessions())}
    assert len(streams[b"parent"].of(1)) == 21
    assert len(streams[b"child"].of(1)) == 5
    assert streams[b"child"].records["comm_index"].max() == 1
    child, parent = read_box(told["child_box"]), read_box(told["box"])
    assert (child.header["pid"], child.header["state"]) == (told["child_pid"], 2)
    assert parent.ring[parent.ring["kind"] == 1]["op_seq"].tolist() == [
        *range(1, 11),
        *range(12, 22),
        11,
    ]


def test_many_children_of_a_busy_parent(stage):
    told = stage.run("""
        import threading
        c = d.register(1)
        stop, counts = False, [0, 0]
        def work(i):
            while not stop:
                counts[i] += d.ops(c, 100)
                time.sleep(0.001)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for t in threads: t.start()
        import warnings
        warnings.simplefilter("ignore")
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                d.ops(c, 50)
                os._exit(0 if d.box == "" else 1)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        for t in threads: t.join()
        tell(done=sum(counts), flushed=d.flush(), stats=d.stats(), closed=d.close())
    """)
    assert told["flushed"] == 0
    assert len(stage.stream().of(1)) == told["done"] == told["stats"]["ops_recorded"]


def test_fork_beside_the_first_registration_leaves_no_locked_lock(stage):
    told = stage.run("""
        import threading, warnings
        warnings.simplefilter("ignore")
        codes = []
        started = threading.Event()
        def register():
            started.set()
            ctypes.CDLL(str(LIBRARY)).ci_comm_register(1, b"", b"", 0, 1, None, 2, 0)
        thread = threading.Thread(target=register)
        thread.start()
        started.wait()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if d.register(2) else 1)
            codes.append(os.waitpid(pid, 0)[1])
        thread.join()
        tell(codes=codes, closed=d.close())
    """)
    assert told["codes"] == [0] * 20
