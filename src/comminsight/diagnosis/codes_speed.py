"""Message codes of the rules on speed; see codes.py."""

from __future__ import annotations

PAUSES = "evidence.pauses"
INPUT_WAIT = "evidence.input_wait"
LOAD_MOVES = "evidence.load_moves"
MISSING_HOST_STACKS = "missing.host_stacks"
MISSING_INPUT_WAITS = "missing.input_waits"
MISSING_DESIGN = "missing.design"
RECORD_INPUT = "action.record_input"
CHECK_COLLECTOR = "action.check_collector"
CHECK_INPUT = "action.check_input"
EVEN_LOAD = "action.even_load"

CODES: dict[str, tuple[str, ...]] = {
    # delays of single ranks, of about one length; spread between the 10th and 90th percentile
    PAUSES: ("n_pauses", "n_ranks", "n_steps", "length_ns", "spread_ns"),
    # share of the rank's delay that it waited for input longer than its peers
    INPUT_WAIT: ("rank", "ratio"),
    # in n_match of n_hit late steps the late rank had the most bytes, by ratio more than typical
    LOAD_MOVES: ("n_match", "n_hit", "ratio", "n_ranks"),
    MISSING_HOST_STACKS: (),
    MISSING_INPUT_WAITS: ("ranks",),
    # ranks that are slow together, and the place in the layout that they happen to be
    MISSING_DESIGN: ("ranks", "place"),
    RECORD_INPUT: (),
    CHECK_COLLECTOR: (),
    CHECK_INPUT: ("ranks",),
    EVEN_LOAD: (),
}
