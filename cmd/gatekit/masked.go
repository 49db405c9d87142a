package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"gatekit/core/config"
	"gatekit/core/pipeline"
)

// masked replaces secrets of the configuration in what Gatekit prints, logs and records. After a
// reload it also replaces those of the configurations before, because a message about them may come
// late. The zero value replaces nothing.
type masked struct {
	mu      sync.RWMutex
	configs []*config.Config // the newest last
}

// maxMasked bounds the configurations whose secrets are replaced.
const maxMasked = 8

// add adds the secrets of a configuration.
func (m *masked) add(c *config.Config) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.configs = append(m.configs, c)
	if len(m.configs) > maxMasked {
		m.configs = m.configs[1:]
	}
}

// mask returns text without secrets.
func (m *masked) mask(text string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, c := range m.configs {
		text = c.Mask(text)
	}
	return text
}

// logOptions returns the options of Gatekit's own log.
func (p *program) logOptions() *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: &p.level, ReplaceAttr: func(_ []string,
		a slog.Attr) slog.Attr {
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindString:
			return slog.String(a.Key, p.masked.mask(v.String()))
		case slog.KindAny:
			switch v := v.Any().(type) {
			case error:
				return slog.String(a.Key, p.masked.mask(v.Error()))
			case fmt.Stringer:
				return slog.String(a.Key, p.masked.mask(v.String()))
			}
		}
		return a
	}}
}

// maskedRecorder replaces secrets of the configuration in the reasons and errors of records.
type maskedRecorder struct {
	pipeline.Recorder
	masked *masked
}

// Record implements pipeline.Recorder.
func (r maskedRecorder) Record(ctx context.Context, o pipeline.Outcome) (uint64, error) {
	if o.Reason != "" {
		o.Reason = r.masked.mask(o.Reason)
	}
	if o.Err != nil {
		if text := o.Err.Error(); r.masked.mask(text) != text {
			o.Err = errors.New(r.masked.mask(text))
		}
	}
	return r.Recorder.Record(ctx, o)
}
