// One query in full: demands, mechanism, plan with places, newest results, and what can be done to it.

import { queryColour } from "../colours";
import { changeDemands } from "../dialogs/demands";
import { fill, h, icon, say } from "../dom";
import { bytes, cell, count, ms, plural, seconds } from "../format";
import type { Query, Transition } from "../model";
import { attempt, notice } from "../notices";
import type { Store } from "../store";
import { drawDag } from "./dag";
import { moves } from "./decisions";
import { demandChip } from "./queries";
import { SettingsView } from "./settings";

const EVERY_MS = 2000;
const SHOWN_ROWS = 8;

const USUAL = "as set";

interface Predicted {
  transition: { moves: number };
  predicted: Transition;
  protocols: Transition[];
}

export class QueryView {
  readonly element = h("article", { class: "query-view", hidden: true, "aria-label": "Query" });
  private id: string | null = null;
  private timer = 0;
  private dagKey = "";
  private parts = {
    title: h("h2", { tabindex: "-1" }),
    status: h("p", { class: "muted" }),
    numbers: h("dl", { class: "numbers wide" }),
    demands: h("ul", { class: "demands" }),
    mechanism: h("select", { "aria-label": "Mechanism" }),
    about: h("p", { class: "muted" }),
    chosen: h("p", { class: "muted" }),
    protocol: h("select", { "aria-label": "Protocol" }),
    by: h("label", { class: "choice muted", hidden: true }, "by protocol"),
    predicted: h("div", { class: "predicted" }),
    plan: h("div", {}),
    results: h("div", { class: "results" }),
    text: h("pre", { class: "sql" }),
  };

  private settings: SettingsView;

  constructor(private store: Store) {
    const { parts } = this;
    this.settings = new SettingsView(store);
    const back = h("button", { type: "button", class: "quiet", onclick: () => this.leave() }, icon("back"), "All queries");
    const stop = h("button", { type: "button", class: "danger small", onclick: () => void this.stop() }, "Stop query");
    const demand = h("button", { type: "button", class: "small", onclick: () => this.query && changeDemands(store, this.query) }, "Change");
    const change = h("button", { type: "button", class: "small", onclick: () => void this.switch() }, "Switch");
    parts.mechanism.addEventListener("change", () => {
      this.explain();
      void this.predict();
    });
    parts.by.append(parts.protocol);
    parts.protocol.addEventListener("change", () => void this.predict());
    this.element.append(
      h("div", { class: "query-bar" }, back, stop),
      h("header", {}, h("span", { class: "dot" }), h("div", { class: "grow" }, parts.title, parts.status)),
      parts.numbers,
      h("section", {}, h("div", { class: "section-head" }, h("h3", {}, "Demands"), demand), parts.demands),
      h("section", {}, h("div", { class: "section-head" }, h("h3", {}, "Placement mechanism"), parts.mechanism, change), parts.about, parts.by, parts.predicted, parts.chosen),
      h("section", {}, h("details", {}, h("summary", {}, "Adaptation settings"), this.settings.element)),
      h("section", {}, h("h3", {}, "Operators and where they run"), parts.plan),
      h("section", {}, h("h3", {}, "Newest results"), parts.results),
      h("section", {}, h("h3", {}, "Text"), parts.text),
    );
    this.element.addEventListener("keydown", (e) => e.key === "Escape" && this.leave());
    store.on("selection", () => this.open());
    store.on(["queries", "metrics"], () => this.update());
    store.on(["placements", "moves"], () => void this.fetchPlan());
  }

  private get query(): Query | undefined {
    return this.id ? this.store.queries.get(this.id) : undefined;
  }

  private leave(): void {
    this.store.select({ query: null });
  }

  private open(): void {
    const id = this.store.selection.query;
    if (id === this.id) return;
    this.id = id;
    this.element.hidden = id === null;
    clearInterval(this.timer);
    if (!id) return;
    this.dagKey = "";
    fill(this.parts.plan, h("p", { class: "muted" }, "Reading the plan…"));
    fill(this.parts.results, h("p", { class: "muted" }, "Reading results…"));
    fill(this.parts.mechanism, ...this.store.mechanisms.map((m) => h("option", { value: m.name }, m.name)));
    if (this.query) this.parts.mechanism.value = this.query.mechanism;
    this.update();
    this.explain();
    void this.fetchPlan();
    void this.fetchResults();
    void this.settings.open(id);
    this.forgetPrediction();
    this.timer = window.setInterval(() => void this.fetchResults(), EVERY_MS);
    this.parts.title.focus({ preventScroll: true });
  }

  private update(): void {
    const query = this.query;
    if (!query) return;
    const { parts } = this;
    this.element.style.setProperty("--colour", queryColour(query.id));
    say(parts.title, query.id);
    say(parts.status, [query.status, query.reason, `${query.operators} operators in ${query.fragments} fragments`].filter(Boolean).join(" · "));
    const latency = query.latency_ms;
    fill(
      parts.numbers,
      ...[
        ["results/s", count(query.rate_tps ?? 0)],
        ["results", count(query.results ?? 0)],
        ["p50", ms(latency?.p50)],
        ["p95", ms(latency?.p95)],
        ["p99", ms(latency?.p99)],
      ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    );
    fill(parts.demands, ...(query.demands.length ? query.demands.map(demandChip) : [h("li", { class: "muted" }, "None: any placement will do.")]));
    say(parts.text, query.text);
    say(parts.chosen, query.chosen ? `${query.mechanism} was chosen: ${query.chosen}` : "");
    this.explain();
  }

  private explain(): void {
    const name = this.parts.mechanism.value;
    const known = this.store.mechanisms.find((m) => m.name === name);
    const running = this.query?.mechanism;
    const optimises = [known?.optimises ?? []].flat().join(", ");
    say(this.parts.about, [running === name ? "in use" : `${running} is in use`, known?.summary, optimises && `optimises ${optimises}`].filter(Boolean).join(" · "));
  }

  /** What a switch to the selected mechanism would take, by the selected protocol and by all others. */
  private async predict(): Promise<void> {
    const { id, parts } = this;
    const mechanism = parts.mechanism.value;
    if (!id || mechanism === this.query?.mechanism) return this.forgetPrediction();
    const chosen = this.protocol;
    try {
      const path = `/queries/${encodeURIComponent(id)}/switch?dry_run=true`;
      const { transition, predicted, protocols } = await this.store.api.post<Predicted>(path, { mechanism, ...chosen });
      if (id !== this.id || mechanism !== parts.mechanism.value || chosen.protocol !== this.protocol.protocol) return;
      if (parts.by.hidden) {
        fill(parts.protocol, ...[USUAL, ...protocols.map((p) => p.protocol)].map((name) => h("option", { value: name }, name)));
        parts.by.hidden = false;
      }
      fill(
        parts.predicted,
        h("p", { class: "muted" }, `a switch would move ${plural(transition.moves, "operator")} by ${predicted.protocol} in ${took(predicted)}`),
        moves(predicted.operators ?? []),
        h("ul", { class: "moves" }, ...protocols.filter((p) => p.protocol !== predicted.protocol).map((p) => h("li", {}, `${p.protocol}: ${took(p)}`))),
      );
    } catch {
      this.forgetPrediction(); // in a transition, or refused: switching says why
    }
  }

  private get protocol(): { protocol?: string } {
    const { by, protocol } = this.parts;
    return by.hidden || protocol.value === USUAL ? {} : { protocol: protocol.value };
  }

  private forgetPrediction(): void {
    fill(this.parts.predicted);
    this.parts.by.hidden = true;
  }

  private async fetchPlan(): Promise<void> {
    const id = this.id;
    if (!id) return;
    try {
      const { dag } = await this.store.api.get<Query>(`/queries/${encodeURIComponent(id)}`);
      const key = JSON.stringify(dag);
      if (!dag || id !== this.id || key === this.dagKey) return;
      this.dagKey = key;
      fill(this.parts.plan, drawDag(dag, (node) => this.store.select({ node, link: null })));
    } catch {
      // gone or away: the list and the banner say so
    }
  }

  private async fetchResults(): Promise<void> {
    const id = this.id;
    if (!id || document.hidden) return;
    try {
      const { rows, total } = await this.store.api.get<{ rows: Record<string, unknown>[]; total: number }>(
        `/queries/${encodeURIComponent(id)}/results?limit=${SHOWN_ROWS}`,
      );
      if (id === this.id) fill(this.parts.results, table(rows, total));
    } catch {
      // as above
    }
  }

  private async switch(): Promise<void> {
    const { id } = this;
    const mechanism = this.parts.mechanism.value;
    if (!id) return;
    if (await attempt(() => this.store.api.post(`/queries/${encodeURIComponent(id)}/switch`, { mechanism, ...this.protocol }))) {
      this.forgetPrediction();
      notice(`${id} switches to ${mechanism}; it keeps running meanwhile`);
    }
  }

  private async stop(): Promise<void> {
    const { id } = this;
    const text = this.query?.text;
    if (!id || !(await attempt(() => this.store.api.remove(`/queries/${encodeURIComponent(id)}`)))) return;
    this.leave();
    notice(`${id} is stopped`, "info", {
      label: "Start again",
      run: () => void attempt(() => this.store.api.post("/queries", { text, name: id })),
    });
  }
}

function took(transition: Transition): string {
  const overlap = transition.overlap_s ? `, ${seconds(transition.overlap_s)} of it at both places` : "";
  return `${seconds(transition.seconds)} with ${bytes(transition.bytes)}${overlap}`;
}

function table(rows: Record<string, unknown>[], total: number): HTMLElement {
  if (!rows.length) return h("p", { class: "muted" }, "No results yet. Windows answer when they close.");
  const columns = Object.keys(rows[0]);
  return h(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": "Newest results" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...columns.map((c) => h("th", { scope: "col" }, c)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...columns.map((c) => h("td", { class: typeof row[c] === "number" ? "number" : "" }, cell(row[c])))))),
    ),
    h("p", { class: "muted" }, `${count(total)} in all`),
  );
}
