"""The law of causal chains: eight levels in order, each unknown or with evidence that opens."""

from __future__ import annotations

import re
from collections.abc import Sequence

from comminsight.model.reference import parse_reference
from comminsight.model.verdict import ChainLevel, ChainLink

MEASURE = re.compile(r"[a-z_]+=-?\d+(\.\d+)?")


def faults(chain: Sequence[ChainLink]) -> list[str]:
    """What is against the law in a chain; [] where it holds."""
    found = [] if [link.level for link in chain] == list(ChainLevel) else ["levels"]
    for link in chain:
        is_known = link.value.lower() not in {"", "unknown"}
        is_open = parse_reference(link.evidence) is not None or MEASURE.fullmatch(link.evidence)
        if is_known != bool(is_open) or (not is_known and link.value != "unknown"):
            found.append(f"{link.level}: {link.value!r} by {link.evidence!r}")
    return found
