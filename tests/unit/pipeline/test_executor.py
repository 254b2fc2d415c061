"""One result per item, whatever happens to the workers. The tasks are real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.pipeline.executor import Err, Executor, Ok, PoolExecutor, SerialExecutor


def task(item: tuple[str, str]) -> str:
    """Does what the item says; every start is a line in the item's file."""
    what, place = item
    with Path(place).open("a") as file:
        file.write(f"{os.getpid()}\n")
    n_starts = len(Path(place).read_text().splitlines())
    if what == "kill" or (what == "kill once" and n_starts == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "bad input":
        raise InputError("is no segment", path=place)
    if what == "fail" or (what == "fail twice" and n_starts <= 2):
        raise OSError(f"attempt {n_starts}")
    return what


@pytest.fixture(params=["serial", "pool"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made: Executor = SerialExecutor() if request.param == "serial" else PoolExecutor(2)
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[PoolExecutor]:
    made = PoolExecutor(2)
    yield made
    made.close()


def items(folder: Path, *what: str) -> list[tuple[str, str]]:
    return [(word, str(folder / f"{number}")) for number, word in enumerate(what)]


def starts(item: tuple[str, str]) -> int:
    return len(Path(item[1]).read_text().splitlines())


def told(executor: Executor, wanted: list[tuple[str, str]], **options: int) -> dict[str, str]:
    results = list(executor.map_unordered(task, iter(wanted), **options))
    assert sorted(result.key for result in results) == sorted(wanted)
    return {
        result.key[0]: result.value if isinstance(result, Ok) else f"Err: {result.message}"
        for result in results
    }


def test_no_items_give_no_results(executor: Executor) -> None:
    assert list(executor.map_unordered(task, [])) == []


def test_errors_are_results_and_only_those_that_may_pass_are_tried_again(
    executor: Executor, tmp_path: Path
) -> None:
    wanted = items(tmp_path, "ok", "bad input", "fail", "fail twice")
    assert told(executor, wanted) == {
        "ok": "ok",
        "bad input": f"Err: {tmp_path}/1: is no segment",
        "fail": "Err: OSError: attempt 3",
        "fail twice": "fail twice",
    }
    assert [starts(item) for item in wanted] == [1, 1, 3, 3]
    assert told(executor, items(tmp_path, "-", "-", "fail"), retries=0)["fail"] == (
        "Err: OSError: attempt 4"
    )


def test_a_task_that_kills_its_worker_is_given_up_and_no_other(
    pool: PoolExecutor, tmp_path: Path
) -> None:
    wanted = items(tmp_path, *[f"ok {n}" for n in range(6)], "kill", "kill once", "ok", "fail")
    found = told(pool, wanted)
    assert found.pop("kill") == "Err: killed its worker 2 times"
    assert found.pop("fail") == "Err: OSError: attempt 3"
    assert found == {word: word for word, _ in wanted if word not in {"kill", "fail"}}
    assert 2 <= starts(wanted[6]) <= 3  # among others at first, then twice alone
    assert told(pool, items(tmp_path, "again")) == {"again": "again"}  # it goes on after that


def test_a_worker_that_somebody_kills_costs_nothing(pool: PoolExecutor, tmp_path: Path) -> None:
    wanted = items(tmp_path, *[f"ok {n}" for n in range(40)])
    results = []
    for result in pool.map_unordered(task, wanted):
        results.append(result)
        if len(results) == 10:
            os.kill(int(Path(result.key[1]).read_text().split()[-1]), signal.SIGKILL)
    assert not [result for result in results if isinstance(result, Err)]
    assert sorted(result.key for result in results) == sorted(wanted)


def test_the_workers_are_other_processes(pool: PoolExecutor, tmp_path: Path) -> None:
    wanted = items(tmp_path, *["ok"] * 20)
    assert len(list(pool.map_unordered(task, wanted))) == 20
    pids = {int(Path(place).read_text()) for _, place in wanted}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


SCRIPT = """
from comminsight.pipeline.executor import PoolExecutor

def double(number):
    return 2 * number

def work():
    pool = PoolExecutor(2)
    print(sorted(result.value for result in pool.map_unordered(double, [1, 2, 3])))
    pool.close()
"""


def run_script(path: Path, ending: str) -> subprocess.CompletedProcess[str]:
    path.write_text(SCRIPT + ending)
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_script_that_works_while_it_is_imported_is_told_what_to_write(tmp_path: Path) -> None:
    done = run_script(tmp_path / "script.py", "work()\n")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert "UsageError: a worker died before it did anything" in said
    assert "freeze_support" not in done.stderr
    handled = run_script(
        tmp_path / "handled.py",
        "try:\n    work()\nexcept Exception as error:\n    print(error.next_step)\n",
    )
    assert handled.stdout.rstrip().endswith('if __name__ == "__main__":')


def test_a_script_with_the_guard_works(tmp_path: Path) -> None:
    done = run_script(tmp_path / "script.py", 'if __name__ == "__main__":\n    work()\n')
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2, 4, 6]\n", "")
