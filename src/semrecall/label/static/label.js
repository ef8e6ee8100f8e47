"use strict";
// The labelling page: shows what the server gives, and tells it what a person says. Texts of pairs
// only ever become text nodes.

const $ = (id) => document.getElementById(id);
const base = document.body.dataset.base;
const grades = [...document.querySelectorAll("button.grade")];
let queue = "label", state = null, line = Promise.resolve(), waiting = 0, faults = 0, sent;

const store = (key, value) => {
  try {
    if (value !== undefined) localStorage.setItem(`semrecall ${key}`, value);
    return localStorage.getItem(`semrecall ${key}`);
  } catch { return null; }
};

// -- asking the server ------------------------------------------------------------------------

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body),
  };
  let reply;
  try {
    reply = await fetch(base + path, options);
  } catch {
    throw Object.assign(new Error("The server does not answer. Is semrecall label still running? What was labelled before is kept."), {status: 0});
  }
  const found = reply.headers.get("Content-Type")?.startsWith("application/json")
    ? await reply.json() : {problem: await reply.text()};
  if (!reply.ok) throw Object.assign(new Error(found.problem), {status: reply.status});
  return found;
}

// What changes something is sent in the order of the keys, one at a time. The next pair is shown at
// once and comes back when its label was not recorded; keys pressed meanwhile are then void, and so
// is a key pressed twice on one pair.
function say(path, body, told, ahead) {
  const before = state, note = $("note").value, started = faults;
  complain("");
  if (ahead) show({...state, pair: state.upcoming, upcoming: null, done: state.done + 1, left: state.left - 1}, told);
  busy(1);
  line = line.then(async () => {
    const key = body.id && `${path} ${body.id}`;
    if (started !== faults || (key && key === sent)) return;
    sent = key;
    try {
      const found = await ask(path, {queue, ...body});
      if (ahead && found.pair?.id === state.pair?.id) keep(found); else show(found, told);
      progress();
    } catch (problem) {
      faults += 1;
      sent = undefined;
      if (ahead) { show(before, "Not recorded."); writeNote(note); }
      if (problem.status === 409) await load("");
      complain(problem.message);
    }
  }).finally(() => busy(-1));
}

function busy(change) {
  waiting += change;
  $("answer").setAttribute("aria-busy", waiting > 0);
}

async function load(told = "") {
  try { show(await ask(`/pair?queue=${queue}`), told); progress(); }
  catch (problem) { complain(problem.message); }
}

let asked = 0;
async function progress() {
  const mine = ++asked;
  try {
    const found = await ask("/progress");
    if (mine !== asked) return;
    const rows = state && queue === "label" && state.pace
      ? [["pace", `${state.pace.toFixed(state.pace < 10 ? 1 : 0)} pairs a minute`], ...found.facts] : found.facts;
    $("figures").replaceChildren(...rows.flatMap(([term, text]) => [make("dt", term), make("dd", text)]));
    $("enough").hidden = !found.enough;
    $("switch").hidden = !found.disputes && queue === "label";
    $("switch").textContent = queue === "label" ? `Disagreements ${found.disputes}` : "Back to labelling";
  } catch { /* the next label asks again */ }
}

// -- showing --------------------------------------------------------------------------------------

function make(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// Characters that the server wrote out stand apart from the text.
function fill(parent, text) {
  const pieces = text.split(/(⟦U\+[0-9A-F]{4,6}(?: ×[0-9,]+)?⟧)/);
  if (pieces.length > 400) { parent.append(text); return; }
  pieces.forEach((piece, at) => parent.append(at % 2 ? make("span", piece.slice(1, -1), {class: "mark"}) : piece));
}

// Paragraphs have directions of their own; of a very long text only those in view are laid out.
function paragraphs(text) {
  $("text").classList.toggle("long", text.length > 50000);
  return text.split(/\n\s*\n/).flatMap((part) => part.match(/[^]{1,20000}/g) ?? []).map((part) => {
    const made = make("p", "", {dir: "auto"});
    fill(made, part);
    return made;
  });
}

function keep(found) {
  state = found;
  const total = (found.done ?? 0) + found.left;
  $("bar").max = Math.max(total, 1);
  $("bar").value = found.done ?? 0;
  const count = found.left.toLocaleString("en");
  const minutes = found.pace ? found.left / found.pace : 0;
  const time = minutes >= 90 ? `, about ${Math.round(minutes / 60)} h` : minutes ? `, about ${Math.max(1, Math.round(minutes))} min` : "";
  $("left").textContent = queue === "label" ? `${count} left${time}` : `${count} to decide`;
}

function show(found, told = "") {
  const fresh = found.pair?.id !== state?.pair?.id || queue !== state?.queue || found.was;
  const query = state?.pair?.query;
  keep(found);
  const pair = found.pair, deciding = Boolean(found.said);
  $("pair").hidden = !pair;
  $("end").hidden = Boolean(pair);
  $("answer").hidden = !pair && !(queue === "label" && found.done);
  for (const button of [...grades, $("skip"), $("add-note")]) button.hidden = !pair;
  $("others").hidden = !deciding;
  document.body.classList.toggle("deciding", deciding);
  $("skip").querySelector("span").textContent = deciding ? "Leave it" : "Skip";
  document.querySelector(".grades").setAttribute("aria-label", deciding ? "Decision" : "Label");
  if (!pair) { finish(found, told); return; }
  const kind = queue === "label" ? "Query" : deciding ? "Disagreement: decide" : "Disagreement: your own label first";
  $("kind").textContent = kind;
  if (fresh) {
    $("query").replaceChildren();
    fill($("query"), pair.query);
    $("query").lang = pair.query_language;
    $("text").replaceChildren(...paragraphs(pair.text));
    if (!pair.text.trim() && !pair.image) $("text").append(make("p", "This document is empty.", {class: "quiet"}));
    $("text").lang = pair.language;
    $("all").hidden = !pair.more;
    $("all").textContent = `Show all: ${pair.more.toLocaleString("en")} more characters`;
    picture(pair.image);
    writeNote(found.was?.note ?? sessionStorage.getItem(pair.id) ?? "");
    scrollTo(0, 0);
  }
  if (deciding) others(found.said);
  if (found.upcoming?.image?.source) new Image().src = found.upcoming.image.source;
  for (const button of grades) button.classList.toggle("was", Number(button.dataset.grade) === found.was?.grade);
  if (deciding) $("others").focus();
  else if (told || fresh) $("document").focus({preventScroll: true});
  const same = pair.query === query && queue === "label";
  $("status").textContent = [told, deciding ? "What was said is shown below the document." : "",
    `${found.left} left.`, same ? "Same query, next document." : `${kind}: ${pair.query}`].filter(Boolean).join(" ");
}

function picture(image) {
  const figure = $("image");
  figure.hidden = !image;
  figure.replaceChildren();
  if (!image) return;
  if (image.source) {
    const made = make("img", "", {src: image.source, alt: "The image of this document"});
    made.addEventListener("error", () => figure.replaceChildren(make("p", "The image cannot be shown.", {class: "quiet"})));
    figure.append(made);
  } else if (image.address) {
    const link = make("a", image.address, {href: image.address, target: "_blank", rel: "noopener noreferrer"});
    const text = make("p", "The image is on another server, which would learn of it: ", {class: "quiet"});
    text.append(link);
    figure.append(text);
  } else figure.append(make("p", image.fault, {class: "quiet"}));
}

function others(said) {
  $("said").replaceChildren(...said.map(({judge, grade, reason}) => {
    const row = make("li", "");
    row.append(make("bdi", judge), make("b", grade), make("span", reason, {dir: "auto", class: "quiet"}));
    return row;
  }));
}

function finish(found, told) {
  const label = queue === "label";
  const [equal, again] = found.again ?? [0, 0];
  $("end-title").textContent = label ? "That was the last pair" : "No disagreement is left";
  $("end-text").textContent = !label ? "Pairs on which labels differ appear here as they come up."
    : `${found.done.toLocaleString("en")} answers are recorded.` + (again ? ` ${again} pairs were asked twice, and ${equal} of them got the same label.` : "");
  $("end-title").focus();
  $("status").textContent = `${told} ${$("end-title").textContent}.`;
}

function complain(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text;
}

function writeNote(text) {
  $("note").value = text;
  $("note-row").hidden = !text;
  $("add-note").setAttribute("aria-expanded", Boolean(text));
}

// -- saying -------------------------------------------------------------------------------------

function grade(button) {
  const {pair} = state, deciding = Boolean(state.said);
  const named = `${button.dataset.grade}, ${button.querySelector("span").textContent}`;
  const body = {id: pair.id, grade: Number(button.dataset.grade), reason: $("note").value};
  sessionStorage.removeItem(pair.id);
  if (newcomer) $("rubric").open = newcomer = false;
  if (deciding) say("/decide", body, `Decided: ${named}.`);
  else say("/vote", body, `Recorded: ${named}.`, queue === "label" && state.upcoming);
}

function skip(reason) {
  const text = [reason, $("note").value.trim()].filter(Boolean).join(": ");
  say("/vote", {id: state.pair.id, grade: null, reason: text}, "Skipped.");
}

function note() {
  $("note-row").hidden = false;
  $("add-note").setAttribute("aria-expanded", true);
  $("note").focus();
}

const commands = {
  u: () => say("/undo", {}, "Undone."),
  s: () => state.said ? say("/leave", {id: state.pair.id}, "Left as it is.") : $("skip-dialog").showModal(),
  n: note,
  r: () => { $("rubric").open = !$("rubric").open; },
  d: () => { if (!$("switch").hidden) $("switch").click(); },
  "?": () => $("help-dialog").showModal(),
};

document.addEventListener("keydown", (event) => {
  const dialog = document.querySelector("dialog[open]");
  const typing = event.target.matches("textarea, input:not([type=checkbox])");
  if (event.key === "Escape" && event.target === $("note")) { $("document").focus(); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !$("keys").checked) return;
  const pressed = (dialog ?? document).querySelector(`${dialog ? "dialog[open]" : "#answer"} [data-key="${CSS.escape(event.key)}"]`);
  if (pressed && !pressed.hidden) { event.preventDefault(); pressed.click(); return; }
  const command = commands[event.key.toLowerCase()];
  if (command && !dialog && state && (state.pair || "ud?".includes(event.key.toLowerCase()))) { event.preventDefault(); command(); }
});

for (const button of grades) button.addEventListener("click", () => grade(button));
$("undo").addEventListener("click", commands.u);
$("skip").addEventListener("click", commands.s);
$("add-note").addEventListener("click", note);
$("help").addEventListener("click", commands["?"]);
$("note").addEventListener("input", () => { try { sessionStorage.setItem(state.pair.id, $("note").value); } catch { /* full */ } });
$("reason").addEventListener("keydown", (event) => {
  if (event.key === "Enter") { event.preventDefault(); $("skip-dialog").close("other"); }
});
$("skip-dialog").addEventListener("close", () => {
  const chosen = $("skip-dialog").returnValue;
  if (chosen) skip(chosen === "other" ? $("reason").value.trim() : chosen);
  $("skip-dialog").returnValue = $("reason").value = "";
});
$("switch").addEventListener("click", () => {
  queue = queue === "label" ? "disputes" : "label";
  complain("");
  load(queue === "label" ? "Back to labelling." : "Disagreements.");
});
$("all").addEventListener("click", async () => {
  const {id} = state.pair;
  try {
    const {text} = await ask(`/rest/${id}`);
    if (state.pair?.id !== id) return;
    $("text").replaceChildren(...paragraphs(state.pair.text + text));
    $("all").hidden = true;
    $("document").focus({preventScroll: true});
  } catch (problem) { complain(problem.message); }
});
$("keys").checked = store("keys") !== "off";
$("keys").addEventListener("change", () => store("keys", $("keys").checked ? "on" : "off"));
let newcomer = store("rubric") === null; // the meanings stand open until the first label
$("rubric").open = store("rubric") !== "folded";
$("rubric").addEventListener("toggle", () => store("rubric", $("rubric").open ? "open" : "folded"));
// Labels of others, and of another window of ours, arrive while this one is away.
document.addEventListener("visibilitychange", () => { if (!document.hidden && state) progress(); });
load();
