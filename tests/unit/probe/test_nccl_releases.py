"""Which known peculiarities a release has, and that the list can be shown."""

import pytest

from comminsight.errors import FormatError
from comminsight.model.checkup import Standing
from comminsight.probe.nccl_releases import about, known_releases, parse_releases, version_of
from comminsight.report.catalogue import LANGUAGES, catalogue


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.27.3", (2, 27, 3)),
        ("2.30", (2, 30, 0)),
        ("2.31.2+cuda13.0", (2, 31, 2)),
        ("2", ()),
        ("", ()),
        ("unknown", ()),
    ],
)
def test_versions(text, version):
    assert version_of(text) == version


@pytest.mark.parametrize(
    ("text", "problems", "others"),
    [
        ("2.26.2", {"no_table"}, set()),
        ("2.27.3", {"no_path"}, {"polling_proxy"}),
        ("2.27.5", set(), {"polling_proxy"}),
        ("2.27.7", set(), {"polling_proxy", "append_warning"}),
        ("2.28.9", set(), {"polling_proxy", "init_must_not_fail"}),
        ("2.30.7", set(), {"polling_proxy"}),
        ("2.31.2", {"kernel_events_cost"}, set()),
        ("2.32.3", set(), set()),
        ("2.32.7", set(), {"untested"}),
        ("3.0.0", set(), {"untested"}),
    ],
)
def test_what_is_known_of_a_release(text, problems, others):
    found = about(version_of(text), known_releases())
    is_problem = {entry.id: entry.standing is Standing.PROBLEM for entry in found}
    assert {name for name, bad in is_problem.items() if bad} == problems
    assert {name for name, bad in is_problem.items() if not bad} == others


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_entry_says_what_and_all_but_the_harmless_say_what_to_do(lang):
    known = catalogue(lang).templates
    told = {code.split(".")[1] for code in known if code.startswith("nccl_release.")}
    remedied = {code.split(".")[1] for code in known if code.startswith("nccl_remedy.")}
    assert told == {entry.id for entry in known_releases()}
    harmful = {e.id for e in known_releases() if e.standing is not Standing.OK}
    assert remedied == harmful


ENTRY = '[[release]]\nid = "a"\nfrom = "2.1"\nuntil = ""\nstanding = "ok"\nsource = "b"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("release = 1", "release"),
        (ENTRY + 'more = "x"\n', "more"),
        (ENTRY.replace('"ok"', '"fine"'), "fine"),
        (ENTRY.replace("2.1", "two"), "'two' of a is no version"),
        ("[[release]", "list.toml"),
    ],
)
def test_a_bad_list_is_refused_by_name(text, complaint):
    with pytest.raises(FormatError, match=complaint) as caught:
        parse_releases(text, "list.toml")
    assert caught.value.path == "list.toml"


def test_a_good_list():
    (entry,) = parse_releases(ENTRY)
    assert (entry.first, entry.until, entry.standing) == ("2.1", "", Standing.OK)
