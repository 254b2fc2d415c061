"""What a stack says its rank is doing; look-alikes say nothing."""

from __future__ import annotations

import pytest

from comminsight.analysis.work_frames import (
    Work,
    call_site,
    frames_in,
    generated_frame,
    work_in,
)


@pytest.mark.parametrize(
    ("frame", "work"),
    [
        ("save_checkpoint (engine.py:30)", Work.SAVE),
        ("_save (trainer.py:5)", Work.SAVE),
        ("Trainer.save_model (hf/trainer.py:5)", Work.SAVE),
        ("write_checkpoint_shard (io.py:5)", Work.SAVE),
        ("load_checkpoint (run.py:8)", Work.LOAD),
        ("load (trainer/checkpoint.py:8)", Work.LOAD),
        ("evaluate (loop.py:77)", Work.EVALUATE),
        ("run_validation (loop.py:77)", Work.EVALUATE),
        ("_map_single (site-packages/datasets/arrow_dataset.py:9)", Work.DATA),
        ("build_index_mappings (gpt_dataset.py:9)", Work.DATA),
        ("compile_fx_inner (torch/_inductor/compile_fx.py:9)", Work.COMPILE),
        ("_compile (torch/_dynamo/convert_frame.py:9)", Work.COMPILE),
        # what only sounds like it
        ("checkpoint (torch/utils/checkpoint.py:480)", None),
        ("save_for_backward (function.py:4)", None),
        ("save_log (logger.py:4)", None),
        ("load (data.py:3)", None),
        ("load_batch (loader.py:3)", None),
        ("_fn (torch/_dynamo/eval_frame.py:600)", None),
        ("__call__ (torch/_inductor/output_code.py:5)", None),
        ("all_reduce (torch/distributed/distributed_c10d.py:2700)", None),
        ("nonsense", None),
    ],
)
def test_names_that_mean_the_work_itself(frame: str, work: Work | None) -> None:
    found = work_in(["wait (threading.py:1)", frame, "main (run.py:1)"])
    assert (found and found.work) == work


def test_the_outermost_work_is_what_is_done() -> None:
    told = work_in(["evaluate (a.py:1)", "save_checkpoint (b.py:2)", "main (c.py:3)"])
    assert told == (Work.SAVE, "save_checkpoint (b.py:2)")


def test_stacks_of_py_spy_and_of_faulthandler() -> None:
    py_spy = 'Thread 7 (idle): "MainThread"\n    save (t.py:12)\n    <module> (run.py:3)\n'
    assert frames_in(py_spy)[-2:] == ("save (t.py:12)", "<module> (run.py:3)")
    faulthandler = 'Current thread 0x7f (most recent call first):\n  File "t.py", line 12 in save\n'
    assert frames_in(faulthandler) == ("save (t.py:12)",)


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        (("all_reduce (/x/torch/distributed/distributed_c10d.py:9)", "step (loop.py:2)"),
         "step (loop.py:2)"),
        (("all_reduce (/x/torch/distributed/distributed_c10d.py:9)",),
         "all_reduce (/x/torch/distributed/distributed_c10d.py:9)"),
        ((), ""),
    ],
)  # fmt: skip
def test_the_call_site_is_the_innermost_frame_of_the_program(
    frames: tuple[str, ...], site: str
) -> None:
    assert call_site(frames) == site


def test_code_that_a_compiler_made() -> None:
    assert generated_frame(["call (/tmp/torchinductor_u/ab/cab.py:88)", "f (m.py:1)"])
    assert generated_frame(["forward (<eval_with_key>.7:5)"])
    assert not generated_frame(["call (model.py:88)"])
