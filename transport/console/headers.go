package console

import (
	"fmt"
	"net/http"

	"gatekit/core/display"
)

// contentPolicy allows the module, the stylesheet and requests to this origin, and nothing else. No
// policy of trusted types can be made, so no text can become HTML or a script.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; " +
	"form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// setHeaders sets the headers of every answer.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
}

// refusal returns the reason for refusing a request because of its origin, or "". The server has
// checked Host, so a page of the same origin was served by this process. A page of another port of
// this machine has another origin.
func (c *Console) refusal(r *http.Request, isAPI bool) string {
	for _, name := range []string{"Origin", "Sec-Fetch-Site", "Authorization"} {
		if len(r.Header[name]) > 1 {
			return fmt.Sprintf("header %s came twice", name)
		}
	}
	site := r.Header.Get("Sec-Fetch-Site")
	// A link in another program or page may open the shell, which shows nothing without a token.
	opensShell := !isAPI && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document"
	ownOrigin := c.origin
	if ownOrigin == "" { // without a Login, the console is on a loopback address
		ownOrigin = "http://" + r.Host
	}
	switch origin := r.Header.Get("Origin"); {
	case origin != "" && origin != ownOrigin:
		return "Origin " + display.Quote(origin, 200) + " is not allowed"
	case isAPI && site != "" && site != "same-origin",
		!isAPI && site != "" && site != "same-origin" && site != "none" && !opensShell:
		return "a page of another origin sent this request"
	}
	if err := c.guard.Check(r); err != nil {
		return err.Error()
	}
	return ""
}
