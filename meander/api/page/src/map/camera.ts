// From the world to the screen and back. The world's y grows upwards, as on maps.

import type { Point } from "../model";
import type { Box } from "./layout";

export class Camera {
  scale = 1;
  x = 0;
  y = 0;
  width = 1;
  height = 1;
  /** Whether the user has moved the view: then nothing else moves the view. */
  held = false;

  fit(box: Box, inset: { left: number; right: number; top: number; bottom: number }): void {
    const w = Math.max(box.right - box.left, 1e-9);
    const hgt = Math.max(box.top - box.bottom, 1e-9);
    const roomX = Math.max(40, this.width - inset.left - inset.right);
    const roomY = Math.max(40, this.height - inset.top - inset.bottom);
    this.scale = Math.min(roomX / w, roomY / hgt);
    this.x = inset.left + roomX / 2 - (this.scale * (box.left + box.right)) / 2;
    this.y = inset.top + roomY / 2 + (this.scale * (box.bottom + box.top)) / 2;
  }

  sx(x: number): number {
    return this.x + x * this.scale;
  }

  sy(y: number): number {
    return this.y - y * this.scale;
  }

  world(px: number, py: number): Point {
    return { x: (px - this.x) / this.scale, y: (this.y - py) / this.scale };
  }

  zoom(factor: number, px: number, py: number): void {
    const at = this.world(px, py);
    this.scale *= factor;
    this.x = px - at.x * this.scale;
    this.y = py + at.y * this.scale;
    this.held = true;
  }

  pan(dx: number, dy: number): void {
    this.x += dx;
    this.y += dy;
    this.held = true;
  }
}
