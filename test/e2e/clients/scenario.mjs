// usage: node scenario.mjs v1|v2 URL | -- COMMAND ARGS...   (see sdk.mjs)
//
// A real client runs the scenario of scenario_test.go with a scripted server called box: it calls
// the tool "scenario", cancels another call, and prints the events that it observes, each as a line
// of JSON: {"kind", "text"}.
import { open as openSDK } from './sdk.mjs';
const [sdk, ...target] = process.argv.slice(2);
const { client, on, connect, call, era } = await openSDK(sdk,
  { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} });

const kinds = []; // of the events so far
let wake = () => {};
const record = (kind, text) => {
  process.stdout.write(JSON.stringify({ kind, text }) + '\n');
  kinds.push(kind);
  wake();
};
// waitFor waits until there are n events of each wanted kind.
const waitFor = async (n, ...wanted) => {
  while (!wanted.every((w) => kinds.filter((k) => k === w).length >= n))
    await new Promise((resolve) => (wake = resolve));
};

on('notifications/message', async ({ params: p }) =>
  record('log', `${p.level} ${p.logger}: ${p.data}`));
for (const list of ['tools', 'prompts', 'resources'])
  on(`notifications/${list}/list_changed`, async () => record('changed ' + list, ''));
// The client sets a handler instead of onprogress. The SDKs remove onprogress when the answer
// arrives, and then drop reports that came just before the answer. v2 also calls onprogress for the
// rounds of a call.
const cancel = new AbortController();
// The token w is that of the call of the tool "wait", which is cancelled at its first report.
on('notifications/progress', async ({ params: p }) =>
  p.progressToken === 'w' ? cancel.abort() : record('progress', `${p.progress} of ${p.total}`));
on('sampling/createMessage', async ({ params: p }) => {
  record('sampling', [p.messages[0].content].flat()[0].text);
  return { model: 'm', role: 'assistant', content: { type: 'text', text: 'sampled' } };
});
on('roots/list', async () => {
  record('roots', '');
  return { roots: [{ uri: 'file:///work' }] };
});
on('elicitation/create', async ({ params: p }) => {
  if (p.mode !== 'url') {
    record('form', p.message);
    return { action: 'accept', content: { name: 'a' } };
  }
  // The server continues the call when it has this answer.
  await waitFor(1, 'log', 'progress', 'changed tools', 'changed prompts', 'changed resources');
  record('url', `${p.message}: ${p.url}`);
  return { action: 'decline' };
});

await connect(target);
const modern = era() === 'modern';
if (modern)
  await client.listen({ toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true });
else await client.setLoggingLevel('info');
record('connected', era());
const params = (tool, progressToken, args) => ({
  name: 'box__' + tool,
  arguments: args,
  _meta: { progressToken, ...(modern && { 'io.modelcontextprotocol/logLevel': 'info' }) },
});
const result = await call(params('scenario', 't', {}));
await waitFor(2, 'progress');
record('result', JSON.stringify(result.structuredContent));
const { tools } = await client.listTools();
record('tools', tools.map((t) => t.name).join(' '));
await call(params('wait', 'w', { tag: 't' }), { signal: cancel.signal }).then(
  (r) => record('wait', JSON.stringify(r)), () => record('wait', 'cancelled'));
await call(params('cancelled', 'c', { tag: 't' }));
record('cancelled', 'at the server');
await client.close();
process.exit();
