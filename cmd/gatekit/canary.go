package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"gatekit/core/atomicfile"
)

func (p *program) canary() *cobra.Command {
	c := &cobra.Command{
		Use:   "canary",
		Short: "Make values to plant, which raise an alarm when a message has them",
		Long: `A canary is a value that nobody has an honest reason to send, such as a key that
opens nothing. You plant it where an intruder or a misled model finds it. With [canary.NAME] in the
configuration, each message that has the value raises an alarm: a record, a line of the log and a
metric. See "Plant canaries" in docs/operations.md.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(canaryNew())
	return c
}

// canaryShapes are the shapes of tokens, in the order of the help.
var canaryShapes = []string{"aws-key", "generic", "url", "email"}

func canaryNew() *cobra.Command {
	var host, file string
	var asJSON bool
	shape := choice{value: "generic", allowed: canaryShapes}
	c := &cobra.Command{
		Use:   "new [NAME]",
		Short: "Make a random token to plant, and its table [canary.NAME]",
		Long: `New prints a new token, and the table that makes Gatekit find it. It changes no
configuration. The shapes of tokens are:
  - aws-key  20 characters like the id of an access key of AWS: in a file of credentials
  - generic  40 letters and digits, like an access token: in a .env file or a row of a database
  - url      a link to a document that does not exist: in a wiki, a mail or a prompt
  - email    an address that nobody has: in a list of contacts

Plant the token where no honest work reads it: work that does raises the alarm, too. It opens
nothing, and Gatekit never uses it. Of a link or an address, only the random part is searched for,
so that another host does not hide it.

With --file, new writes this part into a new file that only you can read, and the table names the
file. Without it, the table has the value itself: whoever can read the configuration can then avoid
the canary.

Put the table into gatekit.toml, run gatekit check, and restart or reload Gatekit. To see alarms,
run gatekit audit show --stage canary.`,
		Example: `  gatekit canary new backup-key --shape aws-key --file canaries/backup-key
  gatekit canary new --shape url --host wiki.corp.example --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("new takes one argument, the name of the canary, but got %q",
					args)
			}
			if len(args) == 1 && !canaryName.MatchString(args[0]) {
				return fmt.Errorf(`%q is not a valid canary name: it must start with a-z and `+
					`contain only a-z, 0-9 and "-"`, args[0])
			}
			if !hostName.MatchString(host) {
				return fmt.Errorf("--host %q is no host name, such as wiki.corp.example", host)
			}
			if strings.ContainsFunc(file, func(r rune) bool { return r < ' ' || r == '}' }) {
				return fmt.Errorf("--file %q must not contain control characters or }", file)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			made := newCanary(shape.value, host)
			if made.Name = made.Shape + "-" + strings.ToLower(rand.Text()[:4]); len(args) > 0 {
				made.Name = args[0]
			}
			source := made.Value
			if file != "" {
				err := atomicfile.Create(file, []byte(made.Value+"\n"))
				if errors.Is(err, fs.ErrExist) {
					return fmt.Errorf("%s exists already\nhint: each canary needs a file of its "+
						"own", displayPath(file))
				}
				if err != nil {
					return fmt.Errorf("write the value of the canary: %w", err)
				}
				source = "${file:" + file + "}"
			}
			made.Table = fmt.Sprintf("[canary.%s]\nvalues = [%q]\n", made.Name, source)
			return made.print(cmd.OutOrStdout(), asJSON)
		},
	}
	c.Flags().Var(&shape, "shape", "`shape` of the token: "+strings.Join(canaryShapes, ", "))
	c.Flags().StringVar(&host, "host", "intranet.example", "`host` in a url or email")
	c.Flags().StringVar(&file, "file", "", "new `file` for the value, which the table names")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

var (
	canaryName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
)

// newToken is a new canary as gatekit canary new --json prints it.
type newToken struct {
	Name  string `json:"name"`
	Shape string `json:"shape"`
	Token string `json:"token"` // what is planted
	Value string `json:"value"` // the part of the token that is searched for
	Table string `json:"table"` // for gatekit.toml
}

// newCanary returns a random token of the shape. The host is that of a url or email.
func newCanary(shape, host string) newToken {
	random := rand.Text() // 26 characters of A-Z and 2-7, which is 130 bits
	made := newToken{Shape: shape}
	switch shape {
	case "aws-key":
		made.Value = "AKIA" + random[:16]
		made.Token = made.Value
	case "url":
		made.Value = strings.ToLower(random)
		made.Token = "https://" + host + "/d/" + made.Value
	case "email":
		made.Value = "archive-" + strings.ToLower(random[:12])
		made.Token = made.Value + "@" + host
	default:
		made.Value = strings.ToLower(random + rand.Text()[:14])
		made.Token = made.Value
	}
	return made
}

func (n newToken) print(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		return e.Encode(n)
	}
	_, err := fmt.Fprintf(out, "token, to plant:\n  %s\n\nfor gatekit.toml:\n\n%s", n.Token,
		n.Table)
	return err
}
