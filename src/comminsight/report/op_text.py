"""One op as text: what it is, then its layers from the call to the network, missing ones named."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.model.event import UNBOUNDED_NS
from comminsight.model.verdict import MessageParam
from comminsight.model.views import OpStories, OpStory
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Page

MAX_RANKS = 8
CHANNEL_LISTS = frozenset({"channels_begun", "channels_running", "channels_ended"})
CODED = frozenset({"send_wait", "receive_wait"})
WORDED = frozenset({"timing"})
NAMES = {"stream_id": "{:#x}", "user_tag": "{:#x}", "group_id": "{}", "func_seq": "{}"}


def render_op(view: OpStories, *, lang: str = "en", width: int = 80, color: bool = False) -> str:
    """The op on each rank that has it, at most ``MAX_RANKS``; plain text unless ``color``."""
    page = Page(lang=lang, width=width, color=color)
    words = page.words
    for line in overview(view, words):
        page.sentence(line)
    for story in view.ops[:MAX_RANKS]:
        if page.text():
            page.sentence("")
        _write_story(page, story)
    if len(view.ops) > MAX_RANKS:
        page.sentence("")
        page.bullets([words.text("note.more_ranks", n=len(view.ops) - MAX_RANKS)])
    return page.text()


def overview(view: OpStories, words: Catalogue) -> Iterator[str]:
    """Who called it last, and which members have no trace of it; nothing for a single member."""
    if len(view.ops) > 1:
        yield from _spread(view, words)
    alike: dict[tuple[str, int], list[int]] = {}
    for one in view.absent:
        code = "not_called" if one.is_whole else "not_seen" if one.has_records else "no_records"
        alike.setdefault((code, one.last_op_seq), []).append(one.global_rank)
    for (code, last), ranks in alike.items():
        yield words.text(f"op.{code}", ranks=ranks, last=last)


def _spread(view: OpStories, words: Catalogue) -> Iterator[str]:
    calls = sorted((story.started_real_ns, story.global_rank) for story in view.ops)
    spread_ns = calls[-1][0] - calls[0][0]
    code = "op.called" if len({story.host for story in view.ops}) == 1 else "op.called_nodes"
    yield words.text(
        code, ranks=[rank for _, rank in calls], spread_ns=spread_ns, last=calls[-1][1],
        first=calls[0][1],
    )  # fmt: skip
    if open_ranks := [story.global_rank for story in view.ops if story.stage]:
        yield words.text("op.still_open", ranks=open_ranks)


def _write_story(page: Page, story: OpStory) -> None:
    words = page.words
    page.sentence(
        words.text(
            "heading.op", op=story.op, match_seq=story.match_seq, comm=story.comm_label,
            rank=story.global_rank, state=words.word("state", story.state),
        ),
        style="bold cyan",
    )  # fmt: skip
    page.fields(_identity(story, words))
    for layer in story.layers:
        page.heading(f"layer_{layer.name}")
        if layer.is_seen:
            page.fields((name, _shown(name, value, words)) for name, value in layer.facts.items())
        if not layer.is_seen or not layer.facts:
            page.bullets([words.text(layer.reason or "layer.bare")])


def _identity(story: OpStory, words: Catalogue) -> Iterator[tuple[str, str]]:
    yield "node", story.host
    yield "op_seq", _range(story)
    yield "folded", words.text("op.folded", n=story.n_calls) if story.n_calls > 1 else ""
    yield "size", " ".join(filter(None, [numbers.size(story.size_bytes), story.dtype]))
    yield "reduction", story.red_op
    yield "peer", str(story.peer) if story.peer >= 0 else ""
    yield "called", numbers.instant(story.started_real_ns)
    yield "stage", words.text(story.stage) if story.stage else ""


def _range(story: OpStory) -> str:
    last = story.op_seq + story.n_calls - 1
    return str(story.op_seq) if last == story.op_seq else f"{story.op_seq}-{last}"


def _shown(name: str, value: MessageParam, words: Catalogue) -> str:
    if name == "clock_error_ns" and value == UNBOUNDED_NS:
        return words.text("layer.unbounded")
    if name in NAMES and isinstance(value, int):
        return NAMES[name].format(value)
    if name in CODED:
        return words.text(str(value))
    if name in WORDED:
        return words.word("timing", str(value))
    if name in CHANNEL_LISTS and isinstance(value, list | tuple):
        return numbers.rank_list([int(channel) for channel in value])
    return value if isinstance(value, str) else numbers.quantity(name, value)
