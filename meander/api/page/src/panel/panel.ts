// The side panel: queries, changes, decisions as tabs, and mobile nodes and sites where there are some. A selected query
// takes the first tab's place.

import { h } from "../dom";
import type { Store } from "../store";
import { Changes } from "./changes";
import { changed, Decisions } from "./decisions";
import { Moves } from "./moves";
import { QueryList } from "./queries";
import { QueryView } from "./query";
import { Sites } from "./sites";

export function sidePanel(store: Store, add: () => void): HTMLElement {
  const list = new QueryList(store, add);
  const view = new QueryView(store);
  const pages: [string, string, HTMLElement][] = [
    ["queries", "Queries", h("div", {}, list.element, view.element)],
    ["changes", "Changes", new Changes(store).element],
    ["decisions", "Decisions", new Decisions(store).element],
    ["moves", "Moves", new Moves(store, (count) => found("moves", count)).element],
    ["sites", "Sites", new Sites(store, (count) => found("sites", count)).element],
  ];
  const tabs = pages.map(([id, label], i) =>
    h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `page-${id}`, onclick: () => open(i) }, label, h("span", { class: "badge" })),
  );
  const bodies = pages.map(([id, , body]) => h("div", { role: "tabpanel", id: `page-${id}`, "aria-labelledby": `tab-${id}`, class: "page" }, body));
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Details" }, ...tabs);
  bar.addEventListener("keydown", (e) => {
    const at = tabs.indexOf(document.activeElement as HTMLButtonElement);
    const there = tabs.filter((tab) => !tab.hidden);
    const place = there.indexOf(tabs[at]);
    const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: there.length - 1 }[e.key];
    if (at < 0 || next === undefined) return;
    e.preventDefault();
    const chosen = there[(next + there.length) % there.length];
    open(tabs.indexOf(chosen));
    chosen.focus();
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
  ["moves", "sites"].forEach((id) => found(id, 0));
  open(0);
  return h("section", { class: "side", "aria-label": "Queries and changes" }, bar, ...bodies);

  /** A tab is there once there is something to see in it. */
  function found(id: string, count: number): void {
    const tab = tabs[pages.findIndex(([name]) => name === id)];
    tab.hidden = !count;
    tab.querySelector(".badge")!.textContent = count ? String(count) : "";
  }

  function open(index: number): void {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
      bodies[i].hidden = i !== index;
    });
    store.tell("changes");
  }
}
