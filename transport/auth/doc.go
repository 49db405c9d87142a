// Package auth authenticates the HTTP requests of clients: it is the resource server of OAuth 2.1
// in Gatekit. It accepts access tokens of configured issuers, static tokens, TLS certificates and,
// if configured, anonymous requests from this machine.
//
// # What it promises
//
//   - A request has one credential, in the header Authorization or in the TLS connection. A request
//     with two, or with a token in its URL, is refused.
//   - The token's iss chooses the issuer before any key is looked at. A token is verified with the
//     keys of this issuer only, and with a configured algorithm that fits the key. Keys and URLs in
//     a token are not read.
//   - A token that is not for this resource, an ID token, and a token without expiry are refused.
//   - Whatever cannot be checked is refused: 503 if the issuer cannot be asked, else 401 or 403.
//   - Tokens are in no error, log line or record. What a check found is in [Refusal.Detail], which
//     is for the operator. The client gets [Refusal.Reason].
//   - A user who logs in with [Authenticator.BeginLogin] is who the ID token names. It is verified
//     with the issuer's keys, and is for the login client and for this login.
//   - Clients can make Gatekit fetch the keys of an issuer at most once in 30 s.
//   - Memory is bounded: of tokens that were verified, only digests and principals are kept.
//
// # How a request goes through it
//
// authenticator.go reads the credential and finds who can verify it: static.go, certificate.go, or
// an issuer (issuer.go). An issuer checks a JWT (jwt.go) with its keys (keys.go), asks the
// authorization server (introspection.go), or both. cache.go keeps the result. challenge.go writes
// the answer to a request that is refused, and metadata.go the protected resource metadata.
// login.go finds out who opens a web page.
//
// # Why keys are fetched by code of its own
//
// The caches of JWT libraries fetch on a schedule, or for every unknown key id. The first keeps
// withdrawn keys when the fetch fails, the second lets anybody flood the issuer. Here, clients wait
// for one fetch in 30 s, and keys end an hour after the last fetch that succeeded.
package auth
