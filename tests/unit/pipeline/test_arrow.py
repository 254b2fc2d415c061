"""Steps and ops as tables: of a simulated run, whose truth is known, and of a run with losses."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from comminsight.errors import InputError
from comminsight.pipeline import tables
from comminsight.pipeline.arrow import OPS, STEPS, TABLES_SCHEMA_VERSION
from comminsight.pipeline.simulated import simulated_sessions
from comminsight.run import run_of_sessions
from comminsight.sim.cluster import simulate
from comminsight.sim.faults import LostRecords
from tests.builders.run import small_layout

N_STEPS = 5
TEXT = pa.dictionary(pa.int32(), pa.string())


def run_of(simulated):
    return run_of_sessions(simulated_sessions(simulated))


@pytest.fixture(scope="module")
def simulated():
    return simulate(small_layout(), steps=N_STEPS, seed=3)


@pytest.fixture(scope="module")
def run(simulated):
    return run_of(simulated)


def test_one_row_per_step_and_rank(run):
    steps = run.steps()
    n_ranks = small_layout().world_size
    assert steps.schema.equals(STEPS)
    assert steps["step"].to_pylist() == [s for s in range(N_STEPS) for _ in range(n_ranks)]
    assert steps["global_rank"].to_pylist() == [*range(n_ranks)] * N_STEPS
    assert set(steps["template"].to_pylist()) == {"tp-pp-dp"}
    assert steps["is_complete"].to_pylist() == [True] * N_STEPS * n_ranks


def test_the_documented_columns_are_those_of_the_steps():
    page = (Path(__file__).parents[3] / "docs" / "tables.md").read_text()
    rows = page.split("## Steps")[1].split("## Ops")[0].splitlines()
    cells = [row.split("|")[1] for row in rows if row.startswith("| `")]
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == STEPS.names


def test_what_is_not_known_is_null_and_never_zero(run):
    last = run.steps().slice((N_STEPS - 1) * small_layout().world_size)
    assert set(last["period_ns"].to_pylist()) == set(last["gap_ns"].to_pylist()) == {None}
    first = run.steps().slice(0, 1).to_pylist()[0]
    assert first["period_ns"] == first["span_ns"] + first["gap_ns"]
    assert first["anchor"]["op"] == "ALL_REDUCE"
    assert first["anchor"]["role"] == "GLOBAL"


def test_phases_of_every_step(run, simulated):
    kept = {(row["step"], row["global_rank"]): row["phases"] for row in run.steps().to_pylist()}
    for rank in simulated.ranks:
        number = rank.session.global_rank
        for step in run.session_steps[rank.session.session_id]:
            rows = kept[step.step, number]
            assert [row["kind"] for row in rows] == [p.kind.value for p in step.phases]
            assert [row["end_ns"] - row["start_ns"] for row in rows] == [
                p.end_ns - p.start_ns for p in step.phases
            ]
    microbatches = {row["microbatch"] for rows in kept.values() for row in rows}
    assert microbatches == {None, *range(small_layout().microbatches)}
    for row in (row for rows in kept.values() for row in rows):
        is_numbered = row["microbatch"] is not None
        assert row["n_microbatches"] == (small_layout().microbatches if is_numbered else None)


def test_every_op_has_the_step_that_it_was_played_in(run, simulated):
    ops = run.ops()
    assert ops.schema.equals(OPS)
    for rank in simulated.ranks:
        number = rank.session.global_rank
        own = run.ops(rank=number)
        assert set(own["global_rank"].to_pylist()) == {number}
        assert own["step"].to_pylist() == rank.log.steps.tolist()
        order = np.lexsort((own["seq"].to_numpy(), own["start_ns"].to_numpy()))
        assert order.tolist() == [*range(len(own))]
    assert len(ops) == sum(len(rank.log.steps) for rank in simulated.ranks)


@pytest.mark.parametrize(("rank", "step"), [(None, 2), (5, 2), (5, None)])
def test_a_selection_is_the_same_rows(rank, step, run):
    whole = run.ops().to_pylist()
    wanted = [
        row for row in whole if rank in {None, row["global_rank"]} and step in {None, row["step"]}
    ]
    assert run.ops(rank=rank, step=step).to_pylist() == wanted != []


def test_roles_and_labels(run):
    ops = run.ops(rank=0)
    assert ops.schema.field("role").type == TEXT
    assert {"TP", "PP", "DP", "GLOBAL"} == set(ops["role"].to_pylist())
    labels = set(zip(ops["role"].to_pylist(), ops["comm_label"].to_pylist(), strict=True))
    assert all(label.startswith(f"{role} ") for role, label in labels)


def test_tables_say_what_they_are(run):
    for table in (run.steps(), run.ops(), run.ops(rank=1, step=0)):
        metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        assert metadata == {
            "comminsight.schema_version": TABLES_SCHEMA_VERSION,
            "comminsight.run_id": run.facts.run_id,
            "comminsight.step_view": "raw",
        }


@pytest.mark.parametrize(
    ("wanted", "told"),
    [({"rank": 77}, "no rank 77"), ({"step": 99}, "no step 99"), ({"rank": 1, "step": -1}, "-1")],
)
def test_what_is_not_there_is_said(wanted, told, run):
    with pytest.raises(InputError, match=told):
        run.ops(**wanted)


def test_losses_are_in_the_row_of_their_step():
    lost = LostRecords(rank=2, fraction=0.05)
    run = run_of(simulate(small_layout(), steps=12, seed=3, faults=[lost]))
    rows = [row for row in run.steps().to_pylist() if row["global_rank"] == 2]
    spoiled = [row for row in rows if row["n_lost"]]
    assert spoiled
    assert not any(row["is_complete"] for row in spoiled)
    others = [row for row in run.steps().to_pylist() if row["global_rank"] != 2]
    assert not any(row["n_lost"] for row in others)


def test_a_run_without_anything():
    run = run_of_sessions(())
    assert (len(run.steps()), len(run.ops())) == (0, 0)
    assert run.ops().schema.equals(OPS)


def test_without_pyarrow_the_package_to_install_is_named(run, monkeypatch):
    monkeypatch.setattr(tables, "TABLES", "comminsight_no_such_module")
    with pytest.raises(InputError, match="comminsight_no_such_module") as raised:
        run.steps()
    assert "comminsight[store]" in str(raised.value.next_step)


def test_polars_reads_them(run):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.from_arrow(run.ops(rank=0, step=1))
    assert frame["step"].unique().to_list() == [1]
    assert len(polars.from_arrow(run.steps())) == len(run.steps())
