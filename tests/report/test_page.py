"""What is written to disk: the page, its policy, the payloads, the other formats."""

import base64
import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

from tasks.report import build_report
from tasks.report.build import statements
from tasks.report.cases import TABLES, collect, user_payload
from tasks.report.data import Comparison
from tasks.report.packing import Parts, pack, unpack, variant_name
from tasks.report.page import script_json, ticked
from tests.report.make_run import make_run


def test_all_formats_of_every_table_are_written(tmp_path: Path) -> None:
    path = build_report(make_run(tmp_path / "run", users=1))
    assert path == tmp_path / "run" / "report" / "index.html"
    names = {p.name for p in (path.parent / "tables").iterdir()}
    stems = {name.rsplit(".", 1)[0] for name in names}
    assert len(stems) == 13
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("csv", "tex", "md")}
    assert (path.parent / "summary.md").read_text(encoding="utf-8").startswith("# made")
    linked = set(re.findall(r'href="(tables/[^"]+)"', path.read_text(encoding="utf-8")))
    assert linked == {f"tables/{name}" for name in names}


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=2)
    first = build_report(store).read_bytes()
    assert build_report(store).read_bytes() == first


def test_the_policy_lets_in_exactly_the_scripts_of_the_page(tmp_path: Path) -> None:
    page = build_report(make_run(tmp_path / "run", users=1)).read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    said = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in said
    assert "unsafe-eval" not in said
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert set(re.findall(r"'sha256-([^']+)'", said)) == hashes
    assert not re.search(r"\son[a-z]+\s*=", re.sub(r"<script.*?</script>", "", page, flags=re.S))


def test_data_in_a_script_cannot_end_it() -> None:
    value = {"a": "</script><!--<script>&\u2028\u2029"}
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


def test_a_payload_holds_a_case_from_target_to_verdict(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=1)
    payload = unpack(pack(user_payload(Parts(store, TABLES), "user_000", ["nomem", "rag"])))
    case = next(
        c
        for c in payload["cases"]
        if (c["system"], c["variant"], c["target"])
        == ("rag", "retrieve@5", "skill_memory/skill_memory_3")
    )
    assert payload["targets"][case["target"]]["short"] == "short of skill_memory_3 for user_000"
    rag = payload["stores"]["rag"]["1"]
    episode = rag["episodes"][str(case["attribution"]["episode"])]
    assert episode["turns"][0]["user"].startswith("user turn 1 on skill_memory_3")
    hits = rag["retrieved"][case["target"]]["hits"]
    stored = {row["item_id"]: row["content"] for row in store.read("memory_items", system="rag")}
    assert [rag["items"][hit["at"]]["text"] for hit in hits] == [stored[h["id"]] for h in hits]
    assert case["slot"]["call"] == "slot-user_000-4"
    assert payload["stores"]["nomem"]["1"]["items"] == []


def test_a_cap_keeps_the_first_users_and_the_page_says_so(tmp_path: Path) -> None:
    store = make_run(tmp_path / "run", users=4)
    users = [f"user_{n:03d}" for n in range(4)]
    whole = collect(store, users, ["nomem", "rag"])
    assert whole.complete
    cap = sum(map(len, whole.packed[:2])) + 10
    book = collect(store, users, ["nomem", "rag"], cap)
    assert book.users == users[:2]
    assert set(unpack(book.index)["u"]) == {0, 1}
    page = build_report(store, cap=cap).read_text(encoding="utf-8")
    assert re.search(r"the cases of the first \d of 4 users", page)
    assert "memprobe sql made" in page


def test_later_epochs_and_layers_have_names_of_their_own() -> None:
    base = {"access_mode": "retrieve", "k": 5, "epoch": 1, "layer": "base"}
    assert variant_name(base) == "retrieve@5"
    assert variant_name({**base, "epoch": 2, "layer": "rejudge"}) == "retrieve@5;e2;rejudge"
    assert variant_name({"access_mode": "dump_all", "k": None}) == "dump_all"


def test_many_pairs_without_a_difference_are_counted() -> None:
    def pair(n: int, shown: bool) -> Comparison:
        return Comparison("dump_all", None, "a", f"b{n}", 8, 0.1, 0.05, 0.2, 0.01, shown)

    few = SimpleNamespace(refused=set(), comparisons=[pair(1, True), pair(2, False)])
    assert len(statements(few)) == 2  # type: ignore[arg-type]
    pairs = [pair(n, n == 3) for n in range(10)]
    many = SimpleNamespace(refused=set(), comparisons=pairs)
    first, last = statements(many)  # type: ignore[arg-type]
    assert "b3" in first
    assert last == "dump_all: no difference shown in 9 of 10 pairs"


def test_code_in_notes_is_marked_and_escaped() -> None:
    assert ticked("use `a <b>` now") == "use <code>a &lt;b&gt;</code> now"
    assert ticked("<i>odd ` one") == "&lt;i&gt;odd ` one"
