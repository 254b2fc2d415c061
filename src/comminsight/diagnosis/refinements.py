"""What evidence of other kinds makes of the verdict on a hang, in one list: each entry takes the
verdict as the one before left it, and gives it back as it is where it has nothing to say.

They add what people need to act (a flag, a frame, a kernel, a host), and may name the cause more
closely.
"""

from __future__ import annotations

from collections.abc import Callable

from comminsight.diagnosis.blocking_launch import with_blocking_launch
from comminsight.diagnosis.compiled_step import with_compiler
from comminsight.diagnosis.first_use import with_first_use
from comminsight.diagnosis.message_order import with_message_order
from comminsight.diagnosis.outside_kernel import with_outside_kernel
from comminsight.diagnosis.pairs_apart import with_pairs_apart
from comminsight.diagnosis.printed_first import with_printed_first
from comminsight.diagnosis.spinning import with_spinning
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Verdict

Refine = Callable[[Verdict, JobEvidence], Verdict]

REFINEMENTS: tuple[Refine, ...] = (
    with_message_order,
    with_pairs_apart,
    with_compiler,
    with_outside_kernel,
    with_blocking_launch,
    with_first_use,
    with_printed_first,
    with_spinning,
)
