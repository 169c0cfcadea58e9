// The sites: who is there, and who keeps replicas of whose store, in step, behind, or serving in a site's place.

import { fill, h } from "../dom";
import { bytes, ms } from "../format";
import type { KeeperLag, SiteInfo } from "../model";
import type { Store } from "../store";

const EVERY_MS = 2_000;

export class Sites {
  readonly element = h("div", { class: "sites" });
  private list = h("ol", { class: "rows tall" });
  private shown = "";

  /** `known` is told how many sites there are. */
  constructor(
    private store: Store,
    private known: (count: number) => void,
  ) {
    this.element.append(this.list);
    setInterval(() => void this.look(), EVERY_MS);
    void this.look();
  }

  private async look(): Promise<void> {
    try {
      const sites = await this.store.api.get<SiteInfo[]>("/sites");
      this.known(sites.length);
      const key = JSON.stringify(sites.map((s) => [s.site, s.state, s.nodes, s.replicas]));
      if (key === this.shown) return;
      this.shown = key;
      fill(this.list, ...sites.map(row));
    } catch {
      // the header says that there is no answer
    }
  }
}

function row(site: SiteInfo): HTMLElement {
  const lags = site.replicas?.lags ?? [];
  const problem = site.replicas?.problem;
  return h(
    "li",
    { "data-site": site.site },
    h("span", { class: "line" }, h("strong", { class: "grow cut" }, site.site), h("span", { class: `condition ${site.state === "away" ? "bad" : "muted"}` }, site.state)),
    h("p", { class: "muted" }, site.nodes.join(", ")),
    ...lags.map((lag) => h("p", { class: lag.state === "in step" ? "muted" : "condition bad" }, about(lag))),
    !lags.length && site.replicas && h("p", { class: "condition bad" }, "no replica"),
    problem && h("p", { class: "bad" }, problem),
  );
}

/** As in: replica at hub: behind by 1.2 MB, 3 s. */
function about(lag: KeeperLag): string {
  const keeper = lag.keeper === "home" ? "the coordinator" : lag.keeper;
  if (lag.state === "serving") return `its replica at ${keeper} is serving in its place`;
  if (lag.state === "behind") return `replica at ${keeper}: behind by ${bytes(lag.behind_bytes)}, ${ms(lag.behind_ms)}`;
  return `replica at ${keeper}: ${lag.state}`;
}
