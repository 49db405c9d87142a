package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// user is a person with a browser and an MCP client.
type user struct {
	name, issuer string
	browser      *http.Client
	session      *mcp.ClientSession
}

// logIn does what an MCP client does that knows only the URL of Gatekit: it finds the identity
// providers by the challenge, logs the user in at one of them, and connects with the access token.
func logIn(ctx context.Context, name, issuer string) (*user, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	u := &user{name: name, issuer: issuer, browser: &http.Client{Jar: jar}}
	refused, err := http.Post(gatekitURL, "application/json", strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	refused.Body.Close()
	challenges, err := oauthex.ParseWWWAuthenticate(refused.Header["Www-Authenticate"])
	if err != nil || len(challenges) == 0 {
		return nil, fmt.Errorf("status %d without a challenge: %w", refused.StatusCode, err)
	}
	resource, err := oauthex.GetProtectedResourceMetadata(ctx,
		challenges[0].Params["resource_metadata"], gatekitURL, http.DefaultClient)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(resource.AuthorizationServers, issuer) {
		return nil, fmt.Errorf("tokens of %s are not accepted", issuer)
	}
	var metadata struct {
		Authorize string `json:"authorization_endpoint"`
		Token     string `json:"token_endpoint"`
	}
	answer, err := http.Get(issuer + "/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&metadata); err != nil {
		return nil, err
	}

	client := oauth2.Config{ClientID: "editor", Scopes: []string{"mcp"},
		RedirectURL: base + "/editor/callback", // in this example, the browser stops there
		Endpoint: oauth2.Endpoint{AuthURL: metadata.Authorize, TokenURL: metadata.Token,
			AuthStyle: oauth2.AuthStyleInParams}}
	verifier, state := oauth2.GenerateVerifier(), oauth2.GenerateVerifier()
	forResource := oauth2.SetAuthURLParam("resource", resource.Resource)
	last, _, err := u.open(client.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier),
		forResource))
	if err != nil {
		return nil, err
	}
	if q := last.Query(); q.Get("state") != state || q.Get("iss") != issuer {
		return nil, fmt.Errorf("the login ended at %s", last.Redacted())
	}
	token, err := client.Exchange(ctx, last.Query().Get("code"),
		oauth2.VerifierOption(verifier), forResource)
	if err != nil {
		return nil, err
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "editor", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{
			URL: &mcp.URLElicitationCapabilities{}}},
		ElicitationHandler: u.answer,
	})
	u.session, err = c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: gatekitURL,
		HTTPClient: client.Client(ctx, token), DisableStandaloneSSE: true}, nil)
	return u, err
}

// answer opens the page that a call asks for, as an editor does after it has asked its user.
func (u *user) answer(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	fmt.Printf("  question: %s\n", r.Params.Message)
	_, page, err := u.open(r.Params.URL)
	if err != nil {
		return nil, err
	}
	fmt.Printf("  %s opens the page, and reads in the end: %s\n", u.name, heading(page))
	return &mcp.ElicitResult{Action: "accept"}, nil
}

var (
	headings = regexp.MustCompile(`(?s)<h1[^>]*>(.*?)</h1>`)
	forms    = regexp.MustCompile(`<form method="post"(?: action="([^"]*)")?`)
	csrf     = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
)

func heading(page string) string {
	if h := headings.FindStringSubmatch(page); h != nil {
		return html.UnescapeString(h[1])
	}
	return page
}

// open opens a page, fills in the forms of identity providers, and presses the button of Gatekit's
// page. It returns the last page.
func (u *user) open(page string) (*url.URL, string, error) {
	answer, err := u.browser.Get(page)
	for range 10 {
		if err != nil {
			return nil, "", err
		}
		b, readErr := io.ReadAll(answer.Body)
		answer.Body.Close()
		if readErr != nil {
			return nil, "", readErr
		}
		at, text := answer.Request.URL, string(b)
		form := forms.FindStringSubmatch(text)
		if form == nil {
			return at, text, nil
		}
		to, parseErr := at.Parse(html.UnescapeString(form[1]))
		if parseErr != nil {
			return nil, "", parseErr
		}
		fields := url.Values{"user": {u.name}}
		if token := csrf.FindStringSubmatch(text); token != nil {
			fields = url.Values{"csrf": {html.UnescapeString(token[1])}}
		}
		answer, err = u.browser.PostForm(to.String(), fields)
	}
	return nil, "", fmt.Errorf("%s has no end of forms", page)
}

// list prints the tools that the user sees.
func (u *user) list(ctx context.Context) error {
	tools, err := u.session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range tools.Tools {
		names = append(names, t.Name)
	}
	fmt.Printf("%s sees %s\n", u.name, strings.Join(names, ", "))
	return nil
}

// call calls a tool and prints the result.
func (u *user) call(ctx context.Context, tool string, arguments map[string]any) {
	fmt.Printf("%s calls %s\n", u.name, tool)
	result, err := u.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		fmt.Printf("  error: %v\n", err)
		return
	}
	for _, c := range result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			fmt.Printf("  result: %s\n", t.Text)
		}
	}
}
