"""Measures of a run, without thresholds: matching, clocks, waits and blame over numpy columns."""
