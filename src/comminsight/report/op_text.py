"""One op as text: what it is, then its layers from the call to the network, missing ones named."""

from __future__ import annotations

from collections.abc import Iterator

from comminsight.model.verdict import MessageParam
from comminsight.model.views import OpStories, OpStory
from comminsight.report import numbers
from comminsight.report.catalogue import Catalogue
from comminsight.report.page import Page

MAX_RANKS = 8
UNBOUNDED_NS = (1 << 32) - 1  # of a clock error: nothing bounds it
CHANNEL_LISTS = frozenset({"channels_begun", "channels_running", "channels_ended"})
CODED = frozenset({"send_wait", "receive_wait"})
WORDED = frozenset({"timing"})


def render_op(view: OpStories, *, lang: str = "en", width: int = 80, color: bool = False) -> str:
    """The op on each rank that has it, at most ``MAX_RANKS``; plain text unless ``color``."""
    page = Page(lang=lang, width=width, color=color)
    words = page.words
    for number, story in enumerate(view.ops[:MAX_RANKS]):
        if number:
            page.sentence("")
        _write_story(page, story)
    if len(view.ops) > MAX_RANKS:
        page.sentence("")
        page.bullets([words.text("note.more_ranks", n=len(view.ops) - MAX_RANKS)])
    return page.text()


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
    if name in CODED:
        return words.text(str(value))
    if name in WORDED:
        return words.word("timing", str(value))
    if name in CHANNEL_LISTS and isinstance(value, list | tuple):
        return numbers.rank_list([int(channel) for channel in value])
    return value if isinstance(value, str) else numbers.quantity(name, value)
