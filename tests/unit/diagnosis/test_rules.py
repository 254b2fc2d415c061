"""Messages of the rules carry what they declare."""

from __future__ import annotations

import pytest

from comminsight.diagnosis import codes


def test_a_message_takes_exactly_the_declared_parameters() -> None:
    assert codes.message(codes.LEFT, rank=3).params == {"rank": 3}
    with pytest.raises(KeyError, match="takes"):
        codes.message(codes.LEFT, ranks=[3])


def test_every_code_is_declared_and_grouped() -> None:
    topics = [module for name, module in vars(codes).items() if name.startswith("codes_")]
    constants = {
        value
        for module in (codes, *topics)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    assert constants == set(codes.CODES)
    assert {code.split(".")[0] for code in constants} == {"evidence", "missing", "action"}


def test_no_code_is_declared_by_two_topics() -> None:
    """A later declaration would silently replace the other."""
    topics = [module for name, module in vars(codes).items() if name.startswith("codes_")]
    declared = [code for topic in topics for code in topic.CODES]
    assert len(topics) > 1
    assert sorted(set(declared)) == sorted(declared)
