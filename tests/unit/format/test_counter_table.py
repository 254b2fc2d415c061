"""Samples of counters in a table of text."""

import pytest

from comminsight.errors import InputError
from comminsight.format.counter_table import is_counter_table, parse_counter_table

HEAD = "time_ns,host,device,counter,value"


def test_series_by_host_device_and_counter_in_order_of_time() -> None:
    text = f"{HEAD}\n20,n1,mlx5_0,symbol_error,7\n10,n1,mlx5_0,symbol_error,5\n10,n2,mlx5_0,x,1.5\n"
    found = parse_counter_table(text)
    assert [(one.host, one.counter, one.times_ns, one.values) for one in found.series] == [
        ("n1", "symbol_error", (10, 20), (5.0, 7.0)), ("n2", "x", (10,), (1.5,)),
    ]  # fmt: skip
    assert is_counter_table(text.encode())


def test_units_and_a_byte_order_mark() -> None:
    found = parse_counter_table(f"\ufeff{HEAD},unit\n10,n1,d,c,1,B\n")
    assert found.series[0].unit == "B"


@pytest.mark.parametrize(
    "line",
    ["x,n1,d,c,1", "1,n1,d,c", "1,n1,d,c,nan", "1,,d,c,1", "-1,n,d,c,1", "9" * 20 + ",n,d,c,1"],
)
def test_lines_that_are_no_samples_are_counted(line: str) -> None:
    found = parse_counter_table(f"{HEAD}\n{line}\n1,n1,d,c,1\n")
    assert (len(found.series), found.n_bad) == (1, 1)


@pytest.mark.parametrize(("text", "said"), [("a,b\n1,2\n", "another header"), (HEAD, "no sample")])
def test_nothing_in_it_is_an_error(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_counter_table(text, path="c.csv")
