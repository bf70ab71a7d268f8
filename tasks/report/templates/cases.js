// What a case of recovery is: a target of a user, read in one way from one system's memory.
(() => {
  const scoreText = (score) => (score === null ? "not measured" : score.toFixed(2));
  const dimensionOf = (target) => target.slice(target.indexOf("/") + 1);
  const labelText = (label) => page.labels[label] || label;

  function scoreFits(score, wanted) {
    if (wanted === "none") return score === null;
    if (score === null) return false;
    if (wanted === "lost") return score < 0.75;
    if (wanted === "recovered") return score >= 0.75;
    return Math.abs(score - Number(wanted)) < 1e-9;
  }

  function highlighted(text, evidence) {
    const at = evidence ? text.indexOf(evidence) : -1;
    if (at < 0) return prose(text);
    const node = prose("");
    node.append(text.slice(0, at), el("mark", { text: evidence }), text.slice(at + evidence.length));
    return node;
  }

  function transcript(episode, evidence) {
    const box = el("div");
    if (!episode) return el("p", { class: "empty", text: "No episode was stored for this target." });
    box.append(el("div", { class: "turn user" }, el("b", { text: "Task" }), highlighted(episode.task || "", evidence)));
    episode.turns.forEach((turn, place) => {
      box.append(el("div", { class: "turn assistant" },
        el("b", { text: `Assistant, turn ${place + 1}` }), prose(turn.assistant), callLine("call", turn.assistant_call)));
      box.append(el("div", { class: "turn user" },
        el("b", { text: `User (${turn.feedback})` }), highlighted(turn.user || "", evidence), callLine("call", turn.user_call),
        preferences(turn.preferences)));
    });
    box.append(el("p", { class: "meta", text: `${episode.time} · ${counted(episode.turns.length, "turn")} · ended: ${episode.end || "not finished"}` }));
    const broken = unmeasured(episode);
    if (broken) box.append(broken);
    return box;
  }

  function preferences(rows) {
    const known = (rows || []).filter((row) => row.score !== null);
    if (known.length === 0) return null;
    const body = el("div");
    known.forEach((row) => body.append(el("p", { class: "meta", dir: "auto", text: `${row.dimension}: ${row.score}. ${row.why || ""}` })));
    return el("details", {}, el("summary", { class: "meta", text: "Preference scores" }), body);
  }

  function stored(store, episode) {
    const items = store ? store.items : [];
    const box = el("div");
    if (items.length === 0) return el("p", { class: "empty", text: "The store is empty." });
    const day = episode && episode.time ? episode.time.slice(0, 10) : null;
    const near = day ? items.filter((item) => item.time && item.time.slice(0, 10) === day) : [];
    if (near.length > 0) {
      box.append(el("p", { class: "meta", text: `From ${counted(items.length, "item")}, ${near.length} of the day of this target's episode:` }), itemList(near));
    } else {
      box.append(el("p", { class: "meta", text: `${counted(items.length, "item")}; none is dated on the day of this target's episode.` }));
    }
    box.append(wholeStore(items));
    return box;
  }

  function retrieved(store, item) {
    if (item.mode !== "retrieve") return el("p", { class: "meta", text: "This reader was given the whole store." });
    const entry = store && store.retrieved[item.target];
    if (!entry) return el("p", { class: "empty", text: "Nothing was retrieved." });
    const ol = el("ol", { class: "items" });
    entry.hits.slice(0, item.k).forEach((hit) => {
      const source = hit.at === undefined ? { id: hit.id, text: hit.text } : store.items[hit.at];
      ol.append(itemNode(source, hit.score));
    });
    return el("div", {}, el("p", { class: "meta", dir: "auto", text: `Query: ${entry.query}` }), ol);
  }

  function attributionNode(blame, oracle) {
    if (!blame) return el("p", { class: "empty", text: "Not attributed." });
    const yes = (value) => (value === null || value === undefined ? null : value ? "yes" : "no");
    return el("div", {}, facts([
      ["Label", `${labelText(blame.label)} (${blame.label})`],
      ["Task could invite it", yes(blame.can_invite)],
      ["Oracle", oracle && oracle.why],
      ["User let it show", yes(blame.disclosed)],
      ["Evidence", blame.evidence],
      ["Reason", blame.cause_reason],
    ]), unmeasured(blame));
  }

  function otherJudges(item) {
    if (!item.others) return null;
    return section("Other judges", ...item.others.map((other) => el("div", {},
      el("p", { class: "meta", dir: "auto", text: `${other.layer}, judged by ${other.model || "nobody known"}: ${scoreText(other.score)}` }),
      prose(other.why))));
  }

  function direction(item) {
    if (!item.polarity) return null;
    return section("Direction of the label", ...item.polarity.map((found) => facts([
      ["Read by", found.method],
      ["Label and target", found.polarity || `not measured: ${found.reason}`],
      ["Target", [found.target_pole, found.target_said].filter(Boolean).join(": ")],
      ["Label", [found.label_pole, found.label_said].filter(Boolean).join(": ")],
    ])));
  }

  function calls(item, payloadTarget) {
    const blame = item.attribution || {};
    return callList([
      ["slot-fill", item.slot && item.slot.call], ["judge", item.verdict.call],
      ["oracle", blame.oracle_call || (payloadTarget.oracle && payloadTarget.oracle.call)],
      ["disclosure", blame.disclosure_call], ["subclass", blame.subclass_call],
    ]);
  }

  function render(data, item) {
    const target = data.targets[item.target] || {};
    const store = (data.stores[item.system] || {})[String(item.epoch)];
    const episodes = store ? Object.values(store.episodes) : [];
    const number = item.attribution && item.attribution.episode;
    const episode = (number && store && store.episodes[number]) || episodes.find((e) => e.target === item.target);
    const verdict = item.verdict;
    const slot = item.slot || {};
    return [
      el("p", { class: "meta", dir: "auto", text: `${data.user} · ${item.target} · ${item.system} · ${item.variant}` }),
      section("Target", prose(target.short), prose(target.explanation)),
      section("Verdict",
        el("p", { class: "score", text: scoreText(verdict.score) }), prose(verdict.why),
        unmeasured(verdict), el("p", { class: "meta", dir: "auto", text: `judged by ${verdict.model || "nobody"}` })),
      otherJudges(item),
      direction(item),
      section("Slot-fill", prose(slot.label === null || slot.label === undefined ? "no answer" : slot.label), prose(slot.why),
        unmeasured(slot), el("p", { class: "meta", text: `${counted(slot.n_items ?? 0, "item")}, about ${counted(slot.prompt_tokens ?? 0, "token")} of memory` })),
      section("Attribution", attributionNode(item.attribution, target.oracle)),
      section("Retrieved", retrieved(store, item)),
      section("Transcript", transcript(episode, item.attribution && item.attribution.evidence)),
      section("Stored", stored(store, episode)),
      section("Task", prose(target.task), target.rationale ? facts([["Rationale", target.rationale], ["Planted", target.planted]]) : null),
      section("Calls", calls(item, target)),
      el("details", {}, el("summary", { text: "Persona" }), el("pre", { dir: "auto", text: JSON.stringify(data.profile, null, 2) })),
    ];
  }

  const numbered = (names, wording = (text) => text) => names.map((text, place) => [String(place), wording(text)]);

  caseBrowser({
    noun: "User",
    any: ["all users", "all dimensions"],
    targetOf: dimensionOf,
    targetText: (target) => target.replace("/", ": "),
    filters: [
      { name: "label", any: "any", choices: (index) => numbered(index.labels, labelText), fits: (index, i, value) => index.label[i] === Number(value) },
      {
        name: "score",
        any: "any",
        choices: () => [["recovered", "0.75 or more"], ["lost", "under 0.75"], ["0", "0"], ["0.25", "0.25"], ["0.5", "0.5"], ["0.75", "0.75"], ["1", "1"], ["none", "not measured"]],
        fits: (index, i, value) => scoreFits(index.score[i], value),
      },
      { name: "check", any: "any", choices: (index) => numbered(index.checkNames), fits: (index, i, value) => Boolean(index.checks[i] & (1 << Number(value))) },
    ],
    small(index, i) {
      const label = index.label[i] < 0 ? "" : ` · ${labelText(index.labels[index.label[i]])}`;
      return `${index.systems[index.s[i]]} · ${index.variants[index.v[i]]} · ${scoreText(index.score[i])}${label}`;
    },
    find: (data, keys) => data.cases.find((c) => c.target === keys.target && c.system === keys.system && c.variant === keys.variant),
    render,
  });
})();
