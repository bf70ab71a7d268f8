"""Running the contract against a system named by its file."""

from pathlib import Path

from adapters.memory.contract import CheckResult, check_spec
from tests.adapters.support import WordEmbedder

ROOT = Path(__file__).parents[2]
FAULTY = Path(__file__).parent / "faulty"


async def run_checks(spec: str, workdir: Path) -> dict[str, CheckResult]:
    results = await check_spec(spec, WordEmbedder(), workdir=workdir)
    return {result.name: result for result in results}


def failed(results: dict[str, CheckResult]) -> list[str]:
    return [name for name, result in results.items() if not result.passed]
