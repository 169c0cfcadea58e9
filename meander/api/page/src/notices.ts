// Short messages that come and go, read out by screen readers; some offer to undo what they tell of.

import { Problem } from "./api";
import { h, icon } from "./dom";

const STAYS_MS = 7000;
const list = h("div", { class: "notices", role: "status", "aria-live": "polite" });

export function noticeArea(): HTMLElement {
  return list;
}

export function notice(text: string, kind: "info" | "bad" = "info", action?: { label: string; run: () => void }): void {
  const close = (): void => item.remove();
  const item = h(
    "div",
    { class: `notice ${kind}` },
    h("span", {}, text),
    action &&
      h(
        "button",
        {
          type: "button",
          class: "link",
          onclick: () => {
            action.run();
            close();
          },
        },
        action.label,
      ),
    h("button", { type: "button", class: "quiet square", "aria-label": "Dismiss", onclick: close }, icon("close")),
  );
  list.append(item);
  while (list.children.length > 4) list.firstElementChild?.remove();
  setTimeout(close, kind === "bad" ? 2 * STAYS_MS : STAYS_MS);
}

/** Does something with the coordinator; what goes wrong is told, never swallowed. Says whether it worked. */
export async function attempt(what: () => Promise<unknown>): Promise<boolean> {
  try {
    await what();
    return true;
  } catch (error) {
    notice(words(error), "bad");
    return false;
  }
}

export function words(error: unknown): string {
  if (error instanceof Problem && error.status === 403) return "This token may look but not change anything; open the page with an operator's token.";
  return error instanceof Error ? error.message : String(error);
}
