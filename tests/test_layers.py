"""The house stands: imports point downward, no circle, heavy libraries where they belong."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("memprobe", "prompts", "storage", "adapters", "tasks", "flows")
"""From the ground up: a layer imports itself and those before it."""

KERNEL_FREE_OF = {"prefect", "duckdb", "litellm", "openai", "torch", "sentence_transformers"}
LONGEST = 500


def modules() -> dict[str, Path]:
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(name: str, *, late: bool) -> Iterator[tuple[str, int]]:
    """Names a module imports, with the line; `late` includes those inside functions."""
    path = MODULES[name]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield (full if full in MODULES else base), node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not late:
            continue
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not late:
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)


def test_the_walk_sees_what_it_should() -> None:
    seen = {name for name, _ in imports("adapters.memory.rag", late=True)}
    assert {"bm25s", "numpy", "adapters.memory.notes", "memprobe.ports"} <= seen
    assert "bm25s" not in {name for name, _ in imports("adapters.memory.rag", late=False)}


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_downward(layer: str) -> None:
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    upward = [
        f"{MODULES[name].relative_to(ROOT)}:{line} imports {target}"
        for name in MODULES
        if name.split(".")[0] == layer
        for target, line in imports(name, late=True)
        if target.split(".")[0] in LAYERS and target.split(".")[0] not in allowed
    ]
    assert upward == []


def test_no_module_is_in_an_import_circle() -> None:
    graph = {
        name: {t for t, _ in imports(name, late=False) if t in MODULES and t != name}
        for name in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def users_of(library: str) -> set[str]:
    return {
        name
        for name in MODULES
        if any(target.split(".")[0] == library for target, _ in imports(name, late=True))
    }


def test_the_kernel_knows_no_heavy_library() -> None:
    offenders = {
        library: sorted(n for n in users_of(library) if n.split(".")[0] == "memprobe")
        for library in KERNEL_FREE_OF
    }
    assert {k: v for k, v in offenders.items() if v} == {}


def test_prefect_is_imported_by_tasks_and_flows_only() -> None:
    assert {name.split(".")[0] for name in users_of("prefect")} <= {"tasks", "flows"}


def test_tests_and_examples_are_imported_by_nothing() -> None:
    assert users_of("tests") | users_of("examples") == set()


def test_no_module_is_too_long() -> None:
    long = {
        name: lines
        for name, path in MODULES.items()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert long == {}
