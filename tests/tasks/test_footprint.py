"""Stores are counted once, the same way each time, and again only when they changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.runs import RunStore, Unit
from tasks import footprint
from tasks.footprint import UNIT, count_stores, read_text, reader_window
from tasks.score import score_run
from tests.storage.rows import episode, item, new_run


def _store(run: RunStore, user: str, *contents: str) -> None:
    items = [item("rag", user, n, text) for n, text in enumerate(contents)]
    tables = {"episodes": [episode("rag", user, 1)], "memory_items": items}
    run.commit(Unit("rollout", "rag", user), "f", tables)


def test_a_store_is_counted_as_its_reader_is_given_it(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    _store(run, "u1", "likes green tea", "\u5979\u4f4f\u5728\u5317\u4eac \U0001f9e0")
    _store(run, "u2")
    assert count_stores(run) == 2
    full, empty = run.read("footprints")
    assert (full["items"], full["chars"]) == (2, 15 + 7)
    import tiktoken

    text = '[\n "likes green tea",\n "\u5979\u4f4f\u5728\u5317\u4eac \U0001f9e0"\n]'
    assert read_text(["likes green tea", "\u5979\u4f4f\u5728\u5317\u4eac \U0001f9e0"]) == text
    vocabulary = tiktoken.get_encoding("o200k_base")
    assert (full["tokens"], full["tokenizer"]) == (len(vocabulary.encode(text)), "o200k_base")
    assert (empty["items"], empty["chars"], empty["tokens"]) == (0, 0, 0)


def test_only_a_store_that_changed_is_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path / "run")
    for user in ("u1", "u2", "u3"):
        _store(run, user, f"of {user}")
    count_stores(run)
    (part,) = run.parts("footprints")
    before = run.files.read(part)
    encoded: list[str] = []

    def counting(tokenizer: str, text: str) -> int:
        encoded.append(text)
        return len(text)

    monkeypatch.setattr(footprint, "count_tokens", counting)
    assert count_stores(run) == 0
    assert run.files.read(part) == before
    _store(run, "u2", "of u2", "and more")
    assert score_run(run).state == "no scored samples"
    assert encoded == [read_text(["of u2", "and more"])]
    assert [row["items"] for row in run.read("footprints")] == [1, 2, 1]
    assert any(state.unit == UNIT and state.complete for state in run.units())


def test_a_window_is_the_readers_and_an_unknown_one_stays_unknown(tmp_path: Path) -> None:
    windows = {
        name: reader_window(new_run(tmp_path / name, **config).manifest.config)
        for name, config in {
            "embedded": {},
            "embedded-set": {"context_window": 500},
            "known": {"model": "openai/gpt-4o"},
            "unknown": {"model": "hosted_vllm/Mem-T-4B"},
            "set": {"model": "hosted_vllm/Mem-T-4B", "context_window": 32768},
        }.items()
    }
    assert windows == {
        "embedded": None,
        "embedded-set": None,
        "known": 128000,
        "unknown": None,
        "set": 32768,
    }
