// node --import ./preload.mjs: the suite imports fs.globSync, which Node has from 22 on and which only a command of
// it calls that we never run. On Node 20 'fs' gets one that refuses, so that the suite loads.
import { register } from 'node:module';
if (Number(process.versions.node.split('.')[0]) < 22) {
  const fs = 'data:text/javascript,' + encodeURIComponent('export * from "node:fs"; export { default } from "node:fs";' +
    'export function globSync() { throw new Error("fs.globSync needs Node 22") }');
  register('data:text/javascript,' + encodeURIComponent(`export const resolve = (s, c, next) =>
    s === 'fs' && /\\/conformance\\//.test(c.parentURL ?? '') ? { url: ${JSON.stringify(fs)}, shortCircuit: true } : next(s, c);`));
}
