"""Verbs in this process, as a user's shell would call them."""

from __future__ import annotations

import pytest

from comminsight import cli


def call(capfd: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); a traceback fails the test."""
    code = cli.main([str(word) for word in argv])
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    assert "internal error" not in err
    return code, out, err
