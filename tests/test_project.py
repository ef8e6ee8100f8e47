"""The package as a whole: floors, start-up time, front door, command line, documents that agree."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

import semrecall
from semrecall.cli import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = sorted((ROOT / "src" / "semrecall").rglob("*.py"))
FILES = [*MODULES, *sorted((ROOT / "tests").glob("*.py")), *sorted(ROOT.glob("benchmarks/*.py"))]
PAGES = sorted(p.relative_to(ROOT) for p in (ROOT / "docs").rglob("*.md"))

HEAVY = {"click", "faiss", "h5py", "matplotlib", "pandas", "polars", "pyarrow", "scipy"}


def python(code: str) -> str:
    """What a fresh Python prints when it runs `code`."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(code: str) -> set[str]:
    """The top-level packages that are loaded after `code` ran in a fresh Python."""
    tail = "import json, sys; print('\\n' + json.dumps([m.split('.')[0] for m in sys.modules]))"
    return set(json.loads(python(f"{code}\n{tail}").splitlines()[-1]))


# -- start-up -------------------------------------------------------------------------------------

MAIN = "import sys; sys.argv[1:] = {!r}\nfrom semrecall.cli import main"
HELP = f"{MAIN.format(['--help'])}\ntry: main()\nexcept SystemExit: pass"


def test_import_loads_nothing_heavy():
    assert "semrecall" in loaded_by("import semrecall")
    assert loaded_by("import semrecall") & HEAVY == set()


def test_help_loads_no_numbers():
    loaded = loaded_by(HELP)
    assert "click" in loaded
    assert loaded & (HEAVY | {"numpy"}) == {"click"}


def test_command_modules_load_only_click():
    imports = "\n".join(f"import semrecall.cli.{name}" for name in COMMANDS)
    assert loaded_by(imports) & (HEAVY | {"numpy"}) == {"click"}


def cpu_seconds(code: str) -> float:
    """CPU time of a fresh Python that runs `code`: on a busy machine a clock measures others."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def extra_seconds(longer: str, shorter: str, limit: float) -> float:
    """How much longer one script takes than another in fresh processes, each at its best.

    They take turns, at least three times; more often only while the difference is above `limit`.
    """
    best = {longer: float("inf"), shorter: float("inf")}
    for turn in range(12):
        for code in best:
            best[code] = min(best[code], cpu_seconds(code))
        if turn >= 2 and best[longer] - best[shorter] <= limit:
            break
    return best[longer] - best[shorter]


def test_import_is_fast():
    assert extra_seconds("import numpy, semrecall", "import numpy", 0.1) <= 0.1


def test_help_is_fast():
    assert extra_seconds(HELP, "pass", 0.2) <= 0.2


# -- the front door -------------------------------------------------------------------------------


def test_front_door_is_small_and_sorted():
    assert semrecall.__all__ == sorted(semrecall.__all__)
    assert 15 <= len(semrecall.__all__) <= 44


@pytest.mark.parametrize("name", semrecall.__all__)
def test_public_names_explain_themselves(name):
    thing = getattr(semrecall, name)
    assert name in dir(semrecall)
    if not name.startswith("__"):
        assert inspect.getdoc(thing)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = semrecall.no_such_name


# -- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    done = CliRunner().invoke(cli, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Usage:")


def test_console_script_is_installed():
    script = Path(sys.executable).with_name("semrecall")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"semrecall {PROJECT['project']['version']}\n"


# -- the source -----------------------------------------------------------------------------------


def test_floors_hold():
    pytest.importorskip("importlinter", reason="needs import-linter, a tool of development")
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_family_has_a_floor():
    contract = PROJECT["tool"]["importlinter"]["contracts"][0]
    placed = {name.strip() for floor in contract["layers"] for name in floor.split("|")}
    families = {p.relative_to(ROOT / "src" / "semrecall").parts[0] for p in MODULES}
    assert {name.removesuffix(".py") for name in families} - {"__init__"} == placed


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_opens_with_one_line_about_it(path):
    text = ast.get_docstring(ast.parse(path.read_text()), clean=False)
    assert text, "no docstring"
    first, *rest = text.splitlines()
    assert first.endswith((".", "?"))
    assert not rest or rest[0] == ""


def test_no_file_is_named_after_nothing():
    assert {p.stem for p in MODULES} & {"utils", "helpers", "common", "misc", "base2"} == set()


# -- documents ------------------------------------------------------------------------------------


def test_version_is_told_the_same_everywhere():
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert latest is not None
    stated = PROJECT["project"]["version"]
    assert (latest[1], version("semrecall"), semrecall.__version__) == (stated,) * 3


def test_readme_names_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_docs_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    linked = {Path("docs") / link for link in re.findall(r"\]\(([^)#:]+\.md)\)", index)}
    # On the site these two stand for CONTRIBUTING.md and CHANGELOG.md, which the index names.
    above = {Path("docs/reference/contributing.md"), Path("docs/reference/changelog.md")}
    assert set(PAGES) - linked == {Path("docs/README.md")} | above


@pytest.mark.parametrize(
    "page", [Path("README.md"), Path("CONTRIBUTING.md"), *PAGES], ids=lambda p: str(p)
)
def test_links_between_documents_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page.parent / link).exists()] == []


# -- the tests themselves -------------------------------------------------------------------------

SKIPPING = """
import pytest

def test_runs():
    pass

def test_skips():
    pytest.skip("something is missing")

def test_is_known_to_fail():
    pytest.xfail("known")
"""
SKIPPED_WHOLE = 'import pytest\npytest.importorskip("no_such_package")\n\ndef test_runs(): pass\n'


@pytest.mark.parametrize(
    ("content", "full"),
    [(SKIPPING, ""), (SKIPPING, "1"), (SKIPPED_WHOLE, "1")],
    ids=["allowed", "test", "file"],
)
def test_a_skip_fails_where_everything_is_there(tmp_path, content, full):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "SEMRECALL_FULL": full},
    )
    if full:
        assert done.returncode in (1, 2), done.stdout
        assert "SEMRECALL_FULL" in done.stdout
    else:
        assert done.returncode == 0, done.stdout
        assert "1 skipped" in done.stdout
