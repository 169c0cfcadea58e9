// The side panel: queries, changes, decisions as tabs. A selected query takes the first tab's place.

import { h } from "../dom";
import type { Store } from "../store";
import { Changes } from "./changes";
import { changed, Decisions } from "./decisions";
import { QueryList } from "./queries";
import { QueryView } from "./query";

export function sidePanel(store: Store, add: () => void): HTMLElement {
  const list = new QueryList(store, add);
  const view = new QueryView(store);
  const pages: [string, string, HTMLElement][] = [
    ["queries", "Queries", h("div", {}, list.element, view.element)],
    ["changes", "Changes", new Changes(store).element],
    ["decisions", "Decisions", new Decisions(store).element],
  ];
  const tabs = pages.map(([id, label], i) =>
    h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `page-${id}`, onclick: () => open(i) }, label, h("span", { class: "badge" })),
  );
  const bodies = pages.map(([id, , body]) => h("div", { role: "tabpanel", id: `page-${id}`, "aria-labelledby": `tab-${id}`, class: "page" }, body));
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Details" }, ...tabs);
  bar.addEventListener("keydown", (e) => {
    const at = tabs.indexOf(document.activeElement as HTMLButtonElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[e.key];
    if (at < 0 || next === undefined) return;
    e.preventDefault();
    open((next + tabs.length) % tabs.length);
    tabs[(next + tabs.length) % tabs.length].focus();
  });
  let last: string | null = null;
  store.on("selection", () => {
    const { query } = store.selection;
    list.element.hidden = query !== null;
    if (query && query !== last) open(0);
    last = query;
  });
  store.on(["queries", "changes", "decisions"], () => {
    [store.queries.size, store.changes.length, store.decisions.filter(changed).length].forEach((n, i) => {
      tabs[i].querySelector(".badge")!.textContent = n ? String(n) : "";
    });
  });
  open(0);
  return h("section", { class: "side", "aria-label": "Queries and changes" }, bar, ...bodies);

  function open(index: number): void {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
      bodies[i].hidden = i !== index;
    });
    store.tell("changes");
  }
}
