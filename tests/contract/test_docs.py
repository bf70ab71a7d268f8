"""The plug-in page says what is the case."""

import re

from adapters.memory.contract import CHECKS, NO_NETWORK
from adapters.memory.registry import BUILT_IN
from memprobe import Capabilities
from tests.contract.support import ROOT

PAGE = (ROOT / "docs/plug-in-my-memory-system.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_example_on_the_page_is_the_example() -> None:
    block = re.search(r"<!-- example: (\S+) -->\n```python\n(.*?)\n```\n", PAGE, re.DOTALL)
    assert block is not None
    assert block[2] == (ROOT / block[1]).read_text(encoding="utf-8").rstrip()


def test_the_example_is_as_short_as_promised() -> None:
    text = (ROOT / "examples/my_memory.py").read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 45


def test_every_check_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("What each check means"), re.MULTILINE)
    assert rows == [*CHECKS, NO_NETWORK]


def test_every_capability_is_explained_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (true|false) \|", section("Capabilities"), re.MULTILINE)
    defaults = {name: str(value).lower() for name, value in Capabilities().model_dump().items()}
    assert dict(rows) == defaults


def test_every_built_in_system_is_listed() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("The built-in systems"), re.MULTILINE)
    assert rows == list(BUILT_IN)
