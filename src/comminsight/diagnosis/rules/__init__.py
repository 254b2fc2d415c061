"""Every rule on the evidence of a job, in one list: where two findings stand side by side, that of
the earlier rule is told first."""

from __future__ import annotations

from comminsight.diagnosis.claim import Rule
from comminsight.diagnosis.rules.hang import hang_rule
from comminsight.diagnosis.rules.recorded import recorded_rule

RULES: tuple[Rule, ...] = (
    recorded_rule,
    hang_rule,
)
