package credentials

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// Client is Gatekit's registration at an authorization server.
type Client struct {
	ID     string
	Secret string
	Key    []byte // private key, as PEM or JWK, for private_key_jwt; used instead of Secret
	// AuthMethod is how a client that registered itself authenticates: client_secret_basic,
	// client_secret_post or none. "" means that the metadata of the authorization server says it.
	AuthMethod string
}

// Methods of client authentication.
const (
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
	methodNone  = "none"
)

// Grant types and other identifiers in requests for tokens.
const (
	grantClientCredentials = "client_credentials"
	grantCode              = "authorization_code"
	grantRefresh           = "refresh_token"
	grantExchange          = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantJWTBearer         = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	grantDevice            = "urn:ietf:params:oauth:grant-type:device_code"
	jwtAssertion           = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	assertionTime          = time.Minute // how long a client assertion is valid
)

// tokenError is the refusal of an authorization server.
type tokenError struct {
	status int
	code   string // an error code of RFC 6749, or "" if the answer has none
}

func (e *tokenError) Error() string {
	if e.code != "" {
		return "the authorization server refused the request: " + e.code
	}
	return fmt.Sprintf("the authorization server refused the request (HTTP %d)", e.status)
}

// endsLogin reports whether the refresh token can never be used again, after the refusal of a
// refresh. A registered client that is unknown does not come back. Other refusals may be a mistake
// in the configuration, such as a wrong secret.
func (e *tokenError) endsLogin(isRegistered bool) bool {
	return e.code == "invalid_grant" || e.code == "invalid_client" && isRegistered
}

// requestToken requests a token that can be sent to a server.
func (s *Server) requestToken(ctx context.Context, e *endpoints, client Client, grant string,
	scopes []string, params url.Values) (*oauth2.Token, error) {
	token, err := s.requestAnyToken(ctx, e, client, grant, scopes, params)
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(token.Type(), "Bearer") {
		return nil, fmt.Errorf("the token is of type %.50q, and Gatekit only knows Bearer",
			token.TokenType)
	}
	if strings.ContainsFunc(token.AccessToken, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, errors.New("the token has characters that no header can have")
	}
	return token, nil
}

// requestAnyToken sends a request to the token endpoint. It never sends a request twice: a code or
// a refresh token can be used only once. So the way of client authentication must be known.
func (s *Server) requestAnyToken(ctx context.Context, e *endpoints, client Client, grant string,
	scopes []string, params url.Values) (*oauth2.Token, error) {
	if e.as.TokenEndpoint == "" {
		return nil, errors.New("the authorization server has no token endpoint")
	}
	values := url.Values{"grant_type": {grant}}
	if s.o.Grant != identityLogin {
		values.Set("resource", e.resource)
	}
	for name, value := range params {
		values[name] = value
	}
	config := clientcredentials.Config{ClientID: client.ID, TokenURL: e.as.TokenEndpoint,
		Scopes: scopes, EndpointParams: values, AuthStyle: oauth2.AuthStyleInParams}
	method, err := authenticate(client, e.as.Issuer, e.as.TokenEndpointAuthMethodsSupported, values)
	if err != nil {
		return nil, err
	}
	switch method {
	case methodBasic:
		config.ClientSecret, config.AuthStyle = client.Secret, oauth2.AuthStyleInHeader
	case methodPost:
		config.ClientSecret = client.Secret
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, s.o.HTTP)
	token, err := config.Token(ctx)
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return nil, &tokenError{refused.Response.StatusCode, errorCode(refused.ErrorCode)}
	}
	return token, err
}

// authenticate returns the method with which a client authenticates at an endpoint that supports
// the given methods. For a client with a key, it adds an assertion to the values.
func authenticate(client Client, issuer string, supported []string,
	values url.Values) (method string, err error) {
	switch {
	case len(client.Key) > 0:
		assertion, err := clientAssertion(client, issuer)
		if err != nil {
			return "", err
		}
		values.Set("client_assertion_type", jwtAssertion)
		values.Set("client_assertion", assertion)
		return methodNone, nil
	case client.Secret == "":
		return methodNone, nil
	case client.AuthMethod != "":
		return client.AuthMethod, nil
	case len(supported) == 0 || slices.Contains(supported, methodBasic):
		return methodBasic, nil
	case slices.Contains(supported, methodPost):
		return methodPost, nil
	}
	return "", fmt.Errorf("the authorization server accepts no client secret, only %.200q",
		supported)
}

// postForm sends a form to an endpoint of an authorization server, as a client that authenticates
// with one of the supported methods. The caller closes the body of the response.
func (s *Server) postForm(ctx context.Context, endpoint string, client Client, issuer string,
	supported []string, form url.Values) (*http.Response, error) {
	method, err := authenticate(client, issuer, supported, form)
	if err != nil {
		return nil, err
	}
	if method != methodBasic {
		form.Set("client_id", client.ID)
	}
	if method == methodPost {
		form.Set("client_secret", client.Secret)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint,
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	if method == methodBasic {
		request.SetBasicAuth(url.QueryEscape(client.ID), url.QueryEscape(client.Secret))
	}
	return s.o.HTTP.Do(request)
}

// errorCode returns the code of an error if it can be shown: others wrote it.
func errorCode(code string) string {
	if len(code) > 60 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	return code
}

// clientAssertion returns a JWT that authenticates the client (RFC 7523).
func clientAssertion(client Client, issuer string) (string, error) {
	key, err := privateKey(client.Key)
	if err != nil {
		return "", err
	}
	algorithm, err := signatureAlgorithm(key)
	if err != nil {
		return "", err
	}
	now := time.Now()
	token, err := jwt.NewBuilder().Issuer(client.ID).Subject(client.ID).
		Audience([]string{issuer}).JwtID(rand.Text()).IssuedAt(now).
		Expiration(now.Add(assertionTime)).Build()
	if err != nil {
		return "", err
	}
	signed, err := jwt.Sign(token, jwt.WithKey(algorithm, key))
	return string(signed), err
}

// CheckKey returns an error if a private key cannot sign client assertions. The error does not
// quote the key.
func CheckKey(key []byte) error {
	parsed, err := privateKey(key)
	if err == nil {
		_, err = signatureAlgorithm(parsed)
	}
	return err
}

func privateKey(content []byte) (jwk.Key, error) {
	pem := strings.HasPrefix(strings.TrimSpace(string(content)), "-----BEGIN")
	key, err := jwk.ParseKey(content, jwk.WithPEM(pem))
	if err != nil {
		return nil, errors.New("the private key of the client is neither PEM nor JWK")
	}
	if private, err := jwk.IsPrivateKey(key); err != nil || !private {
		return nil, errors.New("the key of the client is not a private key")
	}
	return key, nil
}

// signatureAlgorithm returns the algorithm that the key names, or the usual one for its type.
func signatureAlgorithm(key jwk.Key) (jwa.SignatureAlgorithm, error) {
	if a, ok := key.Algorithm(); ok {
		if named, ok := a.(jwa.SignatureAlgorithm); ok {
			return named, nil
		}
	}
	var curve jwa.EllipticCurveAlgorithm
	if k, ok := key.(interface {
		Crv() (jwa.EllipticCurveAlgorithm, bool)
	}); ok {
		curve, _ = k.Crv()
	}
	switch {
	case key.KeyType() == jwa.RSA():
		return jwa.RS256(), nil
	case curve == jwa.Ed25519():
		return jwa.EdDSA(), nil
	case curve == jwa.P256():
		return jwa.ES256(), nil
	case curve == jwa.P384():
		return jwa.ES384(), nil
	case curve == jwa.P521():
		return jwa.ES512(), nil
	}
	return jwa.SignatureAlgorithm{}, errors.New("keys of this type cannot sign client assertions")
}
