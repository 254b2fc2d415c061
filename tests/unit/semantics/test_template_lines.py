"""Lines of keys and words in the text of a template file."""

from __future__ import annotations

import pytest

from comminsight.semantics.template_lines import FILE, SourceLines

TEXT = """\
# open = not this
file_version = 1

[[template]]
name = "one"
requires = [
  { op = "SEND" }, # { op = "RECV" }
  { op = "RECV" },
]
open = [{ op = "SEND" }]
[[ template ]]
name = "two"
"open" = [
  { op = "SEND", count = 12 }, { op = "SENT", count = 1 },
]
"""


@pytest.mark.parametrize(
    ("template", "keys", "word", "line"),
    [
        (FILE, ("file_version",), None, 2),
        (FILE, (), None, 1),
        (0, (), None, 4),
        (0, ("name",), None, 5),
        (0, ("open",), None, 10),
        (0, ("open", "op"), "SEND", 10),
        (0, ("requires", "op"), "RECV", 7),
        (0, ("close",), None, 4),
        (1, ("open", "op"), "SENT", 14),
        (1, ("open", "count"), 1, 14),
        (1, ("open", "none"), None, 13),
        (2, ("open",), None, 0),
    ],
)
def test_a_key_or_word_is_found_on_its_line(
    template: int, keys: tuple[str, ...], word: object, line: int
) -> None:
    assert SourceLines(TEXT).of(template, keys, word) == line
