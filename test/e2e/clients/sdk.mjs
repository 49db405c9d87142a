// A client of the TypeScript SDK v1 or v2, with one interface for both versions. The environment
// variable NODE_MODULES is the folder of the packages; MODE tells a v2 client how to find the era.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
const require = createRequire(process.env.NODE_MODULES + '/x.js');
const load = (module) => import(pathToFileURL(require.resolve(module)));

// v1 sets handlers by schema, v2 by the name of the method.
const schemas = {
  'sampling/createMessage': 'CreateMessageRequestSchema',
  'elicitation/create': 'ElicitRequestSchema',
  'roots/list': 'ListRootsRequestSchema',
  'notifications/message': 'LoggingMessageNotificationSchema',
  'notifications/progress': 'ProgressNotificationSchema',
  'notifications/resources/updated': 'ResourceUpdatedNotificationSchema',
  'notifications/tools/list_changed': 'ToolListChangedNotificationSchema',
  'notifications/prompts/list_changed': 'PromptListChangedNotificationSchema',
  'notifications/resources/list_changed': 'ResourceListChangedNotificationSchema',
};

// A credential that only clients may send: the servers of test/mcptest refuse it (mcptest.Canary).
const headers = { Cookie: 'canary=must-not-reach-a-server' };

// open returns the SDK's client and these functions:
//   on       sets the handler of a method
//   connect  connects to a target: a URL (of the SSE transport of 2024-11-05 when it ends in /sse),
//            or "--" and a command
//   call     calls a tool
//   era      returns the era of the connected client. A modern client asks for logs with each
//            call, and listens where a legacy client subscribes.
export async function open(sdk, capabilities) {
  const v1 = sdk === 'v1';
  const options = { capabilities };
  if (!v1) options.versionNegotiation = { mode: process.env.MODE ?? 'auto' };
  let Client, http, sse, stdio, types;
  if (v1) {
    ({ Client } = await load('@modelcontextprotocol/sdk/client/index.js'));
    http = (await load('@modelcontextprotocol/sdk/client/streamableHttp.js'))
      .StreamableHTTPClientTransport;
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
    on: (method, handler) => {
      const notification = method.startsWith('notifications');
      const set = notification ? 'setNotificationHandler' : 'setRequestHandler';
      return client[set](v1 ? types[schemas[method]] : method, handler);
    },
    connect: (target) => client.connect(target[0] === '--'
      ? new stdio({ command: target[1], args: target.slice(2), env: process.env, stderr: 'inherit' })
      : new (target[0].endsWith('/sse') ? sse : http)(new URL(target[0]), { requestInit: { headers } })),
    call: (params, options) => client.callTool(params, ...(v1 ? [undefined] : []), options),
    era: () => client.getProtocolEra?.() ?? 'legacy',
  };
}
