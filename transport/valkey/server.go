package valkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gatekit/core/shared"
)

// minVersion is the first version of the server whose scripts are refused as a whole.
const minVersion = 7

// UnsuitableError is the error for a server that answers, but must not be used. It also matches
// shared.ErrUnavailable.
type UnsuitableError struct {
	Address string
	Reasons []string
}

func (e *UnsuitableError) Error() string {
	return fmt.Sprintf("the server %s cannot keep shared state: %s", e.Address,
		strings.Join(e.Reasons, "; "))
}

// Unwrap returns shared.ErrUnavailable.
func (e *UnsuitableError) Unwrap() error { return shared.ErrUnavailable }

// Check returns an error if the server does not answer, or must not be used. Then the error is an
// *UnsuitableError.
func (s *Store) Check(ctx context.Context) error {
	_, err := s.info(ctx)
	return err
}

// info returns what the server says about itself, or an error if it must not be used.
func (s *Store) info(ctx context.Context) (map[string]string, error) {
	client, _, _ := s.state()
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return nil, s.unavailable(err)
	}
	info := parseInfo(text)
	if reasons := s.o.unsuitable(info); len(reasons) > 0 {
		return nil, &UnsuitableError{s.o.Address, reasons}
	}
	return info, nil
}

// Server describes a server.
type Server struct {
	Version  string
	Replicas int
}

// Probe returns what the server is, or an error if it cannot be used. Unlike Open, it writes
// nothing.
func Probe(ctx context.Context, o Options) (Server, error) {
	s, err := newStore(o)
	if err != nil {
		return Server{}, err
	}
	defer s.Close()
	info, err := s.info(ctx)
	if err == nil {
		err = s.checkPermissions(ctx)
	}
	if err != nil {
		return Server{}, err
	}
	version := info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		version = v
	}
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	return Server{version, replicas}, nil
}

// checkPermissions returns an error unless the user may run scripts that read keys of the store.
func (s *Store) checkPermissions(ctx context.Context) error {
	client, _, _ := s.state()
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	err := client.Do(ctx, client.B().Eval().Script(`return redis.call("EXISTS", KEYS[1])`).
		Numkeys(1).Key(s.epochKey()).Build()).Error()
	if err != nil {
		return s.unavailable(err)
	}
	return nil
}

// advice returns what to do about an error of the server that a change of the configuration ends,
// or "".
func (o *Options) advice(text string) string {
	switch code, _, _ := strings.Cut(text, " "); code {
	case "WRONGPASS", "NOAUTH":
		return "; check shared.user and shared.password"
	case "NOPERM":
		return fmt.Sprintf("; the user needs ~%s* +@all -@dangerous +info", o.Prefix)
	}
	return ""
}

// parseInfo returns the fields of the server's answer to INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// unsuitable returns why a server must not be used. A field that is missing is a reason, too.
func (o *Options) unsuitable(info map[string]string) (reasons []string) {
	refuse := func(format string, a ...any) { reasons = append(reasons, fmt.Sprintf(format, a...)) }
	number := func(name string) (int, error) {
		text, _, _ := strings.Cut(info[name], ".")
		n, err := strconv.Atoi(text)
		if err != nil {
			err = errors.New(name + " is not known")
		}
		return n, err
	}
	if n, err := number("redis_version"); err != nil || n < minVersion {
		refuse("it has the version %q, and at least %d.0 is needed", info["redis_version"],
			minVersion)
	}
	switch mode := cmp.Or(info["redis_mode"], info["server_mode"]); mode { // Valkey has server_mode
	case "standalone":
	case "cluster":
		refuse("it runs in cluster mode, and one primary with replicas is needed")
	default:
		refuse("its mode is %q, and \"standalone\" is needed", mode)
	}
	if role := info["role"]; role != "master" {
		refuse("its role is %q, and a primary is needed", role)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		refuse("it forgets keys when its memory is full; set maxmemory-policy noeviction, not %q",
			policy)
	}
	switch isKept := info["aof_enabled"] == "1"; {
	case isKept:
	case o.Durable:
		refuse("it forgets tokens when it restarts; set appendonly yes")
	case o.Copies == 0:
		refuse("it forgets everything when it restarts; set appendonly yes, or let replicas have " +
			"a copy (shared.copies)")
	}
	if n, err := number("connected_slaves"); err != nil || n < o.Copies {
		refuse("it has %s replicas, and shared.copies = %d", info["connected_slaves"], o.Copies)
	}
	return reasons
}
