package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gatekit/policies"
)

// loadSide compiles the policies that an argument of gatekit policy diff names. The parameter
// config is the configuration file that git:REV means, or "" for the default one. Effects are
// enforced in the result, also if the mode of a configuration is shadow.
func (p *program) loadSide(ctx context.Context, arg, config string) (*policies.Stage, error) {
	name := arg
	if revision, ok := strings.CutPrefix(arg, "git:"); ok {
		dir, err := os.MkdirTemp("", "gatekit-diff-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		rev, path, hasPath := strings.Cut(revision, ":")
		from := "."
		if !hasPath {
			if path = config; path == "" {
				if path, err = findConfig(); err != nil {
					return nil, err
				}
			}
			from, path = filepath.Dir(path), filepath.Base(path)
		}
		// the whole folder, because a configuration names other files in it
		if err := extractRevision(ctx, from, rev, dir); err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
		if path = filepath.FromSlash(path); !filepath.IsLocal(path) {
			return nil, fmt.Errorf("%s: the path leads out of the working folder\nhint: write a "+
				"path below the folder in which you call gatekit", arg)
		}
		name = filepath.Join(dir, path)
		if _, err := os.Stat(name); err != nil {
			return nil, fmt.Errorf("%s: the revision has no file or folder %s", arg, path)
		}
	}
	o := policies.Options{Files: []string{name}}
	if filepath.Ext(name) == ".toml" {
		var err error
		if _, o, err = p.loadPolicyOptions(ctx, name); err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
	}
	o.Shadow, o.ReuseDecisions = false, true
	stage, err := policies.Load(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arg, err)
	}
	return stage, nil
}

// maxRevisionBytes bounds the files of a git revision.
const maxRevisionBytes = 256 << 20

// extractRevision writes the files that a git revision has in the folder from, to the folder dir.
// Links are left out.
func extractRevision(ctx context.Context, from, rev, dir string) error {
	if rev == "" || strings.HasPrefix(rev, "-") {
		return errors.New("there is no revision after git:\nhint: write git:HEAD, git:v1.2 or " +
			"git:main:policies")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	git := exec.CommandContext(ctx, "git", "-C", from, "archive", "--format=tar", rev)
	var problem bytes.Buffer
	git.Stderr = &problem
	out, err := git.StdoutPipe()
	if err != nil {
		return err
	}
	if err := git.Start(); err != nil {
		return fmt.Errorf("start git: %w\nhint: revisions are read with the program git", err)
	}
	err = extractFiles(tar.NewReader(io.LimitReader(out, maxRevisionBytes)), dir)
	cancelled := err != nil
	if cancelled {
		cancel() // git may still write
	}
	if waitErr := git.Wait(); waitErr != nil && (!cancelled || problem.Len() > 0) {
		err = fmt.Errorf("git archive %s: %s", rev, cmp.Or(strings.TrimSpace(problem.String()),
			waitErr.Error()))
	}
	return err
}

// extractFiles writes the regular files of an archive to a folder.
func extractFiles(archive *tar.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("the files of the revision are larger than %d bytes, or git failed",
				maxRevisionBytes)
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name := filepath.FromSlash(h.Name)
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, archive)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}
