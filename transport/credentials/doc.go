// Package credentials obtains the tokens with which Gatekit asks MCP servers, as an OAuth 2.1
// client, and sends them.
//
// [HTTP.As] returns the connection to a server for one principal. A request of the connection
// goes through these steps:
//
//  1. [Server] looks for a valid token of the principal, in memory and in the token store. It
//     refreshes an expired token.
//  2. The request is sent with the token, or without a token if the server has not asked for one.
//  3. If the server answers 401 or 403, the [Server] discovers the authorization server, obtains a
//     better token if it can, and repeats the request once. The server has not run such a request.
//  4. If there is no token, the error is an [*upstream.CredentialsError]. The server's answer is
//     not passed on.
//
// # Guarantees
//
//   - A token is only sent to the server that it was issued for, and only in requests of the
//     principal that it was issued to.
//   - The access token of a client is only sent to the authorization server that issued it, for
//     [Exchange], and never to a server. A token that was issued in exchange for it is only used
//     for requests that came with the same access token.
//   - The ID token of a user, for [IDJAG], is only sent to the identity provider that issued it. It
//     is kept only for the principal whom it names, if the identity provider is the principal's
//     issuer.
//   - Metadata is only used if its resource is the server's URL, and if its issuer is the issuer
//     that was asked for, byte for byte. If a document fails a check, no other place is tried.
//   - Every request for a token that is for the server names the server as its resource (RFC 8707).
//   - At most one refresh of a token is under way, across all processes that share the token store.
//     A new refresh token is on the disk before the new access token is used.
//   - Tokens, codes and descriptions of errors, which an authorization server wrote, are not part
//     of any error or event.
//
// # Why not the handlers of the go-sdk
//
// Its AuthorizationCodeHandler has one token source for all users, keeps no registration, and
// falls back to the root of the server if its metadata fails a check. Its GetAuthServerMeta ignores
// a trailing slash of the issuer. Its token requests for client credentials have no resource.
package credentials
