// The bar on top: health, a few totals, and what can be begun from everywhere.

import { h, icon, s, say } from "./dom";
import { bytes, count, ms } from "./format";
import type { Store } from "./store";
import { themeButton } from "./theme";

export function header(store: Store, add: () => void): HTMLElement {
  const light = h("span", { class: "light" });
  const state = h("span", {});
  const health = h("p", { class: "health", role: "status" }, light, state);
  const totals = h("dl", { class: "totals" });
  const values = ["queries", "tuples/s in", "worst p95", "state", "changes"].map((name) => {
    const value = h("dd", {}, "–");
    totals.append(h("div", {}, h("dt", {}, name), value));
    return value;
  });
  store.on(["health", "connection"], () => {
    const [kind, text] = condition(store);
    light.className = `light ${kind}`;
    say(state, text);
    health.title = store.health.problems.join("\n");
    document.body.classList.toggle("away", store.loaded && store.connection !== "live");
  });
  store.on(["metrics", "queries", "changes"], () => {
    const last = store.metrics.at(-1);
    const latencies = Object.values(last?.queries ?? {}).map((q) => q.latency_ms?.p95).filter((v): v is number => typeof v === "number");
    say(values[0], count(store.queries.size));
    say(values[1], last ? count(last.host.tuples_in_tps) : "–");
    say(values[2], latencies.length ? ms(Math.max(...latencies)) : "–");
    say(values[3], last ? bytes(last.host.state_bytes) : "–");
    say(values[4], count(store.changes[0]?.number ?? 0));
  });
  return h(
    "header",
    { class: "top" },
    h("h1", {}, s("svg", { class: "wordmark", viewBox: "0 0 32 32", "aria-hidden": "true" }, s("rect", { width: 32, height: 32, rx: 8 }), s("path", { d: "M5 20c4 0 4-9 8.500-9S17.500 22 22 22s3.500-7 5-7" })), "Meander"),
    health,
    totals,
    themeButton(),
    h("button", { type: "button", class: "primary", onclick: add }, icon("plus"), "Add query"),
  );
}

function condition(store: Store): [string, string] {
  if (store.connection === "lost" || (store.connection === "connecting" && store.loaded)) return ["bad", "connection lost, trying again"];
  if (store.connection !== "live") return ["open", "connecting"];
  const { status, problems } = store.health;
  if (status === "ok") return ["good", "all well"];
  if (status === "starting") return ["open", "Spark is starting"];
  if (status === "stopping") return ["warn", "stopping"];
  const more = problems.length - 1;
  return ["warn", more > 0 ? `${problems[0]} (and ${more} more)` : (problems[0] ?? status)];
}
