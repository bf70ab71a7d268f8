"use strict";
// The case browser. All texts are untrusted: elements are made one by one and
// filled through textContent; nothing is ever parsed as HTML.
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const PAGE_SIZE = 100;
  const FAR = 1000;
  const SHOWN_ITEMS = 50;
  const form = document.getElementById("filters");
  const list = document.getElementById("case-list");
  const more = document.getElementById("more");
  const count = document.getElementById("count");
  const view = document.getElementById("case");
  const loaded = new Map();
  let index = null;
  let matches = [];
  let shown = 0;
  let open = -1;
  let request = 0;

  const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

  // --- elements ------------------------------------------------------------
  function el(tag, options = {}, ...children) {
    const node = document.createElement(tag);
    const { text, ...rest } = options;
    for (const [name, value] of Object.entries(rest)) node.setAttribute(name, value);
    if (text !== undefined && text !== null) node.textContent = String(text);
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  const prose = (text, tag = "p") => el(tag, { class: "text", dir: "auto", text });

  function facts(pairs) {
    const dl = el("dl", { class: "facts" });
    for (const [name, value] of pairs) {
      if (value === null || value === undefined || value === "") continue;
      dl.append(el("dt", { text: name }), el("dd", { dir: "auto", text: value }));
    }
    return dl;
  }

  function unmeasured(row) {
    if (!row || row.status !== "unscored") return null;
    return el("p", { class: "warning", dir: "auto", text: `not measured: ${row.reason}${row.detail ? ` (${row.detail})` : ""}` });
  }

  // --- compressed data -----------------------------------------------------
  async function inflate(id) {
    const packed = atob(document.getElementById(id).textContent.trim());
    const bytes = Uint8Array.from(packed, (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  function payload(user) {
    // A few users are kept, so that going back is instant and memory stays small.
    if (!loaded.has(user)) {
      if (loaded.size >= 8) loaded.delete(loaded.keys().next().value);
      loaded.set(user, inflate(`user-${user}`));
    }
    return loaded.get(user);
  }

  // --- filters and list ----------------------------------------------------
  function options(name, any, names, wording = (text) => text) {
    const select = form.elements[name];
    select.append(el("option", { value: "", text: any }));
    names.forEach((text, place) => select.append(el("option", { value: String(place), text: wording(text) })));
  }

  const scoreText = (score) => (score === null ? "not measured" : score.toFixed(2));
  const dimensionOf = (target) => target.slice(target.indexOf("/") + 1);
  const labelText = (label) => page.labels[label] || label;

  function scoreFits(score, wanted) {
    if (wanted === "") return true;
    if (wanted === "none") return score === null;
    if (score === null) return false;
    if (wanted === "lost") return score < 0.75;
    if (wanted === "recovered") return score >= 0.75;
    return Math.abs(score - Number(wanted)) < 1e-9;
  }

  function wanted(name) {
    const value = form.elements[name].value;
    return value === "" ? null : Number(value);
  }

  function apply() {
    const [user, target, system, variant, label, check] = ["user", "target", "system", "variant", "label", "check"].map(wanted);
    const score = form.elements.score.value;
    matches = [];
    for (let i = 0; i < index.u.length; i += 1) {
      if (user !== null && index.u[i] !== user) continue;
      if (target !== null && index.t[i] !== target) continue;
      if (system !== null && index.s[i] !== system) continue;
      if (variant !== null && index.v[i] !== variant) continue;
      if (label !== null && index.label[i] !== label) continue;
      if (!scoreFits(index.score[i], score)) continue;
      if (check !== null && !(index.checks[i] & (1 << check))) continue;
      matches.push(i);
    }
    count.textContent = `${matches.length.toLocaleString("en")} of ${counted(index.u.length, "case")}`;
    list.replaceChildren();
    shown = 0;
    extend();
  }

  function address(i) {
    const parts = [index.users[index.u[i]], dimensionOf(index.targets[index.t[i]]), index.systems[index.s[i]], index.variants[index.v[i]]];
    return `#${parts.map(encodeURIComponent).join("/")}`;
  }

  function extend() {
    const stop = Math.min(shown + PAGE_SIZE, matches.length);
    for (; shown < stop; shown += 1) {
      const i = matches[shown];
      const label = index.label[i] < 0 ? "" : ` · ${labelText(index.labels[index.label[i]])}`;
      const link = el("a", { href: address(i), dir: "auto", "data-case": String(i) },
        document.createTextNode(`${index.users[index.u[i]]} · ${dimensionOf(index.targets[index.t[i]])}`),
        el("small", { text: `${index.systems[index.s[i]]} · ${index.variants[index.v[i]]} · ${scoreText(index.score[i])}${label}` }));
      if (i === open) link.setAttribute("aria-current", "true");
      list.append(el("li", {}, link));
    }
    more.hidden = shown >= matches.length;
    if (matches.length === 0) list.append(el("li", { class: "empty", text: "No case has all of these." }));
  }

  function reveal(i) {
    let at = matches.indexOf(i);
    if (at < 0) return;
    if (at >= shown + FAR) {
      // A list of one user in place of thousands of entries above the one wanted.
      form.elements.user.value = String(index.u[i]);
      apply();
      at = matches.indexOf(i);
    }
    while (shown <= at) extend();
    // The list's own scrolling only: scrollIntoView would move the page as well.
    const box = list.parentElement;
    const frame = box.getBoundingClientRect();
    const entry = list.querySelector(`[data-case="${i}"]`).getBoundingClientRect();
    if (entry.top < frame.top || entry.bottom > frame.bottom) {
      box.scrollTop += entry.top - frame.top - (frame.height - entry.height) / 2;
    }
  }

  // --- one case ------------------------------------------------------------
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

  function callLine(name, call) {
    return call ? el("p", { class: "meta" }, document.createTextNode(`${name} `), el("code", { text: call })) : null;
  }

  function itemNode(item, score) {
    const bits = [item.id, item.time, score === null || score === undefined ? null : `score ${Number(score).toFixed(4)}`].filter(Boolean);
    return el("li", {}, prose(item.text), el("p", { class: "meta", dir: "auto", text: bits.join(" · ") }),
      item.fields ? el("p", { class: "meta", dir: "auto", text: JSON.stringify(item.fields) }) : null);
  }

  function itemList(items) {
    const ol = el("ol", { class: "items" });
    const box = el("div", {}, ol);
    let at = 0;
    const step = () => {
      items.slice(at, at + SHOWN_ITEMS).forEach((item) => ol.append(itemNode(item)));
      at += SHOWN_ITEMS;
      if (at >= items.length) button.remove();
    };
    const button = el("button", { type: "button", text: `Show more of ${items.length}` });
    button.addEventListener("click", step);
    box.append(button);
    step();
    return box;
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
    const search = el("input", { type: "search", "aria-label": "Search the store", placeholder: "Search the store" });
    const found = el("div");
    const fill = () => {
      const word = search.value.toLowerCase();
      found.replaceChildren(itemList(items.filter((item) => item.text.toLowerCase().includes(word))));
    };
    search.addEventListener("input", fill);
    const all = el("details", {}, el("summary", { text: `The whole store, ${counted(items.length, "item")}` }), search, found);
    all.addEventListener("toggle", () => { if (all.open && !found.hasChildNodes()) fill(); });
    box.append(all);
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
    const rows = [
      ["slot-fill", item.slot && item.slot.call], ["judge", item.verdict.call],
      ["oracle", blame.oracle_call || (payloadTarget.oracle && payloadTarget.oracle.call)],
      ["disclosure", blame.disclosure_call], ["subclass", blame.subclass_call],
    ].filter(([, call]) => call);
    if (rows.length === 0) return el("p", { class: "empty", text: "No model call was needed." });
    const box = el("div");
    rows.forEach(([name, call]) => box.append(callLine(name, call)));
    box.append(el("p", { class: "meta" }, document.createTextNode("Look one up: "),
      el("code", { text: `memprobe sql ${page.run} "select * from calls where call_id = '${rows[0][1]}'"` })));
    return box;
  }

  function section(title, ...nodes) {
    return el("section", {}, el("h3", { text: title }), ...nodes);
  }

  function render(data, item) {
    const target = data.targets[item.target] || {};
    const store = (data.stores[item.system] || {})[String(item.epoch)];
    const episodes = store ? Object.values(store.episodes) : [];
    const number = item.attribution && item.attribution.episode;
    const episode = (number && store && store.episodes[number]) || episodes.find((e) => e.target === item.target);
    const verdict = item.verdict;
    const slot = item.slot || {};
    const nodes = [
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
    const nav = el("div", { class: "case-nav" });
    const at = matches.indexOf(open);
    if (at > 0) nav.append(el("a", { href: address(matches[at - 1]), text: "Previous case" }));
    if (at >= 0 && at + 1 < matches.length) nav.append(el("a", { href: address(matches[at + 1]), text: "Next case" }));
    view.replaceChildren(...nodes.filter(Boolean), nav);
  }

  function say(text) {
    view.replaceChildren(el("p", { class: "empty", dir: "auto", text }));
  }

  async function show(i) {
    open = i;
    reveal(i);
    request += 1;
    const mine = request;
    list.querySelector("[aria-current]")?.removeAttribute("aria-current");
    list.querySelector(`[data-case="${i}"]`)?.setAttribute("aria-current", "true");
    try {
      const data = await payload(index.u[i]);
      if (mine !== request) return;
      const [target, system, variant] = [index.targets[index.t[i]], index.systems[index.s[i]], index.variants[index.v[i]]];
      render(data, data.cases.find((c) => c.target === target && c.system === system && c.variant === variant));
    } catch (error) {
      if (mine === request) say(`This case could not be read: ${error.message}`);
    }
  }

  // --- addresses -----------------------------------------------------------
  function parts() {
    try {
      return window.location.hash.slice(1).split("/").map(decodeURIComponent);
    } catch {
      return [];
    }
  }

  function follow() {
    const [user, dimension, system, variant] = parts();
    if (dimension === undefined) return;
    const place = index.users.indexOf(user);
    let found = -1;
    for (let i = 0; place >= 0 && i < index.u.length && found < 0; i += 1) {
      if (index.u[i] !== place || dimensionOf(index.targets[index.t[i]]) !== dimension) continue;
      if (system && index.systems[index.s[i]] !== system) continue;
      if (variant && index.variants[index.v[i]] !== variant) continue;
      found = i;
    }
    document.getElementById("cases").scrollIntoView();
    if (found < 0) {
      say(place < 0 ? `User ${user} is not in this file.` : `There is no such case of ${user}: ${[dimension, system, variant].filter(Boolean).join(" / ")}.`);
      return;
    }
    show(found).then(() => view.focus({ preventScroll: true }));
  }

  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...list.querySelectorAll("a")];
    const next = links[links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  });
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => window.setTimeout(apply));
  more.addEventListener("click", extend);
  window.addEventListener("hashchange", follow);

  // Charts and the case list change the height of what lies above an address, so
  // the browser's own jump lands off; a reader who has moved already is left alone.
  let moved = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
    window.addEventListener(kind, () => { moved = true; }, { once: true, passive: true });
  }

  function settle() {
    const [id, dimension] = parts();
    const place = document.getElementById(dimension === undefined ? id : "cases");
    if (place && !moved) place.scrollIntoView({ behavior: "instant" });
  }

  async function start() {
    index = await inflate("case-index");
    options("user", "all users", index.users);
    options("target", "all dimensions", index.targets, (t) => t.replace("/", ": "));
    options("system", "all systems", index.systems);
    options("variant", "every way", index.variants);
    options("label", "any", index.labels, labelText);
    options("check", "any", index.checkNames);
    const scores = form.elements.score;
    for (const [value, text] of [["", "any"], ["recovered", "0.75 or more"], ["lost", "under 0.75"], ["0", "0"], ["0.25", "0.25"], ["0.5", "0.5"], ["0.75", "0.75"], ["1", "1"], ["none", "not measured"]]) {
      scores.append(el("option", { value, text }));
    }
    document.getElementById("browser").hidden = false;
    apply();
    follow();
    await chartsDrawn;
    settle();
    document.documentElement.dataset.cases = "ready";
  }

  start().catch((error) => {
    document.getElementById("browser").hidden = false;
    say(`The cases could not be read (${error.message}). A browser with DecompressionStream is needed; 2023 or later.`);
  });
})();
