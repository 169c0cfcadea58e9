// What the adaptation loop decided, and why.

import { queryColour } from "../colours";
import { fill, h } from "../dom";
import { ago } from "../format";
import type { Decision } from "../model";
import type { Store } from "../store";

const SHOWN = 60;

/** Whether a decision is of interest without a question why nothing happens. */
export function changed(decision: Decision): boolean {
  return decision.action !== "keep";
}

export class Decisions {
  readonly element = h("div", { class: "decisions" });
  private list = h("ol", { class: "rows tall" });
  private empty = h("div", { class: "empty" }, h("h3", {}, "No decisions yet"), h("p", {}, "When demands are not met, a query may switch to another placement mechanism. Each decision shows here with its reason."));

  private all = h("input", { type: "checkbox", onchange: () => this.update() });

  constructor(private store: Store) {
    this.element.append(h("label", { class: "choice muted" }, this.all, "also those that kept everything as it was"), this.list, this.empty);
    store.on(["decisions", "connection"], () => this.update());
  }

  private update(): void {
    const shown = this.store.decisions.filter((d) => this.all.checked || changed(d)).slice(0, SHOWN);
    fill(
      this.list,
      ...shown.map((d) =>
        h(
          "li",
          {},
          h("span", { class: "line" }, h("span", { class: "dot", vars: { "--colour": queryColour(d.query) } }), h("strong", { class: "grow cut" }, d.query), h("span", { class: "muted" }, ago(d.at_ms, this.store.nowMs))),
          h("p", {}, d.action, d.from && d.to && d.from !== d.to ? h("span", { class: "tags" }, " ", h("span", { class: "tag" }, d.from), " → ", h("span", { class: "tag" }, d.to)) : d.from ? ` ${d.from}` : ""),
          h("p", { class: "muted" }, d.reason),
        ),
      ),
    );
    this.empty.hidden = shown.length > 0 || !this.store.loaded;
  }
}
