"""The rooms import downwards only (schedules ← synth, codegen ← runtime ← command line), never by their bare names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("schedules", "synth", "codegen", "runtime")
MAY_IMPORT = {
    "schedules": {"schedules"},
    "synth": {"schedules", "synth"},
    "codegen": {"schedules", "codegen"},
    "runtime": {"schedules", "synth", "codegen", "runtime"},
}
HEAVY = ("ortools", "torch", "matplotlib", "networkx", "scipy", "jinja2", "ml_dtypes", "pandas")
"""Slow to import: only inside functions, so that nobody waits for what he does not use."""


def files(room: str) -> list[Path]:
    return sorted(path for path in (ROOT / room).rglob("*.py") if "templates" not in path.parts)


def imports(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide which room is meant"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def module_level(tree: ast.Module) -> list[str]:
    """Imports that run when the module is imported (not in functions, not under TYPE_CHECKING)."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += imports(node)
    return found


@pytest.mark.smoke
@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_downwards(room):
    assert files(room)
    for path in files(room):
        for name in imports(ast.parse(path.read_text())):
            parts = name.split(".")
            assert parts[0] not in ROOMS, f"{path}: {name}: import latecomer.{parts[0]}, one module object per file"
            if parts[0] == "latecomer" and len(parts) > 1 and parts[1] != "__version__":
                assert parts[1] in MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_heavy_imports_are_lazy(room):
    for path in files(room):
        if "transports" in path.parts:
            continue  # a transport is imported when it is chosen
        for name in module_level(ast.parse(path.read_text())):
            assert name.split(".")[0] not in HEAVY, f"{path.relative_to(ROOT)} imports {name} at its top"


def test_the_import_root_has_nothing_but_doors():
    names = {path.name for path in (ROOT / "latecomer").iterdir() if path.name != "__pycache__"}
    doors = {"__init__.py", "__main__.py", "cli", "run.py", "torch.py", "py.typed", *ROOMS}
    assert names <= doors
    for room in ROOMS:
        assert (ROOT / "latecomer" / room).is_symlink()


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['latecomer', '--help']\n"
        "from latecomer.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"sys.exit(bool(set(sys.modules) & {{'numpy', 'pydantic', *{HEAVY!r}}}))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_files_stay_one_concept_long():
    for room in (*ROOMS, "latecomer/cli"):
        for path in files(room):
            lines = len(path.read_text().splitlines())
            assert lines <= 500, f"{path.relative_to(ROOT)} has {lines} lines; is it still one concept?"
