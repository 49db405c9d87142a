// usage: node stop.mjs v1|v2 CALLS URL | -- COMMAND ARGS...   (see sdk.mjs)
//
// A real client makes calls of the tool "wait" of the server "box", all at the same time. It prints
// a line with the id of the process that it started, or 0, and a line with its era. When every call
// has ended, it prints how each of them ended, as a JSON array of texts.
import { open } from './sdk.mjs';
const [sdk, count, ...target] = process.argv.slice(2);
const { client, connect, call, era } = await open(sdk, {});
client.onerror = () => {}; // the end of Gatekit
await connect(target);
process.stdout.write(`${client.transport?.pid ?? 0}\n${era()}\n`);
const calls = Array.from({ length: Number(count) }, (_, i) =>
  call({ name: 'box__wait', arguments: { tag: String(i) } }));
const ends = (await Promise.allSettled(calls)).map((c) =>
  c.status === 'fulfilled' ? 'result' : c.reason.message);
process.stdout.write(JSON.stringify(ends) + '\n', () => process.exit());
