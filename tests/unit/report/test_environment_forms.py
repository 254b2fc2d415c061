"""Variables as text, read back by real shells and a YAML reader."""

import json
import shlex
import shutil
import subprocess

import pytest
import yaml

from comminsight.report.environment_forms import (
    Assignment,
    Mount,
    as_json,
    bash,
    fish,
    kubernetes,
    merged,
    sbatch_option,
)

ODD = {
    "PLAIN": "a",
    "EMPTY": "",
    "SPACE": "a b  c",
    "QUOTES": """it's "so" `x` \\ \\'""",
    "DOLLAR": "$HOME $(echo no) ${X} $$",
    "TWO_LINES": "one\ntwo",
    "CHINESE": "目录/记录",
    "SIGNS": "#no; comment & !x *",
}
ASSIGNMENTS = tuple(Assignment(name, value) for name, value in ODD.items())
NOTES = ["a note\nof two lines; export PLAIN=broken", "$(echo run)"]


def shown_by(shell, text, environment):
    done = subprocess.run(
        [shell, "-c", f'{text}\nexec env -0 ONLY="1"'], env=environment, capture_output=True,
        check=True,
    )  # fmt: skip
    assert done.stderr == b""
    return dict(item.split("=", 1) for item in done.stdout.decode().split("\0") if item)


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh"])
def test_a_posix_shell_gets_every_value_as_it_is(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    seen = shown_by(shell, bash(ASSIGNMENTS, NOTES), {"PATH": "/usr/bin:/bin"})
    assert {name: seen[name] for name in ODD} == ODD


def test_fish_gets_every_value_as_it_is():
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    seen = shown_by("fish", fish(ASSIGNMENTS, NOTES), {"PATH": "/usr/bin:/bin", "HOME": "/tmp"})
    assert {name: seen[name] for name in ODD} == ODD


def test_fish_quotes_only_what_fish_takes_as_special():
    text = fish([Assignment("A", "it's a\\b $x"), Assignment("P", "/a", is_prefix=True)], ["n"])
    assert text == "set -gx A 'it\\'s a\\\\b $x';\nset -gx --path P '/a' $P;\n# n"


@pytest.mark.parametrize(
    ("present", "expected"),
    [({}, "/a b"), ({"P": ""}, "/a b"), ({"P": "/c:/d"}, "/a b:/c:/d")],
)
def test_a_path_list_keeps_what_it_had(present, expected):
    prefix = [Assignment("P", "/a b", is_prefix=True)]
    seen = shown_by("bash", bash(prefix, []), {"PATH": "/usr/bin:/bin", **present})
    assert seen["P"] == expected
    assert merged(prefix, present) == {"P": expected}


def test_an_eval_without_quotes_works_too():
    text = bash([Assignment("A", "1"), Assignment("B", "2")], ["a comment; A=3"])
    script = f"eval $(printf '%s\\n' {shlex.quote(text)}); echo $A $B"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True)
    assert done.stdout == "1 2\n"


def kubernetes_value(text):
    """What Kubernetes makes of a value: ``$$`` is a dollar sign."""
    return text.replace("$$", "$")


def test_kubernetes_reads_the_same_values_and_one_volume_for_each_mount():
    mounts = [Mount("lib", "/opt/a b"), Mount("spool", "/data/目录", is_read_only=False)]
    read = yaml.safe_load(kubernetes(ASSIGNMENTS, mounts, NOTES))
    assert {one["name"]: kubernetes_value(one["value"]) for one in read["env"]} == ODD
    assert [
        (m["name"], m["mountPath"], m.get("readOnly", False)) for m in read["volumeMounts"]
    ] == [
        ("comminsight-shm", "/dev/shm", False),
        ("lib", "/opt/a b", True),
        ("spool", "/data/目录", False),
    ]
    assert read["volumes"] == [
        {"name": "comminsight-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        {"name": "lib", "hostPath": {"path": "/opt/a b", "type": "Directory"}},
        {"name": "spool", "hostPath": {"path": "/data/目录", "type": "DirectoryOrCreate"}},
    ]


def test_json_is_one_flat_object():
    assert json.loads(as_json(ODD)) == ODD


def test_sbatch_takes_one_word_or_none():
    values = {"A": "x y", "P": "/a:/b"}
    assert shlex.split(sbatch_option(values)) == ["--export=ALL,A=x y,P=/a:/b"]
    assert sbatch_option({"A": "x,y"}) == ""
