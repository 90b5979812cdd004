// Gives a label by one key, by a click, or, if there are too many classes for keys, by typing a part of a name.

import { element } from "/static/page.js";

/** Buttons for all labels. `press(event)` gives the label of a key and returns whether there was one. */
export function picker(choices, give) {
  const byKey = choices.keys.length > 0;
  const list = element("div", { class: "classes" });
  const find = element("input", { type: "text", class: "find", placeholder: "Type a class, then Enter", autocomplete: "off", "aria-label": "find a class" });
  find.hidden = byKey;

  function matches() {
    const wanted = find.value.trim().toLowerCase();
    const found = choices.classes.filter((name) => name.toLowerCase().includes(wanted));
    const starts = (name) => name.toLowerCase().startsWith(wanted);
    return [...found.filter(starts), ...found.filter((name) => !starts(name))];
  }

  function choose(label) {
    find.value = "";
    show();
    give(label);
  }

  function button(label, text, key) {
    const made = element("button", { type: "button" }, key ? element("kbd", {}, key) : null, text);
    made.dataset.label = label;
    made.addEventListener("click", () => { made.blur(); choose(label); }); // else the space bar would press it again
    return made;
  }

  function show() {
    const names = byKey ? choices.classes : matches();
    list.replaceChildren(...names.map((name, index) => button(name, name, byKey ? choices.keys[index] : "")));
    if (!byKey && find.value.trim() !== "") list.firstElementChild?.classList.add("first");
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.repeat) return false;
    const label = byKey ? labelOfKey(event) : labelOfTyping(event);
    if (label === undefined) return false;
    event.preventDefault();
    choose(label);
    return true;
  }

  function labelOfKey(event) {
    if (event.altKey) return undefined;
    if (event.key === "-") return choices.none;
    if (event.key === " ") return choices.unsure;
    const place = choices.keys.indexOf(event.key.toLowerCase());
    return place < 0 ? undefined : choices.classes[place];
  }

  function labelOfTyping(event) {
    if (event.altKey) return event.key === "-" ? choices.none : event.key === "?" ? choices.unsure : undefined;
    return event.key === "Enter" && find.value.trim() !== "" ? matches()[0] : undefined;
  }

  find.addEventListener("input", show);
  show();
  const others = element("div", { class: "tools" },
    button(choices.none, "none of these", byKey ? "-" : "Alt -"), button(choices.unsure, "cannot tell", byKey ? "space" : "Alt ?"));
  return {
    element: element("div", { class: "picker" }, find, list, others),
    byKey,
    press,
    focus: () => { if (!byKey) find.focus(); },
    /** Whether Backspace is about a letter that was typed, not about a label. */
    typing: () => !byKey && find.value !== "",
  };
}
