"""Each planted fault fails its own check and no other."""

from pathlib import Path

import pytest

from tests.contract.support import FAULTY, failed, run_checks

FAULTS = {
    "born_full.py:BornFull": "empty_store",
    "capped_dump.py:CappedDump": "dump_complete",
    "chokes_on_surrogates.py:ChokesOnSurrogates": "lone_surrogate",
    "current_user.py:CurrentUser": "concurrent_stores",
    "cuts_text.py:CutsText": "long_message",
    "forgets_on_restore.py:ForgetsOnRestore": "save_restore",
    "ignores_k.py:IgnoresK": "k_honoured",
    "ignores_k_of_sessions.py:IgnoresKOfSessions": "k_honoured",
    "leaks_labels.py:LeaksLabels": "label_leak",
    "merges_duplicates.py:MergesDuplicates": "duplicates",
    "needs_network.py:NeedsNetwork": "no_network",
    "normalises_text.py:NormalisesText": "unicode",
    "phones_home.py:PhonesHome": "no_network",
    "process_bound.py:ProcessBound": "save_restore",
    "refuses_sessions.py:RefusesSessions": "whole_sessions",
    "shared_store.py:SharedStore": "isolation",
    "swallows_errors.py:SwallowsErrors": "errors_surface",
    "time_is_now.py:TimeIsNow": "event_time",
    "wrong_way_round.py:WrongWayRound": "k_honoured",
}


def test_every_faulty_system_is_listed() -> None:
    assert {spec.partition(":")[0] for spec in FAULTS} == {p.name for p in FAULTY.glob("*.py")}


@pytest.mark.parametrize(("spec", "check"), FAULTS.items())
async def test_a_fault_fails_its_own_check(spec: str, check: str, tmp_path: Path) -> None:
    results = await run_checks(str(FAULTY / spec), tmp_path)
    assert failed(results) == [check], [results[n].detail for n in failed(results)]
    detail = results[check].detail
    assert "expected" in detail
    assert "came" in detail
    assert "fix:" in detail


async def test_a_capped_dump_is_told_by_its_numbers(tmp_path: Path) -> None:
    results = await run_checks(str(FAULTY / "capped_dump.py:CappedDump"), tmp_path)
    detail = results["dump_complete"].detail
    assert "all 500 written facts" in detail
    assert "20 items that lack 480 of them" in detail


async def test_the_network_target_is_named(tmp_path: Path) -> None:
    results = await run_checks(str(FAULTY / "phones_home.py:PhonesHome"), tmp_path)
    assert "203.0.113.7:443" in results["no_network"].detail
    results = await run_checks(str(FAULTY / "needs_network.py:NeedsNetwork"), tmp_path)
    assert "embeddings.example" in results["no_network"].detail
    assert results["dump_complete"].skipped
