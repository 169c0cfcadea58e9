// Making elements without a framework. Nothing here writes inline scripts or style attributes, so a strict content
// security policy can hold.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, props);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function s(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  apply(element, props);
  append(element, children);
  return element;
}

function apply(element: Element, props: Props): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "vars") vars(element as HTMLElement, value as Record<string, string>);
    else if (name === "value" || name === "checked") Object.assign(element, { [name]: value });
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** Sets custom properties: how data reaches the style sheet. */
export function vars(element: HTMLElement | SVGElement, values: Record<string, string>): void {
  for (const [name, value] of Object.entries(values)) element.style.setProperty(name, value);
}

export function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === "number" ? String(child) : child);
  }
}

export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** Changes text only when it differs, so that selections and screen readers are left alone. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

const ICONS: Record<string, string> = {
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  back: "M10 3L5 8l5 5",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  sun: "M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13 9.500A5.500 5.500 0 016.500 3 5.500 5.500 0 1013 9.500z",
  auto: "M8 2a6 6 0 100 12A6 6 0 008 2zM8 2v12M8 5l4 0M8 8h6M8 11h4",
  search: "M7 3a4 4 0 100 8 4 4 0 000-8zM10 10l3.500 3.500",
  check: "M3.500 8.500l3 3 6-7",
  alert: "M8 4.500V9M8 11.500v.01",
  dot: "M8 8v.01",
};

export function icon(name: string, label?: string): SVGElement {
  const about: Props = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return s("svg", { class: "icon", viewBox: "0 0 16 16", ...about }, s("path", { d: ICONS[name] }));
}
