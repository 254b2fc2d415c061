from __future__ import annotations

import pytest

from comminsight.analysis.bus_id import bus_name, bus_number


@pytest.mark.parametrize("bus_id", ["0000:0b:00.0", "0001:c3:1f.7", "0000:00:02.1"])
def test_an_address_is_a_number_and_back(bus_id: str) -> None:
    assert bus_name(bus_number(bus_id)) == bus_id


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0000:3b:00.0", 0x3B000),
        ("00000000:3B:00.0", 0x3B000),
        ("0000:3b:00", 0x3B000),
        ("3b:00.1", 0x3B001),
        ("0001:00:00.0", 0x100000),
        ("b000", 0xB000),
        ("0xb000", 0xB000),
        ("gpu0", -1), ("none", -1), ("", -1), ("-1", -1), ("0000:3b", -1), ("1_0", -1),
    ],
)  # fmt: skip
def test_each_way_to_write_a_bus_id(text: str, number: int) -> None:
    assert bus_number(text) == number
