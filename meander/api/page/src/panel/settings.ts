// The adaptation settings of one query: what applies, where it comes from, and changing it while the query runs.

import { fill, h } from "../dom";
import { attempt, notice } from "../notices";
import type { Store } from "../store";

interface Setting {
  name: string;
  value: unknown;
  source: string;
  allowed: string;
  about: string;
}

export class SettingsView {
  readonly element = h("div", {});
  private id: string | null = null;

  constructor(private store: Store) {}

  async open(id: string): Promise<void> {
    this.id = id;
    await this.show();
  }

  private get path(): string {
    return `/queries/${encodeURIComponent(this.id ?? "")}/adaptation`;
  }

  private async show(): Promise<void> {
    const id = this.id;
    try {
      const { settings } = await this.store.api.get<{ settings: Setting[] }>(this.path);
      if (id === this.id) fill(this.element, this.table(settings));
    } catch {
      fill(this.element); // gone or away: the list and the banner say so
    }
  }

  private table(settings: Setting[]): HTMLElement {
    const rows = settings.map((setting) => {
      const value = Array.isArray(setting.value) ? setting.value.join(", ") : String(setting.value);
      const input = h("input", { type: "text", value, title: setting.allowed, "aria-label": setting.name });
      input.addEventListener("change", () => void this.change(setting.name, input.value));
      return h("tr", { title: `${setting.about} (${setting.allowed})` }, h("td", {}, setting.name), h("td", {}, input), h("td", { class: "muted" }, setting.source));
    });
    const back = h("button", { type: "button", class: "small", onclick: () => void this.reset() }, "As for all queries");
    return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Adaptation settings" }, h("table", {}, h("tbody", {}, ...rows)), back);
  }

  private async change(name: string, value: string): Promise<void> {
    if (await attempt(() => this.store.api.patch(this.path, { settings: { [name]: value } }))) {
      notice(`${this.id}: ${name} is ${value || "all"} from now on`);
    }
    await this.show();
  }

  private async reset(): Promise<void> {
    if (await attempt(() => this.store.api.remove(this.path))) notice(`${this.id} has the settings of all queries again`);
    await this.show();
  }
}
