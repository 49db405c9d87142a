package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"gatekit/core/config"
	"gatekit/core/privatefiles"
	"gatekit/transport/valkey"
)

const (
	epochFile     = "epoch.json"
	maxEpochBytes = 4 << 10
	epochInterval = time.Second // between two looks at the epoch
)

// epochKeeper writes to disk which epoch of the shared state this replica knows, for its next
// process. Without that, nobody would notice that the state was lost while no replica ran: stops
// and revocations would end, and sessions would have no labels.
type epochKeeper struct {
	store     *valkey.Store
	folder    privatefiles.Folder
	log       *slog.Logger
	following *background

	kept    valkey.Epoch // is on disk
	failing bool         // the last write failed, which was logged
}

// epochFolder returns the folder of the epoch that the process with this configuration knows.
func epochFolder(c *config.Config) (privatefiles.Folder, error) {
	dir, err := stateFolder()
	if err != nil {
		return privatefiles.Folder{}, fmt.Errorf("find the folder of the epoch: %w", err)
	}
	sum := sha256.Sum256([]byte(realPath(c.Audit.File)))
	return privatefiles.Folder{Path: filepath.Join(dir, "shared", hex.EncodeToString(sum[:16])),
		Danger: "hide that shared state was lost"}, nil
}

// readEpoch returns the epoch that an earlier process has kept, or the zero Epoch if none has.
func readEpoch(c *config.Config) (e valkey.Epoch, err error) {
	folder, err := epochFolder(c)
	if err != nil { // then stops do not survive a restart, either
		return e, nil
	}
	var b []byte
	if err = folder.Check(); err == nil {
		b, err = folder.Read(epochFile, maxEpochBytes)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		return e, fmt.Errorf("read what this replica knew of the shared state: %w\nhint: if the "+
			"server has kept its data, remove %s", err, filepath.Join(folder.Path, epochFile))
	}
	return e, nil
}

// openEpochKeeper keeps the epoch of the shared state from now on.
func (g *gateway) openEpochKeeper(ctx context.Context) error {
	if g.shared == nil {
		return nil
	}
	folder, err := epochFolder(g.active.config)
	if err != nil {
		g.log.Warn("no state folder: a loss of shared state while no replica runs is not noticed",
			"error", err)
		return nil
	}
	k := &epochKeeper{store: g.shared, folder: folder, log: g.log}
	k.keep()
	k.following = startBackground(ctx, k.follow)
	g.epoch = k
	return nil
}

func (g *gateway) closeEpochKeeper() error {
	if k := g.epoch; k != nil {
		k.following.stop()
		k.keep()
	}
	return nil
}

// follow keeps the epoch until ctx ends.
func (k *epochKeeper) follow(ctx context.Context) {
	repeat(ctx, epochInterval, k.keep)
}

// keep writes the epoch to disk if it has changed. One goroutine at a time calls it.
func (k *epochKeeper) keep() {
	e := k.store.Epoch()
	if e == k.kept {
		return
	}
	b, err := json.Marshal(e)
	if err == nil {
		err = k.folder.Create()
	}
	if err == nil {
		err = k.folder.Write(epochFile, b)
	}
	if err == nil {
		k.kept = e
	} else if !k.failing {
		k.log.Error("what this replica knows of the shared state is not kept: a loss while no "+
			"replica runs is not noticed", "error", err)
	}
	k.failing = err != nil
}
