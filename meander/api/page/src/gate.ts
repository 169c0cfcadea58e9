// What stands in front of the page while there is nothing to show: loading, no token, no coordinator.

import { fill, h } from "./dom";
import type { Store } from "./store";

export class Gate {
  readonly element = h("div", { class: "gate" });
  private shown = "";

  constructor(
    private store: Store,
    private enter: (token: string) => void,
  ) {
    store.on(["connection", "health"], () => this.update());
    this.update();
  }

  private update(): void {
    const { connection, loaded } = this.store;
    const starting = this.store.health.status === "starting" && connection === "live";
    const state = connection === "unauthorised" ? "token" : loaded ? "" : connection === "lost" ? "away" : starting ? "starting" : "loading";
    if (state === this.shown) return;
    this.shown = state;
    this.element.hidden = state === "";
    document.body.classList.toggle("gated", state !== "");
    if (state === "token") fill(this.element, this.askForToken());
    else if (state === "away") fill(this.element, card("No answer", "The coordinator is not there, or is just starting. This page tries again by itself.", h("p", { class: "muted" }, "Start one with ", h("code", {}, "meander demo"), " or ", h("code", {}, "meander up"), ".")));
    else if (state === "starting") fill(this.element, card("Spark is starting", "That takes a few seconds. The page opens by itself.", h("div", { class: "loading", role: "progressbar", "aria-label": "Starting" })));
    else if (state === "loading") fill(this.element, card("Connecting", "Reading topology, queries and placements.", h("div", { class: "loading", role: "progressbar", "aria-label": "Loading" })));
  }

  private askForToken(): HTMLElement {
    const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
    const form = h(
      "form",
      {
        onsubmit: (e: Event) => {
          e.preventDefault();
          this.enter(input.value.trim());
        },
      },
      h("label", { for: "token" }, "Token"),
      input,
      h("button", { type: "submit", class: "primary" }, "Open"),
    );
    const wrong = this.store.api.token ? "This session is over, or the link was used before." : "This page needs a link, which opens it once, or a token.";
    return card("Who are you?", wrong, h("p", { class: "muted" }, "Make a link with ", h("code", {}, "meander token link"), ", or enter a token of ", h("code", {}, "meander token make"), "."), form);
  }
}

function card(title: string, text: string, ...more: Node[]): HTMLElement {
  return h("div", { class: "card gate-card", role: "status" }, h("h2", {}, title), h("p", {}, text), ...more);
}
