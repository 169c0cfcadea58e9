// Drawing the scene. What stands still goes into a picture that is kept; only what moves is drawn in every frame, so
// that thousands of nodes stay smooth.

import type { Paint } from "../colours";
import type { Camera } from "./camera";
import { bounds } from "./layout";
import { type Flight, type Line, type Mark, type Scene, SHOWN_OPERATORS } from "./scene";

const FONT = '"Inter Variable", system-ui, sans-serif';
const MOST_LABELS = 160;
/** From so many links or nodes on, pictures are simpler: flows do not run, and nodes of a kind are drawn in one go. */
const DENSE = 1000;

export interface Focus {
  hover: string | null;
  node: string | null;
  link: Line | null;
}

export class Painter {
  private still = document.createElement("canvas");
  private key = "";
  private seen = "";

  constructor(
    private canvas: HTMLCanvasElement,
    private scene: Scene,
    private camera: Camera,
  ) {}

  /** The scale from which on names of single sensors are of use in a crowd. */
  private get closeUp(): number {
    const box = bounds(this.scene.marks.values());
    return (4 * this.camera.width) / (box.right - box.left || 1);
  }

  private get dense(): boolean {
    return this.scene.lines.length > DENSE || this.scene.marks.size > DENSE;
  }

  draw(now: number, colours: Paint, focus: Focus, chosen: boolean): void {
    const { canvas, camera } = this;
    const ratio = canvas.width / camera.width;
    const moving = [...this.scene.marks.values()].filter((m) => m.moving && this.visible(m));
    if (!this.changes(moving, colours, focus, chosen)) return;
    const key = [camera.scale, camera.x, camera.y, canvas.width, canvas.height, this.scene.version, colours.bg, chosen].join();
    if (key !== this.key) {
      this.key = key;
      this.still.width = canvas.width;
      this.still.height = canvas.height;
      const pen = this.still.getContext("2d")!;
      pen.scale(ratio, ratio);
      this.lines(pen, this.scene.lines.filter((l) => !l.a.moving && !l.b.moving), colours);
      if (this.dense) this.flows(pen, now, colours);
      const marks = [...this.scene.marks.values()].filter((m) => !m.moving && this.visible(m));
      if (this.dense) this.crowd(pen, marks, colours, chosen);
      else for (const mark of marks) this.mark(pen, mark, colours, chosen);
      this.labels(pen, marks, colours);
    }
    const pen = canvas.getContext("2d")!;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.lines(pen, this.scene.lines.filter((l) => l.a.moving || l.b.moving), colours);
    if (!this.dense) this.flows(pen, now, colours);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.still, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const mark of moving) this.mark(pen, mark, colours, chosen);
    for (const flight of this.scene.flights) this.flight(pen, flight, now);
    this.focus(pen, focus, colours);
  }

  /** Whether this frame would look different from the last one. */
  private changes(moving: Mark[], colours: Paint, focus: Focus, chosen: boolean): boolean {
    const { camera, canvas, scene } = this;
    const runs = !this.dense && !scene.calm && scene.lines.some((l) => l.tps > 0);
    if (runs || moving.length || scene.flights.length || !this.key) {
      this.seen = "";
      return true;
    }
    const look = [camera.scale, camera.x, camera.y, canvas.width, canvas.height, scene.version, colours.bg, chosen, focus.hover, focus.node, focus.link?.a.name, focus.link?.b.name].join();
    if (look === this.seen) return false;
    this.seen = look;
    return true;
  }

  /** Very many nodes: one path for each kind, and only those that run operators one by one. */
  private crowd(pen: CanvasRenderingContext2D, marks: Mark[], colours: Paint, chosen: boolean): void {
    const plain = marks.filter((m) => m.alive && !m.operators.length && m.kind !== "cloud" && !this.scene.rings.has(m.name));
    pen.beginPath();
    for (const mark of plain) {
      const r = this.size(mark);
      pen.rect(this.camera.sx(mark.x) - r, this.camera.sy(mark.y) - r, 2 * r, 2 * r);
    }
    pen.globalAlpha = chosen ? 0.35 : 0.75;
    pen.fillStyle = colours.muted;
    pen.fill();
    pen.globalAlpha = 1;
    const few = new Set(plain);
    for (const mark of marks) if (!few.has(mark)) this.mark(pen, mark, colours, chosen);
  }

  stale(): void {
    this.key = "";
  }

  private visible(mark: Mark): boolean {
    const x = this.camera.sx(mark.x);
    const y = this.camera.sy(mark.y);
    return x > -30 && y > -30 && x < this.camera.width + 30 && y < this.camera.height + 30;
  }

  private lines(pen: CanvasRenderingContext2D, lines: Line[], colours: Paint): void {
    pen.strokeStyle = colours.line;
    pen.lineWidth = this.scene.lines.length > 2000 ? 0.6 : 1.2;
    pen.beginPath();
    for (const { a, b } of lines) {
      pen.moveTo(this.camera.sx(a.x), this.camera.sy(a.y));
      pen.lineTo(this.camera.sx(b.x), this.camera.sy(b.y));
    }
    pen.stroke();
  }

  /** Links that carry tuples: the more, the wider; dashes run while tuples do. */
  private flows(pen: CanvasRenderingContext2D, now: number, colours: Paint): void {
    const classes: Line[][] = [[], [], [], []];
    for (const line of this.scene.lines) {
      if (line.tps > 0) classes[Math.min(3, Math.floor(Math.log10(1 + line.tps)))].push(line);
    }
    pen.strokeStyle = colours.accent;
    pen.lineCap = "round";
    classes.forEach((lines, level) => {
      if (!lines.length) return;
      pen.globalAlpha = 0.35 + 0.12 * level;
      pen.lineWidth = 1.2 + 0.7 * level;
      const still = this.scene.calm || this.dense;
      pen.setLineDash(still ? [] : [2, 7]);
      pen.lineDashOffset = still ? 0 : -(now / 1000) * (14 + 8 * level);
      pen.beginPath();
      for (const { a, b } of lines) {
        pen.moveTo(this.camera.sx(a.x), this.camera.sy(a.y));
        pen.lineTo(this.camera.sx(b.x), this.camera.sy(b.y));
      }
      pen.stroke();
    });
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  size(mark: Mark): number {
    const crowd = this.scene.marks.size;
    const base = mark.kind === "cloud" ? 11 : mark.kind === "edge" ? 7 : mark.moving ? 5 : 4;
    return crowd > 1500 ? base * 0.5 : crowd > 300 ? base * 0.7 : base;
  }

  private mark(pen: CanvasRenderingContext2D, mark: Mark, colours: Paint, chosen: boolean): void {
    const x = this.camera.sx(mark.x);
    const y = this.camera.sy(mark.y);
    const r = this.size(mark);
    const ring = this.scene.rings.get(mark.name);
    if (ring) {
      pen.strokeStyle = ring.line;
      pen.lineWidth = mark.moving ? 1.6 : 2.5;
      shape(pen, mark, x, y, r + (mark.moving ? 2.5 : 3.5));
      pen.stroke();
    }
    pen.globalAlpha = chosen && !ring ? 0.45 : 1;
    shape(pen, mark, x, y, r);
    pen.fillStyle = mark.moving && mark.alive ? colours.accent : colours.surface;
    pen.fill();
    if (mark.load > 0 && mark.alive && !mark.moving && r > 3) {
      pen.save();
      shape(pen, mark, x, y, r);
      pen.clip();
      pen.fillStyle = colours.faint;
      pen.fillRect(x - r, y + r - 2 * r * mark.load, 2 * r, 2 * r * mark.load);
      pen.restore();
    }
    shape(pen, mark, x, y, r);
    pen.lineWidth = mark.moving ? 1.5 : 1.3;
    pen.strokeStyle = !mark.alive ? colours.bad : mark.moving ? colours.surface : colours.muted;
    pen.stroke();
    if (!mark.alive) {
      pen.beginPath();
      pen.moveTo(x - r, y - r);
      pen.lineTo(x + r, y + r);
      pen.moveTo(x + r, y - r);
      pen.lineTo(x - r, y + r);
      pen.stroke();
    }
    this.operators(pen, mark, x, y, r, colours);
    pen.globalAlpha = 1;
  }

  /** Operators as dots above their node. */
  private operators(pen: CanvasRenderingContext2D, mark: Mark, x: number, y: number, r: number, colours: Paint): void {
    const dots = mark.operators;
    if (!dots.length) return;
    const d = this.scene.marks.size > 1500 ? 1.6 : 2.6;
    const gap = 2 * d + 1.6;
    const left = x - ((dots.length - 1) * gap) / 2;
    dots.forEach((colour, i) => {
      pen.beginPath();
      pen.arc(left + i * gap, y - r - d - 3, d, 0, 2 * Math.PI);
      pen.fillStyle = colour;
      pen.fill();
    });
    if (mark.count > SHOWN_OPERATORS) {
      pen.fillStyle = colours.muted;
      pen.font = `600 9px ${FONT}`;
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.fillText(`+${mark.count - SHOWN_OPERATORS}`, left + dots.length * gap - 1, y - r - d - 3);
    }
  }

  /** Names where there is room for them, on the outer side of their nodes; clouds and edges first. */
  private labels(pen: CanvasRenderingContext2D, marks: Mark[], colours: Paint): void {
    const order = { cloud: 0, edge: 1 } as Record<string, number>;
    const sorted = [...marks].sort((m, n) => (order[m.kind] ?? 2) - (order[n.kind] ?? 2));
    const taken = new Set<string>();
    const box = bounds(this.scene.marks.values());
    const [midX, midY] = [this.camera.sx((box.left + box.right) / 2), this.camera.sy((box.bottom + box.top) / 2)];
    let shown = 0;
    pen.textBaseline = "middle";
    pen.font = `500 10.5px ${FONT}`;
    const far = this.dense && this.camera.scale < this.closeUp;
    for (const mark of sorted) {
      if (shown >= MOST_LABELS) return;
      if (far && mark.kind === "sensor") continue;
      const x = this.camera.sx(mark.x);
      const y = this.camera.sy(mark.y);
      const r = this.size(mark);
      const away = Math.hypot(x - midX, y - midY) || 1;
      const [outX, outY] = away < 40 ? [0, 1] : [(x - midX) / away, (y - midY) / away];
      const side = Math.abs(outX) > 0.35;
      const width = mark.name.length * 6.2;
      const tx = x + (side ? Math.sign(outX) * (r + 8) : 0);
      const ty = y + outY * (r + (outY < -0.3 && mark.operators.length ? 19 : 12));
      const left = side ? (outX < 0 ? tx - width : tx) : tx - width / 2;
      const cells: string[] = [];
      for (let cx = Math.floor(left / 20); cx <= Math.floor((left + width) / 20); cx++) cells.push(`${cx},${Math.floor(ty / 14)}`);
      if (cells.some((c) => taken.has(c))) continue;
      for (const c of cells) taken.add(c);
      pen.textAlign = side ? (outX < 0 ? "right" : "left") : "center";
      pen.lineWidth = 3;
      pen.lineJoin = "round";
      pen.strokeStyle = colours.bg;
      pen.strokeText(mark.name, tx, ty);
      pen.fillStyle = mark.alive ? colours.muted : colours.bad;
      pen.fillText(mark.name, tx, ty);
      shown++;
    }
  }

  private flight(pen: CanvasRenderingContext2D, flight: Flight, now: number): void {
    if (now < flight.starts) return;
    const share = ease((now - flight.starts) / (flight.ends - flight.starts));
    pen.fillStyle = flight.colour;
    for (let i = 8; i >= 0; i--) {
      const at = this.along(flight, Math.max(0, share - i * 0.022));
      pen.globalAlpha = i ? 0.3 * (1 - i / 9) : 1;
      pen.beginPath();
      pen.arc(at.x, at.y, i ? 3 : 4.5, 0, 2 * Math.PI);
      pen.fill();
    }
    if (share > 0.85) {
      pen.globalAlpha = (1 - share) / 0.15;
      pen.strokeStyle = flight.colour;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(this.camera.sx(flight.to.x), this.camera.sy(flight.to.y), 8 + 90 * (share - 0.85), 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  private along({ from, to, bend }: Flight, share: number): { x: number; y: number } {
    const [x1, y1] = [this.camera.sx(from.x), this.camera.sy(from.y)];
    const [x2, y2] = [this.camera.sx(to.x), this.camera.sy(to.y)];
    const cx = (x1 + x2) / 2 - (y2 - y1) * bend;
    const cy = (y1 + y2) / 2 + (x2 - x1) * bend;
    const rest = 1 - share;
    return {
      x: rest * rest * x1 + 2 * rest * share * cx + share * share * x2,
      y: rest * rest * y1 + 2 * rest * share * cy + share * share * y2,
    };
  }

  private focus(pen: CanvasRenderingContext2D, { hover, node, link }: Focus, colours: Paint): void {
    if (link) {
      pen.strokeStyle = colours.text;
      pen.lineWidth = 3;
      pen.beginPath();
      pen.moveTo(this.camera.sx(link.a.x), this.camera.sy(link.a.y));
      pen.lineTo(this.camera.sx(link.b.x), this.camera.sy(link.b.y));
      pen.stroke();
    }
    for (const name of new Set([hover, node])) {
      const mark = name ? this.scene.marks.get(name) : undefined;
      if (!mark) continue;
      const x = this.camera.sx(mark.x);
      const y = this.camera.sy(mark.y);
      pen.strokeStyle = colours.text;
      pen.lineWidth = name === node ? 2 : 1.2;
      shape(pen, mark, x, y, this.size(mark) + 4.5);
      pen.stroke();
      pen.font = `600 11.5px ${FONT}`;
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.lineWidth = 4;
      pen.lineJoin = "round";
      pen.strokeStyle = colours.bg;
      pen.strokeText(mark.name, x, y + this.size(mark) + 7);
      pen.fillStyle = colours.text;
      pen.fillText(mark.name, x, y + this.size(mark) + 7);
    }
  }
}

function shape(pen: CanvasRenderingContext2D, mark: Mark, x: number, y: number, r: number): void {
  pen.beginPath();
  if (mark.kind === "cloud") pen.roundRect(x - r * 1.35, y - r, r * 2.7, r * 2, r);
  else if (mark.kind === "edge") pen.roundRect(x - r, y - r, r * 2, r * 2, r * 0.4);
  else pen.arc(x, y, r, 0, 2 * Math.PI);
}

function ease(share: number): number {
  return share < 0.5 ? 2 * share * share : 1 - (2 - 2 * share) ** 2 / 2;
}
