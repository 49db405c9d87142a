// usage: node --import ./preload.mjs
//
// The suite imports fs.globSync, which exists since Node 22. Only a command that the tests do not
// run calls it. On Node 20 this script adds the name to the module, so that the suite can be
// loaded.
import fs from 'node:fs';
import { register } from 'node:module';

const data = (source) => 'data:text/javascript,' + encodeURIComponent(source);
if (!fs.globSync) {
  const more = data('export * from "node:fs"; export { default } from "node:fs"; export const globSync = undefined;');
  register(data(`export const resolve = (name, context, next) => name === 'fs' ? { url: ${JSON.stringify(more)}, shortCircuit: true } : next(name, context);`));
}
