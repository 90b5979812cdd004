// Small parts that every view uses: elements, requests, and the line for problems.

export const at = (id) => document.getElementById(id);

/** An element with properties and children; text is never read as HTML. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name.includes("-") || name === "role" || name === "for") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The JSON of a response. A refusal becomes an Error with the server's reason. */
export async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is tcm app still running?");
  }
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(typeof found.detail === "string" ? found.detail : `The server refused (${response.status}).`);
  return found;
}

/** Sends a value as JSON. */
export function put(path, value) {
  return ask(path, { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
}

/** Runs an action; what goes wrong is shown above the view. */
export async function attempt(action) {
  try {
    at("problem").hidden = true;
    return await action();
  } catch (error) {
    at("problem").textContent = error.message;
    at("problem").hidden = false;
    at("problem").scrollIntoView({ block: "nearest" });
    return undefined;
  }
}

export const percent = (share) => (share > 0.9995 ? "100 %" : share < 0.0005 ? "0 %" : `${(100 * share).toFixed(1)} %`);
export const lastPart = (path) => path.split("/").pop();
