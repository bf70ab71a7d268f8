"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const items = data.items;
  const $ = (id) => document.getElementById(id);
  const slot = "memprobe-audit-" + data.sheet;
  let state = { rater: "", answers: {} };
  let place = 0;
  let kept = true;

  // A browser may refuse storage, or lose it: the saved file is what counts.
  function remember() {
    try {
      localStorage.setItem(slot, JSON.stringify(state));
      kept = true;
    } catch {
      kept = false;
    }
    $("kept").textContent = kept
      ? "Answers are kept in this browser; save them as a file when you are done."
      : "This browser keeps nothing: save your answers as a file before you close the page.";
  }
  function recall() {
    try {
      const found = JSON.parse(localStorage.getItem(slot));
      if (found) take(found);
    } catch {
      kept = false;
    }
  }
  const values = (choices) => new Set(choices.map((c) => c.value));
  const allowed = { score: values(data.scores), cause: values(data.causes) };
  function take(found) {
    if (typeof found.rater === "string" && found.rater) state.rater = found.rater.slice(0, 80);
    const known = new Set(items.map((i) => i.id));
    const listed = Array.isArray(found.answers)
      ? found.answers
      : Object.entries(found.answers || {}).map(([id, a]) => ({ id, ...a }));
    let n = 0;
    for (const answer of listed) {
      if (!answer || !known.has(answer.id)) continue;
      const clean = {};
      for (const name of ["score", "cause"])
        if (allowed[name].has(answer[name])) clean[name] = answer[name];
      if (typeof answer.note === "string" && answer.note) clean.note = answer.note.slice(0, 2000);
      state.answers[answer.id] = clean;
      n += 1;
    }
    return n;
  }

  const answer = (i) => state.answers[items[i].id] || {};
  const low = (a) => a.score !== undefined && a.score !== "unsure" && Number(a.score) < data.ok;
  const done = (i) => {
    const a = answer(i);
    return a.score !== undefined && (!low(a) || a.cause !== undefined);
  };

  function show() {
    const item = items[place];
    for (const name of ["id", "dimension", "category", "true_in_short", "true_in_full", "task", "transcript", "recovered"])
      $(name).textContent = item[name];
    const a = answer(place);
    for (const name of ["score", "cause"])
      for (const input of document.querySelectorAll(`input[name=${name}]`))
        input.checked = input.value === a[name];
    $("note").value = a.note || "";
    $("number").value = place + 1;
    mark();
  }
  function mark() {
    const a = answer(place);
    $("cause").disabled = !low(a);
    $("cause-off").hidden = low(a);
    const n = items.filter((_, i) => done(i)).length;
    $("progress").value = n;
    $("count").textContent = `${n} of ${items.length} answered`;
    $("back").disabled = place === 0;
    $("next").disabled = place === items.length - 1;
  }
  function set(name, value) {
    const a = { ...answer(place), [name]: value };
    if (!value) delete a[name];
    if (!low(a)) delete a.cause;
    state.answers[items[place].id] = a;
    for (const group of ["score", "cause"])
      for (const input of document.querySelectorAll(`input[name=${group}]`))
        input.checked = input.value === a[group];
    remember();
    mark();
  }
  function go(to) {
    if (to < 0 || to >= items.length) return;
    place = to;
    show();
    $("item").focus({ preventScroll: true });
    $("item").scrollIntoView({ block: "nearest" });
  }

  function file(name, kind, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: kind }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  const who = () => (state.rater.replace(/[^A-Za-z0-9_-]+/g, "_") || "answers").slice(0, 40);
  function listed() {
    return items
      .filter((item) => Object.keys(state.answers[item.id] || {}).length)
      .map((item) => {
        const a = state.answers[item.id];
        return { id: item.id, score: a.score || "", cause: a.cause || "", note: a.note || "" };
      });
  }
  // A leading apostrophe keeps a spreadsheet program from reading a formula.
  const guard = (text) => (/^ *[=+\-@\t\r\n'|%＝＋－＠]/.test(text) ? "'" + text : text);
  const cell = (text) => `"${guard(text).replaceAll('"', '""')}"`;
  function csv() {
    const rows = [["id", "score", "cause", "note", "rater"]];
    for (const a of listed()) rows.push([a.id, a.score, a.cause, a.note, state.rater]);
    return "\ufeff" + rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
  }
  function json() {
    const { format, version, sheet } = data;
    return JSON.stringify({ format, version, sheet, rater: state.rater, answers: listed() }, null, 1) + "\n";
  }

  for (const name of ["score", "cause"])
    for (const input of document.querySelectorAll(`input[name=${name}]`))
      input.addEventListener("change", () => set(name, input.value));
  $("note").addEventListener("input", () => set("note", $("note").value));
  $("rater").addEventListener("input", () => {
    state.rater = $("rater").value;
    remember();
  });
  $("back").addEventListener("click", () => go(place - 1));
  $("next").addEventListener("click", () => go(place + 1));
  $("open").addEventListener("click", () => go(items.findIndex((_, i) => !done(i))));
  $("number").addEventListener("change", () => {
    const wanted = Math.round(Number($("number").value)) - 1;
    if (wanted >= 0 && wanted < items.length) go(wanted);
    else $("number").value = place + 1;
  });
  $("save-json").addEventListener("click", () =>
    file(`audit-${data.sheet}-${who()}.json`, "application/json", json()));
  $("save-csv").addEventListener("click", () =>
    file(`audit-${data.sheet}-${who()}.csv`, "text/csv", csv()));
  $("load").addEventListener("change", async () => {
    const chosen = $("load").files[0];
    $("load").value = "";
    if (!chosen) return;
    try {
      const found = JSON.parse(await chosen.text());
      if (found.sheet !== data.sheet) throw new Error("it belongs to another sheet");
      const n = take(found);
      $("rater").value = state.rater;
      remember();
      show();
      $("kept").textContent = `${n} answers loaded.`;
    } catch (error) {
      $("kept").textContent = `That file was not loaded: ${error.message}.`;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const typing = event.target.matches("textarea, input:not([type=radio])");
    if (typing) {
      if (event.key === "Escape") $("item").focus();
      return;
    }
    const score = data.scores.find((c) => c.key === event.key);
    const cause = data.causes.find((c) => c.key === event.key.toLowerCase());
    if (score) set("score", score.value);
    else if (cause && low(answer(place))) set("cause", cause.value);
    else if (event.key === "ArrowRight") go(place + 1);
    else if (event.key === "ArrowLeft") go(place - 1);
    else if (event.key.toLowerCase() === "o") go(items.findIndex((_, i) => !done(i)));
    else return;
    event.preventDefault();
  });

  recall();
  $("rater").value = state.rater;
  remember();
  show();
  document.documentElement.dataset.form = "ready";
})();
