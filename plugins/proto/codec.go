package proto

import (
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// NewCodec answers gRPC's codec of protobuf with other buffers. gRPC's own are of five sizes, and
// each is cleared whole when it is used again: what is larger than 32 KiB gets a MiB, and to clear
// that, on both sides, took as long as all else that is done with a message of 64 KiB.
func NewCodec() encoding.CodecV2 { return &codec{} }

type codec struct{ buffers buffers }

// Name implements encoding.CodecV2. It is the name of gRPC's own: what is sent is the same.
func (*codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message of the protocol", v)
	}
	buf := c.buffers.Get(proto.Size(m))
	var err error
	if *buf, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*buf)[:0],
		m); err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, &c.buffers)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message of the protocol", v)
	}
	whole := data.MaterializeToBuffer(&c.buffers)
	defer whole.Free()
	return proto.Unmarshal(whole.ReadOnlyData(), m)
}

// buffers are used again as they are, and written before they are read: nothing of one message
// comes into another. Those of each power of two are by themselves.
type buffers [bits.UintSize]sync.Pool

// Get implements mem.BufferPool.
func (b *buffers) Get(length int) *[]byte {
	size := bits.Len(uint(max(length, 1) - 1))
	if buf, ok := b[size].Get().(*[]byte); ok {
		*buf = (*buf)[:length]
		return buf
	}
	buf := make([]byte, length, 1<<size)
	return &buf
}

// Put implements mem.BufferPool.
func (b *buffers) Put(buf *[]byte) {
	if c := cap(*buf); c > 0 {
		b[bits.Len(uint(c))-1].Put(buf) // c is that power of two, or more
	}
}
