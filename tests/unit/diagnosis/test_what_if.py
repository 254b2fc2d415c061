from __future__ import annotations

import pytest

from comminsight.diagnosis.what_if import CLOCK, FEW_STEPS, MAY_WAIT, NO_PEERS, WIDE, cannot_tell

STEP = 1000.0


@pytest.mark.parametrize(
    ("bounds", "told", "code"),
    [
        ((280, 300, 330), {}, None),
        ((0, 0, 90), {}, None),  # at most 9 %: nothing much to gain
        ((0, 0, 130), {}, WIDE),
        ((0, 40, 150), {}, WIDE),
        ((100, 300, 390), {}, None),  # wide, but there is a gain
        ((100, 300, 450), {}, WIDE),  # not known to a factor
        ((280, 300, 330), {"n_steps": 4}, FEW_STEPS),
        ((0, 0, 0), {"has_peers": False}, NO_PEERS),
        ((45, 50, 55), {"idle_ns": 400.0}, MAY_WAIT),
        ((1, 2, 3), {"idle_ns": 400.0}, None),  # nobody waits long for what gains next to nothing
        ((280, 300, 330), {"idle_ns": 100.0}, None),
        ((45, 50, 55), {"clock_error_ns": 60}, CLOCK),
        ((45, 50, 55), {"clock_error_ns": 40}, None),
        ((0, 0, 5), {"clock_error_ns": 60}, None),  # at most next to nothing, with any clock
    ],
)
def test_bounds_that_decide_nothing_are_called_so(
    bounds: tuple[float, float, float], told: dict[str, float], code: str | None
) -> None:
    reason = cannot_tell(*bounds, **{"step_ns": STEP, "n_steps": 20, **told})
    assert (reason.code if reason else None) == code
