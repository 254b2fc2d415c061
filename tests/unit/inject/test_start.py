"""Start-up: cheap and inert unless asked for, idempotent, chained, and harmless when broken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import comminsight_inject
from comminsight_inject import environment, site_install, stacks

PARENT = Path(comminsight_inject.__file__).parents[1]


def python(code: str, *flags: str, **env: str) -> str:
    """Output of a fresh interpreter that has ``env`` besides the bare minimum."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.strip()


LOADED = "import sys; print('comminsight_inject.import_hook' in sys.modules)"
ON = environment("/lib.so", "/spool", "run-1", {})


def test_environment_keeps_the_users_path_behind_ours():
    result = environment("/lib.so", "/spool", "run-1", {"PYTHONPATH": "/a:/b", "HOME": "/h"})
    site, *rest = result["PYTHONPATH"].split(":")
    assert Path(site, "sitecustomize.py").is_file()
    assert rest == ["/a", "/b"]
    assert result["HOME"] == "/h"
    assert environment("/lib.so", "/spool", "run-1", result) == result


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, "True"),
        ({"COMMINSIGHT_INJECT": "0"}, "False"),
        ({"COMMINSIGHT_DISABLE": "1"}, "False"),
    ],
)
def test_loaded_only_when_asked_for(extra, expected):
    assert python(LOADED, **{**ON, **extra}) == expected


def test_hidden_sitecustomize_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.hidden_ran = True\n")
    path = ON["PYTHONPATH"] + os.pathsep + str(tmp_path)
    code = "import builtins, sys; print(builtins.hidden_ran, sys.modules['sitecustomize'].__file__)"
    output = python(code, **{**ON, "PYTHONPATH": path})
    assert output == f"True {tmp_path / 'sitecustomize.py'}"


def test_start_up_loads_next_to_nothing_and_waits_for_torch():
    code = "import sys; print('ctypes' in sys.modules, len(sys.meta_path))"
    bare = python("import sys; print(len(sys.meta_path))")
    assert python(code, **ON) == f"False {int(bare) + 1}"


def test_twice_is_once():
    code = (
        "import importlib, sys, comminsight_inject.autoload as a; n = len(sys.meta_path);"
        "importlib.reload(a); print(len(sys.meta_path) - n)"
    )
    assert python(code, **ON) == "0"


FAKE_C10D = """
def _new_process_group_helper(*args, **kwargs):
    return None, None
def destroy_process_group(group=None):
    raise ValueError('theirs')
"""


def with_fake_torch(folder: Path, init: str = "", body: str = FAKE_C10D) -> dict[str, str]:
    """Environment in which ``torch.distributed`` is a stand-in whose ``__init__`` is ``init``."""
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("")
    (package / "__init__.py").write_text(init)
    (package / "distributed_c10d.py").write_text(body)
    return {**ON, "PYTHONPATH": ON["PYTHONPATH"] + os.pathsep + str(folder)}


def test_functions_are_patched_right_after_the_module_body(tmp_path):
    """A stand-in for torch: the star import of the package receives the patched names."""
    env = with_fake_torch(tmp_path, "from .distributed_c10d import *\n")
    code = (
        "import torch.distributed as d\n"
        "from torch.distributed import distributed_c10d as c\n"
        "print(hasattr(d.destroy_process_group, '_comminsight_original'),\n"
        "      hasattr(c._new_process_group_helper, '_comminsight_original'),\n"
        "      c._new_process_group_helper(1, group_size='x'))\n"
        "try:\n    d.destroy_process_group()\nexcept ValueError as e:\n    print(e)\n"
    )
    assert python(code, **env) == "True True (None, None)\ntheirs"


PROBES = {
    "nobody": "",
    "a look": "find_spec(NAME)",
    "two looks": "find_spec(NAME); find_spec(NAME)",
    "a body that failed": (
        "import builtins; builtins.is_broken = True\n"
        "try:\n    importlib.import_module(NAME)\nexcept OSError:\n    pass\n"
        "builtins.is_broken = False"
    ),
    "a finder that asks all others": (
        "class Asks:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        others = [f for f in sys.meta_path if f is not self]\n"
        "        found = (f.find_spec(name, path, target) for f in others)\n"
        "        return next((spec for spec in found if spec is not None), None)\n"
        "sys.meta_path.insert(0, Asks())"
    ),
}


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_whoever_looked_at_the_module_before_it_is_patched(tmp_path, probe):
    """And the finder is gone once the body ran."""
    body = "import builtins\nif getattr(builtins, 'is_broken', False):\n    raise OSError\n"
    env = with_fake_torch(tmp_path, body=body + FAKE_C10D)
    code = (
        "import importlib, sys\n"
        "from importlib.util import find_spec\n"
        "NAME = 'torch.distributed.distributed_c10d'\n"
        f"{probe}\n"
        "module = importlib.import_module(NAME)\n"
        "ours = [f for f in sys.meta_path if type(f).__module__.startswith('comminsight_inject')]\n"
        "print(hasattr(module.destroy_process_group, '_comminsight_original'), ours)\n"
    )
    assert python(code, **env) == "True []"


def test_pth_in_a_fresh_environment(tmp_path):
    """Installed, it survives ``-I`` and ``-E``; twice is once; uninstalled, nothing is left."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    interpreter = str(tmp_path / "v" / "bin" / "python")

    def run(*arguments: str, **env: str) -> str:
        done = subprocess.run(
            [interpreter, *arguments], env={"PATH": os.environ["PATH"], **env},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.strip()

    def act(action: str) -> str:
        installer = ("-m", "comminsight_inject.site_install", action)
        return run(*installer, PYTHONPATH=str(PARENT)).partition(":")[0]

    assert [act("status"), act("install"), act("install"), act("status")] == [
        "not installed", "installed", "already installed", "installed",
    ]  # fmt: skip
    assert run("-I", "-c", LOADED, COMMINSIGHT_INJECT="1") == "True"
    assert run("-E", "-c", LOADED, COMMINSIGHT_INJECT="1") == "True"
    assert run("-c", LOADED) == "False"
    assert [act("uninstall"), act("uninstall"), act("status")] == [
        "removed", "not installed", "not installed",
    ]  # fmt: skip
    assert run("-c", LOADED, COMMINSIGHT_INJECT="1") == "False"


def test_pth_names_no_path_when_the_package_lies_beside_it():
    assert "sys.path" not in site_install.pth_line("/x/site-packages", "/x/site-packages")
    assert "'/y'" in site_install.pth_line("/x/site-packages", "/y")


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("USR2", 12), ("sigusr1", 10), ("", None), ("BOGUS", None)]
)
def test_stack_signal_by_name_or_number(text, number):
    assert stacks.signal_number(text) == number


def test_stack_signal_writes_the_stacks_of_all_threads(tmp_path):
    code = (
        "import os, signal, time\n"
        "from comminsight_inject import stacks\n"
        "def load_next_batch_forever(): os.kill(os.getpid(), signal.SIGUSR2); time.sleep(0.05)\n"
        "print(stacks.register(os.environ)); load_next_batch_forever()\n"
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "print(stacks.register({**os.environ, 'COMMINSIGHT_STACK_SIGNAL': 'USR1'}))\n"
    )
    env = {"COMMINSIGHT_STACK_SIGNAL": "USR2", "COMMINSIGHT_STACK_DIR": str(tmp_path)}
    assert python(code, PYTHONPATH=str(PARENT), **env) == "True\nFalse"
    (stack,) = tmp_path.glob("*.stack")
    assert "load_next_batch_forever" in stack.read_text()
