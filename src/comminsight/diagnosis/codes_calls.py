"""Codes of the rules on what ranks called, and on work that keeps one away; see codes.py."""

from __future__ import annotations

COMMON_PREFIX = "evidence.common_prefix"
CALL_SITE = "evidence.call_site"
CALL_FORM = "evidence.call_form"
SHAPE_DIFFERS = "evidence.shape_differs"
SKIPPED_CALLS = "evidence.skipped_calls"
EXTRA_CALLS = "evidence.extra_calls"
PERMUTED_CALLS = "evidence.permuted_calls"
PATTERN = "evidence.pattern"
GENERATED_CODE = "evidence.generated_code"
DOES_WORK = "evidence.does_work"
WORK_LOGGED = "evidence.work_logged"
NEVER_USED = "evidence.never_used"
API_AGREES = "evidence.api_agrees"
SLICE_SIZES = "evidence.slice_sizes"
SETTING_DIFFERS = "evidence.setting_unlike"
SETTING_UNSET = "evidence.setting_unset"
VERSIONS_DIFFER = "evidence.versions_differ"
FINGERPRINT = "evidence.fingerprint"
GLOO_SIZES = "evidence.gloo_sizes"
SIZE_EXCHANGE = "evidence.size_exchange"
NOTIFY_TIMEOUT = "evidence.notify_timeout"
CONNECT_TIMEOUT = "evidence.connect_timeout"
NOTHING_PENDING = "evidence.nothing_pending"
SERVING_RATE = "evidence.serving_rate"
KERNEL_OPEN = "evidence.kernel_open"
ON_CPU_GROUP = "evidence.on_cpu_group"
FROZEN = "evidence.frozen"
WENT_THROUGH = "evidence.went_through"

MISSING_RIGHT_PATH = "missing.right_path"
MISSING_CALL_SITES = "missing.call_sites"
MISSING_CALL_LINES = "missing.call_lines"
MISSING_LINE_NUMBERS = "missing.line_numbers"
MISSING_ENVIRONMENT = "missing.environment"
MISSING_SENDER = "missing.sender"
MISSING_LINK_STATE = "missing.link_state"
MISSING_HOST_STATE = "missing.host_state"

CALL_ON_ALL = "action.call_on_all"
SAME_ORDER = "action.same_order"
RAISE_TIMEOUT = "action.raise_timeout"
DIFF_ENVIRONMENT = "action.diff_environment"
CHECK_ORDERING = "action.check_ordering"
CHECK_CPU_NETWORK = "action.check_cpu_network"
LOOK_AT_HOST = "action.look_at_host"
COMPARE_SHAPES = "action.compare_shapes"
READ_FIRST_NOTIFY = "action.read_first_notify"
DOUBT_RESULTS = "action.doubt_results"

CODES: dict[str, tuple[str, ...]] = {
    # the first n_ops known of the communicator are the same on all members that are compared
    COMMON_PREFIX: ("comm", "n_ops"),
    # frame: a function of the program, as a dump has it
    CALL_SITE: ("ranks", "frame"),
    # functions that take their tensors in unlike forms: a list of them, or one flat tensor
    CALL_FORM: ("ranks", "call"),
    # dim counts from 0
    SHAPE_DIFFERS: ("ranks", "others", "shape", "other_shape", "dim", "by"),
    # without n_ops calls of the others their next n_matched calls are the same
    SKIPPED_CALLS: ("ranks", "n_ops", "n_matched"),
    EXTRA_CALLS: ("ranks", "n_ops", "n_matched"),
    PERMUTED_CALLS: ("ranks", "n_ops"),
    # what the others do goes on with what all of them did n_repeats times, period calls each
    PATTERN: ("ranks", "period", "n_repeats"),
    GENERATED_CODE: ("ranks", "frame"),
    # work is a code of its own
    DOES_WORK: ("ranks", "work", "frame"),
    # lines of its log that were written while the others waited; the last one is in Evidence.text
    WORK_LOGGED: ("rank", "work", "n_lines"),
    NEVER_USED: ("ranks", "comm"),
    API_AGREES: ("n_ranks", "n_ops"),
    SLICE_SIZES: ("first_bytes", "second_bytes", "source"),
    # sources are ranks where they are known, else processes
    SETTING_DIFFERS: ("name", "value", "sources"),
    SETTING_UNSET: ("name", "sources"),
    VERSIONS_DIFFER: ("version", "sources"),
    FINGERPRINT: ("ranks", "op", "shape", "dtype"),
    GLOO_SIZES: ("received_bytes", "expected_bytes", "source"),
    # as small as the exchange of sizes before an exchange of objects
    SIZE_EXCHANGE: ("size_bytes",),
    NOTIFY_TIMEOUT: ("ranks", "remote_rank"),
    CONNECT_TIMEOUT: ("ranks", "remote_rank"),
    # none of the ranks has an op in flight
    NOTHING_PENDING: ("n_ranks",),
    SERVING_RATE: ("tokens_per_s", "n_running", "source"),
    KERNEL_OPEN: ("ranks", "kernel"),
    ON_CPU_GROUP: ("comm",),
    # its recorder, which has a thread of its own, shows no sign; those of the other members do
    FROZEN: ("rank", "silent_ns"),
    # unlike ops that ended well on all members, of the calls that could be compared
    WENT_THROUGH: ("comm", "n_ops", "n_compared"),
    # which of the paths was meant
    MISSING_RIGHT_PATH: ("ranks",),
    MISSING_CALL_SITES: ("ranks",),
    MISSING_CALL_LINES: (),
    # nothing tells whether lines are missing between those of these ranks
    MISSING_LINE_NUMBERS: ("ranks",),
    MISSING_ENVIRONMENT: (),
    MISSING_SENDER: (),
    MISSING_LINK_STATE: ("ranks",),
    MISSING_HOST_STATE: (),
    CALL_ON_ALL: ("ranks", "op"),
    SAME_ORDER: ("ranks",),
    RAISE_TIMEOUT: ("ranks",),
    DIFF_ENVIRONMENT: (),
    CHECK_ORDERING: (),
    CHECK_CPU_NETWORK: ("comm",),
    LOOK_AT_HOST: (),
    COMPARE_SHAPES: ("ranks",),
    READ_FIRST_NOTIFY: (),
    DOUBT_RESULTS: (),
}
