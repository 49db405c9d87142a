package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"sync"
	"time"

	"gatekit/core/identity"
	"gatekit/core/mcp"

	"github.com/go-json-experiment/json"
)

// headerForwarded is the header with the sealed envelope of a forwarded request.
const headerForwarded = "Gatekit-Forwarded"

// envelopeLifetime is how long an envelope is valid, and how much the clocks of two replicas may
// differ.
const envelopeLifetime = 30 * time.Second

// envelope describes a forwarded request to the owner.
type envelope struct {
	To      string     `json:"to"`    // address of the owner
	Via     string     `json:"via"`   // name of the replica that forwards
	State   string     `json:"state"` // of that replica
	Method  string     `json:"method"`
	Target  string     `json:"target"`  // path and query
	Session string     `json:"session"` // Mcp-Session-Id; "" if there is none
	Body    []byte     `json:"body"`    // SHA-256
	Time    time.Time  `json:"time"`
	Nonce   []byte     `json:"nonce"`
	User    *principal `json:"user"` // nil is the local user
	// what Options.Describe of the replica that forwards returned; empty most of the time
	About []byte `json:"about,omitempty"`
}

// principal is an identity.Principal in an envelope.
type principal struct {
	Method  identity.Method `json:"method"`
	Issuer  string          `json:"issuer"`
	Subject string          `json:"subject"`
	Client  string          `json:"client"`
	Scopes  []string        `json:"scopes"`
	Groups  []string        `json:"groups"`
	Claims  []byte          `json:"claims,omitempty"` // nil, and not empty, without claims
	Issued  time.Time       `json:"issued"`
	Expiry  time.Time       `json:"expiry"`
	Token   string          `json:"token"` // for the exchange at the user's issuer
}

func envelopeOf(p *identity.Principal) *principal {
	if p == nil {
		return nil
	}
	return &principal{Method: p.Method(), Issuer: p.Issuer(), Subject: p.Subject(),
		Client: p.Client(), Scopes: p.Scopes(), Groups: p.Groups(), Claims: p.Claims(),
		Issued: p.Issued(), Expiry: p.Expiry(), Token: p.Token()}
}

// identity returns the principal as the first replica authenticated it.
func (p *principal) identity() (*identity.Principal, error) {
	if p == nil {
		return nil, nil
	}
	opened, err := identity.New(identity.Attributes{Method: p.Method, Issuer: p.Issuer,
		Subject: p.Subject, Client: p.Client, Scopes: p.Scopes, Groups: p.Groups,
		Claims: p.Claims, Issued: p.Issued, Expiry: p.Expiry})
	if err == nil && p.Token != "" {
		opened = opened.WithToken(p.Token)
	}
	return opened, err
}

// seal returns the value of headerForwarded for a request. about describes this replica; nil for
// most requests.
func (r *Replica) seal(req *http.Request, owner string, body []byte,
	p *identity.Principal, about []byte) (string, error) {
	digest, nonce := sha256.Sum256(body), make([]byte, 16)
	rand.Read(nonce)
	plain, err := json.Marshal(envelope{To: owner, Via: r.o.Name, State: r.state(),
		Method: req.Method, Target: req.URL.RequestURI(),
		Session: req.Header.Get(mcp.HeaderSessionID), Body: digest[:], Time: time.Now(),
		Nonce: nonce, User: envelopeOf(p), About: about})
	if err != nil {
		return "", err
	}
	return base64.RawStdEncoding.EncodeToString(r.keys.forward.Seal(nil, nil, plain, nil)), nil
}

var (
	errNoEnvelope    = errors.New("the request has no envelope of a replica of this cluster")
	errOtherRequest  = errors.New("the envelope belongs to another request or another replica")
	errExpired       = errors.New("the envelope has expired, or the clocks of the replicas differ")
	errUsedEnvelope  = errors.New("the envelope was used before")
	errTooManyNonces = errors.New("too many requests were forwarded in a short time")
)

// open returns the envelope of a request that another replica forwards, after checking all of it
// but the digest of the body.
func (r *Replica) open(req *http.Request) (*envelope, error) {
	values := req.Header.Values(headerForwarded)
	if len(values) != 1 {
		return nil, errNoEnvelope
	}
	sealed, err := base64.RawStdEncoding.DecodeString(values[0])
	if err != nil {
		return nil, errNoEnvelope
	}
	plain, err := r.keys.forward.Open(nil, nil, sealed, nil)
	var e envelope
	if err != nil || json.Unmarshal(plain, &e) != nil {
		return nil, errNoEnvelope
	}
	sessions := req.Header.Values(mcp.HeaderSessionID)
	if e.To != r.o.Advertise || e.Method != req.Method || e.Target != req.URL.RequestURI() ||
		len(sessions) > 1 || e.Session != req.Header.Get(mcp.HeaderSessionID) {
		return nil, errOtherRequest
	}
	now := time.Now()
	if age := now.Sub(e.Time); age > envelopeLifetime || age < -envelopeLifetime {
		return nil, errExpired
	}
	return &e, r.nonces.use(string(e.Nonce), now)
}

// hasBody reports whether body is the body that the envelope was made for.
func (e *envelope) hasBody(body []byte) bool {
	digest := sha256.Sum256(body)
	return subtle.ConstantTimeCompare(digest[:], e.Body) == 1
}

// usedNonces remembers the nonces of envelopes for at least as long as an envelope can be valid.
// The zero value is empty.
type usedNonces struct {
	mu          sync.Mutex
	recent, old map[string]struct{}
	rotated     time.Time // when recent was begun
}

// maxNonces bounds the nonces of one map of usedNonces. Each has about 100 bytes.
const maxNonces = 1 << 20

// use returns an error if the nonce was used before.
func (u *usedNonces) use(nonce string, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	// An envelope from a clock that is ahead is valid for twice its lifetime.
	if u.recent == nil || now.Sub(u.rotated) >= 2*envelopeLifetime {
		u.old, u.recent, u.rotated = u.recent, map[string]struct{}{}, now
	}
	_, isRecent := u.recent[nonce]
	_, isOld := u.old[nonce]
	switch {
	case isRecent || isOld:
		return errUsedEnvelope
	case len(u.recent) >= maxNonces:
		return errTooManyNonces
	}
	u.recent[nonce] = struct{}{}
	return nil
}
