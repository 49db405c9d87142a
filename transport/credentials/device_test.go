package credentials_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/transport/credentials"
)

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// inProcess hands requests to the handlers of a world without a network, so that time can be
// virtual.
type inProcess struct{ w *world }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if "http://"+r.URL.Host == t.w.server.URL {
		t.w.serveResource(recorder, r)
	} else {
		t.w.serveAuth(recorder, r)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

// offersDevices makes the authorization server answer requests for a code with the members of
// change, too, and each request for the token with the next of the answers: "" is a token, "broken"
// an error without a code, and others are codes of errors. Without further answers, the login is
// pending.
func (w *world) offersDevices(change map[string]any, answers ...string) credentials.Options {
	edit := w.editAuth
	w.editAuth = func(m map[string]any) {
		if edit != nil {
			edit(m)
		}
		m["device_authorization_endpoint"] = w.auth.URL + "/device"
	}
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		switch {
		case form["grant_type"] == "": // the request for a code
			answer := map[string]any{"device_code": "device-secret", "user_code": "WDJB-MJHT",
				"verification_uri": "https://login.example/device", "expires_in": 60, "interval": 7}
			status := 200
			for k, v := range change {
				answer[k] = v
				if k == "error" {
					status = 400
				}
			}
			writeJSON(rw, status, answer)
		case len(answers) == 0:
			writeJSON(rw, 400, map[string]any{"error": "authorization_pending"})
		case answers[0] == "":
			return false
		case answers[0] == "broken":
			answers = answers[1:]
			rw.WriteHeader(502)
		default:
			writeJSON(rw, 400, map[string]any{"error": answers[0],
				"error_description": "text-of-others"})
			answers = answers[1:]
		}
		return true
	}
	o := w.withStore()
	o.HTTP = &http.Client{Transport: inProcess{w}}
	return o
}

func TestLoginOnAnotherDevice(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  map[string]any // of the answer with the code
		answers []string       // to the requests for the token
		lasts   time.Duration
		want    string // the error; "" is a login
	}{
		{"entered at once", nil, []string{""}, 7 * time.Second, ""},
		{"entered later", nil, []string{"authorization_pending", "authorization_pending", ""},
			21 * time.Second, ""},
		{"slow down", nil, []string{"slow_down", "authorization_pending", ""}, 31 * time.Second,
			""},
		{"no interval", map[string]any{"interval": 0}, []string{""}, 5 * time.Second, ""},
		{"declined", nil, []string{"access_denied"}, 7 * time.Second, "declined"},
		{"expired at the server", nil, []string{"expired_token"}, 7 * time.Second, "in time"},
		{"nobody comes", nil, nil, time.Minute, "in time"},
		{"an endless interval", map[string]any{"interval": 1 << 40}, nil, time.Minute, "in time"},
		{"an endless code", map[string]any{"expires_in": 1 << 40, "interval": 60}, nil,
			30 * time.Minute, "in time"},
		{"another refusal", nil, []string{"invalid_grant"}, 7 * time.Second, "invalid_grant"},
		{"a broken answer", nil, []string{"broken"}, 7 * time.Second, "HTTP 502"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			o := w.offersDevices(c.change, c.answers...)
			synctest.Test(t, func(t *testing.T) {
				s := open(t, o)
				login, err := s.BeginDeviceLogin(t.Context(), "token:ann")
				if err != nil {
					t.Fatal(err)
				}
				if login.Code != "WDJB-MJHT" || login.URL != "https://login.example/device" ||
					login.CompleteURL != "" || login.Issuer != w.auth.URL ||
					!slices.Equal(login.Scopes, []string{"read"}) {
					t.Errorf("got the login %+v", login)
				}
				began := time.Now()
				r, err := login.Finish(t.Context())
				if took := time.Since(began); took != c.lasts {
					t.Errorf("the login took %s, want %s", took, c.lasts)
				}
				forms, _, events := w.snapshot()
				if forms[0]["resource"] != w.url() || forms[0]["scope"] != "read" ||
					forms[0]["client_id"] != "gatekit" || forms[0]["client_secret"] == "" {
					t.Errorf("got the request for a code %q", forms[0])
				}
				for _, f := range forms[1:] {
					if f["grant_type"] != deviceGrant || f["device_code"] != "device-secret" ||
						f["resource"] != w.url() {
						t.Errorf("got the request for a token %q", f)
					}
				}
				want := "token:ann login"
				if c.want != "" {
					want = "token:ann rejected"
				}
				if !slices.Equal(events, []string{want}) {
					t.Errorf("got the events %q, want %s", events, want)
				}
				if c.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					stored, err := o.Store.Load(r.ID)
					if err != nil || r.Principal != "token:ann" ||
						stored.Secrets.Access != r.Secrets.Access || r.Secrets.Access == "" {
						t.Errorf("got %v, %v; want the token of the login", stored, err)
					}
				} else if err == nil || !strings.Contains(err.Error(), c.want) ||
					strings.Contains(err.Error(), "text-of-others") {
					t.Errorf("got %v; want an error with %q, without texts of others", err, c.want)
				}
				if _, err := login.Finish(t.Context()); err == nil {
					t.Error("a login was finished twice")
				}
			})
		})
	}
}

func TestLoginOnAnotherDeviceIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change map[string]any
		want   string
	}{
		{"no code", map[string]any{"user_code": ""}, "no code"},
		{"a huge code", map[string]any{"user_code": strings.Repeat("9", 101)}, "no code"},
		{"no secret", map[string]any{"device_code": ""}, "no code"},
		{"no time", map[string]any{"expires_in": 0}, "no code"},
		{"a negative interval", map[string]any{"interval": -1}, "no code"},
		{"a page over http", map[string]any{"verification_uri": "http://login.example/"}, "https"},
		{"a page of a script", map[string]any{"verification_uri": "javascript:alert(1)"}, "https"},
		{"a huge answer", map[string]any{"more": strings.Repeat("x", 1<<16)}, "no code"},
		{"a refusal", map[string]any{"error": "unauthorized_client"}, "device_code"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			s := open(t, w.offersDevices(c.change))
			if _, err := s.BeginDeviceLogin(t.Context(), ""); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if _, _, events := w.snapshot(); !slices.Equal(events, []string{"rejected"}) {
				t.Errorf("got the events %q, want rejected", events)
			}
		})
	}
	t.Run("no such logins", func(t *testing.T) {
		w := newWorld(t)
		if _, err := open(t, w.withStore()).BeginDeviceLogin(t.Context(), ""); err == nil ||
			!strings.Contains(err.Error(), "hint: log in without --device") {
			t.Errorf("got %v, want a hint", err)
		}
	})
	t.Run("a dangerous page with the code", func(t *testing.T) {
		w := newWorld(t)
		s := open(t, w.offersDevices(map[string]any{"verification_uri_complete": "file:///x"}))
		if n, err := s.BeginDeviceLogin(t.Context(), ""); err != nil || n.CompleteURL != "" {
			t.Errorf("got %+v, %v; want a login without this page", n, err)
		}
	})
}

// TestRegistrationWithoutDevicesIsRenewed has a client that was registered when the authorization
// server had no logins on other devices.
func TestRegistrationWithoutDevicesIsRenewed(t *testing.T) {
	w := newWorld(t)
	w.issueRotating()
	requests := w.registers(nil)
	o := w.withStore()
	o.Client, o.Register = credentials.Client{}, true
	logIn(t, open(t, o), "token:ann")
	store := o.Store
	o = w.offersDevices(nil, "")
	o.Client, o.Register, o.Store = credentials.Client{}, true, store
	usual := w.tokenEndpoint
	w.tokenEndpoint = func(rw http.ResponseWriter, form map[string]string) bool {
		if form["grant_type"] == "" && form["client_id"] == "client-1" {
			writeJSON(rw, 400, map[string]any{"error": "unauthorized_client"})
			return true
		}
		return usual(rw, form)
	}
	synctest.Test(t, func(t *testing.T) {
		login, err := open(t, o).BeginDeviceLogin(t.Context(), "token:bob")
		if err == nil {
			_, err = login.Finish(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	got := requests()
	if len(got) != 2 || slices.Contains(got[0]["grant_types"].([]any), any(deviceGrant)) ||
		!slices.Contains(got[1]["grant_types"].([]any), any(deviceGrant)) {
		t.Errorf("got the registrations %v; want a second one, with devices", got)
	}
}

func TestLoginOnAnotherDeviceEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	o := w.offersDevices(nil)
	synctest.Test(t, func(t *testing.T) {
		login, err := open(t, o).BeginDeviceLogin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		interrupted := errors.New("interrupted")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 8*time.Second, interrupted)
		defer cancel()
		if _, err := login.Finish(ctx); !errors.Is(err, interrupted) {
			t.Errorf("got %v, want that the login was interrupted", err)
		}
	})
}
