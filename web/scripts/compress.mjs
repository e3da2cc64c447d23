// Writes a gzip copy beside each built file that gets shorter, and prints the sizes. The server sends the copy.
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const folder = fileURLToPath(new URL("../dist/ui", import.meta.url));
let total = 0;
for (const path of files(folder)) {
  const bytes = readFileSync(path);
  const packed = gzipSync(bytes, { level: 9 });
  const isShorter = packed.length < bytes.length * 0.95;
  if (isShorter) writeFileSync(`${path}.gz`, packed);
  total += isShorter ? packed.length : bytes.length;
}
console.log(`${total} bytes compressed`);

function files(at) {
  return readdirSync(at).flatMap((name) => {
    const path = join(at, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}
