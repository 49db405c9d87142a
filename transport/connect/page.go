package connect

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"gatekit/core/display"
)

// maxShown bounds, in characters, the texts of others on a page.
const maxShown = 500

// message is a page with a title and one sentence or two.
type message struct{ Title, Text string }

// The messages. None of them tells whose link it is, or for what.
var (
	badLink = message{"This link cannot be used", "It is not valid, was used already, or has " +
		"expired. Repeat the request in your MCP client to get another one."}
	openAgain = message{"The login was not finished", "Open the link that your MCP client shows " +
		"again."}
	otherUser = message{"This link is not for you", "You are logged in as another user than the " +
		"one who was asked. If somebody sent you this link, do not go on, and tell your security " +
		"team. If it is your own link, log out at your identity provider, and open it again."}
	openedTooOften = message{"This link was opened too often", "Repeat the request in your MCP " +
		"client later to get another one."}
	tryLater = message{"The login cannot begin now", "Open the link again in a few minutes."}
	notBegun = message{"This is not a login that Gatekit waits for", "It began in another " +
		"browser, was finished already, or has expired. Nothing was changed. Repeat the request " +
		"in your MCP client to log in."}
	loginFailed = message{"The login failed", "Nothing was changed. Gatekit's log shows the " +
		"reason. Repeat the request in your MCP client to try again."}
	loggedIn = message{"You are logged in", "You can close this page. Your MCP client goes on."}
)

// style is the style of all pages. The colors are those of the browser, light or dark.
const style = `:root{color-scheme:light dark;font:1.1rem/1.5 system-ui,sans-serif}` +
	`main{max-width:40rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}` +
	`h1{font-size:1.5rem;line-height:1.2}dt{font-weight:bold}dd{margin:0 0 .75rem}` +
	`button{font:inherit;padding:.5rem 1rem}`

const head = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{{.Title}} – Gatekit</title>
<style>` + style + `</style>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
`

const foot = `</main>
</body>
</html>
`

var messagePage = template.Must(template.New("message").Parse(head + `<p>{{.Text}}</p>
` + foot))

var linkPage = template.Must(template.New("link").Parse(head + `<p>A request in your MCP client
needs a login at a server. Continue only if you have just made this request yourself. Otherwise,
close this page.</p>
<dl>
<dt>Client</dt><dd>{{.Client}}</dd>
<dt>Server</dt><dd>{{.Server}}</dd>
<dt>You log in at</dt><dd>{{.Issuer}}</dd>
<dt>Permissions that are asked for</dt><dd>{{.Scopes}}</dd>
<dt>For the user</dt><dd>{{.Principal}}</dd>
</dl>
<form method="post">
<input type="hidden" name="csrf" value="{{.CSRF}}">
<button type="submit">Continue to the login</button>
</form>
` + foot))

// setHeaders sets the headers of all answers.
func setHeaders(h http.Header) {
	sum := sha256.Sum256([]byte(style))
	// There is no form-action: browsers apply it to the redirects after a form, and authorization
	// servers redirect to identity providers that nobody here knows.
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(sum[:])+"'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// write writes a page with a message.
func (m message) write(w http.ResponseWriter, status int) { writePage(w, status, messagePage, m) }

// write writes the page of a link, with a form.
func (l *openLink) write(w http.ResponseWriter, csrf string) {
	show := func(text, otherwise string) string {
		if text == "" {
			return otherwise
		}
		return display.EscapeLine(text, maxShown)
	}
	n := &l.login
	writePage(w, http.StatusOK, linkPage, struct {
		Title, Client, Server, Issuer, Scopes, Principal, CSRF string
	}{
		Title:     "Log in to " + display.EscapeLine(n.Server, maxShown),
		Client:    show(n.Principal.Client(), "a client without a name"),
		Server:    show(n.Server, ""),
		Issuer:    show(n.AuthorizationServer, ""),
		Scopes:    show(strings.Join(n.Scopes, ", "), "the authorization server decides"),
		Principal: show(n.Principal.ID(), ""),
		CSRF:      csrf,
	})
}

func writePage(w http.ResponseWriter, status int, t *template.Template, data any) {
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	w.Write(b.Bytes())
}
