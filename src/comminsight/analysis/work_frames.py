"""What a stack says its rank is doing: work that ends by itself, or code that a compiler made.

A frame is text like ``save (trainer.py:12)``: the function, the file and the line. Told are only
names that mean the work itself. PyTorch calls recomputing activations a checkpoint too, and runs
what it compiled through frames of its compiler: neither is work of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple


class Work(StrEnum):
    """Work that keeps a rank from its collectives for a while, without a fault."""

    SAVE = "save"
    LOAD = "load"
    COMPILE = "compile"
    EVALUATE = "evaluate"
    DATA = "data"


class WorkFrame(NamedTuple):
    """``work`` and the frame that tells it."""

    work: Work
    frame: str


_FRAME = re.compile(
    r"\s*(?P<name>[^\s(]{1,256}) \((?P<file>[^()]{0,512}?)(?::(?P<line>\d{1,9}))?\)"
)
_FAULTHANDLER = re.compile(
    r'\s*File "(?P<file>[^"]{1,512})", line (?P<line>\d{1,9}) in (?P<name>\S+)'
)
_NAMES: tuple[tuple[Work, re.Pattern[str]], ...] = (
    (Work.SAVE, re.compile(r"(?:^|_)save(?:_(?!for_backward|on_cpu|tensor|log|metric|plot)|$)")),
    (Work.SAVE, re.compile(r"(?:write|dump)_(?:checkpoint|ckpt|shard|state|model)")),
    (Work.LOAD, re.compile(r"^(?:load|resume|restore)_(?:from_)?(?:checkpoint|ckpt|state|model)")),
    (Work.EVALUATE, re.compile(r"(?:^|_)(?:evaluate|evaluation|validate|validation)(?:_|$)")),
    (Work.DATA, re.compile(r"(?:^|_)(?:tokenize|preprocess|prepare_data)(?:_|$)")),
    (Work.DATA, re.compile(r"(?:^|_)build_(?:dataset|index|mapping)s?(?:_|$)")),
)
_FILES: tuple[tuple[Work, str, re.Pattern[str]], ...] = (
    (Work.COMPILE, "_inductor/compile_fx.py", re.compile("compile")),
    (Work.COMPILE, "_inductor/codecache.py", re.compile("")),
    (Work.COMPILE, "_inductor/graph.py", re.compile("")),
    (Work.COMPILE, "_inductor/scheduler.py", re.compile("")),
    (Work.COMPILE, "_inductor/async_compile.py", re.compile("")),
    (Work.COMPILE, "_dynamo/convert_frame.py", re.compile("compile|convert|transform")),
    (Work.COMPILE, "triton/compiler/compiler.py", re.compile("compile|make_ir")),
    (Work.DATA, "datasets/arrow_dataset.py", re.compile("map|filter")),
    *(
        (Work.LOAD, f"{file}.py", re.compile("^(?:load|resume|restore)$"))
        for file in ("checkpoint", "checkpointing", "checkpoints", "ckpt", "resume", "saver")
    ),
)
_NO_WORK = ("torch/utils/checkpoint.py",)
_LIBRARY = re.compile(
    r"(?:^|/)(?:torch|torch_npu|deepspeed|lightning|pytorch_lightning|accelerate|c10d)/"
    r"|distributed_c10d\.py|c10d_logger\.py"
)
_GENERATED = re.compile(
    r"torchinductor|inductor_cache|<eval_with_key>|/tmp/tmp\w+/\w{2}/c\w{20,}\.py"
)


def frames_in(text: str) -> tuple[str, ...]:
    """The frames of a stack as py-spy or faulthandler print it, in the order of its lines."""
    found = []
    for line in text.splitlines():
        if match := _FAULTHANDLER.match(line):
            found.append(f"{match['name']} ({match['file']}:{match['line']})")
        elif match := _FRAME.match(line):
            found.append(line.strip())
    return tuple(found)


def work_in(frames: Iterable[str]) -> WorkFrame | None:
    """The work that the outermost telling frame names; frames are innermost first."""
    found = None
    for frame in frames:
        if (work := _work_of(frame)) is not None:
            found = WorkFrame(work, frame)
    return found


def _work_of(frame: str) -> Work | None:
    match = _FRAME.match(frame)
    if match is None or match["file"].endswith(_NO_WORK):
        return None
    name, file = match["name"].lower().rpartition(".")[2], match["file"]
    for work, ending, pattern in _FILES:
        if file.endswith(ending) and pattern.search(name):
            return work
    return next((work for work, pattern in _NAMES if pattern.search(name)), None)


def call_site(frames: Sequence[str]) -> str:
    """The innermost frame of the program itself, that of a library where there is no other; "" of
    no frames."""
    own = (frame for frame in frames if not _is_library(frame))
    return next(own, frames[0] if frames else "")


def _is_library(frame: str) -> bool:
    match = _FRAME.match(frame)
    return match is None or bool(_LIBRARY.search(match["file"]))


def generated_frame(frames: Iterable[str]) -> str:
    """The innermost frame in code that a compiler made; "" without one."""
    return next((frame for frame in frames if _GENERATED.search(frame)), "")
