// Colours by meaning. Queries have one each; nodes have one only where the operators of one query are told apart.

const QUERY = ["#3f7fd6", "#d98324", "#2f9e77", "#b4569b", "#b3920d", "#2b9fbf", "#c4573d", "#7679cf"];
const NODE_HUES = [204, 28, 152, 322, 46, 262, 0, 180, 96, 290];

const given = new Map<string, string>();

/** The colour of a query: given once, in the order in which queries are seen. */
export function queryColour(id: string): string {
  let colour = given.get(id);
  if (!colour) {
    colour = QUERY[given.size % QUERY.length];
    given.set(id, colour);
  }
  return colour;
}

export interface NodeColour {
  line: string;
  tint: string;
}

/**
 * Colours for the nodes of one query: as different as they can be. The map and the plan give the same ones, because nodes
 * that run more than a source come first, by name.
 */
export function nodeColours(hosts: Iterable<string>, others: Iterable<string> = []): Map<string, NodeColour> {
  const found = new Map<string, NodeColour>();
  for (const node of [...new Set([...hosts].sort()), ...new Set([...others].sort())]) {
    if (found.has(node)) continue;
    const hue = NODE_HUES[found.size % NODE_HUES.length];
    found.set(node, { line: `hsl(${hue} 48% 50%)`, tint: `hsl(${hue} 60% 50% / 0.13)` });
  }
  return found;
}

export interface Paint {
  [name: string]: string;
}

const NAMES = ["bg", "surface", "line", "faint", "text", "muted", "accent", "good", "bad", "warn"];

/** The style sheet's colours for drawing on a canvas; ask again when the theme changes. */
export function paint(): Paint {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const found: Paint = {};
  for (const name of NAMES) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
