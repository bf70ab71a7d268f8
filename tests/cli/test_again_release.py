"""The public release without a call: agreement of the embedded judge, the recorded searches.

The texts of the searches are not in the release. `MEMPROBE_PUBLISHED_SCORER` names the
published program's scorer.py (or queries as JSON) for the tests that need them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from adapters.memory.contract.network import NetworkGuard
from tests.cli.conftest import Invoke
from tests.importers.support import imported
from tests.importers.test_real_release import FOLDER, unpacked

pytestmark = pytest.mark.skipif(FOLDER is None, reason="the public release is not at hand")
SCORER = os.environ.get("MEMPROBE_PUBLISHED_SCORER", "")
needs_queries = pytest.mark.skipif(not SCORER, reason="MEMPROBE_PUBLISHED_SCORER is not set")


def test_the_embedded_judge_agrees_as_calibrated(invoke: Invoke, tmp_path: Path) -> None:
    release = unpacked("release_users_001_003.tar.zst", tmp_path / "release")
    imported(release, tmp_path / "runs" / "pub")
    with NetworkGuard() as guard:
        scored = invoke("score", "pub", "--model-role", "judge=embedded/judge", "--layer", "emb")
        compared = invoke("compare", "pub@published", "pub@emb", "--json")
    assert (scored.exit_code, compared.exit_code) == (0, 0), scored.stderr + compared.stderr
    assert guard.attempts == []
    facts = json.loads(compared.stdout)
    (judged,) = [a for a in facts["agreement"] if a["system"] is None and a["scope"] == "judged"]
    figures = judged["figures"]
    # On 40 users 0.51, 0.16 and 0.69; three users are few.
    assert figures["kappa"] > 0.35
    assert figures["mean_error"] < 0.2
    assert figures["threshold"] > 0.62
    assert facts["b_error"]["mean"] < 0.05
    assert facts["b_error"]["n_users"] == 3


def check(invoke: Invoke, tmp_path: Path, archive: str, n: int) -> None:
    imported(unpacked(archive, tmp_path / "release"), tmp_path / "runs" / "pub")
    queries = str(Path(SCORER).resolve())
    with NetworkGuard() as guard:
        made = invoke("retrievals", "pub", "--queries", queries, "--json")
    assert guard.attempts == []
    found = json.loads(made.stdout)
    assert (made.exit_code, found["n"], found["differing"]) == (0, n, [])
    assert found["score_error"] < 1e-5


@needs_queries
def test_the_recorded_searches_of_three_users(invoke: Invoke, tmp_path: Path) -> None:
    check(invoke, tmp_path, "release_users_001_003.tar.zst", 3 * 31)


@needs_queries
@pytest.mark.heavy
def test_the_recorded_searches_of_forty_users(invoke: Invoke, tmp_path: Path) -> None:
    check(invoke, tmp_path, "release_users_001_040.tar.zst", 40 * 31)
