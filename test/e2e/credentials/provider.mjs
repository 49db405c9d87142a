// usage: node provider.mjs OIDC_PROVIDER SECONDS REFRESHED
//
// Runs the authorization server in the file OIDC_PROVIDER on a free loopback port. Access tokens of
// a login are valid for SECONDS, refreshed ones for REFRESHED seconds. Everybody can log in, with any name and
// password. The first line of stdout is the issuer. Each further line is a successful grant, a
// revocation or a registration. The variable CONNECT is the URL of Gatekit's own pages. With JWTS,
// access tokens are JWTs, and otherwise opaque.
import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'

const [file, seconds, refreshed] = process.argv.slice(2)
const { Provider, errors } = await import(pathToFileURL(file))

const connect = process.env.CONNECT // the URL of Gatekit's own pages; absent if there are none

const server = createServer()
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const issuer = `http://127.0.0.1:${server.address().port}`

const exchange = 'urn:ietf:params:oauth:grant-type:token-exchange'
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'gatekit',
      client_secret: 's3cret-of-gatekit',
      application_type: 'native',
      redirect_uris: ['http://127.0.0.1/callback'].concat(connect ? `${connect}/callback` : []),
      grant_types: [
        'authorization_code',
        'refresh_token',
        'urn:ietf:params:oauth:grant-type:device_code',
      ],
      response_types: ['code'],
      token_endpoint_auth_method: 'client_secret_basic',
    },
    {
      client_id: 'gatekit-connect', // Gatekit's own pages
      client_secret: 's3cret-of-connect',
      application_type: 'native',
      redirect_uris: connect ? [`${connect}/login`] : [],
      response_types: connect ? ['code'] : [],
      grant_types: connect ? ['authorization_code'] : [],
    },
    ...['editor', 'admin'].map((id) => ({
      client_id: id, // a client of Gatekit
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      redirect_uris: [],
      response_types: [],
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code'],
    })),
    {
      client_id: 'desktop', // a client of Gatekit with a browser
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      redirect_uris: ['http://127.0.0.1/oauth/callback'],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
    },
    {
      client_id: 'exchanger', // Gatekit, where it exchanges tokens
      client_secret: 's3cret-of-exchanger',
      redirect_uris: [],
      response_types: [],
      grant_types: [exchange],
    },
    {
      client_id: 'server', // introspects
      client_secret: 'server',
      redirect_uris: [],
      response_types: [],
      grant_types: [],
    },
  ],
  scopes: ['openid', 'offline_access', 'read', 'write'],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  features: {
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    devInteractions: { enabled: true },
    deviceFlow: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true, allowedPolicy: (_, client) => client.clientId === 'server' },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: 'read write',
        audience: resource,
        accessTokenFormat: process.env.JWTS ? 'jwt' : 'opaque',
        accessTokenTTL: Number(
          ctx.oidc.params?.grant_type === 'refresh_token' ? refreshed : seconds,
        ),
      }),
    },
  },
  // The dispatcher of the provider refuses loopback addresses, where the tests publish documents.
  fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
  cookies: { keys: ['test'] },
  jwks: undefined,
})

provider.registerGrantType(
  exchange,
  async (ctx) => {
    const { client, params } = ctx.oidc
    const subject = await provider.AccessToken.find(params.subject_token)
    if (!subject || params.audience !== 'box') throw new errors.InvalidGrant('unknown token')
    const { resource } = params
    const scope = subject.scope.includes('write') ? 'read write' : 'read'
    const grant = new provider.Grant({ accountId: subject.accountId, clientId: client.clientId })
    grant.addResourceScope(resource, scope)
    const token = new provider.AccessToken({
      accountId: subject.accountId,
      client,
      grantId: await grant.save(),
      gty: 'token_exchange',
      scope,
    })
    const info = { scope: 'read write', audience: resource, accessTokenFormat: 'opaque' }
    token.resourceServer = new provider.ResourceServer(resource, { ...info, accessTokenTTL: 3600 })
    ctx.body = {
      access_token: await token.save(),
      issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      token_type: 'Bearer',
      expires_in: token.expiration,
      scope,
    }
  },
  ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'resource', 'scope'],
)

provider.on('grant.success', (ctx) => console.log(`grant ${ctx.oidc.params.grant_type}`))
provider.on('grant.revoked', () => console.log('revoked'))
provider.on('registration_create.success', () => console.log('registration'))
provider.on('server_error', (_, err) => console.error(err))

server.on('request', provider.callback())
console.log(issuer)
