// Package console serves the console: pages in a browser that show an operator what the audit log
// holds, and let this operator approve requests and pins.
//
// A [Console] is an http.Handler for the paths below /console/. Two listeners can have one: the
// admin server, which listens on a loopback address, and the listener for MCP clients, with a
// [Login]. Both check Host before. The shell (one page without data, one ES module and one
// stylesheet) is public. Everything else needs a token.
//
// # Authentication
//
// The command "gatekit console" gets a one-time code from the running process, through the control
// socket in the state folder ([Console.NewCode]). It opens /console/#CODE. The module removes the
// code from the address bar and exchanges it for a token, which it keeps in sessionStorage and
// sends in the header Authorization. There is no cookie: browsers send cookies to all ports of a
// host, so that every other server on this machine would get it. There is no token in a page, a
// URL or a log. Codes are valid for a minute and once. Tokens are valid for eight hours and end
// with the process.
//
// With a [Login], there are no codes. The shell has links to the issuers (login.go). The browser
// gets a cookie, which binds the answer of the issuer to the browser in which the login began. When
// the user has a role, the module exchanges the cookie for a token, once, and the cookie ends.
// Tokens of principals are valid for an hour, and end when the principal is revoked.
//
// A token has the scope "read" or "approve". Only a token of the scope "approve" can run the
// actions of pages.
//
// # Why pages are sent as trees
//
// Pages are rendered with html/template, and their texts come from clients and servers. A module
// that inserts HTML needs a sink (innerHTML, DOMParser) and a policy of trusted types that lets
// HTML through. Then a mistake in a template is a script in the page. So the server parses the
// rendered page, checks its elements and attributes against a list, and sends a tree as JSON. The
// module builds it with createElement, setAttribute and text nodes. The page has no HTML sink, and
// its content security policy allows no policy at all (trusted-types 'none'). All texts get the
// escapes of format.Visible for control characters and marks that change the direction of text.
//
// # How to add a page
//
// A page is one file of this package and one template. The file NAME.go has an interface with the
// data that the page shows, and a function that returns the [Page]:
//
//	type Servers interface {
//		Servers(ctx context.Context) ([]ServerState, error)
//	}
//
//	func ServersPage(s Servers) Page {
//		return Page{Name: "servers", Title: "Servers", Data: func(ctx context.Context,
//			r Request) (any, error) { return s.Servers(ctx) }}
//	}
//
// The template is templates/NAME.html. Its dot is the result of Data. A page that changes by itself
// sets Refresh or Live, and a page that changes something has Actions. Package cmd/gatekit
// implements the interface, in consoleNAME.go, and lists the page in consolePages.
//
// A page for the logs of several replicas has another interface and the same template: see
// fleet.go. Such a page names a record REPLICA:SEQ.
//
// In templates:
//
//   - A link to another page is <a href="#record?seq=12">.
//   - A form with the attribute data-query puts its fields into the URL fragment, and so into
//     Request.Query.
//   - A form with data-action="NAME" runs the action NAME with its fields, after the question in
//     data-confirm, if it has one. Show it only if Request.CanApprove.
//   - A row with data-href opens this link on Enter or a click, and j and k move between such rows.
//   - An element that keeps the focus when the page is fetched again has an id.
//   - The element with id="live" gets the rows of Live, newest first.
//   - The functions ago, bytes, clip, clock, day, duration, fraction, join, remaining and visible
//     format values.
//   - Attributes style and on… are not allowed: use the classes of static/console.css. SVG is
//     allowed. Other elements and attributes are added to the lists in tree.go.
package console
