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

await build({
  entryPoints: { app: "src/main.ts", style: "src/style/index.css" },
  outdir: "dist/assets",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  loader: { ".woff2": "file" },
  assetNames: "[name]",
  legalComments: "none",
  logLevel: "warning",
});
cpSync("src/index.html", "dist/index.html");
cpSync("src/icon.svg", "dist/assets/icon.svg");
writeFileSync("dist/LICENSES.txt", PACKAGES.map(licence).join("\n\n" + "-".repeat(80) + "\n\n"));
writeFileSync("dist/manifest.json", JSON.stringify({ sources: hashes(INPUTS), built: hashes(["dist"]) }, null, 1) + "\n");

function licence(name) {
  const about = JSON.parse(readFileSync(join("node_modules", name, "package.json"), "utf8"));
  const file = readdirSync(join("node_modules", name)).find((f) => /^licen[cs]e/i.test(f));
  const text = readFileSync(join("node_modules", name, file), "utf8").replace(/\r\n/g, "\n").trim();
  return `${name} ${about.version} (${about.license})\n\n${text}\n`;
}

function hashes(roots) {
  const files = roots.flatMap(walk).filter((f) => !f.endsWith("manifest.json")).sort();
  return Object.fromEntries(files.map((f) => [f, createHash("sha256").update(readFileSync(f)).digest("hex")]));
}

function walk(path) {
  try {
    return readdirSync(path).flatMap((f) => walk(join(path, f)));
  } catch {
    return [relative(".", path).split(sep).join("/")];
  }
}
