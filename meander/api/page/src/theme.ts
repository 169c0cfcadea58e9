// Light, dark, or as the system says. Remembered on this machine.

import { h, icon } from "./dom";

const ORDER = ["auto", "light", "dark"] as const;
type Theme = (typeof ORDER)[number];
const ICON = { auto: "auto", light: "sun", dark: "moon" };
const listeners: (() => void)[] = [];

function stored(): Theme {
  const value = localStorage.getItem("meander-theme") as Theme | null;
  return value && ORDER.includes(value) ? value : "auto";
}

export function onTheme(listener: () => void): void {
  listeners.push(listener);
}

export function startTheme(): void {
  document.documentElement.dataset.theme = stored();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => listeners.forEach((l) => l()));
}

export function themeButton(): HTMLButtonElement {
  const button = h("button", { class: "quiet square", type: "button", onclick: turn });
  show();
  return button;

  function turn(): void {
    const next = ORDER[(ORDER.indexOf(stored()) + 1) % ORDER.length];
    localStorage.setItem("meander-theme", next);
    document.documentElement.dataset.theme = next;
    show();
    listeners.forEach((l) => l());
  }

  function show(): void {
    const theme = stored();
    const text = `Colours: ${theme === "auto" ? "as the system" : theme}. Press to change.`;
    button.replaceChildren(icon(ICON[theme]));
    button.setAttribute("aria-label", text);
    button.title = text;
  }
}
