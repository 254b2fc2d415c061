"""Every rule on the evidence of a job, in one list: where two findings stand side by side, that of
the earlier rule is told first."""

from __future__ import annotations

from comminsight.diagnosis.claim import Rule
from comminsight.diagnosis.rules.arrival import arrival_rule
from comminsight.diagnosis.rules.dark import dark_rule
from comminsight.diagnosis.rules.data_holes import data_holes_rule
from comminsight.diagnosis.rules.data_stamps import data_stamps_rule
from comminsight.diagnosis.rules.exposure import exposure_rule
from comminsight.diagnosis.rules.hang import hang_rule
from comminsight.diagnosis.rules.no_overlap import no_overlap_rule
from comminsight.diagnosis.rules.rank_ends import rank_ends_rule
from comminsight.diagnosis.rules.recorded import recorded_rule
from comminsight.diagnosis.rules.small_messages import small_messages_rule

RULES: tuple[Rule, ...] = (
    recorded_rule,
    hang_rule,
    rank_ends_rule,
    data_stamps_rule,
    data_holes_rule,
    arrival_rule,
    exposure_rule,
    no_overlap_rule,
    small_messages_rule,
    dark_rule,
)
