"""Rules: measures and hang evidence go in, verdicts come out. Thresholds live here.

Nothing is printed and no sentence is made: a verdict carries the codes of ``codes.CODES``. A
rule that lacks evidence says so (``NO_VERDICT`` with ``missing``); it never names a rank it
cannot prove.
"""
