package service

import (
	"fmt"
	"log/slog"

	"github.com/open-policy-agent/opa/v1/logging"
)

// logger writes the log messages of OPA's components to Gatekit's log. It drops debug messages,
// because they contain headers. It logs all other messages at level debug: Client itself logs the
// messages that operators need.
type logger struct{ log *slog.Logger }

func (l logger) Debug(string, ...any)          {}
func (l logger) Info(format string, a ...any)  { l.log.Debug(fmt.Sprintf(format, a...)) }
func (l logger) Warn(format string, a ...any)  { l.log.Debug(fmt.Sprintf(format, a...)) }
func (l logger) Error(format string, a ...any) { l.log.Debug(fmt.Sprintf(format, a...)) }
func (l logger) GetLevel() logging.Level       { return logging.Info }
func (l logger) SetLevel(logging.Level)        {}

func (l logger) WithFields(fields map[string]any) logging.Logger {
	for k, v := range fields {
		l.log = l.log.With(k, v)
	}
	return l
}
