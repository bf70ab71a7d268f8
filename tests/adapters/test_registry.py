"""Finding, loading and making systems."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from adapters.memory import external
from adapters.memory.registry import BUILT_IN, Registry, lacks
from memprobe import AdapterContractError, AdapterError, MemorySystem
from memprobe.errors import MissingPrerequisite, UsageError
from memprobe.systems import ModelAccess
from memprobe.types import Protocol
from tests.adapters.support import FixedLine, WordEmbedder

EXAMPLE = Path(__file__).parents[2] / "examples/my_memory.py"
METHODS = "\n".join(f"    async def {m}(self, *args): return []" for m in external.METHODS)


def registry(**kwargs: object) -> Registry:
    return Registry(WordEmbedder(), **kwargs)  # type: ignore[arg-type]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_built_in_systems_are_listed_and_satisfy_the_port() -> None:
    line = FixedLine(ModelAccess("http://127.0.0.1:1/v1", "key", "chat", "words"))
    source = registry(lines=lambda *store: line)
    assert [card.name for card in source.cards()][: len(BUILT_IN)] == list(BUILT_IN)
    for name in BUILT_IN:
        if lacks(source.card(name), model=True):
            continue
        system = source.create(name, "user_001")
        assert isinstance(system, MemorySystem)
        assert system.capabilities == source.card(name).capabilities
        assert source.create(name, "user_001") is not system


def test_reply_access_is_what_the_protocol_says() -> None:
    source = registry()
    access = {name: source.card(name).reply_access for name in ("nomem", "longctx_full", "rag")}
    assert access == {"nomem": "none", "longctx_full": "dump_all", "rag": "retrieve"}
    assert not source.card("nomem").retrieve


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match="Did you mean 'longctx_full'") as caught:
        registry().card("longctx")
    for name in BUILT_IN:
        assert name in str(caught.value)


def test_a_class_by_path_gets_a_slug_and_keeps_its_origin() -> None:
    spec = f"{EXAMPLE}:MyMemory"
    source = registry()
    card = source.card(spec)
    assert card.name == "my_memory"
    assert card.origin == spec
    assert source.card("my_memory") == card
    assert type(source.create("my_memory", "u")).__name__ == "MyMemory"
    assert str(EXAMPLE.parent) not in sys.path


def test_names_given_up_front_are_known_by_their_slug() -> None:
    source = registry(names=[f"{EXAMPLE}:MyMemory", "rag"])
    assert source.card("my_memory").title == "MyMemory"


def test_an_edited_file_is_loaded_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", f'class Mine:\n    """One."""\n{METHODS}\n')
    assert registry().card(f"{path}:Mine").summary == "One."
    write(path, f'class Mine:\n    """Two."""\n{METHODS}\n')
    assert registry().card(f"{path}:Mine").summary == "Two."


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "m.py", f'class Mine:\n    """{folder}"""\n{METHODS}\n')
    assert registry().card(f"{tmp_path}/a/m.py:Mine").summary == "a"
    assert registry().card(f"{tmp_path}/b/m.py:Mine").summary == "b"
    both = registry(names=[f"{tmp_path}/a/m.py:Mine"])
    with pytest.raises(UsageError, match="'mine'"):
        both.card(f"{tmp_path}/b/m.py:Mine")


def test_a_class_cannot_take_the_name_of_a_built_in(tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", f"class Rag:\n{METHODS}\n")
    with pytest.raises(UsageError, match="'rag'"):
        registry().card(f"{path}:Rag")


def test_services_are_handed_to_a_class_that_takes_them(tmp_path: Path) -> None:
    body = f"class Mine:\n    def __init__(self, services): self.services = services\n{METHODS}\n"
    path = write(tmp_path / "m.py", body)
    made = registry(protocol=Protocol.PAPER).create(f"{path}:Mine", "u")
    assert made.services.protocol is Protocol.PAPER  # type: ignore[attr-defined]
    assert made.services.models is None  # type: ignore[attr-defined]


def test_a_model_is_given_to_those_that_need_one(tmp_path: Path) -> None:
    body = (
        "from memprobe import Capabilities\n"
        "class Mine:\n"
        "    capabilities = Capabilities(needs_llm=True)\n"
        f"    def __init__(self, services): self.services = services\n{METHODS}\n"
    )
    spec = f"{write(tmp_path / 'm.py', body)}:Mine"
    with pytest.raises(MissingPrerequisite, match="--model"):
        registry().create(spec, "u")
    asked: list[tuple[str, str, str, int]] = []

    def line(system: str, user: str, stage: str, epoch: int) -> FixedLine:
        asked.append((system, user, stage, epoch))
        return FixedLine(ModelAccess("http://127.0.0.1:1/v1", "key", "chat", "embed"))

    made = registry(lines=line).create(spec, "user_007", "recover", 2)
    assert asked == [("mine", "user_007", "recover", 2)]
    assert made.services.models.chat_model == "chat"  # type: ignore[attr-defined]


def test_missing_and_plain_methods_are_named(tmp_path: Path) -> None:
    body = "class Mine:\n    async def open(self, scope): ...\n    def write(self, event): ...\n"
    path = write(tmp_path / "m.py", body)
    with pytest.raises(AdapterContractError) as caught:
        registry().card(f"{path}:Mine")
    assert "missing: search, dump, save, restore, close" in str(caught.value)
    assert "must be `async def`: write" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("nowhere.py:Mine", "there is no file"),
        ("{file}:Other", "has no class 'Other'; it has Mine"),
        ("{file}", "name the class as well"),
    ],
)
def test_a_wrong_path_says_what_is_wrong(spec: str, says: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", f"class Mine:\n{METHODS}\n")
    with pytest.raises(UsageError, match=says):
        registry().card(spec.format(file=path))


@pytest.mark.parametrize("line", ["from . import beside", "import beside"])
def test_an_import_of_a_sibling_is_explained(line: str, tmp_path: Path) -> None:
    write(tmp_path / "beside.py", "")
    path = write(tmp_path / "m.py", f"{line}\nclass Mine: ...\n")
    with pytest.raises(AdapterError, match=r"memprobe\.memory_systems"):
        registry().card(f"{path}:Mine")


def test_an_import_error_is_passed_on(tmp_path: Path) -> None:
    path = write(tmp_path / "m.py", "1 / 0\n")
    with pytest.raises(AdapterError, match="ZeroDivisionError"):
        registry().card(f"{path}:Mine")
    assert not any(
        n.startswith("memprobe_external")
        and "m.py" in str(getattr(m, "__file__", ""))
        and str(tmp_path) in str(m.__file__)
        for n, m in sys.modules.items()
    )


def test_a_constructor_that_fails_is_named(tmp_path: Path) -> None:
    body = f"class Mine:\n    def __init__(self, url): ...\n{METHODS}\n"
    path = write(tmp_path / "m.py", body)
    with pytest.raises(AdapterError, match="no arguments or `services=`"):
        registry().create(f"{path}:Mine", "u")


def test_card_and_capabilities_must_agree(tmp_path: Path) -> None:
    body = (
        "from memprobe import Capabilities\nfrom memprobe.systems import SystemCard\n"
        "class Mine:\n"
        "    capabilities = Capabilities(top_k=False)\n"
        "    card = SystemCard(name='x', title='x', summary='x', licence='x',"
        f" capabilities=Capabilities())\n{METHODS}\n"
    )
    path = write(tmp_path / "m.py", body)
    with pytest.raises(AdapterContractError, match="differ"):
        registry().card(f"{path}:Mine")


def test_a_broken_plugin_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "good": EntryPoint("good", "examples.my_memory:MyMemory", external.GROUP),
        "gone": EntryPoint("gone", "no_such_package_here:Memory", external.GROUP),
        "odd": EntryPoint("odd", "json:dumps", external.GROUP),
        "empty": EntryPoint("empty", "json:JSONDecoder", external.GROUP),
    }
    monkeypatch.setattr(external, "plugins", lambda: entries)
    source = registry()
    assert [card.name for card in source.cards()] == [*BUILT_IN, "good"]
    broken = source.broken()
    assert set(broken) == {"gone", "odd", "empty"}
    assert "ModuleNotFoundError" in broken["gone"]
    assert "not a class" in broken["odd"]
    assert "missing: " in broken["empty"]
    with pytest.raises(AdapterError, match="'gone'"):
        source.card("gone")
    assert source.card("good").origin == "plug-in examples.my_memory:MyMemory"


def test_an_edited_plugin_has_another_code_and_a_built_in_has_none(tmp_path: Path) -> None:
    """An edited adapter must not be measured by the results of the one before."""
    source = EXAMPLE.read_text()
    file = tmp_path / "mine.py"
    file.write_text(source)
    before = registry().card(f"{file}:MyMemory").code
    file.write_text(source + "\n# edited\n")
    after = registry().card(f"{file}:MyMemory").code
    assert len(before) == len(after) == 64
    assert before != after
    assert registry().card("rag").code == ""
