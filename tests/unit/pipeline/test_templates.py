"""Template folders: what is taken, what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from comminsight.errors import InputError
from comminsight.pipeline.templates import load_templates, shipped_templates

OWN = """file_version = 1

[[template]]
name = "ours"
version = 2
priority = 77
open = [{ role = "EP" }]
close = [{ op = "BARRIER" }]
"""


def folder_of(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.toml").write_text(text)
    return path


def refused(path: Path, **files: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load_templates([folder_of(path, **files)])
    assert caught.value.next_step
    return caught.value


def test_own_templates_come_beside_the_shipped_ones(tmp_path: Path) -> None:
    templates = load_templates([folder_of(tmp_path, a=OWN)])
    assert [t.name for t in templates] == [*(t.name for t in shipped_templates()), "ours"]
    assert load_templates() == shipped_templates()


def test_a_template_of_a_shipped_name_replaces_it(tmp_path: Path) -> None:
    own = OWN.replace('"ours"', '"ddp"')
    templates = load_templates([folder_of(tmp_path, a=own)])
    assert [t.version for t in templates if t.name == "ddp"] == [2]
    assert len(templates) == len(shipped_templates())


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    error = refused(tmp_path, a=OWN.replace("priority = 77", "priority 77"))
    assert str(error).startswith(f"{tmp_path}/a.toml:6: not TOML")


def test_a_file_that_nests_without_end_is_refused_by_name(tmp_path: Path) -> None:
    error = refused(tmp_path, a="template = " + "[" * 100_000)
    assert str(error).startswith(f"{tmp_path}/a.toml: not TOML")


def test_an_unknown_key_names_file_and_line(tmp_path: Path) -> None:
    error = refused(tmp_path, a=OWN.replace("close =", "closes ="))
    assert str(error).startswith(f"{tmp_path}/a.toml:8: template 'ours': unknown key 'closes'")


def test_one_name_in_two_files_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, a=OWN, b=OWN)
    assert str(error).startswith(f"{tmp_path}/b.toml:6: template 'ours' is also in")


def test_equal_priority_is_refused_with_the_rival(tmp_path: Path) -> None:
    error = refused(tmp_path, a=OWN, b=OWN.replace("ours", "theirs"))
    assert str(error).startswith(f"{tmp_path}/b.toml:6: template 'theirs' and 'ours'")
    assert "77" in str(error)
    assert "taken: 10, " in error.next_step


def test_a_shipped_priority_is_refused_unless_one_excludes_the_other(tmp_path: Path) -> None:
    error = refused(tmp_path, a=OWN.replace("77", "10"))
    assert "'ours' and 'ddp' (ddp.toml:" in str(error)
    excluded = OWN.replace("77", '10\nrequires = [{ role = "EP" }]')  # ddp forbids EP
    assert load_templates([folder_of(tmp_path, a=excluded)])[-1].name == "ours"


def test_a_folder_without_templates_is_refused(tmp_path: Path) -> None:
    assert "no template" in str(refused(tmp_path))
    with pytest.raises(InputError, match="no such folder"):
        load_templates([tmp_path / "none"])


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        load_templates([tmp_path])
