// usage: node use.mjs v1|v2 URL | -- COMMAND ARGS...   (see sdk.mjs)
//
// A real client lists and uses all that a server has, and prints a report as JSON. Use it only with
// test servers, because it calls every tool.
import { open as openSDK } from './sdk.mjs';
const [sdk, ...target] = process.argv.slice(2);
const report = {
  tools: [], toolsCalled: [], prompts: [], promptsUsed: [], resources: [], templates: [],
  completions: [], errors: [], // names, URIs and texts
  contents: 0, sampling: 0, elicitation: 0, roots: 0, progress: 0, logs: 0, updates: 0, // numbers
};
const { client, on, connect, call, era } = await openSDK(sdk,
  { sampling: {}, elicitation: {}, roots: { listChanged: true } });
on('sampling/createMessage', async () => {
  report.sampling++;
  return { model: 'm', role: 'assistant', content: { type: 'text', text: 'sampled' } };
});
on('elicitation/create', async (r) => {
  report.elicitation++;
  return { action: 'accept', content: minimalObject(r.params.requestedSchema) };
});
on('roots/list', async () => {
  report.roots++;
  return { roots: [{ uri: 'file:///work', name: 'work' }] };
});
let resolveLogged;
const logged = new Promise((resolve) => (resolveLogged = resolve));
on('notifications/message', async () => {
  report.logs++;
  resolveLogged();
});
let resolveUpdated;
on('notifications/resources/updated', async () => {
  report.updates++;
  resolveUpdated?.();
});

// minimalValue and minimalObject return the least value that a schema allows.
const texts = { uri: 'test://x', email: 'a@b.co', date: '2026-01-01' }; // by format
const minimalValue = (s = {}) => {
  const preset = s.const ?? s.default ?? s.enum?.[0];
  if (preset !== undefined && preset !== null) return preset;
  const choices = s.anyOf ?? s.oneOf;
  if (choices) return minimalValue(choices[0]);
  switch ([s.type].flat()[0]) {
    case 'number': case 'integer': return s.minimum ?? 1;
    case 'boolean': return true;
    case 'array': return [];
    case 'object': return minimalObject(s);
    case 'string': return texts[s.format] ?? 'a'.repeat(s.minLength ?? 1);
    default: return 'a';
  }
};
const minimalObject = (s) => Object.fromEntries(
  (s?.required ?? []).map((name) => [name, minimalValue(s.properties?.[name])]));

const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const attempt = async (what, f) => {
  try {
    return await f();
  } catch (e) {
    report.errors.push(`${what}: ${e.code ?? e.name} ${e.message}`);
  }
};
const listAll = async (method, member) => {
  const items = [];
  let cursor;
  do {
    const page = await attempt(method, () => client[method](cursor === undefined ? {} : { cursor }));
    items.push(...(page?.[member] ?? []));
    cursor = page?.nextCursor;
  } while (cursor !== undefined);
  return items;
};

await connect(target);
const has = client.getServerCapabilities() ?? {};
const modern = era() === 'modern';
report.modern = modern;
const meta = modern ? { _meta: { 'io.modelcontextprotocol/logLevel': 'debug' } } : {};
// These tools take long, give no ordinary answer, need the Internet, change the server, or end it.
// The tool toggle-subscriber-updates is called below.
const skipped =
  /simulate-research|async|gzip|toggle-|test_(trigger|reconnection)|__transient|\b(wait|die|raw|cancelled|change)$/;
if (has.logging && !modern) await attempt('setLoggingLevel', () => client.setLoggingLevel('debug'));
if (has.tools) {
  const tools = await listAll('listTools', 'tools');
  // server-everything asks for the roots some time after the handshake, and logs the answer. Its
  // tools depend on the answer. A modern client gets the request and the log only during a call.
  if (tools.some((t) => t.name.endsWith('get-roots-list')))
    await Promise.race([logged, after(modern ? 1000 : 60000)]);
  for (const t of tools) {
    report.tools.push(t.name);
    if (skipped.test(t.name)) continue;
    const args = minimalObject(t.inputSchema);
    if (/long-running/.test(t.name)) Object.assign(args, { duration: 0.2, steps: 2 });
    await attempt(t.name, () => call({ name: t.name, arguments: args, ...meta },
      { timeout: 100000, onprogress: () => report.progress++ }));
    report.toolsCalled.push(t.name);
  }
}
if (has.prompts) {
  for (const p of await listAll('listPrompts', 'prompts')) {
    report.prompts.push(p.name);
    const value = (a) => (/Type$/.test(a.name) ? 'Text' : '1'); // what server-everything accepts
    const args = Object.fromEntries((p.arguments ?? []).map((a) => [a.name, value(a)]));
    await attempt(p.name, () => client.getPrompt({ name: p.name, arguments: args }));
    report.promptsUsed.push(p.name);
    for (const a of p.arguments ?? []) {
      if (!has.completions) continue;
      const completion = await attempt(`complete ${p.name}`, () => client.complete(
        { ref: { type: 'ref/prompt', name: p.name }, argument: { name: a.name, value: '' } }));
      if (completion) report.completions.push(p.name + ' ' + a.name);
    }
  }
}
if (has.resources) {
  const resources = await listAll('listResources', 'resources');
  for (const r of resources) {
    report.resources.push(r.uri);
    const result = await attempt(r.uri, () => client.readResource({ uri: r.uri }));
    report.contents += result?.contents?.length ?? 0;
  }
  const templates = await listAll('listResourceTemplates', 'resourceTemplates');
  report.templates = templates.map((t) => t.uriTemplate);
  for (const uri of report.templates) {
    if (!has.completions || !uri.includes('{resourceId}')) continue;
    const completion = await attempt(`complete ${uri}`, () => client.complete(
      { ref: { type: 'ref/resource', uri }, argument: { name: 'resourceId', value: '' } }));
    if (completion) report.completions.push(uri);
  }
  if (has.resources.subscribe && resources.length) {
    const toggle = report.tools.find((t) => t.endsWith('toggle-subscriber-updates'));
    const uri = resources.find((r) => r.uri.includes('demo://'))?.uri ?? resources[0].uri;
    const updated = new Promise((resolve) => (resolveUpdated = resolve));
    const subscription = await attempt('subscribe', () => (modern
      ? client.listen({ resourceSubscriptions: [uri] }) : client.subscribeResource({ uri })));
    if (toggle) {
      await attempt(toggle, () => client.callTool({ name: toggle, arguments: {} }));
      await Promise.race([updated, after(Number(process.env.UPDATE_PATIENCE ?? 60000))]);
      await attempt(toggle, () => client.callTool({ name: toggle, arguments: {} }));
    }
    await attempt('unsubscribe', () => (modern
      ? subscription.close() : client.unsubscribeResource({ uri })));
  }
}
await client.close();
// Timers may still run, so the script calls exit.
process.stdout.write(JSON.stringify(report, null, 1) + '\n', () => process.exit());
