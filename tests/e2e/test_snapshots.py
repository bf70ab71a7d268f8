"""A checkpoint whose store was lost or changed fails its unit, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage.runs import RunStore
from tests.e2e.conftest import Clean, NewShell
from tests.e2e.support import REMOTE, SMALL, Model, assert_same_tables, finish, kill_group, until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
UNIT = "rollout__longctx_full__user_001"


def newest(work: Path) -> Path:
    (folder,) = work.glob("episode-*")
    return folder


@pytest.mark.parametrize("damage", ["deleted", "edited"])
def test_a_damaged_checkpoint_in_mid_rollout(shell: NewShell, clean: Clean, damage: str) -> None:
    with Model(latency=0.1) as model:
        home = shell("home", **model.env)
        work = home.runs / "t" / "work" / UNIT
        process = home.start(*REMOTE, *SMALL, "--run", "t", "--json")
        until((work / "checkpoint.json").exists, "a first checkpoint")
        kill_group(process)
        finish(process)
        store = newest(work) / "store"
        if damage == "deleted":
            shutil.rmtree(store)
        else:
            victim = min(p for p in store.rglob("*") if p.is_file())
            victim.write_bytes(victim.read_bytes() + b" ")
        done = home.remote("t")
        assert done.code == 1, done.err
        assert str(work) in done.err
        assert done.json["status"] == "incomplete"
        assert [UNIT in line for line in done.json["failures"]] == [True]
        # This rollout and its measurement are missing; all else is there.
        assert done.json["units_done"] == done.json["units_total"] - 2
        run = RunStore.open(home.runs / "t")
        assert run.read("memory_items", system="longctx_full", user="user_001") == []
        lost = run.read("verdicts", system="longctx_full", user="user_001")
        assert {(r["status"], r["reason"], r["score"]) for r in lost} == {
            ("unscored", "adapter_error", None)
        }
        assert run.read("verdicts", system="longctx_full", user="user_002") != []

        shutil.rmtree(work)
        healed = home.remote("t")
        assert healed.code == 0, healed.err
    assert_same_tables(clean.run, home.runs / "t")


def test_a_store_changed_before_it_is_searched_again(shell: NewShell) -> None:
    with Model() as model:
        home = shell("home", **model.env)
        assert home.remote("t").code == 0
        work = home.runs / "t" / "work" / UNIT
        victim = min(p for p in (newest(work) / "store").rglob("*") if p.is_file())
        victim.write_bytes(victim.read_bytes()[:-1])
        wider = home.remote("t", "--k", "1,5")
        assert wider.code == 1, wider.err
        assert str(work) in wider.err
        assert ["longctx_full__user_001" in line for line in wider.json["failures"]] == [True]
        sent = len(model.chats)
        shutil.rmtree(work)
        healed = home.remote("t", "--k", "1,5")
        assert healed.code == 0, healed.err
        repeated = {s.digest for s in model.chats[:sent]} & {s.digest for s in model.chats[sent:]}
        assert not repeated, "a lost work folder is made again from the ledger"
