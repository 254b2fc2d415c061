import numpy as np

from comminsight.model.event import OP_DTYPE, concatenate_rows, take_rows


def random_batch(n: int) -> np.ndarray:
    raw = np.random.default_rng(n).integers(0, 256, n * OP_DTYPE.itemsize, np.uint8)
    return raw.view(OP_DTYPE)


def test_rows_taken_as_words_are_the_rows() -> None:
    batch = random_batch(9)
    rows = np.array([7, 0, 0, 8])
    assert take_rows(batch, rows).tobytes() == batch[rows].tobytes()
    assert take_rows(batch[::2], np.array([1])).tobytes() == batch[2:3].tobytes()
    assert take_rows(batch, np.empty(0, np.intp)).dtype == OP_DTYPE


def test_parts_joined_as_words_are_the_parts() -> None:
    batch = random_batch(9)
    assert concatenate_rows([batch[:3], batch[3:3], batch[5:]]).tobytes() == (
        batch[:3].tobytes() + batch[5:].tobytes()
    )
    assert concatenate_rows([]).dtype == OP_DTYPE
