// What a case of the paradigms suite is: a probe of an episode, asked of one system's memory.
(() => {
  const probeText = (probe) => page.probes[probe] || probe;
  const numbered = (names, wording = (text) => text) => names.map((text, place) => [String(place), wording(text)]);
  const matchText = (verdict) => (verdict ? verdict.match || "not scored" : "no verdict");

  const labelText = (label) => {
    const [failure, side] = label.split(", ");
    return `${page.failures[failure] || failure}, ${side}`;
  };

  const gold = (title, ...nodes) => section(`${title} (gold side)`, ...nodes);

  // Items point into the episode's texts.
  const read = (data, item) => ({ ...item, text: item.text === null ? "" : data.texts[item.text] });

  function answerNode(answer) {
    if (!answer) return el("p", { class: "empty", text: "Not asked." });
    let said = answer.json;
    try {
      said = answer.json === null ? null : JSON.stringify(JSON.parse(answer.json), null, 2);
    } catch { /* shown as it is */ }
    return el("div", {},
      said === null ? el("p", { class: "empty", text: "No answer." }) : el("pre", { dir: "auto", text: said }),
      unmeasured(answer),
      el("p", { class: "meta", text: `${answer.n_items === null ? "unknown number of items" : counted(answer.n_items, "item")}${answer.tokens === null ? "" : `, prompt of about ${counted(answer.tokens, "token")}`}` }));
  }

  function verdictNode(item) {
    const box = el("div");
    const names = Object.keys(item.verdicts).sort((a, b) => (b === page.scorer) - (a === page.scorer));
    for (const name of names) {
      const verdict = item.verdicts[name];
      box.append(el("p", { class: "score", text: `${name}: ${matchText(verdict)}` }));
      if (verdict.why) box.append(prose(verdict.why));
      const parts = Object.entries(verdict.parts || {});
      if (parts.length) box.append(el("p", { class: "meta", dir: "auto", text: parts.map(([part, right]) => `${part}: ${right ? "right" : "wrong"}`).join(" · ") }));
      const broken = unmeasured(verdict);
      if (broken) box.append(broken);
    }
    if (names.length === 0) box.append(el("p", { class: "empty", text: "No verdict." }));
    return box;
  }

  function failureNode(item) {
    const found = item.failures[page.scorer] || Object.values(item.failures)[0];
    if (!found) return null;
    return section("Why it failed", facts([
      ["Failure", page.failures[found.failure] || found.failure],
      ["Side", found.side],
      ["Evidence", found.evidence],
      ["Items", found.items.join(", ")],
    ]));
  }

  function specNode(data) {
    const spec = data.spec;
    if (!spec) return el("p", { class: "empty", text: "No spec is stored." });
    const source = spec.perturbation || {};
    return el("div", {}, facts([
      ["Paradigm", spec.paradigm], ["Condition", spec.condition], ["Domain", spec.domain],
      ["Fact", [spec.fact_type, spec.fact_question].filter(Boolean).join(": ")],
      ["Initial value", spec.initial_value], ["New value", spec.new_value],
      ["Distractors", (spec.distractor_values || []).join(", ")],
      ["Expected", spec.expected_behavior === "should_update" ? "update" : "keep"],
      ["Perturbation", Object.entries(source).filter(([, value]) => ["string", "boolean"].includes(typeof value)).map(([name, value]) => `${name}: ${value}`).join(" · ")],
      ["Split", spec.split ? "yes" : "no"],
    ]), el("details", {}, el("summary", { text: "The whole spec" }), el("pre", { dir: "auto", text: JSON.stringify(spec, null, 2) })));
  }

  const WHO = { user: "User", assistant: "Assistant", tool_output: "Tool output" };

  function sessionsNode(data, store) {
    const lost = new Map((store ? store.lost : []).map((row) => [row.session, row]));
    const box = el("div");
    for (const session of data.sessions) {
      const filler = session.type.startsWith("filler");
      const head = `${session.index}. ${session.time} · ${session.type}`;
      const body = el("details", filler ? {} : { open: "" }, el("summary", { dir: "auto", text: head }));
      const gone = lost.get(session.index);
      if (gone) body.append(unmeasured(gone));
      session.turns.forEach((turn) => body.append(el("div", { class: `turn ${turn.role === "user" ? "user" : "assistant"}` },
        el("b", { text: WHO[turn.role] || turn.role }), prose(data.texts[turn.text]))));
      box.append(body);
    }
    if (data.sessions.length === 0) box.append(el("p", { class: "empty", text: "No session is stored." }));
    return box;
  }

  function storedNode(data, store, item) {
    if (!store) return el("p", { class: "empty", text: "Nothing was written into a store yet." });
    const items = store.items.map((one) => read(data, one));
    const box = el("div");
    if (store.written || store.lost.length) {
      box.append(el("p", { class: "meta", text: `${counted(store.written, "session")} written${store.lost.length ? `, ${store.lost.length} failed` : ""}` }));
    }
    if (items.length === 0) {
      box.append(el("p", { class: "empty", text: "The store is empty." }));
      return box;
    }
    const found = item.failures[page.scorer];
    const named = found ? items.filter((one) => found.items.includes(one.id)) : [];
    if (named.length) box.append(el("p", { class: "meta", text: "The items that the evidence names:" }), itemList(named));
    box.append(wholeStore(items));
    return box;
  }

  function retrievedNode(data, store, item) {
    if (item.mode !== "retrieve") return el("p", { class: "meta", text: "This reader was given the whole store; of a reference that is told the sessions, those alone." });
    const entry = store && store.retrieved[item.target];
    if (!entry) return el("p", { class: "empty", text: "Nothing was retrieved." });
    const ol = el("ol", { class: "items" });
    entry.hits.slice(0, item.k).forEach((hit) => ol.append(itemNode(read(data, hit), hit.score)));
    return el("div", {}, el("p", { class: "meta", dir: "auto", text: `Query: ${entry.query}` }), ol);
  }

  function others(data, store, item) {
    const rest = data.cases.filter((c) => c.system === item.system && c.variant === item.variant && c.target !== item.target);
    if (rest.length === 0) return null;
    return section("The other probes of this memory", ...rest.map((other) => {
      const probe = data.probes[other.target] || {};
      return el("details", {},
        el("summary", { dir: "auto", text: `${probeText(other.target)}: ${matchText(other.verdicts[page.scorer])}` }),
        prose(probe.question), el("p", { class: "meta", dir: "auto", text: `Gold: ${probe.gold_answer ?? "none"}` }),
        answerNode(other.answer), verdictNode(other), failureNode(other), retrievedNode(data, store, other));
    }));
  }

  function render(data, item) {
    const store = (data.stores[item.system] || {})[String(item.epoch)];
    const probe = data.probes[item.target] || {};
    const verdicts = Object.values(item.verdicts);
    return [
      el("p", { class: "meta", dir: "auto", text: `${data.user} · ${probeText(item.target)} · ${item.system} · ${item.variant}` }),
      section("Question", prose(probe.question)),
      gold("Gold answer", prose(probe.gold_answer ?? "none"), el("p", { class: "meta", text: probe.expected === "should_update" ? "should update" : "should keep" })),
      section("Answer", answerNode(item.answer)),
      section("Verdicts", verdictNode(item)),
      failureNode(item),
      section("Retrieved", retrievedNode(data, store, item)),
      section("Stored", storedNode(data, store, item)),
      others(data, store, item),
      gold("Spec", specNode(data)),
      gold("Sessions in order", sessionsNode(data, store)),
      section("Calls", callList([
        ["reader", item.answer && item.answer.call],
        ["verdict", verdicts.map((verdict) => verdict.call).find((call) => call && call !== (item.answer && item.answer.call))],
      ])),
    ];
  }

  caseBrowser({
    noun: "Episode",
    any: ["all episodes", "all probes"],
    targetOf: (target) => target,
    targetText: probeText,
    filters: [
      { name: "paradigm", any: "any", choices: (index) => numbered(index.paradigms), fits: (index, i, value) => index.paradigm[i] === Number(value) },
      {
        name: "match",
        any: "any",
        choices: (index) => [...numbered(index.matches), ["-1", "not scored"]],
        fits: (index, i, value) => index.match[i] === Number(value),
      },
      { name: "label", any: "any", choices: (index) => numbered(index.labels, labelText), fits: (index, i, value) => index.label[i] === Number(value) },
      { name: "differ", any: "any", choices: () => [["1", "they differ"], ["0", "they agree"]], fits: (index, i, value) => index.differ[i] === Number(value) },
    ],
    small(index, i) {
      const match = index.match[i] < 0 ? "not scored" : index.matches[index.match[i]];
      const label = index.label[i] < 0 ? "" : ` · ${labelText(index.labels[index.label[i]])}`;
      return `${index.systems[index.s[i]]} · ${index.variants[index.v[i]]} · ${match}${label}`;
    },
    find: (data, keys) => data.cases.find((c) => c.target === keys.target && c.system === keys.system && c.variant === keys.variant),
    render,
  });
})();
