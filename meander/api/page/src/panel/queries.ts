// The list of queries: how each is doing, and whether its demands are met.

import { queryColour } from "../colours";
import { fill, h, say } from "../dom";
import { count, ms, quantity } from "../format";
import type { Demand, Query } from "../model";
import type { Store } from "../store";

interface Row {
  element: HTMLElement;
  update(query: Query): void;
}

export class QueryList {
  readonly element = h("div", { class: "query-list" });
  private list = h("ul", { class: "cards" });
  private rows = new Map<string, Row>();
  private empty: HTMLElement;

  constructor(
    private store: Store,
    add: () => void,
  ) {
    this.empty = h(
      "div",
      { class: "empty", hidden: true },
      h("h3", {}, "No queries yet"),
      h("p", {}, "A query says what you want to know from the streams of the nodes. Operators are then placed where they fit best."),
      h("button", { type: "button", class: "primary", onclick: add }, "Add a query"),
    );
    this.element.append(this.list, this.empty);
    store.on(["queries", "metrics", "connection"], () => this.update());
  }

  private update(): void {
    const { queries } = this.store;
    const sorted = [...queries].sort(([x], [y]) => x.localeCompare(y));
    sorted.forEach(([id, query], at) => {
      let row = this.rows.get(id);
      if (!row) {
        row = this.row(query);
        this.rows.set(id, row);
      }
      if (this.list.children[at] !== row.element) this.list.insertBefore(row.element, this.list.children[at] ?? null);
      row.update(query);
    });
    for (const [id, row] of this.rows) {
      if (queries.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    this.empty.hidden = queries.size > 0 || !this.store.loaded;
  }

  private row(query: Query): Row {
    const mechanism = h("span", { class: "tag" });
    const status = h("span", { class: "muted" });
    const reason = h("span", { class: "reason", hidden: true });
    const numbers = h("dl", { class: "numbers" });
    const [rate, latency, results] = ["results/s", "latency p95", "results"].map((name) => {
      const value = h("dd", {});
      numbers.append(h("div", {}, h("dt", {}, name), value));
      return value;
    });
    const demands = h("ul", { class: "demands" });
    let last = "";
    const button = h(
      "button",
      { type: "button", class: "card query", vars: { "--colour": queryColour(query.id) }, onclick: () => this.store.select({ query: query.id }) },
      h("span", { class: "query-head" }, h("span", { class: "dot" }), h("strong", { class: "grow cut" }, query.id), status, mechanism),
    );
    button.append(reason, numbers, demands);
    return {
      element: h("li", {}, button),
      update: (now) => {
        say(mechanism, now.mechanism);
        say(status, now.status === "running" ? "" : now.status);
        status.className = `condition ${wrong(now.status) ? "bad" : "muted"}`;
        say(reason, now.reason ?? "");
        reason.hidden = !now.reason;
        reason.className = `reason ${wrong(now.status) ? "bad" : "muted"}`;
        say(rate, count(now.rate_tps ?? 0));
        say(latency, ms(now.latency_ms?.p95));
        say(results, count(now.results ?? 0));
        const key = JSON.stringify(now.demands);
        if (key !== last) fill(demands, ...now.demands.map(demandChip));
        last = key;
      },
    };
  }
}

/** Conditions that make the service degraded, as the coordinator defines them. */
function wrong(status: string): boolean {
  return ["paused", "waiting", "stalled", "violating"].includes(status);
}

/** A demand with its state in a sign, a colour and words. */
export function demandChip(demand: Demand): HTMLElement {
  const state = demand.met === true ? "good" : demand.met === false ? "bad" : "open";
  const word = { good: "met", bad: "not met", open: "not known yet" }[state];
  const sign = { good: "✓", bad: "✗", open: "·" }[state];
  return h("li", { class: `demand ${state}`, title: word }, h("span", { "aria-hidden": "true" }, sign), h("span", { class: "hidden" }, `${word}: `), demand.text, measured(demand));
}

function measured(demand: Demand): HTMLElement | null {
  if (demand.value === null || demand.value === undefined) return null;
  return h("span", { class: "muted" }, ` now ${quantity(demand.value, demand.unit)}`);
}
