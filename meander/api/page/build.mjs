// Builds dist/ from src/: one script, one style sheet, the font, the licences, and a manifest of hashes. A test
// compares the manifest with the sources, so that what is committed in dist/ always belongs to src/.
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { build } from "esbuild";

const PACKAGES = ["uplot", "@fontsource-variable/inter"];
const INPUTS = ["src", "build.mjs", "package.json", "package-lock.json", "tsconfig.json"];

rmSync("dist", { recursive: true, force: true });
mkdirSync("dist/assets", { recursive: true });

const { metafile } = await build({
  entryPoints: { app: "src/main.ts", style: "src/style/index.css" },
  outdir: "dist/assets",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  loader: { ".woff2": "file" },
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  metafile: true,
  legalComments: "none",
  logLevel: "warning",
});
const icon = `icon-${hash("src/icon.svg").slice(0, 8).toUpperCase()}.svg`;
cpSync("src/icon.svg", `dist/assets/${icon}`);
writeFileSync("dist/index.html", withFingerprints(readFileSync("src/index.html", "utf8")));
writeFileSync("dist/LICENSES.txt", PACKAGES.map(licence).join("\n\n" + "-".repeat(80) + "\n\n"));
writeFileSync("dist/manifest.json", JSON.stringify({ sources: hashes(INPUTS), built: hashes(["dist"]) }, null, 1) + "\n");

/** The server lets browsers keep assets for ever, so their names change with their contents. */
function withFingerprints(html) {
  const built = Object.entries(metafile.outputs).filter(([, about]) => about.entryPoint);
  const named = built.map(([path, about]) => [about.entryPoint.endsWith(".css") ? "style.css" : "app.js", relative("dist/assets", path)]);
  return [...named, ["icon.svg", icon]].reduce((text, [plain, name]) => text.replace(`assets/${plain}`, `assets/${name}`), html);
}

function licence(name) {
  const about = JSON.parse(readFileSync(join("node_modules", name, "package.json"), "utf8"));
  const file = readdirSync(join("node_modules", name)).find((f) => /^licen[cs]e/i.test(f));
  const text = readFileSync(join("node_modules", name, file), "utf8").replace(/\r\n/g, "\n").trim();
  return `${name} ${about.version} (${about.license})\n\n${text}\n`;
}

function hashes(roots) {
  const files = roots.flatMap(walk).filter((f) => !f.endsWith("manifest.json")).sort();
  return Object.fromEntries(files.map((f) => [f, hash(f)]));
}

function hash(file) {
  return createHash("sha256").update(readFileSync(file)).digest("hex");
}

function walk(path) {
  try {
    return readdirSync(path).flatMap((f) => walk(join(path, f)));
  } catch {
    return [relative(".", path).split(sep).join("/")];
  }
}
