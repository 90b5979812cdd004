// Starts the page: what the server has, and the view that the address names.

import { ask, at, attempt, element, percent } from "/static/page.js";
import { startImages } from "/static/image.js";
import { startTarget } from "/static/target.js";
import { focusAudit, startAudit } from "/static/audit.js";

const VIEWS = ["image", "target", "audit"];

function showView() {
  const wanted = location.hash.slice(1), view = VIEWS.includes(wanted) ? wanted : "image";
  for (const name of VIEWS) at(name).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view === "audit") focusAudit();
}

function about(info) {
  const models = info.models.map((model) => model.title + (model.target_accuracy === null ? "" : ` (${percent(model.target_accuracy)} right on the target)`));
  const domains = info.source ? `${info.source} → ${info.target}: ` : "";
  at("about").textContent = domains + models.join(" and ");
  at("notes").replaceChildren(...info.notes.map((note) => element("p", { class: "notice" }, note)));
  if (!info.images) {
    for (const name of ["target", "audit"]) document.querySelector(`nav a[href="#${name}"]`).hidden = true;
  }
}

attempt(async () => {
  const info = await ask("/info");
  about(info);
  startImages(info);
  if (info.images) await Promise.all([startTarget(info), startAudit()]);
  document.documentElement.dataset.ready = "true";
});
window.addEventListener("hashchange", showView);
showView();
