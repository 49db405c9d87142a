// node --import ./preload.mjs: the suite imports fs.globSync, which Node has from 22 on. Only a command that we never run calls it; on Node 20 this
// gives the module one more name, so that the suite loads.
import fs from 'node:fs';
import { register } from 'node:module';

const data = (source) => 'data:text/javascript,' + encodeURIComponent(source);
if (!fs.globSync) {
  const more = data('export * from "node:fs"; export { default } from "node:fs"; export const globSync = undefined;');
  register(data(`export const resolve = (name, context, next) => name === 'fs' ? { url: ${JSON.stringify(more)}, shortCircuit: true } : next(name, context);`));
}
