"""What NCCL plays and what stands in the records afterwards: every scenario under every release it
applies to, through the real box and segments into our own readers.

One row is one scenario: where it applies, and the story of each place (see ``story``). The laws of
``agreement`` hold in all of them, for the ranks as processes and as threads of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.unit.nccl import agreement
from tests.unit.nccl.scenes import Place, Played, needs_program, play
from tests.unit.nccl.story import story

V4 = ("2.27", "2.28 shim v4")
V5 = ("2.28",)
V6 = ("2.29", "2.30")
V7 = ("2.31", "2.32")
API = V5 + V6 + V7  # calls are seen
ALL = V4 + API

pytestmark = needs_program


def is_call(call: dict) -> bool:
    """Seen by a release that shows calls."""
    return True


def is_task(call: dict) -> bool:
    """Seen by a release that shows tasks only."""
    return not call.get("unseen")


def is_direct(call: dict) -> bool:
    """Seen where replays are dark."""
    return not (call.get("replay") and call.get("unseen"))


@dataclass(frozen=True)
class Row:
    """``stories`` by place: ``"0 world"``, ``"* world"`` for all ranks, ``"0 world#1"`` for the
    second communicator of that name there."""

    scenario: str
    releases: tuple[str, ...]
    stories: dict[str, str]
    is_shown: Callable[[dict], bool] | None = None
    env: dict[str, str] = field(default_factory=dict)
    layouts: tuple[str, ...] = ("processes", "threads")


DEEP = {"COMMINSIGHT_NCCL_MASK": "deep"}
NET = {"COMMINSIGHT_NCCL_MASK": "net"}
PAIRS = {
    "0 world": "SEND:1 RECV:3 SEND:1 RECV:1 SEND:2 RECV:2 SEND:3 RECV:3 SEND:3 AR SEND:1 RECV:3",
    "1 world": "SEND:2 RECV:0 SEND:0 RECV:0 SEND:2 RECV:2 SEND:3 RECV:3 AR SEND:2 RECV:0",
}
# without calls the order inside a group is that of the tasks: sends and receives by distance
PAIRS_BY_DISTANCE = {
    "0 world": "SEND:1 RECV:3 SEND:1 RECV:1 SEND:2 RECV:2 SEND:3 RECV:3 SEND:3 AR SEND:1 RECV:3",
    "1 world": "SEND:2 RECV:0 SEND:2 RECV:2 SEND:3 RECV:3 SEND:0 RECV:0 AR SEND:2 RECV:0",
}
ALL_PAIRS = " ".join(f"SEND:{peer} RECV:{peer}" for peer in range(1, 10))
UNFOLDED = {"0 world": f"AR {ALL_PAIRS} {ALL_PAIRS} SEND:1 RECV:9"}
FOLDED = {
    "0 world": "AR A2A[18]*2 SEND:1 RECV:9",
    "9 world": "AR A2A[18]*2 SEND:0 RECV:8",
    "8 nine": " ".join(f"SEND:{peer} RECV:{peer}" for peer in range(8)),
}
NAMED = ("* none", "* empty", "* long", "* bad", "* plain")

ROWS = (
    Row("01_single", ALL, {"* world": "AR*4"}),
    Row("01_blocking_launch", ALL, {"0 world": "AR*3 SEND:1 RECV:1 AR"}),
    Row("01_tags", ALL, {"0 world": "AR AG SEND:1 RECV:1 AR"}),
    Row("02_channels", ALL, {"* world": "AR*5"}),
    Row("03_group", API, {"* world": "AR AG AR RS BC RD AR*2"}),
    Row("03_group", V4, {"* world": "AR AG BC AR RS AR*2 RD"}),
    Row("03_large_group", API, {"* world": "AR*101 BC?NO_TASK*3 AR"}),
    Row("03_large_group", V4, {"* world": "AR*102"}),
    Row("04_two_comms", ALL, {"* world": "AR*2", "* tp": "AG AR"}),
    Row("05_p2p", API, PAIRS),
    Row("05_p2p", V4, PAIRS_BY_DISTANCE),
    Row("05_fold", API, FOLDED),
    Row("05_fold", V4, UNFOLDED),
    Row("05_one_way", API, {"0 world": "RECV[17] SEND[17] AR", "3 world": "SEND:0 RECV:0 AR"}),
    Row("05_one_way", V4, {"3 world": "SEND:0 RECV:0 AR"}),
    Row("06_nonblocking", API, {"* world": "AR*3 AG AR"}),
    Row("06_nonblocking", V4, {"* world": "AR*4 AG"}),
    Row("07_graph", V4, {"* world": "AR*2 AG AR AG AR AG AR AG AR AG AR"}),
    Row("07_graph", API, {"* world": "AR AR@ AG@ AR@ AG@ AR@ AG@ AR@ AG@ AR@ AG@ AR"}),
    Row("07_graph_p2p", API, {"0 world": " ".join(["SEND:1@ RECV:2@ AR@"] * 3)}),
    Row("07_graph_p2p", V4, {"0 world": " ".join(["SEND:1 RECV:2 AR"] * 3)}),
    Row("07_host_stream", API, {"* world": "AR AR@ AR BC?NO_TASK AG BC?NO_TASK AG"}),
    Row("07_host_stream", V4, {"* world": "AR*3 AG*2"}),
    Row("07_host_stream_first", API, {"* world": "AR*4 BC?NO_TASK AR BC?NO_TASK AR"}),
    Row("07_host_stream_first", V4, {"* world": "AR*6"}),
    Row("07_graph_dark", ALL, {"* world": "AR*2"}, is_direct),
    Row("08_no_task", API, {"* world": "AR BC?NO_TASK AR AG?NO_TASK AR RS?NO_TASK"}),
    Row("08_no_task", V4, {"* world": "AR*3"}),
    Row("09_copy_engine", V6 + V7, {"* world": "AR AG?COPY_ENGINE*2 AR"}),
    Row("09_copy_engine", V5, {"* world": "AR AG?NO_TASK*2 AR"}),
    Row("09_copy_engine", V4, {"* world": "AR*2"}),
    Row("10_symmetric", V7, {"* world": "AR*3 AG AR"}),
    Row("10_symmetric", V5 + V6, {"* world": "AR AR?NO_TASK*2 AG?NO_TASK AR"}),
    Row("10_symmetric", V4, {"* world": "AR*2"}),
    Row("11_proxy", ALL, {"0 world": "AR SEND:1 RECV:1 AR*2"}, env=DEEP),
    Row("11_proxy", ALL, {"0 world": "AR SEND:1 RECV:1 AR*2"}, env=NET),
    Row("11_proxy_tail", ALL, {"0 world": "AR SEND:1 RECV:1"}, env=DEEP),
    Row("12_pxn", ALL, {"* world": "AR*2"}, env=DEEP),
    Row("13_split", ALL, {"* world": "AR*4", "* half": "AR*3"}),
    Row("14_abort", ALL, {"* world": "AR*3 AR! AG!", "* other": "AR*2"}),
    Row("15_same_hash", ALL, {"* world": "AR*2", "* world#1": "AR*3"}, layouts=("threads",)),
    Row("16_names", ALL, dict.fromkeys(NAMED, "AR"), layouts=("threads",)),
    Row("18_func_seq", ALL, {"* world": "AR AG AR BC AR AG RD RS"}),
    Row("19_dtypes", ALL, {"* world": "AR AG BC AR RS AG"}),
    Row("20_stamps", ALL, {"* world": "AR AR~*5 AR"}),
    Row("20_stop_first", ALL, {"* world": "AR AR?OVERTAKEN AR*2"}),
    Row("20_fused", ALL, {"* world": "AR*23"}),
    Row("21_fork", ALL, {"* world": "AR*5"}, layouts=("processes",)),
    Row("22_reload", ALL, {"* world": "AR*2", "* world#1": "AR*2", "* world#2": "AR*2"}),
)  # fmt: skip


def cases() -> list:
    """Every row under every release; in the other layout under the last release of each kind."""
    found = []
    for number, row in enumerate(ROWS):
        for release in row.releases:
            for layout in row.layouts if release in {"2.27", "2.30", "2.32"} else row.layouts[:1]:
                mask = "-".join(row.env.values())
                name = "-".join(
                    filter(None, (row.scenario, mask, release.replace(" ", "_"), layout))
                )
                found.append(pytest.param(row, release, layout, id=f"{number:02}-{name}"))
    return found


def matching(played: Played, key: str) -> list[Place]:
    """The places that a key of ``stories`` names."""
    rank, _, name = key.partition(" ")
    comm, _, life = name.partition("#")
    return [
        place for place in played.members
        if (rank in {"*", str(place.rank)}) and (place.comm, place.life) == (comm, int(life or 0))
    ]  # fmt: skip


@pytest.mark.parametrize(("row", "release", "layout"), cases())
def test_records_tell_what_was_played(row, release, layout, tmp_path):
    header = f"layout {layout}\n" if layout != row.layouts[0] else ""
    played = play(tmp_path, f"sequences/{row.scenario}", release, header=header, **row.env)
    for key, expected in row.stories.items():
        places = matching(played, key)
        told = {place: story(played.members[place].ops) for place in places}
        assert told == dict.fromkeys(places, expected)
        assert places
    is_shown = row.is_shown or (is_task if release in V4 else is_call)
    check_laws(played, is_shown, has_calls=release in API)


def check_laws(played, is_shown, *, has_calls):
    """The laws of ``agreement``; without calls the order inside a group is that of the tasks."""
    agreement.check_program(played)
    agreement.check_end(played)
    agreement.check_conservation(played, is_shown)
    agreement.check_matches(played)
    agreement.check_channels(played)
    if has_calls:
        agreement.check_calls(played, is_shown)
        agreement.check_times(played, is_shown)
