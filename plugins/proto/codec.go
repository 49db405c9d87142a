package proto

import (
	"fmt"
	"math/bits"
	"sync"

	"gatekit/plugins/proto/socket"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// NewCodec returns gRPC's codec for protobuf with a buffer pool of its own. gRPC's own pool has
// buffers of five sizes, and clears a whole buffer before each reuse. A message of more than 32 KiB
// gets a buffer of 1 MiB. For a message of 64 KiB, clearing that buffer on both sides took as long
// as all other work.
func NewCodec() encoding.CodecV2 { return &codec{} }

type codec struct{ buffers bufferPool }

// Name implements encoding.CodecV2. It is the name of gRPC's own codec, because the encoding is the
// same.
func (*codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", v)
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
		return fmt.Errorf("%T is not a protobuf message", v)
	}
	buf := data.MaterializeToBuffer(&c.buffers)
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m)
}

// NewBuffers returns buffers for sockets; see package socket.
func NewBuffers() socket.Buffers { return &bufferPool{} }

// bufferPool has a pool for each power of two as the size of a buffer. Buffers are not cleared.
// Each buffer is overwritten before it is read, so no part of one message gets into another.
type bufferPool [bits.UintSize]sync.Pool

// Get implements mem.BufferPool.
func (p *bufferPool) Get(length int) *[]byte {
	size := bits.Len(uint(max(length, 1) - 1))
	if buf, ok := p[size].Get().(*[]byte); ok {
		*buf = (*buf)[:length]
		return buf
	}
	buf := make([]byte, length, 1<<size)
	return &buf
}

// Put implements mem.BufferPool.
func (p *bufferPool) Put(buf *[]byte) {
	if c := cap(*buf); c > 0 {
		p[bits.Len(uint(c))-1].Put(buf) // the pool of the largest power of two up to c
	}
}
