import numpy as np

from comminsight.model.splitmix import splitmix64


def test_the_first_numbers_of_seed_0() -> None:
    assert [f"{number:016x}" for number in splitmix64(np.array([1, 2, 3])).tolist()] == [
        "e220a8397b1dcdaf", "6e789e6aa1b965f4", "06c45d188009454f",
    ]  # fmt: skip
