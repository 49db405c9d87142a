package plugins

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/plugins/proto"
	"gatekit/transport/process"
)

// A request is not lost if its sender gives up while the host opens a stream for it. Lost requests
// count as requests without a verdict, so a sender could otherwise end the process.
func TestSenderGivesUpWhileAStreamIsOpened(t *testing.T) {
	running, err := process.Start(process.Command{Path: "/bin/sleep", Args: []string{"1000"},
		Stdout: os.Stderr, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		running.Signal(syscall.SIGKILL)
		<-running.Done()
	}()
	s := &Stage{spec: Spec{Timeout: time.Hour}}
	p := &pluginProcess{runner: &runner{process: running}, stageIDs: map[*Stage]uint32{s: 1},
		inFlight: proto.NewFairLimit(maxInFlight)}
	p.large, p.largest = newByteLimit(0)
	ctx, giveUp := context.WithCancel(t.Context())
	p.streams = newStreamPool(func(ctx context.Context) (connection, error) {
		giveUp()
		return nil, errors.New("no stream")
	})
	m := mcp.NewRequest("1", "tools/call", []byte(`{"name":"x"}`))
	_, _, err = p.inspect(ctx, m, []*Stage{s})
	if timedOut := (*timeoutError)(nil); !errors.As(err, &timedOut) {
		t.Errorf("got the error %v, want that the sender gave up", err)
	}
	_, _, err = p.inspect(t.Context(), m, []*Stage{s})
	if lost := (*lostError)(nil); !errors.As(err, &lost) {
		t.Errorf("got the error %v, want that the request was lost", err)
	}
}
