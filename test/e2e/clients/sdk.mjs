// A client of the TypeScript SDK v1 or v2. NODE_MODULES names the folder of the packages, MODE how a v2 client finds the era.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
const from = createRequire(process.env.NODE_MODULES + '/x.js');
const load = (m) => import(pathToFileURL(from.resolve(m)));

const schemas = { 'sampling/createMessage': 'CreateMessageRequestSchema', 'elicitation/create': 'ElicitRequestSchema', 'roots/list': 'ListRootsRequestSchema',
  'notifications/message': 'LoggingMessageNotificationSchema', 'notifications/progress': 'ProgressNotificationSchema', 'notifications/resources/updated': 'ResourceUpdatedNotificationSchema',
  'notifications/tools/list_changed': 'ToolListChangedNotificationSchema', 'notifications/prompts/list_changed': 'PromptListChangedNotificationSchema',
  'notifications/resources/list_changed': 'ResourceListChangedNotificationSchema' };

// open answers the client; on, which sets a handler; connect, which takes a URL (one that ends in /sse is the transport of 2024-11-05) or "--" and a command;
// call, which calls a tool; and era, which it has when it is connected.
export async function open(sdk, capabilities) {
  const v1 = sdk === 'v1';
  const options = { capabilities };
  if (!v1) options.versionNegotiation = { mode: process.env.MODE ?? 'auto' };
  let Client, http, sse, stdio, types;
  if (v1) {
    ({ Client } = await load('@modelcontextprotocol/sdk/client/index.js'));
    http = (await load('@modelcontextprotocol/sdk/client/streamableHttp.js')).StreamableHTTPClientTransport;
    sse = (await load('@modelcontextprotocol/sdk/client/sse.js')).SSEClientTransport;
    stdio = (await load('@modelcontextprotocol/sdk/client/stdio.js')).StdioClientTransport;
    types = await load('@modelcontextprotocol/sdk/types.js');
  } else {
    ({ Client, StreamableHTTPClientTransport: http } = await load('@modelcontextprotocol/client'));
    stdio = (await load('@modelcontextprotocol/client/stdio')).StdioClientTransport;
  }
  const client = new Client({ name: 'use-' + sdk, version: '1.0.0' }, options);
  return {
    client,
    on: (m, f) => client[m.startsWith('notifications') ? 'setNotificationHandler' : 'setRequestHandler'](v1 ? types[schemas[m]] : m, f),
    connect: (target) => client.connect(target[0] === '--'
      ? new stdio({ command: target[1], args: target.slice(2), env: process.env, stderr: 'ignore' })
      : new (target[0].endsWith('/sse') ? sse : http)(new URL(target[0]))),
    call: (params, options) => client.callTool(params, ...(v1 ? [undefined] : []), options),
    era: () => client.getProtocolEra?.() ?? 'legacy', // a modern one asks for logs with each call, and listens instead of subscribing
  };
}
