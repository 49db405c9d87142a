// node transcript.mjs ERA URL   (NODE_MODULES names the folder of the packages)
// What a real client, of the TypeScript SDK v2, sees of a server: it lists all, calls every tool, reads every resource, gets every prompt and asks for a
// missing one of each. It prints every message that came in, without its id, by step: [{step, said}]. Within a step they are sorted, since messages
// of two streams have no order. Test servers only: it does call every tool.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
const [era, url] = process.argv.slice(2);
const sdk = createRequire(process.env.NODE_MODULES + '/x.js').resolve('@modelcontextprotocol/client');
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(sdk));

const transport = new StreamableHTTPClientTransport(new URL(url));
let said = [], receive;
Object.defineProperty(transport, 'onmessage', {
  set: (f) => (receive = f),
  get: () => receive && ((message, extra) => {
    const { id, ...rest } = message;
    said.push(JSON.stringify(rest, (k, v) => (k === 'requestState' ? k : v))); // opaque, and sealed anew each time
    return receive(message, extra);
  }),
});
const client = new Client({ name: 'transcript', version: '1.0.0' }, {
  capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } },
  versionNegotiation: { mode: era === 'legacy' ? 'legacy' : { pin: era } },
});
client.setRequestHandler('sampling/createMessage', async () => ({ model: 'm', role: 'assistant', content: { type: 'text', text: 'sampled' } }));
client.setRequestHandler('elicitation/create', async (r) => ({ action: 'accept', content: least(r.params.requestedSchema) }));
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///no/such/root', name: 'root' }] }));

// The least arguments that a schema allows.
const value = (s = {}) => s.const ?? s.default ?? s.enum?.[0] ?? (s.anyOf || s.oneOf ? value((s.anyOf ?? s.oneOf)[0])
  : { number: s.minimum ?? 1, integer: s.minimum ?? 1, boolean: true, array: [], object: least(s) }[[s.type].flat()[0]] ?? (s.format === 'email' ? 'a@b.co' : 'a'));
const least = (s) => Object.fromEntries((s?.required ?? []).map((k) => [k, value(s.properties?.[k])]));

const transcript = [];
async function step(name, act) {
  let result;
  try {
    result = await act();
  } catch (e) {
    said.push(`client error: ${e.code ?? e.name}: ${e.message}`);
  }
  await new Promise((r) => setTimeout(r, name === 'connect' ? 500 : 50)); // what comes late
  transcript.push({ step: name, said: said.sort() });
  said = [];
  return result ?? {};
}
await step('connect', async () => {
  await client.connect(transport);
  said.push(JSON.stringify([client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()]));
});
const { tools = [] } = await step('tools/list', () => client.listTools());
const { resources = [] } = await step('resources/list', () => client.listResources());
await step('resources/templates/list', () => client.listResourceTemplates());
const { prompts = [] } = await step('prompts/list', () => client.listPrompts());
const aside = /^test_(trigger|reconnection)|^__transient/; // they change the server for the next client, or break the connection: the suite's to call
for (const t of tools.filter((t) => !aside.test(t.name))) {
  await step('tools/call ' + t.name, () => client.callTool({ name: t.name, arguments: least(t.inputSchema) }, { timeout: 100000, onprogress: () => {} }));
}
await step('tools/call of none', () => client.callTool({ name: 'no_such_tool', arguments: {} }));
for (const r of resources) await step('resources/read ' + r.uri, () => client.readResource({ uri: r.uri }));
await step('resources/read of none', () => client.readResource({ uri: 'test://no-such-resource' }));
for (const p of prompts.filter((p) => !aside.test(p.name))) {
  await step('prompts/get ' + p.name, () => client.getPrompt({ name: p.name, arguments: Object.fromEntries((p.arguments ?? []).map((a) => [a.name, 'a'])) }));
}
await step('prompts/get of none', () => client.getPrompt({ name: 'no_such_prompt' }));
await client.close();
process.stdout.write(JSON.stringify(transcript) + '\n', () => process.exit());
