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

// sinkDrain bounds how long a stop waits for sinks; what they have not sent goes after the next
// start.
const sinkDrain = 5 * time.Second

// sinks are those of a configuration.
type sinks struct {
	log  *slog.Logger
	made []madeSink

	mu  sync.Mutex // held while all changes
	all []*sink.Sink

	stop context.CancelFunc // nil before start
	runs sync.WaitGroup
}

// madeSink is one that was made and sends nothing yet.
type madeSink struct {
	config.Sink
	to sink.Receiver
}

// newSinks makes what sinks send to. Nobody is called yet.
func newSinks(c config.Audit, log *slog.Logger) (*sinks, error) {
	s := &sinks{log: log}
	for _, c := range c.Sinks {
		to, err := newReceiver(c)
		if err != nil {
			s.abandon()
			return nil, fmt.Errorf("audit sink %q: %w", c.Name, err)
		}
		s.made = append(s.made, madeSink{c, to})
	}
	return s, nil
}

// abandon is for sinks that were never started.
func (s *sinks) abandon() {
	for _, m := range s.made {
		m.to.Close()
	}
}

// A line over the network is bounded, whatever a message held: receivers of syslog take 8 KiB with
// its header, others what is in a batch.
const (
	syslogLine  = 7900
	networkLine = 256 << 10
)

// newReceiver is what a sink sends to. A certificate or key that is none is an error.
func newReceiver(c config.Sink) (sink.Receiver, error) {
	o := format.Options{Version: version(), Colour: c.Kind == "stderr" && isTerminal(os.Stderr),
		EscapeUnprintable: c.Kind == "stderr"}
	switch c.Kind {
	case "syslog":
		o.MaxBytes = syslogLine
	case "otlp", "webhook":
		o.MaxBytes = networkLine
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
	return nil, fmt.Errorf("there is no kind %q", c.Kind) // the configuration was checked
}

// cursorFile says what was sent to a sink. Stderr has none: what was said there before is not said
// again.
func cursorFile(log string, c config.Sink) string {
	if c.Kind == "stderr" {
		return ""
	}
	return filepath.Join(log+".sinks", c.Name+".json")
}

// start has the sinks send what is in the log, and what comes. They report themselves as events, of
// which none is a message.
func (s *sinks) start(file string, record *audit.Log, event func(action, reason string,
	err error)) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.made {
		one := sink.New(sink.Options{
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
		s.all = append(s.all, one)
		s.runs.Go(func() {
			if err := one.Run(ctx, sinkDrain); err != nil {
				s.log.Warn("an audit sink has ended", "error", err)
			}
		})
	}
}

// running are those that were started.
func (s *sinks) running() []*sink.Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// anchor sends a checkpoint to the sinks that are for those. It does not wait.
func (s *sinks) anchor(checkpoint []byte) {
	for _, one := range s.running() {
		one.QueueCheckpoint(checkpoint)
	}
}

// close waits until what is in the log was sent, for a bounded time. The log is to be closed
// before.
func (s *sinks) close() {
	if s.stop == nil {
		s.abandon()
		return
	}
	s.stop()
	s.runs.Wait()
}

// describe says what a sink is, without what may be a secret: a path of a URL may.
func describe(c config.Sink) string {
	to := c.Kind
	switch u, err := url.Parse(c.URL); {
	case c.Kind == "file":
		to += " " + shown(c.Path)
	case c.Kind == "syslog":
		to += " " + c.URL
	case err == nil && u.Host != "":
		to += " " + u.Scheme + "://" + u.Host
	}
	return fmt.Sprintf("%s; %s, %s", to, strings.Join(c.Send, " and "), c.Format)
}

// checkSinks says what each sink is, and what keeps it from working that can be seen without
// sending anything.
func checkSinks(cfg *config.Config, ok, fail func(name, said string)) {
	for _, c := range cfg.Audit.Sinks {
		to, err := newReceiver(c)
		if err == nil {
			err = to.Close()
		}
		if err == nil && c.Kind == "file" {
			if err = recordable(c.Path); err != nil {
				err = fmt.Errorf("open %s: %w", shown(c.Path), err)
			}
		}
		if i, gone := os.Stat(strings.TrimPrefix(c.URL, "unix://")); c.Kind == "syslog" &&
			strings.HasPrefix(c.URL, "unix://") && (gone != nil || i.Mode()&os.ModeSocket == 0) {
			err = errors.Join(err, fmt.Errorf("%s is no socket", c.URL))
		}
		if err != nil {
			fail(c.Name, "audit sink: "+err.Error())
			continue
		}
		ok(c.Name, "audit sink: "+describe(c))
	}
}
