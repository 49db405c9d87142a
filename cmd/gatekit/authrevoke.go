package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/transport/auth"
)

// openRevocations returns the revoked principals of the Gatekit that writes a log.
func openRevocations(log string) (*auth.Revocations, error) {
	dir, err := stateFolder()
	if err != nil {
		return nil, fmt.Errorf("find the folder of revocations: %w", err)
	}
	sum := sha256.Sum256([]byte(realPath(log)))
	return auth.OpenRevocations(filepath.Join(dir, "revoked", hex.EncodeToString(sum[:16])))
}

// recordRevocation records that a principal is revoked, or no longer revoked.
func recordRevocation(events *pipeline.Pipeline, principal, action, reason string,
	err error) error {
	return events.RecordEvent(context.Background(),
		&mcp.Message{Principal: identity.FromID(principal)}, action, reason, err)
}

// revokeRecorded records a revocation, and then stores it.
func revokeRecorded(s *auth.Revocations, r auth.Revocation, events *pipeline.Pipeline) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if err := recordRevocation(events, r.Principal, "revoke", fmt.Sprintf("by gatekit auth "+
		"revoke, user id %d: %s", r.User, r.Reason), nil); err != nil {
		return fmt.Errorf("record the revocation: %w", err)
	}
	err := s.Add(r)
	if err != nil && !s.Has(r.Principal) { // an earlier revocation still holds
		return errors.Join(err, recordRevocation(events, r.Principal, "readmit",
			"the revocation was not stored", err))
	}
	return err
}

// readmitRecorded records that a revocation ends, and then removes it.
func readmitRecorded(s *auth.Revocations, principal string, events *pipeline.Pipeline) error {
	if err := recordRevocation(events, principal, "readmit", fmt.Sprintf("by gatekit auth revoke "+
		"remove, user id %d", os.Geteuid()), nil); err != nil {
		return fmt.Errorf("record the removal: %w", err)
	}
	if err := s.Remove(principal); err != nil {
		return errors.Join(err, recordRevocation(events, principal, "revoke",
			"the revocation was not removed", err))
	}
	return nil
}

// revoke revokes a principal in a running Gatekit, and ends what it has open.
func (s *controlServer) revoke(r *auth.Revocation) error {
	if s.revocations == nil || r == nil {
		return errNoAuthentication(s.config.File)
	}
	r.User, r.Shared = os.Geteuid(), false
	err := s.sharedRevocations.revoke(context.Background(), r.Principal, func() error {
		return revokeRecorded(s.revocations, *r, s.gateway.recording.events)
	})
	if err == nil || s.revocations.Has(r.Principal) { // perhaps the others do not know it yet
		s.endRevoked(r.Principal)
	}
	return err
}

// endRevoked ends what a revoked principal has open in this process.
func (s *controlServer) endRevoked(principal string) {
	if clients := s.gateway.clients.Load(); clients != nil {
		clients.EndPrincipal(principal)
	}
	if s.publicConsole != nil {
		s.publicConsole.EndPrincipal(principal)
	}
}

// readmit removes a revocation in a running Gatekit.
func (s *controlServer) readmit(principal string) error {
	if s.revocations == nil {
		return errNoAuthentication(s.config.File)
	}
	if !s.revocations.Has(principal) {
		return errNotRevoked(principal)
	}
	return s.sharedRevocations.readmit(context.Background(), principal, func() error {
		return readmitRecorded(s.revocations, principal, s.gateway.recording.events)
	})
}

func errNoAuthentication(file string) error {
	return fmt.Errorf("%s has no [listen.auth]: no client is authenticated, so no principal can "+
		"be revoked", file)
}

func errNotRevoked(principal string) error {
	return fmt.Errorf("%s is not revoked\nhint: gatekit auth revoke lists the revoked principals",
		display.Quote(principal, maxApprovalName))
}

// revokeOptions holds the flags of gatekit auth revoke.
type revokeOptions struct {
	path   string
	reason string
	asJSON bool
}

func authRevoke() *cobra.Command {
	o := &revokeOptions{}
	c := &cobra.Command{
		Use:   "revoke [PRINCIPAL]",
		Short: "Refuse a principal from now on, or list those that are refused",
		Long: `Revoke refuses a principal at once, for example when its device is lost. Its streams
and sessions end, and its calls are cancelled. Its access tokens are refused if they were issued
before, or within the skew of [listen.auth] after. A token from a later login counts again: to keep
the user out, also lock the account at the issuer. A static token or a certificate stays refused
until "revoke remove".

PRINCIPAL is the id in the audit log: ISSUER#SUBJECT, token:SUBJECT or cert:NAME. Without it, revoke
lists the revocations. They are recorded in the audit log (actions revoke and readmit). A running
Gatekit makes the change itself; without one, it holds from the next start. With [shared], it holds
in all replicas within a second.`,
		Example: `  gatekit auth revoke https://login.example#ann --reason "laptop lost"
  gatekit auth revoke
  gatekit auth revoke remove token:ci`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return o.list(cmd)
			}
			r := auth.Revocation{Principal: args[0], At: time.Now(), Reason: o.reason,
				User: os.Geteuid()}
			if err := r.Validate(); err != nil {
				return err
			}
			err := o.change(cmd, controlRequest{Command: "revoke", Revocation: &r},
				func(s *auth.Revocations, sharing *sharedRevocations,
					events *pipeline.Pipeline) error {
					return sharing.revoke(cmd.Context(), r.Principal, func() error {
						return revokeRecorded(s, r, events)
					})
				})
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "revoked %s\n", display.Quote(r.Principal,
					maxApprovalName))
			}
			return err
		},
	}
	configFlag(c, &o.path)
	c.Flags().StringVar(&o.reason, "reason", "", "`why` the principal is revoked; it is recorded")
	c.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object for each revocation")
	c.AddCommand(authRevokeRemove())
	return c
}

func authRevokeRemove() *cobra.Command {
	o := &revokeOptions{}
	c := &cobra.Command{
		Use:   "remove PRINCIPAL",
		Short: "Let a revoked principal in again",
		Long: `Remove ends a revocation. Tokens of the principal that have not expired count
again.`,
		Example: `  gatekit auth revoke remove token:ci`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.change(cmd, controlRequest{Command: "readmit", ID: args[0]},
				func(s *auth.Revocations, sharing *sharedRevocations,
					events *pipeline.Pipeline) error {
					if !s.Has(args[0]) {
						return errNotRevoked(args[0])
					}
					return sharing.readmit(cmd.Context(), args[0], func() error {
						return readmitRecorded(s, args[0], events)
					})
				})
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "no longer revoked: %s\n", display.Quote(args[0],
					maxApprovalName))
			}
			return err
		},
	}
	configFlag(c, &o.path)
	return c
}

// load reads the configuration, which must authenticate clients.
func (o *revokeOptions) load(cmd *cobra.Command) (*config.Config, error) {
	c, err := loadConfig(o.path)
	if err != nil {
		return nil, reportMistakes(cmd, err, o.asJSON)
	}
	if c.Listen.Auth == nil {
		return nil, errNoAuthentication(c.File)
	}
	return c, nil
}

// list prints the revocations.
func (o *revokeOptions) list(cmd *cobra.Command) error {
	c, err := o.load(cmd)
	if err != nil {
		return err
	}
	s, err := revocationsOf(cmd.Context(), c)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, r := range s.All() {
		if o.asJSON {
			if err := printJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", display.Quote(r.Principal, maxApprovalName),
			r.At.Local().Format(time.DateTime), display.Quote(r.Reason, maxApprovalReason))
	}
	if !o.asJSON && len(s.All()) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no principal is revoked")
	}
	return w.Flush()
}

// change sends a request to the process that writes the log of the configuration. If no such
// process runs, it calls do.
func (o *revokeOptions) change(cmd *cobra.Command, request controlRequest,
	do func(*auth.Revocations, *sharedRevocations, *pipeline.Pipeline) error) error {
	c, err := o.load(cmd)
	if err != nil {
		return err
	}
	_, err = callControl(c.Audit.File, request)
	if !errors.Is(err, errNoProcess) {
		return err
	}
	s, err := openRevocations(c.Audit.File)
	if err != nil {
		return err
	}
	state, closeState, err := dialShared(cmd.Context(), c)
	if err != nil {
		return err
	}
	defer closeState()
	return recordIn(c.Audit.File, c.Audit.Key, func(events *pipeline.Pipeline) error {
		sharing, err := openSharedRevocations(cmd.Context(), state, s, events,
			slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return do(s, sharing, events)
	})
}
