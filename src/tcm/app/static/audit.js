// The view of an audit: the random sample, one image at a time and without predictions.

import { ask, at, attempt, element, put } from "/static/page.js";
import { picker } from "/static/picker.js";

let state, labels, sending = Promise.resolve();

export async function startAudit() {
  state = await ask("/audit");
  at("file").textContent = state.file;
  labels = picker(state, give);
  at("asking").append(labels.element);
  at("undo").addEventListener("click", undo);
  at("compute").addEventListener("click", compute);
  document.addEventListener("keydown", pressed);
  show();
}

const next = () => state.images.find((number) => !(number in state.labels));
const last = () => state.images.findLast((number) => number in state.labels);

/** Labels are sent one after another, so that a quick typist loses none. The page moves on when one is on disk. */
function store(choose, label) {
  sending = sending.then(() => attempt(async () => {
    const number = choose();
    if (number === undefined) return;
    await put("/audit", { number, label });
    if (label === null) delete state.labels[number];
    else state.labels[number] = label;
    at("results").replaceChildren();
    show();
  }));
}

const give = (label) => store(next, label);
const undo = () => store(last, null);

function show() {
  const total = state.images.length, given = Object.keys(state.labels).length, number = next();
  at("bar").max = total;
  at("bar").value = given;
  at("count").textContent = `${given} of ${total}`;
  at("sampled").src = `/target/${number ?? state.images[total - 1]}/image`;
  at("done").hidden = number !== undefined;
  at("asking").hidden = number === undefined;
  at("undo").disabled = given === 0;
  at("compute").disabled = given === 0;
  if (!at("audit").hidden) labels.focus();
}

function pressed(event) {
  if (at("audit").hidden || at("dialog").open) return;
  if (event.key === "Backspace" && !labels.typing()) {
    event.preventDefault();
    undo();
  } else if (next() !== undefined && !(event.key === " " && event.target.closest("button, a"))) labels.press(event);
}

function compute() {
  attempt(async () => {
    const found = await ask("/audit", { method: "POST" });
    at("results").replaceChildren(...found.models.map((one) =>
      element("li", {}, found.models.length > 1 ? element("strong", {}, `${one.model}: `) : null, `${one.sentence}.`)));
  });
}

export const focusAudit = () => labels?.focus();
