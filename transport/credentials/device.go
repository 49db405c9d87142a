package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gatekit/transport/tokenstore"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/oauth2"
)

// Bounds and times of logins on another device.
const (
	maxDeviceAnswer    = 64 << 10 // bytes of an answer that are read
	maxUserCode        = 100      // characters of a code that a user enters
	defaultInterval    = 5 * time.Second
	slowDown           = 5 * time.Second // is added when the authorization server says slow_down
	longestInterval    = time.Minute
	longestDeviceLogin = 30 * time.Minute
)

// DeviceLogin is an attempt of a user to log in to a server with a browser on any device (RFC
// 8628). It can be finished once.
type DeviceLogin struct {
	// URL is the page of the authorization server on which the user must enter the Code.
	URL, Code string
	// CompleteURL is a page that has the code already. It is "" if there is none.
	CompleteURL string
	// Issuer is the authorization server, and Scopes are what it is asked for.
	Issuer string
	Scopes []string
	// Expires is when the code is no longer valid.
	Expires time.Time

	server     *Server
	key        string // the principal whose login it is
	endpoints  *endpoints
	client     Client
	deviceCode string
	interval   time.Duration // between requests for the token
}

// deviceAuthorization holds the members of the answer that matter. The answer may have others.
type deviceAuthorization struct {
	DeviceCode  string         `json:"device_code"`
	UserCode    string         `json:"user_code"`
	URL         string         `json:"verification_uri"`
	CompleteURL string         `json:"verification_uri_complete"`
	ExpiresIn   int64          `json:"expires_in"`
	Interval    int64          `json:"interval"`
	Error       string         `json:"error"`
	Other       jsontext.Value `json:",inline"`
}

// BeginDeviceLogin discovers the authorization server and asks it for a code, which the user enters
// on a page of the authorization server, on any device.
func (s *Server) BeginDeviceLogin(ctx context.Context, principal string) (*DeviceLogin, error) {
	if s.provider != nil {
		return s.provider.BeginDeviceLogin(ctx, principal)
	}
	key := s.key(principal)
	e, scopes, err := s.discoverForLogin(ctx, key)
	if err != nil {
		return nil, err
	}
	if e.as.DeviceAuthorizationEndpoint == "" {
		return nil, fmt.Errorf("the authorization server %q has no logins on another device\n"+
			"hint: log in without --device, with a browser on this machine", e.as.Issuer)
	}
	n := &DeviceLogin{Issuer: e.as.Issuer, Scopes: scopes, server: s, key: key, endpoints: e}
	for isRetry := false; ; isRetry = true {
		if n.client, _, err = s.loginClient(ctx, e, tokenstore.Registration,
			deviceRedirect); err != nil {
			return nil, err
		}
		err = n.authorize(ctx)
		refused, ok := errors.AsType[*tokenError](err)
		if isRetry || !ok || refused.code != "unauthorized_client" &&
			refused.code != "invalid_client" || !s.isRegistered(n.client.ID) {
			break
		}
		// Gatekit was registered for logins without a code, or the registration is gone.
		if err := s.o.Store.Delete(s.registrationID(tokenstore.Registration,
			e.as.Issuer)); err != nil {
			return nil, err
		}
	}
	if err != nil {
		err = errors.Join(err, s.event(key, ActionRejected, "login at "+e.as.Issuer, err))
		refused, ok := errors.AsType[*tokenError](err)
		if ok && refused.code == "unauthorized_client" {
			err = fmt.Errorf("%w\nhint: at %s, allow the client %q logins on other devices "+
				"(the grant device_code)", err, e.as.Issuer, n.client.ID)
		}
		return nil, err
	}
	return n, nil
}

// deviceRedirect returns the redirect URI for a registration. A login with a code does not use it.
func deviceRedirect(known string) (string, error) {
	if known != "" {
		return known, nil
	}
	return LoopbackRedirect, nil
}

// authorize asks the authorization server for a code.
func (n *DeviceLogin) authorize(ctx context.Context) error {
	form := url.Values{}
	if n.server.o.Grant != identityLogin {
		form.Set("resource", n.endpoints.resource)
	}
	if len(n.Scopes) > 0 {
		form.Set("scope", strings.Join(n.Scopes, " "))
	}
	as := n.endpoints.as
	response, err := n.server.postForm(ctx, as.DeviceAuthorizationEndpoint, n.client, as.Issuer,
		as.TokenEndpointAuthMethodsSupported, form)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxDeviceAnswer+1))
	if err != nil {
		return err
	}
	var a deviceAuthorization
	isValid := len(content) <= maxDeviceAnswer && json.Unmarshal(content, &a) == nil
	if response.StatusCode != http.StatusOK {
		return &tokenError{response.StatusCode, errorCode(a.Error)}
	}
	switch {
	case !isValid, a.DeviceCode == "", a.UserCode == "", len(a.UserCode) > maxUserCode,
		a.ExpiresIn <= 0, a.Interval < 0:
		return errors.New("the answer of the authorization server has no code to enter")
	case !isLoginPage(a.URL):
		return errors.New("the authorization server has no page over https to enter the code on")
	}
	n.deviceCode, n.Code, n.URL = a.DeviceCode, a.UserCode, a.URL
	if isLoginPage(a.CompleteURL) {
		n.CompleteURL = a.CompleteURL
	}
	n.interval = seconds(a.Interval, longestInterval)
	if a.Interval == 0 {
		n.interval = defaultInterval
	}
	n.Expires = time.Now().Add(seconds(a.ExpiresIn, longestDeviceLogin))
	return nil
}

// seconds returns a number of seconds, at most longest.
func seconds(n int64, longest time.Duration) time.Duration {
	return time.Duration(min(n, int64(longest/time.Second))) * time.Second
}

// errDeviceExpired is the error of a login that nobody completed in time.
var errDeviceExpired = errors.New("nobody entered the code in time")

// Finish waits until the user has logged in, and stores the tokens.
func (n *DeviceLogin) Finish(ctx context.Context) (*tokenstore.Record, error) {
	s, code := n.server, n.deviceCode
	n.deviceCode = "" // once
	t, err := n.poll(ctx, code)
	if err == nil {
		t, err = s.identityToken(t, n.key, "")
	}
	if err != nil {
		return nil, errors.Join(err, s.event(n.key, ActionRejected, "login at "+n.Issuer, err))
	}
	return s.storeLogin(ctx, s.newRecord(n.key, n.endpoints, n.client, n.Scopes, t))
}

// poll asks for the token until the user has logged in. A request that got no answer is repeated
// later, as RFC 8628 section 3.5 asks.
func (n *DeviceLogin) poll(ctx context.Context, code string) (*oauth2.Token, error) {
	if code == "" {
		return nil, errors.New("the login is finished already")
	}
	ctx, cancel := context.WithDeadlineCause(ctx, n.Expires, errDeviceExpired)
	defer cancel()
	interval := n.interval
	for {
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		t, err := n.server.requestToken(ctx, n.endpoints, n.client, grantDevice, nil,
			url.Values{"device_code": {code}})
		if err == nil {
			return t, nil
		}
		refused, ok := errors.AsType[*tokenError](err)
		_, isUnanswered := errors.AsType[*url.Error](err)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case ok && refused.code == "authorization_pending":
		case ok && refused.code == "slow_down":
			interval = min(interval+slowDown, longestInterval)
		case ok && refused.code == "access_denied":
			return nil, errors.New("the login was declined on the page")
		case ok && refused.code == "expired_token":
			return nil, errDeviceExpired
		case isUnanswered:
			interval = min(2*interval, longestInterval)
		default:
			return nil, err
		}
	}
}
