// The map as a part of the page: its canvas, what the mouse and the keys do, and a way to find a node by its name.

import { paint } from "../colours";
import { h, icon, say } from "../dom";
import { plural } from "../format";
import { linkKey, type Store } from "../store";
import { onTheme } from "../theme";
import { Camera } from "./camera";
import { type Focus, Painter } from "./draw";
import { bounds } from "./layout";
import { type Line, Scene } from "./scene";

const REACH_PX = 13;
const LINE_REACH_PX = 6;
const INSET = { left: 60, right: 60, top: 70, bottom: 50 };

export class MapView {
  readonly element: HTMLElement;
  private canvas = h("canvas", { class: "map", tabindex: "0", role: "application" });
  private summary = h("p", { class: "map-summary" });
  private empty = h("p", { class: "empty map-empty", hidden: true }, "No nodes yet. Give the coordinator a topology file.");
  private camera = new Camera();
  private scene: Scene;
  private painter: Painter;
  private colours = paint();
  private focus: Focus = { hover: null, node: null, link: null };

  constructor(private store: Store) {
    this.scene = new Scene(store);
    this.painter = new Painter(this.canvas, this.scene, this.camera);
    const find = this.finder();
    const zoom = h(
      "div",
      { class: "map-buttons", role: "group", "aria-label": "View" },
      this.button("plus", "Zoom in", () => this.zoom(1.35)),
      this.button("minus", "Zoom out", () => this.zoom(1 / 1.35)),
      this.button("fit", "Show everything", () => this.fit()),
    );
    this.element = h(
      "section",
      { class: "map-area", "aria-label": "Topology" },
      this.canvas,
      this.empty,
      h("div", { class: "map-top" }, find, this.summary),
      zoom,
      legend(),
    );
    this.listen();
    store.on(["topology", "placements"], () => this.describe());
    store.on("selection", () => this.follow());
    onTheme(() => {
      this.colours = paint();
      this.painter.stale();
    });
    new ResizeObserver(() => this.resize()).observe(this.element);
    requestAnimationFrame((now) => this.frame(now));
  }

  private button(name: string, label: string, press: () => void): HTMLButtonElement {
    return h("button", { type: "button", class: "square", "aria-label": label, title: label, onclick: press }, icon(name));
  }

  private finder(): HTMLElement {
    const names = h("datalist", { id: "node-names" });
    const find = (): void => {
      const name = input.value.trim();
      if (this.store.nodes.has(name)) this.choose(name, true);
    };
    const input = h("input", {
      type: "search",
      list: "node-names",
      placeholder: "Find a node",
      "aria-label": "Find a node",
      autocomplete: "off",
      onfocus: () => names.replaceChildren(...[...this.store.nodes.keys()].slice(0, 3000).map((n) => h("option", { value: n }))),
      onchange: () => find(),
      onkeydown: (e: KeyboardEvent) => e.key === "Enter" && find(),
    });
    return h("div", { class: "find" }, icon("search"), input, names);
  }

  private describe(): void {
    const { nodes, links } = this.store;
    const dead = [...nodes.values()].filter((n) => !n.alive).length;
    const text = [plural(nodes.size, "node"), plural(links.size, "link"), dead ? `${dead} down` : ""].filter(Boolean).join(" · ");
    say(this.summary, text);
    this.empty.hidden = nodes.size > 0 || !this.store.loaded;
    this.canvas.setAttribute(
      "aria-label",
      `Map with ${text}. Arrow keys move the view, plus and minus zoom, N and P go to the next and the previous node, Escape lets go.`,
    );
    if (!this.camera.held) this.fit();
  }

  private resize(): void {
    const { width, height } = this.element.getBoundingClientRect();
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.camera.width = Math.max(1, width);
    this.camera.height = Math.max(1, height);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    if (!this.camera.held) this.fit();
  }

  private fit(): void {
    this.camera.fit(bounds([...this.scene.marks.values()].map((m) => m.to)), INSET);
    this.camera.held = false;
  }

  private zoom(factor: number, x = this.camera.width / 2, y = this.camera.height / 2): void {
    this.camera.zoom(factor, x, y);
  }

  private frame(now: number): void {
    if (this.scene.advance(now)) this.painter.stale();
    this.painter.draw(now, this.colours, this.focus, this.store.selection.query !== null);
    requestAnimationFrame((next) => this.frame(next));
  }

  /** The selection came from elsewhere, or a topology change replaced what was selected. */
  private follow(): void {
    const { node, link } = this.store.selection;
    this.focus.node = node;
    const key = link ? linkKey(link.a, link.b) : "";
    this.focus.link = link ? (this.scene.lines.find((l) => linkKey(l.link.a, l.link.b) === key) ?? null) : null;
  }

  private choose(name: string | null, centre = false): void {
    this.store.select({ node: name, link: null });
    const mark = name ? this.scene.marks.get(name) : undefined;
    if (!mark || !centre) return;
    const [x, y] = [this.camera.sx(mark.x), this.camera.sy(mark.y)];
    if (x < 40 || y < 60 || x > this.camera.width - 320 || y > this.camera.height - 60) {
      this.camera.pan(this.camera.width / 2 - this.camera.sx(mark.x), this.camera.height / 2 - this.camera.sy(mark.y));
    }
  }

  private nodeAt(x: number, y: number): string | null {
    let best: string | null = null;
    let least = REACH_PX;
    for (const mark of this.scene.marks.values()) {
      const away = Math.hypot(this.camera.sx(mark.x) - x, this.camera.sy(mark.y) - y);
      if (away < least) [best, least] = [mark.name, away];
    }
    return best;
  }

  private lineAt(x: number, y: number): Line | null {
    let best: Line | null = null;
    let least = LINE_REACH_PX;
    for (const line of this.scene.lines) {
      const [x1, y1] = [this.camera.sx(line.a.x), this.camera.sy(line.a.y)];
      const [dx, dy] = [this.camera.sx(line.b.x) - x1, this.camera.sy(line.b.y) - y1];
      const share = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
      const away = Math.hypot(x1 + share * dx - x, y1 + share * dy - y);
      if (away < least) [best, least] = [line, away];
    }
    return best;
  }

  private listen(): void {
    const { canvas } = this;
    let held: { x: number; y: number; far: boolean } | null = null;
    canvas.addEventListener("pointerdown", (e) => {
      held = { x: e.offsetX, y: e.offsetY, far: false };
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", (e) => {
      if (!held) {
        this.focus.hover = this.nodeAt(e.offsetX, e.offsetY);
        canvas.classList.toggle("over", this.focus.hover !== null);
        return;
      }
      const [dx, dy] = [e.offsetX - held.x, e.offsetY - held.y];
      if (!held.far && Math.hypot(dx, dy) < 4) return;
      this.camera.pan(dx, dy);
      held = { x: e.offsetX, y: e.offsetY, far: true };
    });
    canvas.addEventListener("pointerup", (e) => {
      if (held && !held.far) {
        const node = this.nodeAt(e.offsetX, e.offsetY);
        const line = node ? null : this.lineAt(e.offsetX, e.offsetY);
        this.store.select({ node, link: line?.link ?? null });
      }
      held = null;
    });
    canvas.addEventListener("pointerleave", () => (this.focus.hover = null));
    canvas.addEventListener(
      "wheel",
      (e) => {
        e.preventDefault();
        this.zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.0015)), e.offsetX, e.offsetY);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (e) => this.key(e));
  }

  private key(e: KeyboardEvent): void {
    const step = 60;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.camera.pan(step, 0),
      ArrowRight: () => this.camera.pan(-step, 0),
      ArrowUp: () => this.camera.pan(0, step),
      ArrowDown: () => this.camera.pan(0, -step),
      "+": () => this.zoom(1.25),
      "=": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      "0": () => this.fit(),
      n: () => this.step(1),
      p: () => this.step(-1),
      Escape: () => this.choose(null),
    };
    const action = e.ctrlKey || e.metaKey ? undefined : actions[e.key];
    if (!action) return;
    e.preventDefault();
    action();
  }

  private step(by: number): void {
    const names = [...this.store.nodes.keys()];
    if (!names.length) return;
    const at = names.indexOf(this.store.selection.node ?? "");
    this.choose(names[(at + by + names.length) % names.length] ?? names[0]);
  }
}

function legend(): HTMLElement {
  const entry = (kind: string, text: string): HTMLElement => h("li", {}, h("span", { class: `key key-${kind}` }), text);
  return h(
    "ul",
    { class: "map-legend", "aria-label": "Signs on the map" },
    entry("cloud", "cloud"),
    entry("edge", "edge"),
    entry("sensor", "sensor"),
    entry("train", "on the move"),
    entry("operator", "operator, coloured by query"),
    entry("flow", "tuples on their way"),
  );
}
