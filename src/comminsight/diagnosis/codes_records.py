"""Message codes of the verdicts on the quality of our own records; see codes.py."""

from __future__ import annotations

RECORDS_REVERSED = "evidence.records_reversed"
RECORDS_ZERO = "evidence.records_zero"
RECORDS_ABSURD = "evidence.records_absurd"
END_BEFORE_ENTRY = "evidence.end_before_entry"
END_DRIFT = "evidence.end_drift"
BAD_FRAMES = "evidence.bad_frames"
BAD_VALUES = "evidence.bad_values"
UNSEEN_RANKS = "evidence.unseen_ranks"
SEQ_HOLES = "evidence.seq_holes"
OVERWRITTEN = "evidence.overwritten"
LOST_OPS = "evidence.lost_ops"
FILTERED = "evidence.filtered"
UNREAD_FILES = "evidence.unread_files"
MISSING_SOUND = "missing.sound_stamps"
ALL_FILES = "action.all_files"
NO_FILTER = "action.no_filter"

CODES: dict[str, tuple[str, ...]] = {
    RECORDS_REVERSED: ("ranks", "n", "shift_ns"),
    RECORDS_ZERO: ("ranks", "n"),
    RECORDS_ABSURD: ("ranks", "n", "size_bytes"),
    # n of n_ops collectives; the ranks whose ends lie farthest from the others
    END_BEFORE_ENTRY: ("ranks", "n", "n_ops", "shift_ns"),
    END_DRIFT: ("rank", "ratio", "shift_ns"),
    # parts whose checksum is wrong, records with impossible values
    BAD_FRAMES: ("ranks", "n"),
    BAD_VALUES: ("ranks", "n"),
    UNSEEN_RANKS: ("ranks", "n_ranks"),
    # arrival numbers: how many are missing, in how many holes, the longest, and where
    SEQ_HOLES: ("rank", "n", "n_holes", "longest", "first", "last"),
    OVERWRITTEN: ("ranks", "n"),
    LOST_OPS: ("ranks", "n", "ratio"),
    FILTERED: ("ranks", "n", "ratio"),
    UNREAD_FILES: ("ranks", "n"),
    MISSING_SOUND: ("ranks",),
    ALL_FILES: (),
    NO_FILTER: (),
}
