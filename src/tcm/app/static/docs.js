// The documentation of the API, from the server's openapi.json.

import { ask, at, attempt, element } from "/static/page.js";

let schemas;

const resolved = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").pop()] : schema);

/** A schema in words: "text", "list of ClassProbability", "number or null". */
function inWords(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(inWords).join(" or ");
  if (schema.type === "array") return `list of ${inWords(schema.items)}`;
  if (schema.format === "binary" || schema.contentMediaType) return "file";
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.join(" or ");
  return { string: "text", integer: "integer", number: "number", boolean: "yes or no", object: "object", null: "null" }[schema.type] ?? "any";
}

function table(title, lines) {
  const rows = lines.map(([name, kind, text]) => element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, kind), element("td", {}, text ?? "")));
  return element("div", { class: "scroll" }, element("table", {}, element("caption", {}, title), element("tbody", {}, ...rows)));
}

function fields(schema) {
  const found = resolved(schema) ?? {};
  const needed = new Set(found.required ?? []);
  return Object.entries(found.properties ?? {}).map(([name, one]) => [name + (needed.has(name) ? "" : "?"), inWords(one), one.description]);
}

function curl(method, path, operation) {
  const address = location.origin + path.replace("{number}", "0");
  const body = operation.requestBody?.content ?? {};
  if (body["multipart/form-data"]) {
    const [name] = Object.keys(resolved(body["multipart/form-data"].schema).properties);
    return `curl -F ${name}=@image.png '${address}'`;
  }
  const json = body["application/json"] ? ` -H 'Content-Type: application/json' -d '{"number": 0, "label": "${"…"}"}'` : "";
  return `curl ${method === "GET" ? "" : `-X ${method} `}'${address}'${json}`;
}

function shown(path, method, operation) {
  const body = Object.entries(operation.requestBody?.content ?? {});
  const answer = Object.entries(operation.responses["200"]?.content ?? {})[0];
  return element("section", { class: "card" },
    element("h3", {}, element("span", { class: "tag" }, method), " ", element("code", {}, path)),
    element("p", {}, operation.description ?? ""),
    operation.parameters?.length ? table("Parameters", operation.parameters.map((one) => [one.name, inWords(one.schema), one.description])) : null,
    ...body.map(([kind, one]) => table(`Sends ${kind}`, fields(one.schema))),
    answer ? table(`Returns ${answer[1].schema ? inWords(answer[1].schema) : answer[0]}`, fields(answer[1].schema)) : null,
    element("pre", {}, curl(method, path, operation)));
}

attempt(async () => {
  const found = await ask("/openapi.json");
  schemas = found.components.schemas;
  at("about").textContent = `${found.info.description} Version ${found.info.version}. A server with a token wants the header Authorization: Bearer TOKEN.`;
  for (const [path, methods] of Object.entries(found.paths)) {
    at("view").append(...Object.entries(methods).map(([method, operation]) => shown(path, method.toUpperCase(), operation)));
  }
  const inner = Object.entries(schemas).filter(([name, one]) => one.properties && !name.startsWith("Body_") && !/ValidationError/.test(name));
  at("view").append(element("h2", {}, "Objects"), ...inner.map(([name, one]) => element("section", { class: "card" }, element("h3", {}, name), element("p", {}, one.description ?? ""), table("Fields", fields(one)))));
});
