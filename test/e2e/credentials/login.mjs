// usage: node login.mjs SDK MODE URL CLIENT
//
// Logs in at the MCP endpoint URL with a client of the TypeScript SDK (v1 or v2), calls its tool
// box__echo, and prints the text of the result. The line before it is the page that the user has to
// open. MODE is the era for a client of v2. CLIENT is a client id, the https URL of a client
// metadata document, or "register".
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [sdk, mode, url, id] = process.argv.slice(2)
const require = createRequire(process.env.NODE_MODULES + '/x.js')
const load = (module) => import(pathToFileURL(require.resolve(module)))
const { Client, StreamableHTTPClientTransport, UnauthorizedError } =
  sdk === 'v2'
    ? await load('@modelcontextprotocol/client')
    : {
        ...(await load('@modelcontextprotocol/sdk/client/index.js')),
        ...(await load('@modelcontextprotocol/sdk/client/streamableHttp.js')),
        ...(await load('@modelcontextprotocol/sdk/client/auth.js')),
      }

// The browser comes back to this server.
let comeBack
const back = new Promise((resolve) => (comeBack = resolve))
const server = createServer((request, response) => {
  response.end('the client has the code')
  comeBack(new URL(request.url, 'http://127.0.0.1').searchParams)
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const redirectUrl = `http://127.0.0.1:${server.address().port}/oauth/callback`

const kept = { client: id === 'register' || id.startsWith('https:') ? undefined : { client_id: id } }
const authProvider = {
  redirectUrl,
  clientMetadataUrl: id.startsWith('https:') ? id : undefined,
  clientMetadata: {
    client_name: 'typescript ' + sdk,
    application_type: 'native',
    redirect_uris: [redirectUrl],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  },
  state: () => 'state-of-the-client',
  clientInformation: () => kept.client,
  saveClientInformation: (client) => (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => (kept.tokens = tokens),
  redirectToAuthorization: (page) => console.log(page.href),
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (state) => (kept.discovery = state),
  discoveryState: () => kept.discovery,
}
const connect = async () => {
  const options = sdk === 'v2' ? { versionNegotiation: { mode } } : {}
  const client = new Client({ name: 'login', version: '1' }, options)
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider })
  try {
    await client.connect(transport)
    return client
  } catch (err) {
    if (!(err instanceof UnauthorizedError)) throw err
    const parameters = await back
    if (parameters.get('state') !== 'state-of-the-client') throw new Error('another state')
    await transport.finishAuth(sdk === 'v2' ? parameters : parameters.get('code'))
  }
}
const client = (await connect()) ?? (await connect())
const result = await client.callTool({ name: 'box__echo', arguments: { text: 'hello' } })
console.log(JSON.stringify(result.content), client.getProtocolEra?.() ?? 'legacy')
await client.close()
server.close()
