// All that the server says about one image.

import { element, percent } from "/static/page.js";

/** Fills the container with predictions, maps, counterfactuals and nearest source images. */
export function showExplanation(container, found) {
  container.replaceChildren(
    models(found),
    ...(found.counterfactuals.length ? [counterfactuals(found)] : []),
    ...(found.models.some((model) => model.nearest) || found.source_ready > 0 ? [nearest(found)] : []),
  );
}

function picture(source, text, small) {
  return element("img", { src: source, alt: text, class: small ? "small" : "" });
}

function models(found) {
  const heat = element("input", { type: "checkbox", checked: true });
  const cards = element("div", { class: "models" }, ...found.models.map((model) => card(found, model)));
  heat.addEventListener("change", () => cards.classList.toggle("no-heat", !heat.checked));
  const any = found.models.some((model) => model.heat);
  return element("div", {}, any ? element("label", { class: "switch" }, heat, "show where the model looks (Grad-CAM of the first class)") : null, cards);
}

function card(found, model) {
  const layers = element("div", { class: "layers" }, picture(found.picture, found.name, found.small));
  if (model.heat) layers.append(element("img", { src: model.heat, class: "heat", alt: `where ${model.model} looks` }));
  const bars = element("ol", { class: "bars" }, ...model.classes.map(bar));
  return element("article", { class: "card" }, element("h3", {}, model.model), element("div", { class: "beside" }, layers, bars));
}

function bar(one) {
  const line = element("li", {}, element("span", { class: "name" }, one.name), element("span", { class: "track" }), element("span", { class: "number" }, percent(one.probability)));
  line.style.setProperty("--share", one.probability);
  return line;
}

/** Two lines for each model: the class, and how sure the model is. Classes unlike that of the image stand out. */
function guesses(found, predictions) {
  return element("dl", { class: "guesses" }, ...predictions.map((one, place) => {
    const best = one.classes[0], same = best.name === found.models[place].classes[0].name;
    return element("div", { class: same ? "same" : "other" },
      ...(predictions.length > 1 ? [element("dt", {}, one.model)] : []), element("dd", {}, element("strong", {}, best.name), ` ${percent(best.probability)}`));
  }));
}

function counterfactuals(found) {
  const original = element("figure", {}, picture(found.picture, found.name, found.small), element("figcaption", {}, "the image"), guesses(found, found.models));
  const made = found.counterfactuals.map((one) =>
    element("figure", { class: one.winner ? "winner" : "" },
      picture(one.picture, `counterfactual by mechanism ${one.mechanism}`, found.small),
      element("figcaption", {}, `mechanism ${one.mechanism}`, one.winner ? element("span", { class: "tag" }, "wins") : null),
      guesses(found, one.predictions)));
  const means = found.models.map((model) => ({ model: model.model, classes: model.average }));
  const mean = element("figure", { class: "mean" }, element("div", { class: "blank", "aria-hidden": "true" }, "⌀"), element("figcaption", {}, "mean of all"), guesses(found, means));
  return element("section", {}, element("h3", {}, "Counterfactuals: the same image, as if it were of the source"),
    element("p", { class: "muted" }, "Each mechanism changes what differs between the domains and should keep the class. A model that has learned the class, not the domain, gives the same answer for all. The mechanism that wins makes this image best (TCM Eq. (2)); the mean of the predictions is TCM Eq. (1)."),
    element("div", { class: "figures" }, original, ...made, mean));
}

function nearest(found) {
  const rows = found.models.map((model) => {
    const images = (model.nearest ?? []).map((one) =>
      element("figure", { title: one.path }, picture(one.picture, `source image of class ${one.label}`, found.small), element("figcaption", {}, element("strong", {}, one.label), ` ${one.similarity.toFixed(2)}`)));
    const content = model.nearest ? element("div", { class: "figures near" }, ...images)
      : element("p", { class: "muted" }, `Features of the source are being computed (${Math.floor(100 * found.source_ready)} %). Ask again in a moment.`);
    return element("div", {}, found.models.length > 1 ? element("h4", {}, model.model) : null, content);
  });
  return element("section", {}, element("h3", {}, "Nearest source images"),
    element("p", { class: "muted" }, "By the cosine between the features of the model, with their true classes."), ...rows);
}
