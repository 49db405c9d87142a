package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/proto/socket"

	protobuf "google.golang.org/protobuf/proto"
)

// serveSockets responds to the requests that come over sockets, until Gatekit closes the control
// socket. Each connection has a goroutine, which waits for its next request.
func (s *server) serveSockets(sockets *socket.Acceptor) {
	defer sockets.Close()
	buffers := proto.NewBuffers()
	for {
		ctx, conn, done, err := sockets.Accept()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "stopped accepting sockets:", err)
			}
			return
		}
		go func() {
			defer done()
			s.serveSocket(ctx, conn, buffers)
		}()
	}
}

// serveSocket responds to the requests of one connection, one after another. It ends the connection
// when a request cannot be read or a response cannot be sent.
func (s *server) serveSocket(ctx context.Context, conn net.Conn, buffers socket.Buffers) {
	c, requests := socket.NewConnection(conn, buffers), conversation{server: s}
	for {
		frame, err := c.Receive(proto.MaxMessageBytes)
		if err != nil {
			return
		}
		var request pb.InspectRequest
		err = protobuf.Unmarshal(*frame, &request)
		c.Release(frame)
		if err != nil {
			fmt.Fprintln(os.Stderr, "invalid request:", err)
			return
		}
		response := requests.respond(ctx, &request)
		buf := buffers.Get(protobuf.Size(response))
		*buf, err = protobuf.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], response)
		if err == nil {
			err = c.Send(*buf)
		}
		buffers.Put(buf)
		if err != nil {
			return
		}
	}
}
