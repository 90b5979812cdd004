// The view of the target images: a list sorted by doubt, details of each, and labels that stand apart from the audit.

import { ask, at, attempt, element, lastPart, percent, put } from "/static/page.js";
import { picker } from "/static/picker.js";
import { showExplanation } from "/static/detail.js";

let rows = [], total = 0, tiles = [], open = -1, latest = 0, choices, labels, sending = Promise.resolve();

export async function startTarget(info) {
  at("doubter").append(...info.models.map((model, place) => element("option", { value: place }, model.title)));
  at("whose").hidden = info.models.length < 2;
  choices = await ask("/labels");
  labels = picker(choices, (label) => give(open, label));
  at("dialog-label").append(labels.element);
  at("help").textContent = labels.byKey
    ? `Arrow keys move, Enter opens an image. To label, press ${choices.keys.slice(0, 3).join(", ")}… for a class, - for none of these, space for cannot tell, Backspace to take it back.`
    : "Arrow keys move, Enter opens an image, where you can label it by typing a class.";
  at("order").addEventListener("change", () => attempt(load));
  at("doubter").addEventListener("change", () => attempt(load));
  at("more").addEventListener("click", () => attempt(more));
  at("tiles").addEventListener("keydown", pressedInList);
  at("dialog").addEventListener("keydown", pressedInDialog);
  at("dialog").addEventListener("close", () => { tiles[open]?.focus(); open = -1; });
  at("close").addEventListener("click", () => at("dialog").close());
  at("previous").addEventListener("click", () => show(open - 1));
  at("next").addEventListener("click", () => show(open + 1));
  await load();
}

async function load() {
  rows = [];
  tiles = [];
  at("tiles").replaceChildren();
  await more();
}

async function more() {
  const query = new URLSearchParams({ order: at("order").value, model: at("doubter").value || 0, start: rows.length });
  const found = await ask(`/target?${query}`);
  total = found.total;
  for (const row of found.rows) {
    rows.push(row);
    tiles.push(tile(row, tiles.length));
  }
  at("tiles").append(...tiles.slice(found.start));
  at("more").hidden = rows.length >= total;
  tell();
}

function tell() {
  const given = rows.filter((row) => row.label).length;
  at("shown").textContent = `${rows.length} of ${total} images` + (given ? `, ${given} of them labelled` : "");
}

function tile(row, place) {
  const made = element("button", { type: "button", class: "tile" });
  made.addEventListener("click", () => show(place));
  fill(made, row);
  return made;
}

function fill(made, row) {
  const guesses = row.predictions.map((one) => element("span", {}, element("strong", {}, one.name), ` ${percent(one.probability)}`));
  made.classList.toggle("differ", row.differ);
  made.replaceChildren(
    element("img", { src: `/target/${row.number}/image`, alt: lastPart(row.path), loading: "lazy" }),
    ...guesses,
    row.label ? element("span", { class: "tag" }, row.label) : "",
    row.differ ? element("span", { class: "note" }, "models differ") : "",
  );
}

/** Labels are sent one after another, while the next image is shown already. */
function give(place, label) {
  const row = rows[place], made = tiles[place];
  sending = sending.then(() => attempt(async () => {
    await put("/labels", { number: row.number, label });
    row.label = label;
    fill(made, row);
    tell();
  }));
  if (label !== null) (at("dialog").open ? show : focus)(place + 1);
  return sending;
}

async function focus(place) {
  if (place >= rows.length && rows.length < total) await more();
  tiles[Math.max(0, Math.min(place, tiles.length - 1))]?.focus();
}

function pressedInList(event) {
  const place = tiles.indexOf(document.activeElement);
  if (place < 0 || event.ctrlKey || event.metaKey) return;
  const perLine = Math.max(1, tiles.filter((one) => one.offsetTop === tiles[0].offsetTop).length);
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: perLine, ArrowUp: -perLine }[event.key];
  if (step) {
    event.preventDefault();
    focus(place + step);
  } else if (event.key === "Backspace") {
    event.preventDefault();
    give(place, null);
  } else if (labels.byKey) {
    open = place;
    if (!labels.press(event)) open = -1;
  }
}

function pressedInDialog(event) {
  if (event.key === "Backspace" && !labels.typing()) {
    event.preventDefault();
    give(open, null).then(() => title());
  } else if (event.key === "ArrowRight" && !labels.typing()) show(open + 1);
  else if (event.key === "ArrowLeft" && !labels.typing()) show(open - 1);
  // A space on a button that has the focus presses the button.
  else if (!(event.key === " " && event.target instanceof HTMLButtonElement)) labels.press(event);
}

function title() {
  const row = rows[open];
  at("dialog-title").textContent = lastPart(row.path) + (row.label ? `, your label: ${row.label}` : "");
}

async function show(place) {
  if (place < 0) return;
  if (place >= rows.length && rows.length < total) await attempt(more);
  if (place >= rows.length) { at("dialog").close(); return; }
  open = place;
  const number = ++latest;
  if (!at("dialog").open) at("dialog").showModal();
  title();
  at("dialog-waiting").textContent = "Looking…";
  await attempt(async () => {
    const found = await ask(`/target/${rows[place].number}`);
    if (number !== latest) return;
    showExplanation(at("dialog-answer"), found);
    at("dialog").scrollTop = 0;
    labels.focus();
  });
  if (number === latest) at("dialog-waiting").textContent = "";
}
