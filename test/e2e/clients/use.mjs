// node use.mjs v1|v2 URL | -- COMMAND ARGS...   (see sdk.mjs)
// A real client, of the TypeScript SDK v1 or v2, lists and uses all that a server has and prints what it saw, as JSON: test servers only.
import { open as sdkOpen } from './sdk.mjs';
const [sdk, ...target] = process.argv.slice(2);
const saw = { tools: [], used: [], prompts: [], got: [], resources: [], read: 0, templates: [], completed: [], sampling: 0, elicitation: 0, roots: 0, progress: 0, logs: 0, updates: 0, errors: [] };
const { client, on, connect, call, era } = await sdkOpen(sdk, { sampling: {}, elicitation: {}, roots: { listChanged: true } });
on('sampling/createMessage', async () => (saw.sampling++, { model: 'm', role: 'assistant', content: { type: 'text', text: 'sampled' } }));
on('elicitation/create', async (r) => (saw.elicitation++, { action: 'accept', content: object(r.params.requestedSchema) }));
on('roots/list', async () => (saw.roots++, { roots: [{ uri: 'file:///work', name: 'work' }] }));
let logs;
const logged = new Promise((r) => (logs = r));
on('notifications/message', async () => (saw.logs++, logs()));
let updated;
on('notifications/resources/updated', async () => (saw.updates++, updated?.()));

// The least arguments that a schema allows.
const value = (s = {}) => s.const ?? s.default ?? s.enum?.[0] ?? (s.anyOf ?? s.oneOf ? value((s.anyOf ?? s.oneOf)[0]) :
  { string: s.format === 'uri' ? 'test://x' : s.format === 'email' ? 'a@b.co' : s.format === 'date' ? '2026-01-01' : 'a'.repeat(s.minLength ?? 1), number: s.minimum ?? 1, integer: s.minimum ?? 1, boolean: true, array: [], object: object(s) }[[s.type].flat()[0]] ?? 'a');
const object = (s) => Object.fromEntries((s?.required ?? []).map((k) => [k, value(s.properties?.[k])]));
const late = (ms) => new Promise((r) => setTimeout(r, ms));
const attempt = async (what, f) => { try { return await f(); } catch (e) { saw.errors.push(`${what}: ${e.code ?? e.name} ${e.message}`); } };
const all = async (list, member) => {
  const items = [];
  let cursor;
  do {
    const page = await attempt(list, () => client[list](cursor === undefined ? {} : { cursor }));
    items.push(...(page?.[member] ?? []));
    cursor = page?.nextCursor;
  } while (cursor !== undefined);
  return items;
};

await connect(target);
const can = client.getServerCapabilities() ?? {};
const modern = era() === 'modern';
saw.modern = modern;
const meta = modern ? { _meta: { 'io.modelcontextprotocol/logLevel': 'debug' } } : {};
const skip = /simulate-research|async|gzip|toggle-|test_(trigger|reconnection)|__transient|\b(wait|die|raw|cancelled|change)$/;
if (can.logging && !modern) await attempt('setLoggingLevel', () => client.setLoggingLevel('debug'));
if (can.tools) {
  const tools = await all('listTools', 'tools');
  // server-everything asks for the roots some time after the handshake, and logs that it has them; its tools depend on the answer.
  // A modern client is asked, and hears of it, only in a call.
  if (tools.some((t) => t.name.endsWith('get-roots-list'))) await Promise.race([logged, late(modern ? 1000 : 60000)]);
  for (const t of tools) {
    saw.tools.push(t.name);
    if (skip.test(t.name)) continue;
    const args = { ...object(t.inputSchema), ...(/long-running/.test(t.name) ? { duration: 0.2, steps: 2 } : {}) };
    await attempt(t.name, () => call({ name: t.name, arguments: args, ...meta }, { timeout: 100000, onprogress: () => saw.progress++ }));
    saw.used.push(t.name);
  }
}
if (can.prompts) {
  for (const p of await all('listPrompts', 'prompts')) {
    saw.prompts.push(p.name);
    const typed = (a) => (/Type$/.test(a.name) ? 'Text' : '1'); // server-everything's own
    await attempt(p.name, () => client.getPrompt({ name: p.name, arguments: Object.fromEntries((p.arguments ?? []).map((a) => [a.name, typed(a)])) }));
    saw.got.push(p.name);
    for (const a of p.arguments ?? []) {
      if (!can.completions) continue;
      const c = await attempt(`complete ${p.name}`, () => client.complete({ ref: { type: 'ref/prompt', name: p.name }, argument: { name: a.name, value: '' } }));
      if (c) saw.completed.push(p.name + ' ' + a.name);
    }
  }
}
if (can.resources) {
  const resources = await all('listResources', 'resources');
  for (const r of resources) {
    saw.resources.push(r.uri);
    const c = await attempt(r.uri, () => client.readResource({ uri: r.uri }));
    saw.read += c?.contents?.length ?? 0;
  }
  saw.templates = (await all('listResourceTemplates', 'resourceTemplates')).map((t) => t.uriTemplate);
  for (const uri of saw.templates) {
    if (!can.completions || !uri.includes('{resourceId}')) continue;
    const c = await attempt(`complete ${uri}`, () => client.complete({ ref: { type: 'ref/resource', uri }, argument: { name: 'resourceId', value: '' } }));
    if (c) saw.completed.push(uri);
  }
  if (can.resources.subscribe && resources.length) {
    const toggle = saw.tools.find((t) => t.endsWith('toggle-subscriber-updates'));
    const uri = resources.find((r) => r.uri.includes('demo://'))?.uri ?? resources[0].uri;
    const came = new Promise((r) => (updated = r));
    const open = await attempt('subscribe', () => (modern ? client.listen({ resourceSubscriptions: [uri] }) : client.subscribeResource({ uri })));
    if (toggle) {
      await attempt(toggle, () => client.callTool({ name: toggle, arguments: {} }));
      await Promise.race([came, late(60000)]);
      await attempt(toggle, () => client.callTool({ name: toggle, arguments: {} }));
    }
    await attempt('unsubscribe', () => (modern ? open.close() : client.unsubscribeResource({ uri })));
  }
}
await client.close();
process.stdout.write(JSON.stringify(saw, null, 1) + '\n', () => process.exit()); // timers may be left
