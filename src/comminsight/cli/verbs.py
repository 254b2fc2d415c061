"""The verbs of the command line: one module each, in one explicit table.

Only the chosen verb's module is imported, so that ``comminsight run`` starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: the module with its ``main(argv) -> int`` and its line of help."""

    module: str
    help: str


VERBS: dict[str, Verb] = {
    "run": Verb("comminsight.cli.run", "run a command and record its communication"),
    "report": Verb("comminsight.cli.report", "say what went wrong in a run, and who caused it"),
    "diagnose": Verb(
        "comminsight.cli.diagnose",
        "say why a job hung or failed, from dumps, logs, answers of RAS, a run, in any mix",
    ),
    "import": Verb(
        "comminsight.cli.import_run",
        "make a run of profiler traces, dumps and logs, so that every verb takes them",
    ),
    "explain": Verb(
        "comminsight.cli.explain", "explain one verdict: its chain, how it was told, what is open"
    ),
    "incident": Verb(
        "comminsight.cli.incident", "write one masked file with which others can judge a job again"
    ),
    "steps": Verb(
        "comminsight.cli.steps", "list the training steps, their phases, and what changed"
    ),
    "exposed": Verb(
        "comminsight.cli.exposed",
        "say which communication no compute hides, by op, rank and step",
    ),
    "whatif": Verb(
        "comminsight.cli.whatif", "say what a step would gain if a part behaved like its peers"
    ),
    "fit": Verb("comminsight.cli.fit", "fit startup and rate of each collective, by its size"),
    "bench": Verb(
        "comminsight.cli.bench", "time collectives over sizes and algorithms; compare two records"
    ),
    "templates": Verb("comminsight.cli.templates", "say why which step template was taken"),
    "template": Verb("comminsight.cli.template", "propose a step template from a run (learn)"),
    "calibrate": Verb(
        "comminsight.cli.calibrate", "give the steps of all ranks common numbers: preview, apply"
    ),
    "show": Verb(
        "comminsight.cli.show",
        "list the ops of one rank in one step, one op layer by layer, or who waited for whom",
    ),
    "rebuild": Verb(
        "comminsight.cli.rebuild", "rebuild the steps from inspector_logs or an export alone"
    ),
    "export": Verb("comminsight.cli.export", "write the events as Parquet or Inspector JSON"),
    "inject": Verb("comminsight.cli.inject", "install the start-up hook for your own launcher"),
    "env": Verb("comminsight.cli.env", "print the variables to record under your own launcher"),
    "doctor": Verb("comminsight.cli.doctor", "check what this machine needs in order to record"),
    "demo": Verb("comminsight.cli.demo", "a real 8-rank job with a planted slow rank, then a hang"),
}
