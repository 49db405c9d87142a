package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"example.com/company/idp"
)

// registerServer adds an MCP server over HTTP to a mux. It accepts access tokens that the provider
// has issued for it.
func registerServer(mux *http.ServeMux, p *idp.Provider, path, tool string,
	answer func(user, client string) string) {
	s := mcp.NewServer(&mcp.Implementation{Name: path[1:], Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: tool}, func(ctx context.Context, _ *mcp.CallToolRequest,
		_ struct{}) (*mcp.CallToolResult, any, error) {
		info := auth.TokenInfoFromContext(ctx)
		return text(answer(info.UserID, info.Extra["client"].(string))), nil, nil
	})
	resource := base + path + "/mcp"
	metadata := "/.well-known/oauth-protected-resource" + path + "/mcp"
	check := auth.RequireBearerToken(func(_ context.Context, token string,
		_ *http.Request) (*auth.TokenInfo, error) {
		user, client, expires, err := p.Check(token, resource)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
		}
		return &auth.TokenInfo{UserID: user, Expiration: expires,
			Extra: map[string]any{"client": client}}, nil
	}, &auth.RequireBearerTokenOptions{ResourceMetadataURL: base + metadata})
	mux.Handle(path+"/mcp", check(mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})))
	mux.Handle(metadata, auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: resource, AuthorizationServers: []string{p.Issuer}}))
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// runReports is the MCP server reports, on stdio. It is a client of the server tickets, with the
// token in its environment.
func runReports(ctx context.Context) error {
	token := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: os.Getenv("TICKETS_TOKEN")})
	s := mcp.NewServer(&mcp.Implementation{Name: "reports", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "weekly"}, func(ctx context.Context, _ *mcp.CallToolRequest,
		_ struct{}) (*mcp.CallToolResult, any, error) {
		tickets, err := mcp.NewClient(&mcp.Implementation{Name: "reports", Version: "1"},
			nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: base + "/tickets/mcp",
			HTTPClient: oauth2.NewClient(ctx, token), DisableStandaloneSSE: true}, nil)
		if err != nil {
			return nil, nil, err
		}
		defer tickets.Close()
		mine, err := tickets.CallTool(ctx, &mcp.CallToolParams{Name: "mine"})
		if err != nil {
			return nil, nil, err
		}
		mine.Content = append([]mcp.Content{&mcp.TextContent{Text: "the week's report"}},
			mine.Content...)
		return mine, nil, nil
	})
	return s.Run(ctx, &mcp.StdioTransport{})
}
