package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/spf13/cobra"

	"gatekit/core/config"
)

var (
	//go:embed template/policy.rego
	policyTemplate string
	//go:embed template/policy_test.rego
	policyTestTemplate string
)

// templateName is the name of the policy in the template.
const templateName = "policy_name"

func (p *program) policyNew() *cobra.Command {
	var path, folder string
	c := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a new policy and its tests",
		Long: `New writes NAME.rego, a policy for you to change, and NAME_test.rego, with tests that
pass. It writes both into the first folder in the list files of [policy]. Without such a folder, it
writes them into the folder policies in the working folder. New never overwrites a file.`,
		Example: `  gatekit policy new no_deletes
  gatekit policy new no_deletes --folder /etc/gatekit/policies`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("new needs one argument, the name of the policy")
			}
			return checkPolicyName(args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			used := true
			if folder == "" {
				folder, used = policyFolder(path)
			}
			files, err := writePolicy(folder, args[0])
			if err != nil {
				return err
			}
			for _, f := range files {
				fmt.Fprintln(cmd.OutOrStdout(), "wrote", displayPath(f))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "try it: gatekit policy test %s\n",
				displayPath(files[0]))
			if !used {
				fmt.Fprintf(cmd.OutOrStdout(),
					"activate it: in gatekit.toml, add %[1]q to files in [policy]\n",
					displayPath(folder))
			}
			return nil
		},
	}
	configFlag(c, &path)
	c.Flags().StringVar(&folder, "folder", "", "`folder` to write into")
	return c
}

var policyName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func checkPolicyName(name string) error {
	if !policyName.MatchString(name) || strings.HasSuffix(name, "_test") {
		return fmt.Errorf("%q is not a valid policy name: as the name of a Rego package, it must "+
			"start with a-z, contain only a-z, 0-9 and _, and not end with _test", name)
	}
	if name == "input" || name == "data" {
		return fmt.Errorf("%q is not a valid policy name: it is a reserved word of Rego", name)
	}
	if _, err := ast.ParseModuleWithOpts(name, strings.ReplaceAll(policyTestTemplate, templateName,
		name), ast.ParserOptions{RegoVersion: ast.RegoV1}); err != nil {
		return fmt.Errorf("%q is not a valid policy name: it is a reserved word of Rego", name)
	}
	return nil
}

// policyFolder returns the first folder of policies in the configuration, and true. If there is no
// such folder, or no readable configuration, it returns the default folder and false: Gatekit reads
// policies from that folder only when the configuration names it.
func policyFolder(path string) (folder string, used bool) {
	if path == "" {
		path, _ = findConfig()
	}
	if c, err := config.Load(path); err == nil && c.Policy != nil {
		for _, f := range c.Policy.Files {
			if info, err := os.Stat(f); err == nil && info.IsDir() {
				return f, true
			}
		}
	}
	return "policies", false
}

// writePolicy writes a policy and its tests. If it fails, it removes the files that it wrote.
func writePolicy(folder, name string) ([]string, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	var written []string
	for _, f := range []struct{ name, text string }{{name + ".rego", policyTemplate},
		{name + "_test.rego", policyTestTemplate}} {
		path := filepath.Join(folder, f.name)
		err := create(path, strings.ReplaceAll(f.text, templateName, name))
		if err == nil {
			written = append(written, path)
			continue
		}
		for _, w := range written {
			err = errors.Join(err, os.Remove(w))
		}
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("%s exists already\nhint: choose another name, or move the "+
				"file away", displayPath(path))
		}
		return nil, err
	}
	return written, nil
}

// create writes a new file.
func create(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
