// node tour.mjs v1|v2 URL | -- COMMAND ARGS...   (see sdk.mjs)
// A real client takes the tour of a scripted server called box, cancels a call, and prints what it sees, as JSON lines: {"what", "text"}.
import { open as sdkOpen } from './sdk.mjs';
const [sdk, ...target] = process.argv.slice(2);
const { client, on, connect, call, era } = await sdkOpen(sdk, { sampling: {}, elicitation: { form: {}, url: {} }, roots: {} });
const seen = [];
let wake = () => {};
const saw = (what, text) => (process.stdout.write(JSON.stringify({ what, text }) + '\n'), seen.push(what), wake());
const until = async (n, ...whats) => { while (!whats.every((w) => seen.filter((s) => s === w).length >= n)) await new Promise((r) => (wake = r)); };

on('notifications/message', async ({ params: p }) => saw('log', `${p.level} ${p.logger}: ${p.data}`));
for (const list of ['tools', 'prompts', 'resources']) on(`notifications/${list}/list_changed`, async () => saw('changed ' + list, ''));
// Not by onprogress: the SDKs forget that with the answer, before they have handed over the reports that came along with it; v2 counts the rounds of a call there, too.
const cancel = new AbortController();
on('notifications/progress', async ({ params: p }) => (p.progressToken === 'w' ? cancel.abort() : saw('progress', `${p.progress} of ${p.total}`)));
on('sampling/createMessage', async ({ params: p }) => (saw('sampling', [p.messages[0].content].flat()[0].text), { model: 'm', role: 'assistant', content: { type: 'text', text: 'sampled' } }));
on('roots/list', async () => (saw('roots', ''), { roots: [{ uri: 'file:///work' }] }));
on('elicitation/create', async ({ params: p }) => {
  if (p.mode !== 'url') return saw('form', p.message), { action: 'accept', content: { name: 'a' } };
  await until(1, 'log', 'progress', 'changed tools', 'changed prompts', 'changed resources'); // in mid-call: it goes on when this is answered
  saw('url', `${p.message}: ${p.url}`);
  return { action: 'decline' };
});

await connect(target);
const modern = era() === 'modern';
if (modern) await client.listen({ toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true });
else await client.setLoggingLevel('info');
saw('connected', era());
const params = (name, progressToken, args) => ({ name: 'box__' + name, arguments: args, _meta: { progressToken, ...(modern && { 'io.modelcontextprotocol/logLevel': 'info' }) } });
const toured = await call(params('tour', 't', {}));
await until(2, 'progress');
saw('answered', JSON.stringify(toured.structuredContent));
const { tools } = await client.listTools();
saw('tools', tools.map((t) => t.name).join(' '));
await call(params('wait', 'w', { tag: 't' }), { signal: cancel.signal }).then((r) => saw('wait', JSON.stringify(r)), () => saw('wait', 'cancelled'));
await call(params('cancelled', 'c', { tag: 't' }));
saw('cancelled', 'at the server');
await client.close();
process.exit();
