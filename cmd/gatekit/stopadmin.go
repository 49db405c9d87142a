package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"gatekit/core/stop"
)

// maxAdminBody is the largest body of a command of the admin endpoint, in bytes.
const maxAdminBody = 32 << 10

// adminCommand is the body of a command of the admin endpoint.
type adminCommand struct {
	stop.Scope
	Reason string `json:"reason,omitempty"` // for /stop
	All    bool   `json:"all,omitempty"`    // for /resume
}

// adminCommands returns the commands of the admin endpoint. Without a token, there are none.
func (g *gateway) adminCommands(token string) map[string]http.Handler {
	if token == "" {
		return nil
	}
	want := sha256.Sum256([]byte(token))
	serve := func(run func(adminCommand) (map[string]any, error)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			got := sha256.Sum256([]byte(bearer))
			if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				g.log.Warn("command of the admin endpoint refused: its token is wrong",
					"path", r.URL.Path, "from", r.RemoteAddr)
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "the token is missing or wrong: send [admin] token as a bearer token",
					http.StatusUnauthorized)
				return
			}
			var c adminCommand
			d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAdminBody))
			d.DisallowUnknownFields()
			if err := d.Decode(&c); err != nil && err != io.EOF {
				http.Error(w, "the body must be a JSON object with reason (for /stop), all (for "+
					"/resume), server, principal, session: "+err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			result, err := run(c)
			if err != nil {
				w.WriteHeader(http.StatusConflict)
				result = map[string]any{"error": err.Error()}
			}
			_ = json.NewEncoder(w).Encode(result)
		})
	}
	return map[string]http.Handler{
		"/stop": serve(func(c adminCommand) (map[string]any, error) {
			ended, err := g.stopTraffic(stop.Stop{Scope: c.Scope, At: time.Now(),
				By: "the admin endpoint", Reason: c.Reason})
			return map[string]any{"stopped": c.Scope.String(), "calls_ended": ended}, err
		}),
		"/resume": serve(func(c adminCommand) (map[string]any, error) {
			return map[string]any{"resumed": true}, g.resumeTraffic(resumeRequest{
				Scope: c.Scope, All: c.All, By: "the admin endpoint"})
		}),
	}
}
