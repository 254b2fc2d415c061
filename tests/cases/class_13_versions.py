"""Class 13: versions, plugins, known bad releases, and a time limit that says nothing alone."""

from __future__ import annotations

from pathlib import Path

from comminsight.diagnosis import codes_logs
from comminsight.model.job_evidence import JobEvidence
from comminsight.model.verdict import Cause
from comminsight.pipeline.job_logs import read_logs
from tests.builders.flight_recorder import Call, FlightJob, Group, write_dumps
from tests.builders.log_files import Line, init, nccl, progress, timeout, write_logs
from tests.cases.class_01_dead_ranks import variants
from tests.cases.field_case import Expected, FieldCase, Scene


def rejected_plugin(
    folder: Path, *, n_ranks: int, culprits: tuple[int, ...], said: str, network: str,
    plugin: str, form: str,
) -> Scene:  # fmt: skip
    """The plugin does not load. In the twin only its newest interface is missing; it is used."""
    lines = init(range(n_ranks), world=n_ranks)
    failed = [nccl(0.4, rank, said) for rank in culprits]
    all_used = [nccl(0.6, rank, f"Using network {network}") for rank in range(n_ranks)]
    write_logs(folder / "fault", [*lines, *failed, *all_used], form=form)
    newest = [nccl(0.4, rank, "NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.")
              for rank in culprits]  # fmt: skip
    fine = [nccl(0.6, rank, f"Using network {plugin}") for rank in range(n_ranks)]
    write_logs(folder / "twin", [*lines, *newest, *fine], form=form)
    told = (codes_logs.PLUGIN_REJECTED, codes_logs.NETWORK_USED)
    return Scene(folder / "fault", Expected((Cause.PLUGIN_FALLBACK,), culprits, told=told),
                 folder / "twin")  # fmt: skip


def slower_image(
    folder: Path, *, versions: tuple[str, str], rates: tuple[float, float], is_vllm: bool
) -> Scene:
    """Only the library differs between two runs, and one is slower. In the twin a setting differs
    as well: then either may be the reason."""

    def run(name: str, version: str, rate: float, *settings: str) -> JobEvidence:
        said = (
            "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {:.1f} tokens/s, "
            "Running: 4 reqs, Waiting: 0 reqs"
            if is_vllm
            else "Decode batch. #running-req: 4, #token: 900, gen throughput (token/s): {:.2f}, "
            "#queue-req: 1"
        )
        lines = [nccl(1.0, 0, f"NCCL version {version}+cuda12.4")]
        lines += [nccl(1.1, 0, setting) for setting in settings]
        lines += [Line(10.0 + n, 0, said.format(rate + n % 3), "", is_bare=True) for n in range(9)]
        write_logs(folder / name, lines)
        logs, _ = read_logs([folder / name / "job.log"])
        return JobEvidence(logs=tuple(logs))

    def pair(name: str, *settings: str) -> JobEvidence:
        before = run(f"{name}_before", versions[0], rates[0])
        after = run(f"{name}_after", versions[1], rates[1], *settings)
        return JobEvidence(logs=after.logs, baseline=before)

    algo = "NCCL_ALGO set by environment to Ring."
    twin_before = run("twin_before", versions[0], rates[0], algo.replace("Ring", "Tree"))
    twin = JobEvidence(logs=run("twin_after", versions[1], rates[1], algo).logs,
                       baseline=twin_before)  # fmt: skip
    told = (codes_logs.RUN_RATES, codes_logs.TRY_VERSION)
    return Scene(pair("fault"), Expected((Cause.VERSION_SKEW,), (), told=told), twin)


def lost_device(
    folder: Path, *, n_ranks: int, version: str, fixed: str, form: str, number: int
) -> Scene:
    """NCCL looks for a network device that is not there. The fixed version has another reason."""
    lines = init(range(n_ranks), world=n_ranks)
    lost = [nccl(2.0, rank, f"Could not find NET with id {number}", level="WARN",
                 source="graph/xml.cc:99") for rank in range(n_ranks)]  # fmt: skip
    for place, printed in (("fault", version), ("twin", fixed)):
        told = [nccl(0.2, 0, f"NCCL version {printed}")]
        write_logs(folder / place, [*told, *lines, *lost], form=form)
    codes = (codes_logs.KNOWN_FAULT, codes_logs.UPGRADE_NCCL)
    expected = Expected((Cause.KNOWN_BAD_VERSION,), (), told=codes)
    return Scene(folder / "fault", expected, folder / "twin")


def other_package(folder: Path, *, stated: str, running: str, same: str, form: str) -> Scene:
    """The environment states the version of another package than the one in use: both are told,
    and nothing is accused, since images of healthy jobs do so too."""
    for place, value in (("fault", stated), ("twin", same)):
        lines = [
            Line(0.0, -1, f"NCCL_VERSION={value}"),
            nccl(1.0, 0, f"NCCL version {running}+cuda12.3"),
        ]
        write_logs(folder / place, lines, form=form)
    return Scene(folder / "fault", Expected(told=(codes_logs.ENV_VERSION,)), folder / "twin")


def limits_alone(folder: Path, *, n_ranks: int, seq: int, has_prefix: bool, op: str) -> Scene:
    """Lines of time limits and nothing else: nobody can be named. With counters of all ranks the
    op at least is known to have all of them."""
    given_up = []
    for rank in range(n_ranks):
        line = timeout(600.0 + rank / 100, rank, seq=seq, op=op)
        given_up.append(
            line if has_prefix else Line(line.at_s, rank, line.text, "", is_bare=True)
        )  # fmt: skip
    write_logs(folder / "fault", given_up)
    counted = [
        progress(600.1, rank, seq=seq, enqueued=seq, completed=seq - 1) for rank in range(n_ranks)
    ]
    whole = [timeout(600.0, rank, seq=seq, op=op) for rank in range(n_ranks)]
    write_logs(folder / "twin", [*init(range(n_ranks), world=n_ranks), *whole, *counted])
    told = (codes_logs.MISSING_COUNTERS, codes_logs.GATHER_STACKS)
    twin = Expected((Cause.ALL_PRESENT_STUCK,), ())
    return Scene(folder / "fault", Expected(told=told), folder / "twin", twin)


def old_protocol(folder: Path, *, n_ranks: int, n_calls: int, op: str, is_json: bool) -> Scene:
    """All ranks stand in one op, with a release that is known for it. Another release is not."""
    world = {"0": Group("default_pg", tuple(range(n_ranks)))}
    calls = {rank: [Call("0", op)] * n_calls for rank in range(n_ranks)}
    stuck = FlightJob(world, calls, dead={(0, n_calls - 1)}).play()
    for place, printed in (("fault", "2.4.2"), ("twin", "2.8.3")):
        write_logs(folder / place, [nccl(0.2, 0, f"NCCL version {printed}+cuda10.0")])
        write_dumps(folder / place, stuck, name="dump_{}", is_json=is_json)
    causes = (Cause.ALL_PRESENT_STUCK,)
    expected = Expected(causes, (), also=(Cause.KNOWN_BAD_VERSION,))
    return Scene(folder / "fault", expected, folder / "twin", Expected(causes, ()))


FABRIC = "NET/Plugin: dlopen: /opt/lib/libfabric.so.1: version `{}' not found (required by x.so)"
SYMBOL = "NET/Plugin: Failed to find ncclNetPlugin_{} symbol."
CASES: tuple[FieldCase, ...] = (
    FieldCase(99, "a plugin for another fabric library", rejected_plugin, variants(
        "n_ranks culprits said network plugin form",
        (8, tuple(range(8)), FABRIC.format("EFA_1.2"), "Socket", "AWS Libfabric", "mixed"),
        (16, tuple(range(16)), FABRIC.format("FABRIC_1.7"), "Socket", "OFI", "files"),
        (4, tuple(range(4)), FABRIC.format("EFA_1.9"), "IB", "AWS Libfabric", "mpirun"),
    )),
    FieldCase(100, "a plugin of an older interface", rejected_plugin, variants(
        "n_ranks culprits said network plugin form",
        (8, tuple(range(8)), SYMBOL.format("v4"), "Socket", "IBext", "mixed"),
        (4, tuple(range(4)), SYMBOL.format("v6"), "IB", "SHARP", "files"),
        (2, (0, 1), SYMBOL.format("v8"), "Socket", "Libfabric", "docker"),
    )),
    FieldCase(101, "a slower image", slower_image, variants(
        "versions rates is_vllm", (("2.21.5", "2.26.2"), (100.0, 80.0), True),
        (("2.18.1", "2.20.5"), (2000.0, 1500.0), False), (("2.23.4", "2.26.2"), (55.0, 30.0), True),
    )),
    FieldCase(102, "a network device that is not found", lost_device, variants(
        "n_ranks version fixed form number",
        (32, "2.26.2+cuda12.8", "2.27.3+cuda12.9", "mixed", 0),
        (8, "2.14.3", "2.28.3", "files", 3), (16, "2.27.2", "2.27.5", "mpirun", 1),
    )),
    FieldCase(103, "the environment states another version", other_package, variants(
        "stated running same form", ("2.15.5-1", "2.19.3", "2.19.3-1", "mixed"),
        ("2.17.1", "2.21.5", "2.21.5", "docker"), ("2.20.3-1", "2.18.1", "2.18.1-1", "mixed"),
    )),
    FieldCase(104, "time limits and nothing else", limits_alone, variants(
        "n_ranks seq has_prefix op", (8, 4000, True, "ALLREDUCE"),
        (8, 12, False, "_ALLGATHER_BASE"), (16, 77, True, "BROADCAST"),
    )),
    FieldCase(105, "an old release stands still", old_protocol, variants(
        "n_ranks n_calls op is_json", (8, 20, "all_reduce", False),
        (16, 5, "all_gather", True), (4, 90, "all_reduce", False),
    )),
)  # fmt: skip
