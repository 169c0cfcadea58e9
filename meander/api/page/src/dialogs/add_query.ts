// Adding a query: write it, or begin with a sample; the streams and their columns stand beside it. Mistakes are shown at
// their place.

import { Problem } from "../api";
import { h } from "../dom";
import { plural } from "../format";
import type { Query, Stream } from "../model";
import { notice, words } from "../notices";
import type { Store } from "../store";
import { dialog } from "./dialog";
import { Editor } from "./editor";

const HINT = "SELECT id, speed * 3.6 AS kmh\nFROM train\nWHERE speed < 5\nINTO alerts\nDEMAND latency < 1 s";

export function addQuery(store: Store): void {
  const editor = new Editor("Query");
  editor.area.placeholder = HINT;
  const name = h("input", { id: "query-name", placeholder: "by itself", autocomplete: "off", spellcheck: "false" });
  const mechanism = h("select", { id: "query-mechanism" }, h("option", { value: "" }, "by its demands"), ...store.mechanisms.map((m) => h("option", { value: m.name, title: m.summary }, m.name)));
  const add = h("button", { type: "submit", class: "primary" }, "Add query");
  const samples = store.samples.map((sample) =>
    h("button", { type: "button", class: "chip", onclick: () => (editor.text = sample.text.trim()) }, sample.title),
  );
  const left = h(
    "div",
    { class: "grow" },
    samples.length ? h("div", { class: "chips", role: "group", "aria-label": "Samples" }, h("span", { class: "muted" }, "Begin with"), ...samples) : "",
    editor.element,
    h("div", { class: "field" }, h("label", { for: "query-name" }, "Name"), name),
    h("div", { class: "field" }, h("label", { for: "query-mechanism" }, "Placement mechanism"), mechanism),
  );
  const right = h("aside", { class: "streams", "aria-label": "Streams" }, h("h3", {}, "Streams"), ...store.streams.map((stream) => streamCard(stream, editor)), store.sinks.length > 0 && h("h3", { class: "spaced" }, "Sinks"), h("ul", {}, ...store.sinks.map((sink) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => editor.insert(sink.name) }, sink.name), h("span", { class: "muted" }, ` at ${sink.node}`)))));
  const { element, close } = dialog("Add a query", [left, right], [add], () => void submit(), true);
  editor.area.focus();

  async function submit(): Promise<void> {
    if (!editor.text.trim()) {
      editor.mistake("Write a query first, or begin with one of the samples.", null, null);
      return;
    }
    add.disabled = true;
    try {
      const body: Record<string, string> = { text: editor.text };
      if (name.value.trim()) body.name = name.value.trim();
      if (mechanism.value) body.mechanism = mechanism.value;
      const query = await store.api.post<Query>("/queries", body);
      store.queries.set(query.id, query);
      store.refresh();
      store.tell("queries");
      store.select({ query: query.id });
      close();
      notice(query.status === "waiting" ? `${query.id} waits: ${query.reason ?? "no place for it yet"}` : `${query.id} is on its way to its nodes`);
    } catch (error) {
      const problem = error instanceof Problem ? error : null;
      editor.mistake(words(error), problem?.line ?? null, problem?.column ?? null);
    } finally {
      add.disabled = false;
    }
  }

  void element;
}

function streamCard(stream: Stream, editor: Editor): HTMLElement {
  const columns = columnsOf(stream);
  return h(
    "section",
    {},
    h("h4", {}, h("button", { type: "button", class: "link", onclick: () => editor.insert(stream.name) }, stream.name), h("span", { class: "muted" }, ` from ${plural(stream.nodes.length, "node")}`)),
    h(
      "ul",
      {},
      ...columns.map(([name, type]) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => editor.insert(name) }, name), h("span", { class: "muted" }, ` ${type}`))),
    ),
  );
}

function columnsOf({ schema }: Stream): [string, string][] {
  if (typeof schema === "string") {
    return schema.replace(/^\(|\)$/g, "").split(/,\s*/).map((part) => part.trim().split(/\s+/, 2) as [string, string]);
  }
  if (Array.isArray(schema)) return schema.map((c) => [c.name, c.type]);
  return Object.entries(schema);
}
