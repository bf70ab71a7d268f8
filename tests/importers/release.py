"""A small release in the public layout, of texts written for these tests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

CATEGORIES = {
    "skill_memory": ("soldering_skill", "map_reading_skill"),
    "knowledge_memory": ("moss_knowledge",),
    "episodic_memory": ("ferry_memory",),
    "self_model": ("patience_model",),
    "assistance_preference": ("length_preference", "tone_preference"),
}
RUNS = {
    "nomem": "nomem_pooled_50",
    "amem": "amem_pooled_50",
    "longctx_full": "longctx_full_pooled_50",
    "mem0": "mem0_pooled_50",
    "memt": "memt_memonly_pooled_50",
}
TARGETS = [(c, d) for c, ds in CATEGORIES.items() for d in ds]
SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)

Doc = dict[str, Any]


def write(path: Path, value: Any) -> None:
    """A file in the release's own style."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def change(path: Path, edit: Any) -> None:
    """Load, edit in place, write again."""
    value = load(path)
    edit(value)
    write(path, value)


def bank_user(user: str) -> Doc:
    return {
        "user_id": user,
        "base_profile": {"age_info": {"age": 41, "age_group": "adult"}, "gender": "woman"},
        "memory_bank": {
            category: [
                {
                    "dimension": d,
                    "short": f"{user} short of {d}",
                    "explanation": f"Zwölf Sätze über {d} von {user} — 猫.",
                }
                for d in dimensions
            ]
            for category, dimensions in CATEGORIES.items()
        },
    }


def tasks(user: str) -> Doc:
    return {
        "user_id": user,
        "generated_at": "2026-01-02 03:04:05",
        "n_tasks": len(TARGETS),
        "tasks": [
            {
                "task": f"Help {user} with matter {n}, please.",
                "rationale": f"It invites {d}.",
                "target_category": c,
                "target_dimension": d,
                "target_short": f"{user} short of {d}",
                "pipeline_note": "",
            }
            for n, (c, d) in enumerate(TARGETS, 1)
        ],
    }


def history(user: str, number: int, draw: random.Random) -> Doc:
    n = draw.randint(1, 3)
    return {
        "user_id": user,
        "task": f"Help {user} with matter {number}, please.",
        "ground_truth": None,
        "end_reason": "satisfied",
        "final_preference_score": 4.5,
        "final_gt_correct": None,
        "turns": [
            {
                "turn": t,
                "agent_response": f"Reply {t} to {user}.",
                "user_simulator": {
                    "feedback_type": "satisfied" if t == n else "followup",
                    "text": f"Word {t} of {user} — naïve.",
                    "is_done": t == n,
                },
                "preference_evaluator": {"score": 4.5},
                "gt_correct": None,
            }
            for t in range(1, n + 1)
        ],
    }


def preferences(episode: Doc) -> Doc:
    names = CATEGORIES["assistance_preference"]
    user = episode["user_id"]
    return {
        "user_id": user,
        "task": episode["task"],
        "prefs": [
            {
                "idx": i,
                "dimension": d,
                "short": f"{user} short of {d}",
                "explanation": f"Zwölf Sätze über {d} von {user} — 猫.",
            }
            for i, d in enumerate(names, 1)
        ],
        "turns": [
            {
                "turn": turn["turn"],
                "agent_response": turn["agent_response"],
                "score": 4.5,
                "summary": "mean=4.50 over 2/2 prefs (na=0)",
                "per_pref": [
                    {"idx": 1, "score": 5, "reason": "short"},
                    {"idx": 2, "score": 4, "reason": "kind"},
                ],
            }
            for turn in episode["turns"]
        ],
    }


def items(system: str, user: str) -> list[Doc]:
    """What a store holds, in the shape of each system."""
    match system:
        case "nomem":
            return []
        case "amem":
            return [
                {"id": f"a{n}", "content": f"note {n} of {user}", "keywords": ["k"], "context": "c",
                 "tags": [], "category": "user", "timestamp": "202601020304"}
                for n in range(6)
            ]  # fmt: skip
        case "longctx_full":
            return [
                {"content": "[Task 1] start", "category": "task", "task_index": 1},
                *({"content": f"User: {n}", "category": "user_reply", "task_index": 1, "turn": n}
                  for n in range(1, 7)),
            ]  # fmt: skip
        case "mem0":
            return [
                {"id": f"m{n}", "content": f"fact {n}", "category": "fact", "metadata": None,
                 "timestamp": "2026-01-02T03:04:05+00:00"}
                for n in range(7)
            ]  # fmt: skip
    return [
        {"id": f"t{n}", "content": f"fact {n}\n\n----- ORIGINAL SOURCE -----\nsaid {n}",
         "category": "facts",
         "metadata": {"turn_time": "2026-01-02T03:04:05", "op_ids": [{"a": 1}]},
         "timestamp": "2026-01-02T03:04:05"}
        for n in range(8)
    ]  # fmt: skip


def retrieved(system: str, user: str, draw: random.Random) -> list[Doc]:
    found = draw.sample(items(system, user), 5)
    for rank, item in enumerate(found):
        match system:
            case "amem" | "longctx_full":
                item["score"] = 0.5 + rank / 8
            case "memt":
                item["score"] = None
    return found


def details(system: str, user: str, mode: str, draw: random.Random) -> list[Doc]:
    out = []
    for category, d in TARGETS:
        lost = system == "memt" and user == "user_002" and mode == "dump_all"
        row: Doc = {
            "category": category,
            "dimension": d,
            "explanation": f"Zwölf Sätze über {d} von {user} — 猫.",
            "ground_truth": f"{user} short of {d}",
            "predicted": "unknown" if lost else f"guess about {d}",
            "slot_fill_reason": "" if lost else "It says so.",
            "score": 0.0 if lost or system == "nomem" else draw.choice(SCORES),
            "judge_reason": "As the words are.",
            "scoring_mode": mode,
        }
        if mode == "retrieve":
            row["retrieved_memories"] = retrieved(system, user, draw)
        out.append(row)
    return out


def oracle(user: str) -> Doc:
    return {d: {"can_invite": True, "reason": f"It may for {d}."} for _, d in TARGETS}


def blamed(listed: list[Doc], user: str, draw: random.Random) -> Doc:
    out = []
    for number, detail in enumerate(listed, 1):
        given: Doc = {"category": "ok", "score": detail["score"], "stages": []}
        if detail["score"] < 0.75:
            shown = draw.random() < 0.7
            stages = [
                {"stage": "oracle", "can_invite": True,
                 "reason": f"It may for {detail['dimension']}."},
                {"stage": "disclosure", "disclosed": shown, "evidence": "a word", "reason": "so"},
            ]  # fmt: skip
            label = "memory_failure"
            if not shown:
                label = "agent_elicitation_failure"
                stages.append({"stage": "disclosure_subclass", "category": "A", "reason": "did "
                               "not ask", "evidence": "none"})  # fmt: skip
            given = {"category": label, "score": detail["score"], "stages": stages,
                     "ep_index": number}  # fmt: skip
        out.append({**detail, "attribution": given})
    counts: dict[str, int] = {}
    for row in out:
        label = row["attribution"]["category"]
        counts[label] = counts.get(label, 0) + 1
    return {"user_id": user, "tasks_dir": "CustomTasksPooledFinal", "counts": counts,
            "details": out}  # fmt: skip


def make_release(
    folder: Path,
    users: tuple[str, ...] = ("user_001", "user_002"),
    *,
    with_preferences: bool = True,
) -> Path:
    """Write a release of all five systems; returns its root."""
    draw = random.Random(3)
    root = folder / "release"
    bank = {"generated_at": "2026-01-01", "source": "tests", "num_users": len(users),
            "users": [bank_user(user) for user in users]}  # fmt: skip
    write(root / "Deeppersona/data/user_memory_banks_pooled_final.json", bank)
    for user in users:
        write(root / f"benchmark_data/CustomTasksPooledFinal/{user}.json", tasks(user))
        write(root / f"output/_task_design_oracle/{user}.json", oracle(user))
        for system, run in RUNS.items():
            _chain(root, system, run, user, draw, with_preferences)
    return root


def _chain(
    root: Path, system: str, run: str, user: str, draw: random.Random, with_preferences: bool
) -> None:
    for number in range(1, len(TARGETS) + 1):
        episode = history(user, number, draw)
        write(root / f"history/{run}/{user}/episode_{number}.json", episode)
        if with_preferences:
            write(root / f"pref_judge/{run}/{user}/episode_{number}.json", preferences(episode))
    held = items(system, user)
    write(
        root / f"memory/{run}/{user}/memories.json", {"num_memories": len(held), "memories": held}
    )
    for mode, suffix in (("dump_all", ""), ("retrieve", "_retrieve")):
        if system == "nomem" and mode == "retrieve":
            continue
        listed = details(system, user, mode, draw)
        by_category: dict[str, list[float]] = {}
        for row in listed:
            by_category.setdefault(row["category"], []).append(row["score"])
        means = {c: sum(s) / len(s) for c, s in by_category.items()}
        judged = {"user_id": user, "per_category": means,
                  "overall": sum(means.values()) / len(means), "details": listed}  # fmt: skip
        folder = root / f"output/{run}{suffix}"
        write(folder / f"recon_judge/{user}.json", judged)
        write(folder / f"attribution/{user}.json", blamed(listed, user, draw))
