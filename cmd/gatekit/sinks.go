package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gatekit/audit"
	"gatekit/audit/format"
	"gatekit/audit/sink"
	"gatekit/core/config"
	"gatekit/core/tlsconfig"
)

// sinkDrain limits how long a stop waits for sinks. After the next start, the sinks send the
// records that remain.
const sinkDrain = 5 * time.Second

// sinks holds the sinks of a configuration.
type sinks struct {
	log     *slog.Logger
	pending []pendingSink

	mu     sync.Mutex // guards active
	active []*sink.Sink

	stop context.CancelFunc // nil before start
	runs sync.WaitGroup
}

// pendingSink is a sink that does not send yet.
type pendingSink struct {
	config.Sink
	to sink.Receiver
}

// newSinks returns the sinks of a configuration, with their receivers. It opens no connection.
func newSinks(c config.Audit, log *slog.Logger) (*sinks, error) {
	s := &sinks{log: log}
	for _, c := range c.Sinks {
		to, err := newReceiver(c)
		if err != nil {
			s.abandon()
			return nil, fmt.Errorf("audit sink %q: %w", c.Name, err)
		}
		s.pending = append(s.pending, pendingSink{c, to})
	}
	return s, nil
}

// abandon closes the receivers of sinks that were not started.
func (s *sinks) abandon() {
	for _, m := range s.pending {
		m.to.Close()
	}
}

// The largest lines that sinks send over the network, in bytes. Receivers of syslog accept 8 KiB
// including the header. The second limit is for otlp and webhook.
const (
	maxSyslogLine  = 7900
	maxNetworkLine = 256 << 10
)

// newReceiver returns the receiver of a sink. An unusable certificate or key is an error.
func newReceiver(c config.Sink) (sink.Receiver, error) {
	o := format.Options{Version: version(), Colour: c.Kind == "stderr" && isTerminal(os.Stderr),
		EscapeUnprintable: c.Kind == "stderr"}
	switch c.Kind {
	case "syslog":
		o.MaxBytes = maxSyslogLine
	case "otlp", "webhook":
		o.MaxBytes = maxNetworkLine
	}
	form, err := format.New(c.Format, o)
	if err != nil {
		return nil, err
	}
	secure, err := tlsconfig.Files{CA: c.CA, Cert: c.Cert, Key: c.CertKey}.Load()
	if err != nil {
		return nil, err
	}
	switch c.Kind {
	case "file":
		return sink.NewFile(sink.FileOptions{Path: c.Path, Encoder: form,
			SegmentBytes: int64(c.SegmentBytes), KeepFiles: c.KeepFiles}), nil
	case "stderr":
		return sink.NewWriter(os.Stderr, form), nil
	case "syslog":
		return sink.NewSyslog(sink.SyslogOptions{URL: c.URL, TLS: secure, Facility: c.Facility,
			Encoder: form})
	case "otlp":
		return sink.NewOTLP(sink.OTLPOptions{URL: c.URL, Protocol: c.Protocol,
			Headers: revealed(c.Headers), TLS: secure, Encoder: form, Version: version()})
	case "webhook":
		return sink.NewWebhook(sink.WebhookOptions{URL: c.URL, Headers: revealed(c.Headers),
			SigningKey: string(c.SigningKey), TLS: secure, Encoder: form})
	}
	return nil, fmt.Errorf("unknown kind %q", c.Kind) // the configuration was checked
}

// cursorFile returns the path of a file that stores how much of the log a sink has sent. A sink of
// kind stderr has no such file, so it does not send the records of earlier processes.
func cursorFile(log string, c config.Sink) string {
	if c.Kind == "stderr" {
		return ""
	}
	return filepath.Join(log+".sinks", c.Name+".json")
}

// start starts the sinks. Each sink first sends the records in the log, and then each new record.
// When a sink fails or works again, it calls event.
func (s *sinks) start(file string, record *audit.Log, event func(action, reason string,
	err error)) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.pending {
		running := sink.New(sink.Options{
			Name:        m.Name,
			Receiver:    m.to,
			LogFile:     file,
			Committed:   record.Committed,
			CursorFile:  cursorFile(file, m.Sink),
			Records:     slices.Contains(m.Send, "records"),
			Checkpoints: slices.Contains(m.Send, "checkpoints"),
			Logger:      s.log,
			RecordEvent: event,
		})
		s.active = append(s.active, running)
		s.runs.Go(func() {
			if err := running.Run(ctx, sinkDrain); err != nil {
				s.log.Warn("audit sink failed", "error", err)
			}
		})
	}
}

// running returns the sinks that were started.
func (s *sinks) running() []*sink.Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active)
}

// anchor sends a checkpoint to the sinks that take checkpoints. It does not wait for these sinks.
func (s *sinks) anchor(checkpoint []byte) {
	for _, running := range s.running() {
		running.QueueCheckpoint(checkpoint)
	}
}

// close waits until the sinks have sent all records in the log, but not longer than sinkDrain. The
// log must already be closed.
func (s *sinks) close() {
	if s.stop == nil {
		s.abandon()
		return
	}
	s.stop()
	s.runs.Wait()
}

// describeSink describes a sink without the parts that may be secret, such as the path of a URL.
func describeSink(c config.Sink) string {
	to := c.Kind
	switch u, err := url.Parse(c.URL); {
	case c.Kind == "file":
		to += " " + displayPath(c.Path)
	case c.Kind == "syslog":
		to += " " + c.URL
	case err == nil && u.Host != "":
		to += " " + u.Scheme + "://" + u.Host
	}
	return fmt.Sprintf("%s; %s, %s", to, strings.Join(c.Send, " and "), c.Format)
}

// checkSinks describes each sink, and reports the mistakes that can be found without sending
// anything.
func checkSinks(r *checkReport, cfg *config.Config) {
	for _, c := range cfg.Audit.Sinks {
		to, err := newReceiver(c)
		if err == nil {
			err = to.Close()
		}
		if err == nil && c.Kind == "file" {
			if err = checkWritable(c.Path); err != nil {
				err = fmt.Errorf("open %s: %w", displayPath(c.Path), err)
			}
		}
		if i, statErr := os.Stat(strings.TrimPrefix(c.URL, "unix://")); c.Kind == "syslog" &&
			strings.HasPrefix(c.URL, "unix://") && (statErr != nil || i.Mode()&os.ModeSocket == 0) {
			err = errors.Join(err, fmt.Errorf("%s is not a socket", c.URL))
		}
		if err != nil {
			r.fail("sink", c.Name, fmt.Errorf("audit sink: %w", err))
			continue
		}
		r.ok("sink", c.Name, "audit sink: "+describeSink(c))
	}
}
