// Changing the demands of a running query.

import { h } from "../dom";
import type { Query } from "../model";
import { notice, words } from "../notices";
import type { Store } from "../store";
import { dialog } from "./dialog";

export function changeDemands(store: Store, query: Query): void {
  const area = h("textarea", { rows: "4", spellcheck: "false", "aria-label": "Demands, one on each line", value: query.demands.map((d) => d.text).join("\n") });
  const mistake = h("p", { class: "mistake", role: "alert", hidden: true });
  const save = h("button", { type: "submit", class: "primary" }, "Change demands");
  const { close } = dialog(
    `Demands of ${query.id}`,
    [
      h(
        "div",
        { class: "grow" },
        h("p", { class: "muted" }, "One on each line: latency, hops, overhead, network_usage, load, frequency. For example ", h("code", {}, "latency < 500 ms"), " or ", h("code", {}, "hops <= 3 WEIGHT 2"), "."),
        area,
        mistake,
      ),
    ],
    [save],
    () => void submit(),
  );
  area.focus();

  async function submit(): Promise<void> {
    save.disabled = true;
    try {
      const demands = area.value.split("\n").map((line) => line.trim().replace(/,$/, "")).filter(Boolean);
      const changed = await store.api.put<Query | undefined>(`/queries/${encodeURIComponent(query.id)}/demands`, { demands });
      if (changed?.id) store.queries.set(changed.id, { ...query, ...changed });
      store.tell("queries");
      close();
      notice(`${query.id} asks for ${demands.length ? demands.join(", ") : "nothing in particular"} now`);
    } catch (error) {
      mistake.textContent = words(error);
      mistake.hidden = false;
      area.focus();
    } finally {
      save.disabled = false;
    }
  }
}
