// Make dist/ from src/: the client in one file, and beside it what is loaded only where a campaign needs it. `npm pack`
// runs this, with esbuild and terser on the path.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LARGEST = 15_000; // bytes of the client, compressed
const LATER = ["blind", "draws", "seal", "laws-more"]; // loaded on demand, so files of their own

process.chdir(import.meta.dirname ?? new URL(".", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
for (const name of ["noisette", "verify", ...LATER]) {
  const file = `dist/${name}.js`;
  execFileSync("esbuild", [`src/${name}.js`, "--bundle", "--format=esm", "--target=es2022", "--minify-syntax", "--minify-whitespace",
    "--log-level=warning", `--outfile=${file}`, ...LATER.map(later => `--external:./${later}.js`)], { stdio: "inherit" });
  execFileSync("terser", ["--module", "--ecma", "2022", "--compress", "passes=3", "--mangle", "--output", file, file], { stdio: "inherit" });
  const size = gzipSync(readFileSync(file), { level: 9 }).length;
  console.error(`${file}: ${size} bytes compressed`);
  if (name === "noisette" && size > LARGEST) throw new Error(`Expected the client to have at most ${LARGEST} bytes.`);
}
copyFileSync("../../LICENSE", "LICENSE");
