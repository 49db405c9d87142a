package socket

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
)

const (
	// readAhead is how many bytes a connection reads ahead. It holds most frames, so one system
	// call reads a frame. The rest of a larger frame goes directly into its buffer.
	readAhead = 4 << 10
	// firstBuffer is the size of the buffer with which Receive begins. It gets a larger buffer only
	// when this one is full. Otherwise a plugin could make Gatekit allocate memory with four bytes.
	firstBuffer = 64 << 10
)

// Buffers is where a Connection gets its buffers from.
type Buffers interface {
	Get(size int) *[]byte // returns a buffer of this size, not cleared
	Put(*[]byte)
}

// TooLargeError is the error of a frame that is larger than the limit.
type TooLargeError struct{ Size, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the frame has %d bytes; at most %d are allowed", e.Size, e.Limit)
}

// Connection sends and receives frames. Only one goroutine may use it at a time; Close may be
// called from any goroutine. After an error, the connection must be closed.
type Connection struct {
	conn    net.Conn
	reader  *bufio.Reader
	buffers Buffers
	onClose func() // may be nil

	header  [4]byte
	parts   net.Buffers // reused by Send
	writing net.Buffers // the rest of parts
}

// NewConnection returns a connection over conn.
func NewConnection(conn net.Conn, buffers Buffers) *Connection {
	return &Connection{conn: conn, reader: bufio.NewReaderSize(conn, readAhead), buffers: buffers}
}

// Send sends a frame. Its content is the parts in their order. Send neither copies nor keeps them.
func (c *Connection) Send(parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size > math.MaxInt32 {
		return &TooLargeError{size, math.MaxInt32}
	}
	binary.BigEndian.PutUint32(c.header[:], uint32(size))
	c.parts = append(append(c.parts[:0], c.header[:]), parts...)
	c.writing = c.parts
	_, err := c.writing.WriteTo(c.conn)
	clear(c.parts)
	return err
}

// Receive returns the content of the next frame. It fails with a *TooLargeError if the frame has
// more than limit bytes. At the end of the connection, the error is io.EOF, or io.ErrUnexpectedEOF
// within a frame. The caller passes the frame to Release when it no longer needs it.
func (c *Connection) Receive(limit int) (*[]byte, error) {
	header, err := c.reader.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) && len(header) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	encoded := binary.BigEndian.Uint32(header)
	c.reader.Discard(4)
	if uint64(encoded) > uint64(max(limit, 0)) {
		return nil, &TooLargeError{int(encoded), limit}
	}
	size := int(encoded)
	buf := c.buffers.Get(min(size, firstBuffer))
	for read := 0; ; {
		n, err := io.ReadFull(c.reader, (*buf)[read:])
		if read += n; err != nil {
			c.buffers.Put(buf)
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if read == size {
			return buf, nil
		}
		larger := c.buffers.Get(min(size, 4*read))
		copy(*larger, *buf)
		c.buffers.Put(buf)
		buf = larger
	}
}

// Release ends the use of a frame that Receive has returned.
func (c *Connection) Release(frame *[]byte) { c.buffers.Put(frame) }

// HasMore reports whether more bytes were received than those of the frames that Receive has
// returned.
func (c *Connection) HasMore() bool { return c.reader.Buffered() > 0 }

// Close closes the connection. Send and Receive then fail.
func (c *Connection) Close() error {
	err := c.conn.Close()
	if c.onClose != nil {
		c.onClose()
	}
	return err
}
