"""The public surface: exactly these names, each documented, and light to import."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import memprobe

ROOT = Path(__file__).parents[1]
PUBLIC = {
    "AccessMode", "AdapterContractError", "AdapterError", "Capabilities", "Category",
    "DocumentEvent", "Embedder", "Event", "MemProbeError", "MemoryItem", "MemorySystem",
    "MessageEvent", "Reason", "Scope", "Scored", "SessionEvent", "SessionMessage", "SnapshotError",
    "Unscored", "UnsupportedEvent", "__version__",
}  # fmt: skip
HEAVY = (
    "prefect", "torch", "litellm", "openai", "duckdb", "sentence_transformers", "sqlalchemy",
    "transformers", "pyarrow",
)  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert set(memprobe.__all__) == PUBLIC
    assert list(memprobe.__all__) == sorted(memprobe.__all__)


def test_every_public_name_is_there_and_documented() -> None:
    for name in memprobe.__all__:
        value = getattr(memprobe, name)
        if inspect.isclass(value):
            assert value.__doc__, f"{name} has no docstring"


def test_the_ports_document_every_method() -> None:
    for port in (memprobe.MemorySystem, memprobe.Embedder):
        for name, member in vars(port).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                assert member.__doc__, f"{port.__name__}.{name} has no docstring"


def loaded_after(code: str) -> set[str]:
    """Heavy packages that a fresh interpreter holds after running the code."""
    report = f"import sys\nprint('LOADED', *[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    line = next(x for x in done.stdout.splitlines() if x.startswith("LOADED"))
    return set(line.split()[1:])


HELP = """
import sys
from flows.cli import main
sys.argv = ["memprobe", {arguments}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def test_the_probe_notices_a_heavy_package() -> None:
    assert loaded_after("import duckdb") >= {"duckdb"}


def test_importing_memprobe_is_light() -> None:
    assert loaded_after("import memprobe") == set()


@pytest.mark.parametrize("arguments", ["'--help'", "'run', '--help'", "'check', '--help'"])
def test_help_is_light(arguments: str) -> None:
    assert loaded_after(HELP.format(arguments=arguments)) == set()


def test_the_registry_is_light() -> None:
    code = "from adapters.memory.registry import Registry, BUILT_IN\nassert BUILT_IN"
    assert loaded_after(code) == set()
