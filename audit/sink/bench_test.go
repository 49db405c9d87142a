package sink_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/audit/format"
	"gatekit/audit/sink"
)

// countingReceiver encodes records and discards them.
type countingReceiver struct {
	form format.Encoder
	n    atomic.Int64
	buf  []byte
}

func (c *countingReceiver) Send(_ context.Context, b sink.Batch) error {
	for i := range b.Records {
		c.buf = c.form.Append(c.buf[:0], &b.Records[i])
	}
	c.n.Add(int64(len(b.Records)))
	return nil
}

func (c *countingReceiver) Close() error { return nil }

// BenchmarkSink measures the cost of a record on its way from the log to a receiver, in each
// format.
func BenchmarkSink(b *testing.B) {
	for _, name := range format.Names() {
		b.Run(name, func(b *testing.B) {
			j := newTestLog(b)
			for i := range b.N {
				j.record(fmt.Sprint("of many ", i))
			}
			c := &countingReceiver{form: form(b, name, 0)}
			b.ResetTimer()
			_, stop := start(b, j.options(c))
			for c.n.Load() < int64(b.N) {
				time.Sleep(time.Millisecond)
			}
			b.StopTimer()
			if err := stop(); err != nil {
				b.Error(err)
			}
		})
	}
}
