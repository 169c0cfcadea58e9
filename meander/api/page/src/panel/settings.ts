// The adaptation settings of all queries or of one: what applies, where it comes from, and changing it at run time.

import { fill, h } from "../dom";
import { attempt, notice } from "../notices";
import type { Store } from "../store";

interface Setting {
  name: string;
  value: unknown;
  source: string;
  allowed: string;
  choices: string[];
  about: string;
}

interface Settings {
  settings: Setting[];
  queries_with_own: string[];
}

const SET_AT_RUN_TIME = ["set at run time", "set for this query"];

export class SettingsView {
  readonly element = h("div", { class: "settings" });
  private id: string | null = null;

  constructor(private store: Store) {}

  /** Shows the settings of a query, or those of all queries. */
  async open(id: string | null): Promise<void> {
    this.id = id;
    await this.show();
  }

  private get path(): string {
    return this.id === null ? "/adaptation" : `/queries/${encodeURIComponent(this.id)}/adaptation`;
  }

  private async show(): Promise<void> {
    const id = this.id;
    try {
      const found = await this.store.api.get<Settings>(this.path);
      if (id === this.id) fill(this.element, this.table(found));
    } catch {
      fill(this.element); // gone or away: the list and the banner say so
    }
  }

  private table({ settings, queries_with_own: own }: Settings): HTMLElement {
    const rows = settings.map((setting) => {
      const about = `${setting.about} (${setting.allowed})`;
      return h("tr", { title: about }, h("th", { scope: "row" }, setting.name), h("td", {}, this.field(setting)), h("td", { class: "muted" }, setting.source));
    });
    const label = this.id === null ? "Adaptation settings of all queries" : "Adaptation settings";
    const back = h("button", { type: "button", class: "small", onclick: () => void this.reset() }, this.id === null ? "As in the settings file" : "As for all queries");
    back.disabled = !settings.some((s) => SET_AT_RUN_TIME.includes(s.source) && (this.id === null || s.source !== SET_AT_RUN_TIME[0]));
    const others = this.id === null && own.length > 0 && h("p", { class: "muted" }, `Settings of their own: ${own.join(", ")}`);
    return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("tbody", {}, ...rows)), others, back);
  }

  private field(setting: Setting): HTMLElement {
    const value = Array.isArray(setting.value) ? setting.value.join(", ") : String(setting.value);
    const shown = value === "" && setting.name === "mechanisms" ? "all" : value;
    const about = { title: setting.allowed, "aria-label": setting.name };
    const field = setting.choices.length
      ? h("select", about, ...setting.choices.map((choice) => h("option", { value: choice }, choice)))
      : h("input", { type: "text", ...about });
    field.value = shown;
    field.addEventListener("change", () => void this.change(setting.name, field.value));
    return field;
  }

  private async change(name: string, value: string): Promise<void> {
    if (await attempt(() => this.store.api.patch(this.path, { settings: { [name]: value } }))) {
      notice(`${this.id ?? "all queries"}: ${name} is ${value || "empty"} from now on`);
    }
    await this.show();
  }

  private async reset(): Promise<void> {
    const done = this.id === null ? "all queries have the settings of the settings file again" : `${this.id} has the settings of all queries again`;
    if (await attempt(() => this.store.api.remove(this.path))) notice(done);
    await this.show();
  }
}
