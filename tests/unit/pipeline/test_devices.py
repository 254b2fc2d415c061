from dataclasses import replace

import pytest

from comminsight.pipeline.devices import devices
from tests.builders import comm_row, comm_rows
from tests.unit.pipeline.test_ends import session


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([(4, b"0000:1b:00.0"), (4, b"0000:1b:00.0")], "3 (0000:1b:00.0)"),
        ([(4, b""), (0, b"")], "3"),
        ([(0, b"0000:1b:00.0")], "0000:1b:00.0"),
        ([(1, b""), (2, b"")], None),  # several devices in one process
        ([(0, b"")], None),
    ],
)
def test_the_device_of_a_rank_is_what_all_its_rows_name(rows, name):
    comms = comm_rows(
        *(
            comm_row(i, device_number=number, pci_bus_id=bus_id)
            for i, (number, bus_id) in enumerate(rows, 1)
        )
    )
    assert devices([replace(session(2), comms=comms)]).get(2) == name
