package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"gatekit/audit"
	"gatekit/audit/telemetry"
	"gatekit/core/config"
	"gatekit/core/identity"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/transport"
	"gatekit/transport/connect"
)

// recording holds the parts of the gateway that record: the audit log, its sinks, and telemetry.
type recording struct {
	log       *slog.Logger
	telemetry *telemetry.Telemetry // nil if neither [admin] http nor [telemetry] url is set
	sinks     *sinks
	witnesses *witnesses
	audit     *audit.Log
	file      string             // of the audit log
	receipts  bool               // [audit] receipts, which changes only at a restart
	recorder  pipeline.Recorder  // writes to the audit log, and counts for telemetry
	events    *pipeline.Pipeline // records events, which are not messages
	started   bool               // the start was recorded, so the stop must be recorded, too

	masked          *masked // removes secrets of the configuration from records
	telemetryClosed sync.Once
}

// telemetryTimeout limits how long a stop waits for the last measurements to be sent.
const telemetryTimeout = 3 * time.Second

func (r *recording) openTelemetry(c *config.Config) (err error) {
	r.telemetry, err = openTelemetry(c, r.log)
	return err
}

// closeTelemetry sends the last measurements. If the collector does not accept them, closeTelemetry
// only logs this: no message depends on telemetry.
func (r *recording) closeTelemetry() error {
	if r.telemetry == nil {
		return nil
	}
	r.telemetryClosed.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), telemetryTimeout)
		defer cancel()
		if err := r.telemetry.Close(ctx); err != nil {
			r.log.Warn("last telemetry not exported", "error", err)
		}
	})
	return nil
}

// makeSinks makes the sinks and the witnesses. They send nothing before startSinks is called.
func (r *recording) makeSinks(c config.Audit) (err error) {
	if r.witnesses, err = newWitnesses(c, r.log); err == nil {
		r.sinks, err = newSinks(c, r.log)
	}
	return err
}

func (r *recording) startSinks(auditFile string) error {
	if err := r.witnesses.start(auditFile, r.sinkEvent); err != nil {
		return err
	}
	r.sinks.start(auditFile, r.audit, r.sinkEvent)
	return nil
}

// publishCheckpoint sends a checkpoint to the sinks and the witnesses. It does not wait for them.
func (r *recording) publishCheckpoint(checkpoint []byte) {
	r.sinks.anchor(checkpoint)
	r.witnesses.queue(checkpoint)
}

// closeSinks closes the sinks after they have sent the remaining records, and the witnesses after
// they were asked about the last checkpoint. The audit log must already be closed, so that the
// sinks send the record of the stop, too. At the same time, closeSinks closes telemetry, which
// makes the stop shorter.
func (r *recording) closeSinks() error {
	var wg sync.WaitGroup
	wg.Go(r.sinks.close)
	wg.Go(r.witnesses.close)
	err := r.closeTelemetry()
	wg.Wait()
	return err
}

// openAuditLog opens the audit log. The replica is nil without a [cluster].
func (r *recording) openAuditLog(c config.Audit, replica *config.Cluster) (err error) {
	o := audit.Options{
		File:         c.File,
		Bodies:       audit.Bodies(c.Bodies),
		Durability:   audit.Durability(c.Durability),
		Logger:       r.log,
		SegmentBytes: int64(c.SegmentBytes),
		Keep: audit.Retention{Files: c.KeepFiles, Bytes: int64(c.KeepBytes),
			For: c.KeepFor},
		Key:          c.Key,
		AnchorFile:   c.Anchor,
		OnCheckpoint: r.publishCheckpoint,
	}
	if replica != nil {
		o.Replica, o.Peers = replica.Name, replica.Replicas
	}
	if r.audit, err = audit.Open(o); err != nil {
		return err
	}
	r.file, r.receipts = c.File, c.Receipts
	r.recorder = &hiddenItemLogger{Recorder: maskedRecorder{r.audit, r.masked}, log: r.log}
	if r.telemetry != nil {
		r.recorder = r.telemetry.Recorder(r.recorder)
	}
	r.events = pipeline.New(r.recorder, pipeline.Options{})
	return nil
}

// closeAuditLog records the stop, if the start was recorded, and closes the log.
func (r *recording) closeAuditLog() error {
	var err error
	if r.started {
		err = r.event(context.Background(), "stop", "", nil)
	}
	return errors.Join(err, r.audit.Close())
}

func (r *recording) recordStart(ctx context.Context, what string) error {
	err := r.event(ctx, "start", what, nil)
	r.started = err == nil
	return err
}

// event records an event of the gateway itself, which is not a message.
func (r *recording) event(ctx context.Context, action, reason string, err error) error {
	return r.events.RecordEvent(context.WithoutCancel(ctx), nil, action, reason, err)
}

// pluginEvent logs and records that a plugin was lost or was restarted.
func (r *recording) pluginEvent(plugin, action, reason string, err error) {
	if err != nil {
		r.log.Error("plugin lost", "plugin", plugin, "error", err)
	} else {
		r.log.Info("plugin restarted", "plugin", plugin)
	}
	if err := r.event(context.Background(), action, reason, err); err != nil {
		r.log.Error("event not recorded", "plugin", plugin, "event", action, "error", err)
	}
}

// serverEvent records an event of a server: that it was lost, restarted or confined. An error of
// the audit log is logged and returned.
func (r *recording) serverEvent(server, action, reason string, err error) error {
	m := &mcp.Message{Server: server}
	recordErr := r.events.RecordEvent(context.Background(), m, action, reason, err)
	if recordErr != nil {
		r.log.Error("event not recorded", "server", server, "event", action, "error", recordErr)
	}
	return recordErr
}

// credentialsEvent records that Gatekit obtained, replaced or lost a token for a server.
func (r *recording) credentialsEvent(server, principal, action, reason string, err error) error {
	m := &mcp.Message{Server: server, Principal: identity.FromID(principal)}
	recordErr := r.events.RecordEvent(context.Background(), m, action, reason, err)
	if recordErr != nil {
		r.log.Error("event not recorded", "server", server, "event", action, "error", recordErr)
	}
	return recordErr
}

// sinkEvent records that a sink or a witness was lost or works again. After the audit log is
// closed, the event cannot be recorded, but the sink or the witness has logged it.
func (r *recording) sinkEvent(action, reason string, err error) {
	if err := r.event(context.Background(), action, reason, err); err != nil {
		r.log.Debug("event not recorded", "event", action, "error", err)
	}
}

// bundleEvent records that a bundle was rejected.
func (r *recording) bundleEvent(bundle string, reason error) {
	if err := r.event(context.Background(), "reload", fmt.Sprintf("refused: bundle %q", bundle),
		reason); err != nil {
		r.log.Error("event not recorded", "bundle", bundle, "event", "reload", "error", err)
	}
}

// refusedPage records that a request for one of the pages for logins was refused.
func (r *recording) refusedPage(request *http.Request, refusal connect.Refusal) {
	m := &mcp.Message{Server: refusal.Server, Principal: identity.FromID(refusal.Principal)}
	if err := r.events.RecordEvent(context.WithoutCancel(request.Context()), m, "refuse",
		fmt.Sprintf("HTTP %d to %s: %s", refusal.Status, request.RemoteAddr, refusal.Reason),
		nil); err != nil {
		r.log.Error("event not recorded", "event", "refuse", "error", err)
	}
}

// refusedRequest records that the listener refused an HTTP request.
func (r *recording) refusedRequest(ctx context.Context, remote string,
	refusal transport.Refusal) {
	m := &mcp.Message{Principal: identity.FromID(refusal.Principal)}
	if err := r.events.RecordEvent(context.WithoutCancel(ctx), m, "refuse",
		fmt.Sprintf("HTTP %d to %s: %s", refusal.Status, remote,
			cmp.Or(refusal.Detail, refusal.Reason)), nil); err != nil {
		r.log.Error("event not recorded", "event", "refuse", "error", err)
	}
}
