// Four charts of the last five minutes. The strip on top of each marks reconfigurations, so that what a change does to latency shows.

import uPlot from "uplot";
import { paint, queryColour } from "./colours";
import { h, say } from "./dom";
import * as format from "./format";
import type { Metrics } from "./model";
import type { Store } from "./store";
import { onTheme } from "./theme";

const HEIGHT = 112;
const SPAN_S = 300;

interface Series {
  key: string;
  label: string;
  colour: string;
  of: (m: Metrics) => number | null;
}

class Chart {
  readonly element: HTMLElement;
  private box = h("div", { class: "plot" });
  private now = h("output", {});
  private plot: uPlot | null = null;
  private series: Series[] = [];
  private colours = paint();

  constructor(
    private store: Store,
    title: string,
    hint: string,
    private choose: () => Series[],
    private unit: (value: number) => string,
    private headline: (m: Metrics) => number | null,
  ) {
    this.element = h("figure", { class: "chart" }, h("figcaption", { title: hint }, h("span", {}, title), this.now), this.box);
    onTheme(() => {
      this.colours = paint();
      this.make();
    });
    new ResizeObserver(() => this.fit()).observe(this.box);
  }

  update(): void {
    const series = this.choose();
    if (!this.plot || series.map((s) => s.key).join() !== this.series.map((s) => s.key).join()) {
      this.series = series;
      this.make();
    }
    this.plot?.setData(this.data());
    const last = this.store.metrics.at(-1);
    const value = last ? this.headline(last) : null;
    say(this.now, value === null || value === undefined ? "–" : this.unit(value));
  }

  private fit(): void {
    if (this.plot && this.box.clientWidth > 60) this.plot.setSize({ width: this.box.clientWidth, height: HEIGHT });
  }

  private data(): uPlot.AlignedData {
    const { metrics } = this.store;
    const times = metrics.map((m) => m.at_ms / 1000);
    return [times, ...this.series.map((s) => metrics.map((m) => s.of(m)))] as uPlot.AlignedData;
  }

  private make(): void {
    this.plot?.destroy();
    const axis = { stroke: this.colours.muted, font: '10px "Inter Variable", system-ui', grid: { stroke: this.colours.faint, width: 1 }, ticks: { show: false } };
    this.plot = new uPlot(
      {
        width: Math.max(60, this.box.clientWidth),
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: { points: { size: 6 }, y: false },
        scales: { x: { range: (_u, _min, max) => [(max ?? SPAN_S) - Math.min(SPAN_S, Math.max(60, this.span())), max ?? SPAN_S] }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.12 : 1] } },
        axes: [
          { ...axis, grid: { show: false }, size: 18, gap: 2, splits: (_u, _i, _min, max) => this.splits(max), values: (_u, ticks) => ticks.map((t) => this.before(t)) },
          { ...axis, size: 46, gap: 4, space: 28, values: (_u, ticks) => ticks.map((t) => this.unit(t)) },
        ],
        series: [{}, ...this.series.map((s) => ({ label: s.label, stroke: s.colour, width: 1.6, points: { show: false }, spanGaps: true }))],
        hooks: { drawClear: [(u) => this.shade(u)] },
      },
      this.data(),
      this.box,
    );
  }

  private span(): number {
    const { metrics } = this.store;
    return metrics.length ? (metrics.at(-1)!.at_ms - metrics[0].at_ms) / 1000 : 0;
  }

  private splits(max: number): number[] {
    const span = Math.min(SPAN_S, Math.max(60, this.span()));
    const step = span <= 60 ? 20 : span <= 150 ? 30 : 60;
    return Array.from({ length: Math.floor(span / step) }, (_, i) => max - i * step).reverse();
  }

  private before(second: number): string {
    const back = Math.round(this.store.nowMs / 1000 - second);
    return back <= 1 ? "now" : back % 60 ? `−${back} s` : `−${back / 60} min`;
  }

  private shade(u: uPlot): void {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.fillStyle = this.colours.warn;
    ctx.globalAlpha = 0.55;
    const tall = 3 * devicePixelRatio;
    for (const change of this.store.changes) {
      const end = change.ended_ms ?? this.store.nowMs;
      const left = u.valToPos(change.began_ms / 1000, "x", true);
      const right = u.valToPos(end / 1000, "x", true);
      if (right < bbox.left || left > bbox.left + bbox.width) continue;
      const from = Math.max(left, bbox.left);
      ctx.fillRect(from, bbox.top - tall - 2, Math.max(1.5, Math.min(right, bbox.left + bbox.width) - from), tall);
    }
    ctx.restore();
  }
}

export function charts(store: Store): HTMLElement {
  const one = (key: string, label: string, colour: string, of: (m: Metrics) => number): Series => ({ key: key + colour, label, colour, of });
  const shown = (): string[] => (store.selection.query ? [store.selection.query] : [...store.queries.keys()]);
  const perQuery = (of: (m: Metrics["queries"][string]) => number | null | undefined): Series[] =>
    shown().map((id) => ({ key: id, label: id, colour: queryColour(id), of: (m) => (m.queries[id] ? (of(m.queries[id]) ?? null) : null) }));
  const worst = (m: Metrics): number | null => {
    const values = shown().map((id) => m.queries[id]?.latency_ms?.p95).filter((v): v is number => typeof v === "number");
    return values.length ? Math.max(...values) : null;
  };
  const accent = (): string => paint().accent;
  const muted = (): string => paint().muted;
  const all = [
    new Chart(store, "Latency p95", "Event time of the newest tuple a result depends on, until its sink has the result", () => perQuery((q) => q.latency_ms?.p95), format.ms, worst),
    new Chart(store, "Throughput in, out", "Tuples a second that enter (grey) and results that leave", () => [one("in", "in", muted(), (m) => m.host.tuples_in_tps), one("out", "out", accent(), (m) => m.host.tuples_out_tps)], (v) => `${format.count(v)}/s`, (m) => m.host.tuples_in_tps),
    new Chart(store, "Queue", "Tuples that wait in channels", () => [one("queue", "queue", accent(), (m) => m.host.pending)], format.count, (m) => m.host.pending),
    new Chart(store, "State", "Bytes of operator state: open windows, partial aggregates", () => [one("state", "state", accent(), (m) => m.host.state_bytes)], format.bytes, (m) => m.host.state_bytes),
  ];
  store.on(["metrics", "changes", "selection", "queries"], () => all.forEach((c) => c.update()));
  return h("section", { class: "charts", "aria-label": "Measures of the last five minutes" }, ...all.map((c) => c.element));
}
