package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"gatekit/core/config"
	"gatekit/core/display"
	"gatekit/core/shared"
	"gatekit/policies"
)

// Bounds, in bytes, of the texts that approve prints. The reason has the same bound in the question
// to a client's user.
const (
	maxApprovalName   = 200
	maxApprovalReason = 500
)

// approvals returns the approvals of requests to the servers of the configuration c. A caller that
// only lists or approves requests may pass nil for c. The approvals are files in the state folder
// of the user. So all Gatekit processes of this user share them.
func approvals(c *config.Config) (*policies.Approvals, error) {
	dir, err := stateFolder()
	if err != nil {
		return nil, fmt.Errorf("find the folder of pending approvals: %w", err)
	}
	a := &policies.Approvals{Dir: filepath.Join(dir, "approvals")}
	if c == nil {
		return a, nil
	}
	a.Log = realPath(c.Audit.File)
	if c.Audit.Key != "" {
		a.LogKey = realPath(c.Audit.Key)
	}
	a.Servers = serverIdentities(c)
	return a, nil
}

// serverIdentities returns the URL or the command of each server, by its name.
func serverIdentities(c *config.Config) map[string]string {
	identities := map[string]string{}
	for _, s := range c.Servers {
		identities[s.Name] = fmt.Sprintf("%q", append([]string{s.URL, s.Command}, s.Args...))
	}
	return identities
}

// sharingConfig has the state that the replicas of a configuration share.
type sharingConfig struct {
	config    *config.Config
	state     shared.Store
	approvals *policies.Approvals // the requests in state
	close     func()
}

// openSharing connects to the state of the configuration at path. It returns nil if there is no
// configuration, or one without [shared].
func openSharing(cmd *cobra.Command, path string) (*sharingConfig, error) {
	c, err := loadConfig(path)
	switch {
	case err != nil && path != "":
		return nil, err
	case errors.Is(err, errNoConfig):
		return nil, nil
	case err != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: what replicas share is left out: %v\n", err)
		return nil, nil
	case c.Shared == nil:
		return nil, nil
	}
	state, err := openState(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	return &sharingConfig{c, state, sharedApprovals(c, state), state.Close}, nil
}

func (p *program) approve() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "approve [ID]",
		Short: "Approve a denied request, or list the requests that wait for approval",
		Long: `When a policy requires approval (effect ask) and the client cannot ask its user,
Gatekit denies the request and names the command that approves it. An approval is valid for one
request: the client must make the same request again within ten minutes, with the same principal,
server, tool and values. Only the user who runs Gatekit can approve.

Without ID, approve lists the requests and the values that each request sends to the server. Names
and strings are cut after 200 bytes, reasons after 500. Passwords, keys and tokens are masked.

The process that denied the request stores the approval and records it in its audit log. If this
process has ended, approve itself writes the record. Without a record, nothing is approved.

If the configuration has [shared], a request can be approved beside any replica, and retried at any
other one. The approval is recorded in the log of the replica that approve runs beside.`,
		Example: `  gatekit approve
  gatekit approve 7rkqkahsx3jdwsmlqxjgkbz2ze`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sharing, err := openSharing(cmd, path)
			if err != nil {
				return err
			}
			if sharing != nil {
				defer sharing.close()
			}
			if len(args) == 1 {
				r, err := approveByID(args[0], sharing)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "approved once, valid until %s: %s\n%s",
					r.Expires.Format(time.TimeOnly), describeApproval(r), valuesLine(r))
				return nil
			}
			a, err := approvals(nil)
			if err != nil {
				return err
			}
			waiting, err := a.List()
			if err == nil && sharing != nil {
				var more []policies.PendingApproval
				more, err = sharing.approvals.List()
				waiting = append(waiting, more...)
			}
			if err != nil {
				return err
			}
			if len(waiting) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no request waits for approval")
				return nil
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, r := range waiting {
				state := "pending"
				if r.Approved {
					state = "approved"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\tuntil %s\n%s", r.ID, state, describeApproval(r),
					display.Quote(r.Reason, maxApprovalReason), r.Expires.Format(time.TimeOnly),
					valuesLine(r))
			}
			return w.Flush()
		},
	}
	configFlag(c, &path)
	return c
}

// valuesLine returns a line with the values that a request sends to the server. It returns "" if
// the request sends none.
func valuesLine(r policies.PendingApproval) string {
	if r.Values == "" {
		return ""
	}
	return "    sends " + oneLine(r.Values) + "\n"
}

// describeApproval describes a request for a terminal. It escapes and cuts the names in the
// request, because they come from a client.
func describeApproval(r policies.PendingApproval) string {
	text := display.EscapeLine(r.Method, maxApprovalName) + " " +
		display.Quote(r.Name, maxApprovalName) + " at " +
		display.EscapeLine(r.Server, maxApprovalName)
	if r.Principal != "" {
		text += " by " + display.Quote(r.Principal, maxApprovalName)
	}
	return text
}
