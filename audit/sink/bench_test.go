package sink_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/audit/format"
	"gatekit/audit/sink"
)

// countingReceiver encodes records and discards them.
type countingReceiver struct {
	encoder  format.Encoder
	received atomic.Int64
	buf      []byte
}

func (c *countingReceiver) Send(_ context.Context, b sink.Batch) error {
	for i := range b.Records {
		c.buf = c.encoder.Append(c.buf[:0], &b.Records[i])
	}
	c.received.Add(int64(len(b.Records)))
	return nil
}

func (c *countingReceiver) Close() error { return nil }

// BenchmarkSink measures how long a sink takes to read a record from the log, to encode it and to
// hand it to a receiver, in each format.
func BenchmarkSink(b *testing.B) {
	for _, name := range format.Names() {
		b.Run(name, func(b *testing.B) {
			log := newTestLog(b)
			log.recordMany(b.N)
			receiver := &countingReceiver{encoder: newEncoder(b, name, 0)}
			b.ResetTimer()
			_, stop := start(b, log.options(receiver))
			for receiver.received.Load() < int64(b.N) {
				time.Sleep(time.Millisecond)
			}
			b.StopTimer()
			if err := stop(); err != nil {
				b.Error(err)
			}
		})
	}
}
