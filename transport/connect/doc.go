// Package connect serves the web pages at which principals log in to servers. A call that needs a
// login asks the user to open a link. Whoever opens it must show that they are the principal who
// asked, with a login at the principal's issuer. Only then can the login at the server begin.
//
// # What it promises
//
//   - A link works for one principal, once, and for 10 minutes. It has no credential: without the
//     login of the principal at the issuer, it is of no use. All other links get the same answer.
//   - If somebody else logs in, they get status 403 and a record is written. They learn neither
//     whose link it is, nor for which server.
//   - The login at a server begins only when the user presses a button of a page that names the
//     client, the server, the authorization server and the scopes. It ends only in the browser in
//     which it began.
//   - Texts of requests are on no page. Other sites can neither frame a page nor press its button.
//   - The pages work without scripts.
//   - Links, browser sessions and the logins that they begin are bounded in number and in time.
//
// # How a login goes through it
//
// pages.go keeps the links (Ask) and chooses the handler of a request. A GET of a link (login.go)
// sends the browser to the issuer, which sends it back to /connect/login. Now the session of the
// browser (session.go) has a principal, and the link shows its page (page.go). The POST of its form
// sends the browser to the authorization server, which sends it back to /connect/callback.
//
// # Where links and sessions are
//
// In memory, or in the state that replicas share (state.go). With that, each request of a login may
// reach another replica, and each step still counts once over all of them. Whoever asked waits in
// its own replica, which looks for the result a few times per second. After a restart without a
// shared state, the client repeats the call and gets another link.
package connect
