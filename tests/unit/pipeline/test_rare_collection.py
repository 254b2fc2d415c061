"""How often cycles are looked for is changed inside alone."""

import gc
from collections.abc import Iterator

import pytest

from comminsight.pipeline.rare_collection import OBJECTS_BETWEEN, rare_collection


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("own", [(700, 10, 10), (1, 5, 7)])
def test_it_is_as_before_afterwards(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rare_collection():
        assert gc.get_threshold() == (OBJECTS_BETWEEN, *own[1:])
        with rare_collection():
            assert gc.get_threshold() == (OBJECTS_BETWEEN, *own[1:])
        assert gc.get_threshold() == (OBJECTS_BETWEEN, *own[1:])
    assert gc.get_threshold() == own


def test_an_error_leaves_it_as_before() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(KeyError), rare_collection():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (OBJECTS_BETWEEN + 1, 10, 10)])
def test_who_asked_for_fewer_or_none_keeps_that(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with rare_collection():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own
