// The case browser. All texts are untrusted: elements are made one by one and
// filled through textContent; nothing is ever parsed as HTML.
const page = JSON.parse(document.getElementById("page-data").textContent);
const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

function el(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  const { text, ...rest } = options;
  for (const [name, value] of Object.entries(rest)) node.setAttribute(name, value);
  if (text !== undefined && text !== null) node.textContent = String(text);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const prose = (text, tag = "p") => el(tag, { class: "text", dir: "auto", text });
const section = (title, ...nodes) => el("section", {}, el("h3", { text: title }), ...nodes);

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

function callLine(name, call) {
  return call ? el("p", { class: "meta" }, document.createTextNode(`${name} `), el("code", { text: call })) : null;
}

// `rows` are [what, call id]; those without a call are left out.
function callList(rows) {
  const made = rows.filter(([, call]) => call);
  if (made.length === 0) return el("p", { class: "empty", text: "No model call was needed." });
  const box = el("div");
  made.forEach(([name, call]) => box.append(callLine(name, call)));
  box.append(el("p", { class: "meta" }, document.createTextNode("Look one up: "),
    el("code", { text: `memprobe sql ${page.run} "select * from calls where call_id = '${made[0][1]}'"` })));
  return box;
}

function itemNode(item, score) {
  const bits = [item.id, item.time, score === null || score === undefined ? null : `score ${Number(score).toFixed(4)}`].filter(Boolean);
  return el("li", {}, prose(item.text), el("p", { class: "meta", dir: "auto", text: bits.join(" · ") }),
    item.fields ? el("p", { class: "meta", dir: "auto", text: JSON.stringify(item.fields) }) : null);
}

function itemList(items, each = 50) {
  const ol = el("ol", { class: "items" });
  const box = el("div", {}, ol);
  let at = 0;
  const step = () => {
    items.slice(at, at + each).forEach((item) => ol.append(itemNode(item)));
    at += each;
    if (at >= items.length) button.remove();
  };
  const button = el("button", { type: "button", text: `Show more of ${items.length}` });
  button.addEventListener("click", step);
  box.append(button);
  step();
  return box;
}

// The whole store behind a fold, with a search; filled when it is first opened.
function wholeStore(items) {
  const search = el("input", { type: "search", "aria-label": "Search the store", placeholder: "Search the store" });
  const found = el("div");
  const fill = () => {
    const word = search.value.toLowerCase();
    found.replaceChildren(itemList(items.filter((item) => item.text.toLowerCase().includes(word))));
  };
  search.addEventListener("input", fill);
  const all = el("details", {}, el("summary", { text: `The whole store, ${counted(items.length, "item")}` }), search, found);
  all.addEventListener("toggle", () => { if (all.open && !found.hasChildNodes()) fill(); });
  return all;
}

// A suite's browser: a list of cases (user, target, system, variant), filters, one open case.
//   targetOf(text)        how a target is named in addresses and the list
//   filters               {name, any, choices: (index) => [[value, text]], fits: (index, i, value)}
//   small(index, i)       the second line of an entry
//   find(data, keys)      a case among a user's: keys = {target, system, variant}
//   render(data, item)    its nodes
function caseBrowser(suite) {
  const PAGE_SIZE = 100;
  const FAR = 1000;
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

  const numbered = (names, wording = (text) => text) => names.map((text, place) => [String(place), wording(text)]);
  const column = (name, key, any, choices) => (
    { name, any, choices, fits: (all, i, value) => all[key][i] === Number(value) });
  const filters = [
    column("user", "u", suite.any[0], (all) => numbered(all.users)),
    column("target", "t", suite.any[1], (all) => numbered(all.targets, suite.targetText)),
    column("system", "s", "all systems", (all) => numbered(all.systems)),
    column("variant", "v", "every way", (all) => numbered(all.variants)),
    ...suite.filters,
  ];

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
  function apply() {
    const set = filters.map((filter) => [filter, form.elements[filter.name].value]).filter(([, value]) => value !== "");
    matches = [];
    for (let i = 0; i < index.u.length; i += 1) {
      if (set.every(([filter, value]) => filter.fits(index, i, value))) matches.push(i);
    }
    count.textContent = `${matches.length.toLocaleString("en")} of ${counted(index.u.length, "case")}`;
    list.replaceChildren();
    shown = 0;
    extend();
  }

  function names(i) {
    return [index.users[index.u[i]], suite.targetOf(index.targets[index.t[i]]), index.systems[index.s[i]], index.variants[index.v[i]]];
  }

  const address = (i) => `#${names(i).map(encodeURIComponent).join("/")}`;

  function extend() {
    const stop = Math.min(shown + PAGE_SIZE, matches.length);
    for (; shown < stop; shown += 1) {
      const i = matches[shown];
      const [user, target] = names(i);
      const link = el("a", { href: address(i), dir: "auto", "data-case": String(i) },
        document.createTextNode(`${user} · ${target}`), el("small", { text: suite.small(index, i) }));
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
      const keys = { target: index.targets[index.t[i]], system: index.systems[index.s[i]], variant: index.variants[index.v[i]] };
      const nav = el("div", { class: "case-nav" });
      const at = matches.indexOf(open);
      if (at > 0) nav.append(el("a", { href: address(matches[at - 1]), text: "Previous case" }));
      if (at >= 0 && at + 1 < matches.length) nav.append(el("a", { href: address(matches[at + 1]), text: "Next case" }));
      view.replaceChildren(...suite.render(data, suite.find(data, keys)).filter(Boolean), nav);
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
    const [user, target, system, variant] = parts();
    if (target === undefined) return;
    const place = index.users.indexOf(user);
    let found = -1;
    for (let i = 0; place >= 0 && i < index.u.length && found < 0; i += 1) {
      if (index.u[i] !== place || suite.targetOf(index.targets[index.t[i]]) !== target) continue;
      if (system && index.systems[index.s[i]] !== system) continue;
      if (variant && index.variants[index.v[i]] !== variant) continue;
      found = i;
    }
    document.getElementById("cases").scrollIntoView();
    if (found < 0) {
      say(place < 0 ? `${suite.noun} ${user} is not in this file.` : `There is no such case of ${user}: ${[target, system, variant].filter(Boolean).join(" / ")}.`);
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
    const [id, target] = parts();
    const place = document.getElementById(target === undefined ? id : "cases");
    if (place && !moved) place.scrollIntoView({ behavior: "instant" });
  }

  async function start() {
    index = await inflate("case-index");
    for (const filter of filters) {
      const select = form.elements[filter.name];
      select.append(el("option", { value: "", text: filter.any }));
      for (const [value, text] of filter.choices(index)) select.append(el("option", { value, text }));
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
}
