// The view of uploaded images: chosen, dropped or pasted.

import { ask, at, attempt, element, percent } from "/static/page.js";
import { showExplanation } from "/static/detail.js";

let latest = 0; // answers to earlier questions are not shown

export function startImages(info) {
  const drop = at("drop");
  at("files").addEventListener("change", () => { take([...at("files").files], info); at("files").value = ""; });
  for (const kind of ["dragenter", "dragover"]) {
    document.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    take([...event.dataTransfer.files], info);
  });
  document.addEventListener("paste", (event) => take([...(event.clipboardData?.files ?? [])], info));
}

function take(files, info) {
  if (!files.length) return;
  location.hash = "#image";
  attempt(async () => {
    const number = ++latest;
    if (files.length > info.max_images) throw new Error(`These are ${files.length} images; give at most ${info.max_images} at once.`);
    if (files.reduce((sum, file) => sum + file.size, 0) > info.max_bytes) throw new Error(`These files are too large; give at most ${info.max_bytes / 1e6} MB at once.`);
    at("uploaded").hidden = true;
    at("answer").replaceChildren();
    await explain(files[0], number);
    if (files.length > 1) await list(files, number);
  }).finally(() => { at("waiting").textContent = ""; });
}

async function explain(file, number) {
  at("waiting").textContent = `Looking at ${file.name}…`;
  const body = new FormData();
  body.append("image", file);
  const found = await ask("/explain", { method: "POST", body });
  if (number !== latest) return;
  showExplanation(at("answer"), found);
  at("answer").prepend(element("h3", { class: "path" }, found.name));
  at("waiting").textContent = "";
}

async function list(files, number) {
  const body = new FormData();
  for (const file of files) body.append("images", file);
  const found = await ask("/predict?top=1", { method: "POST", body });
  if (number !== latest) return;
  const buttons = found.images.map((image, place) => {
    const guesses = image.predictions.map((one) => `${one.classes[0].name} ${percent(one.classes[0].probability)}`);
    const button = element("button", { type: "button", "aria-pressed": String(place === 0) }, element("span", {}, image.name), element("strong", {}, guesses.join(" · ")));
    button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      attempt(() => explain(files[place], ++latest));
    });
    return button;
  });
  at("uploaded").replaceChildren(...buttons.map((button) => element("li", {}, button)));
  at("uploaded").hidden = false;
}
