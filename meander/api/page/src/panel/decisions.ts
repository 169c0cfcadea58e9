// The adaptation loop: what it decided and why, what its transitions took, its settings, and what mechanisms exchange.

import { queryColour } from "../colours";
import { fill, h } from "../dom";
import { ago, bytes, plural, seconds } from "../format";
import type { Decision, Mechanism, Transition, TransitionMove } from "../model";
import type { Store } from "../store";
import { SettingsView } from "./settings";

const SHOWN = 60;
const SHOWN_MOVES = 12;
const PARTS = ["placement", "cost_space", "control", "state"];

/** Whether a decision is of interest without a question why nothing happens. */
export function changed(decision: Decision): boolean {
  return decision.action !== "keep";
}

export class Decisions {
  readonly element = h("div", { class: "decisions" });
  private list = h("ol", { class: "rows tall" });
  private rows = new Map<string, HTMLElement>();
  private empty = h("div", { class: "empty" }, h("h3", {}, "No decisions yet"), h("p", {}, "When demands are not met, a query may switch to another placement mechanism. Each decision shows here with its reason."));
  private all = h("input", { type: "checkbox", onchange: () => this.update() });
  private settings: SettingsView;
  private exchanged = h("div", {});

  constructor(private store: Store) {
    this.settings = new SettingsView(store);
    this.element.append(
      folded("Settings of all queries", this.settings.element, () => void this.settings.open(null)),
      folded("What mechanisms exchange", this.exchanged, () => void this.count()),
      h("label", { class: "choice muted" }, this.all, "also those that kept everything as it was"),
      this.list,
      this.empty,
    );
    store.on(["decisions", "connection"], () => this.update());
  }

  private update(): void {
    const shown = this.store.decisions.filter((d) => this.all.checked || changed(d)).slice(0, SHOWN);
    const kept = new Map<string, HTMLElement>();
    for (const decision of shown) {
      const key = [decision.at_ms, decision.query, decision.action, decision.reason].join();
      const element = kept.get(key) ?? this.rows.get(key) ?? row(decision); // kept, so that what was opened stays open
      element.querySelector(".when")!.textContent = ago(decision.at_ms, this.store.nowMs);
      kept.set(key, element);
    }
    this.rows = kept;
    this.list.replaceChildren(...kept.values());
    this.empty.hidden = shown.length > 0 || !this.store.loaded;
  }

  /** Bytes since the coordinator started, by mechanism and part. */
  private async count(): Promise<void> {
    let found: Mechanism[];
    try {
      found = await this.store.api.get<Mechanism[]>("/mechanisms");
    } catch {
      return; // the banner says that it is away
    }
    const head = h("tr", {}, ...["", ...PARTS].map((part) => h("th", { scope: "col" }, part.replace("_", " "))));
    const rows = found.map((m) => h("tr", {}, h("th", { scope: "row" }, m.name), ...PARTS.map((part) => h("td", { class: "number" }, bytes(m.exchanged_bytes?.[part] ?? 0)))));
    const table = h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows));
    fill(this.exchanged, h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "What mechanisms exchange" }, table));
  }
}

function folded(title: string, inside: HTMLElement, opened: () => void): HTMLElement {
  const element = h("details", { class: "folded" }, h("summary", {}, title), inside);
  element.addEventListener("toggle", () => element.open && opened());
  return element;
}

function row(d: Decision): HTMLElement {
  const from = d.from && d.to && d.from !== d.to ? h("span", { class: "tags" }, " ", h("span", { class: "tag" }, d.from), " → ", h("span", { class: "tag" }, d.to)) : d.from ? ` ${d.from}` : "";
  return h(
    "li",
    {},
    h("span", { class: "line" }, h("span", { class: "dot", vars: { "--colour": queryColour(d.query) } }), h("strong", { class: "grow cut" }, d.query), h("span", { class: "muted when" })),
    h("p", {}, d.action, from),
    h("p", { class: "muted" }, d.reason),
    transition(d),
  );
}

/** What a transition is predicted to take, what it took, and why each operator moves as it does. */
function transition(d: Decision): HTMLElement | false {
  const predicted = d.took?.predicted ?? d.predicted;
  if (!predicted) return false;
  const figures: [string, (t: Transition) => string][] = [
    ["time", (t) => seconds(t.seconds)],
    ["at both places", (t) => seconds(t.overlap_s)],
    ["bytes", (t) => bytes(t.bytes)],
  ];
  const head = h("tr", {}, ...["", "predicted", d.took ? "took" : ""].map((text) => h("th", { scope: "col" }, text)));
  const rows = figures.map(([name, of]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, of(predicted)), h("td", { class: "number" }, d.took ? of(d.took) : "")));
  return h(
    "details",
    {},
    h("summary", { class: "muted" }, `by ${predicted.protocol}: ${ways(predicted.operators ?? [])} · predicted ${seconds(predicted.seconds)}${d.took ? `, took ${seconds(d.took.seconds)}` : ""}`),
    h("table", { class: "figures" }, h("thead", {}, head), h("tbody", {}, ...rows)),
    moves(predicted.operators ?? []),
  );
}

function ways(operators: TransitionMove[]): string {
  const counts = new Map<string, number>();
  for (const { way } of operators) counts.set(way, (counts.get(way) ?? 0) + 1);
  return [...counts].map(([way, n]) => `${n} ${way}`).join(", ") || "nothing moves";
}

/** Operators with state one by one; the others need no reason. */
export function moves(operators: TransitionMove[]): HTMLElement {
  const told = operators.filter((o) => o.way !== "at once");
  const rest = operators.length - told.length;
  const more = told.length - SHOWN_MOVES;
  return h(
    "ul",
    { class: "moves" },
    ...told.slice(0, SHOWN_MOVES).map((o) => h("li", {}, `${o.kind} ${o.operator} ${o.way}: ${o.why}`)),
    more > 0 && h("li", {}, `and ${more} more`),
    rest > 0 && h("li", {}, `${plural(rest, "operator")} without state at once`),
  );
}
