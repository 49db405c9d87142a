// usage: node transcript.mjs ERA URL   (NODE_MODULES names the folder of the packages)
//
// A client of the TypeScript SDK v2 lists everything that a server has, calls every tool, reads
// every resource and gets every prompt. It also requests a tool, a resource and a prompt that do
// not exist. It prints the messages that it received, without their ids, for each step: [{step,
// messages}]. The messages of a step are sorted, because messages of two streams have no common
// order. Use it only with test servers, because it calls every tool.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
const [era, url] = process.argv.slice(2);
const sdk = createRequire(process.env.NODE_MODULES + '/x.js').resolve('@modelcontextprotocol/client');
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(sdk));

const transport = new StreamableHTTPClientTransport(new URL(url));
let messages = [], receive;
// The SDK sets onmessage to its own handler. This property records each message, and then calls that
// handler.
Object.defineProperty(transport, 'onmessage', {
  set: (f) => (receive = f),
  get: () => receive && ((message, extra) => {
    const { id, ...rest } = message;
    // requestState is opaque, and different each time
    messages.push(JSON.stringify(rest, (k, v) => (k === 'requestState' ? k : v)));
    return receive(message, extra);
  }),
});
const client = new Client({ name: 'transcript', version: '1.0.0' }, {
  capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } },
  versionNegotiation: { mode: era === 'legacy' ? 'legacy' : { pin: era } },
});
client.setRequestHandler('sampling/createMessage', async () => ({ model: 'm', role: 'assistant', content: { type: 'text', text: 'sampled' } }));
client.setRequestHandler('elicitation/create', async (r) => ({ action: 'accept', content: minimalObject(r.params.requestedSchema) }));
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///no/such/root', name: 'root' }] }));

// minimalValue and minimalObject return the least value that a schema allows.
const minimalValue = (s = {}) => s.const ?? s.default ?? s.enum?.[0] ?? (s.anyOf || s.oneOf ? minimalValue((s.anyOf ?? s.oneOf)[0])
  : { number: s.minimum ?? 1, integer: s.minimum ?? 1, boolean: true, array: [], object: minimalObject(s) }[[s.type].flat()[0]] ?? (s.format === 'email' ? 'a@b.co' : 'a'));
const minimalObject = (s) => Object.fromEntries((s?.required ?? []).map((k) => [k, minimalValue(s.properties?.[k])]));

const transcript = [];
async function step(name, act) {
  let result;
  try {
    result = await act();
  } catch (e) {
    messages.push(`client error: ${e.code ?? e.name}: ${e.message}`);
  }
  await new Promise((r) => setTimeout(r, name === 'connect' ? 500 : 50)); // for late messages
  transcript.push({ step: name, messages: messages.sort() });
  messages = [];
  return result ?? {};
}
await step('connect', async () => {
  await client.connect(transport);
  messages.push(JSON.stringify([client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()]));
});
const { tools = [] } = await step('tools/list', () => client.listTools());
const { resources = [] } = await step('resources/list', () => client.listResources());
await step('resources/templates/list', () => client.listResourceTemplates());
const { prompts = [] } = await step('prompts/list', () => client.listPrompts());
// These tools change the server for the next client, or break the connection.
const skipped = /^test_(trigger|reconnection)|^__transient/;
for (const t of tools.filter((t) => !skipped.test(t.name))) {
  await step('tools/call ' + t.name, () => client.callTool({ name: t.name, arguments: minimalObject(t.inputSchema) }, { timeout: 100000, onprogress: () => {} }));
}
await step('tools/call of none', () => client.callTool({ name: 'no_such_tool', arguments: {} }));
for (const r of resources) await step('resources/read ' + r.uri, () => client.readResource({ uri: r.uri }));
await step('resources/read of none', () => client.readResource({ uri: 'test://no-such-resource' }));
for (const p of prompts.filter((p) => !skipped.test(p.name))) {
  await step('prompts/get ' + p.name, () => client.getPrompt({ name: p.name, arguments: Object.fromEntries((p.arguments ?? []).map((a) => [a.name, 'a'])) }));
}
await step('prompts/get of none', () => client.getPrompt({ name: 'no_such_prompt' }));
await client.close();
process.stdout.write(JSON.stringify(transcript) + '\n', () => process.exit());
