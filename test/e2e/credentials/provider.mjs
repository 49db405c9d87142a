// usage: node provider.mjs OIDC_PROVIDER SECONDS REFRESHED
//
// Runs the authorization server in the file OIDC_PROVIDER on a free loopback port. Access tokens of
// a login are valid for SECONDS, refreshed ones for REFRESHED seconds. Everybody can log in, with any name and
// password. The first line of stdout is the issuer. Each further line is a successful grant, a
// revocation or a registration. The variable CONNECT is the URL of Gatekit's own pages, and CONSOLE
// that of its console: then the groups of a user are in ID tokens, and follow the name after dots
// (ann.secops). With JWTS, access tokens are JWTs, and otherwise opaque. As an identity provider, it exchanges ID tokens for
// assertions (ID-JAG). With IDP, the issuer of such a provider, it takes its assertions.
import { createPublicKey, generateKeyPairSync, randomUUID, sign, verify } from 'node:crypto'
import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'

const [file, seconds, refreshed] = process.argv.slice(2)
const { Provider, errors } = await import(pathToFileURL(file))

const connect = process.env.CONNECT // the URL of Gatekit's own pages; absent if there are none
const consolePages = process.env.CONSOLE // the URL of Gatekit's console; absent if there is none
const own = [connect && `${connect}/login`, consolePages && `${consolePages}/callback`].filter(Boolean)

const server = createServer()
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const issuer = `http://127.0.0.1:${server.address().port}`

const exchange = 'urn:ietf:params:oauth:grant-type:token-exchange'
const jwtBearer = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
const idJAG = 'urn:ietf:params:oauth:token-type:id-jag'
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const jwk = { ...privateKey.export({ format: 'jwk' }), kid: 'own', use: 'sig', alg: 'RS256' }
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
        exchange, // of ID tokens
      ],
      response_types: ['code'],
      token_endpoint_auth_method: 'client_secret_basic',
    },
    {
      client_id: 'gatekit-connect', // Gatekit's own pages
      client_secret: 's3cret-of-connect',
      application_type: consolePages ? 'web' : 'native',
      redirect_uris: own,
      response_types: own.length > 0 ? ['code'] : [],
      grant_types: own.length > 0 ? ['authorization_code'] : [],
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
      client_id: 'exchanger', // Gatekit, where it exchanges tokens and assertions
      client_secret: 's3cret-of-exchanger',
      redirect_uris: [],
      response_types: [],
      grant_types: [exchange, jwtBearer],
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
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, ...(consolePages && { groups: id.split('.').slice(1) }) }),
  }),
  ...(consolePages && { claims: { openid: ['sub', 'groups'] }, conformIdTokenClaims: false }),
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
  jwks: { keys: [jwk] },
})

// answer issues a token for a resource and an account.
async function answer(ctx, accountId, scope) {
  const { client, params } = ctx.oidc
  const { resource } = params
  const grant = new provider.Grant({ accountId, clientId: client.clientId })
  grant.addResourceScope(resource, scope)
  const token = new provider.AccessToken({
    accountId,
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
}

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')
const decode = (part) => JSON.parse(Buffer.from(part, 'base64url'))

// assert answers with an assertion about the user of an ID token.
async function assert(ctx) {
  const { client, params } = ctx.oidc
  const { audience, resource, scope, subject_token: idToken } = params
  if (params.subject_token_type !== 'urn:ietf:params:oauth:token-type:id_token') {
    throw new errors.InvalidRequest('no ID token')
  }
  const { payload } = await provider.IdToken.validate(idToken, client) // signature, aud, exp
  const now = Math.floor(Date.now() / 1000)
  const times = { iat: now, exp: now + 60, jti: randomUUID() }
  const signed = [
    { alg: 'RS256', kid: 'own', typ: 'oauth-id-jag+jwt' },
    { iss: issuer, sub: payload.sub, aud: audience, client_id: 'exchanger', resource, scope, ...times },
  ]
    .map(encode)
    .join('.')
  const signature = sign('sha256', Buffer.from(signed), privateKey).toString('base64url')
  ctx.body = {
    access_token: `${signed}.${signature}`,
    issued_token_type: idJAG,
    token_type: 'N_A',
    expires_in: 60,
  }
}

provider.registerGrantType(
  exchange,
  async (ctx) => {
    const { params } = ctx.oidc
    if (params.requested_token_type === idJAG) return assert(ctx)
    const subject = await provider.AccessToken.find(params.subject_token)
    if (!subject || params.audience !== 'box') throw new errors.InvalidGrant('unknown token')
    await answer(ctx, subject.accountId, subject.scope.includes('write') ? 'read write' : 'read')
  },
  ['subject_token', 'subject_token_type', 'requested_token_type', 'audience', 'resource', 'scope'],
)

const used = new Set() // the ids of assertions
provider.registerGrantType(
  jwtBearer,
  async (ctx) => {
    const { client, params } = ctx.oidc
    const [header, payload, signature] = params.assertion.split('.')
    const claims = decode(payload)
    const { keys } = await (await fetch(`${process.env.IDP}/jwks`)).json()
    const key = createPublicKey({ key: keys[0], format: 'jwk' })
    const isValid =
      decode(header).typ === 'oauth-id-jag+jwt' &&
      verify('sha256', `${header}.${payload}`, key, Buffer.from(signature, 'base64url')) &&
      claims.iss === process.env.IDP &&
      claims.aud === issuer &&
      claims.client_id === client.clientId &&
      claims.resource === params.resource &&
      claims.exp > Date.now() / 1000 &&
      !used.has(claims.jti)
    if (!isValid) throw new errors.InvalidGrant('not a valid assertion')
    used.add(claims.jti)
    await answer(ctx, claims.sub, claims.scope)
  },
  ['assertion', 'resource', 'scope'],
)

provider.on('grant.success', (ctx) => console.log(`grant ${ctx.oidc.params.grant_type}`))
provider.on('grant.revoked', () => console.log('revoked'))
provider.on('registration_create.success', () => console.log('registration'))
provider.on('server_error', (_, err) => console.error(err))

server.on('request', provider.callback())
console.log(issuer)
