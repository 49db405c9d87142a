package plugins_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/plugins"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/proto/socket"

	"google.golang.org/grpc"
	protobuf "google.golang.org/protobuf/proto"
)

// serveSockets serves a faulty plugin over sockets, and returns the token of the control socket.
func (f faultyServer) serveSockets() (token []byte) {
	sockets := socket.Inherited()
	if sockets == nil {
		panic("no control socket was inherited")
	}
	go func() {
		for {
			ctx, conn, done, err := sockets.Accept()
			if err != nil {
				return
			}
			go func() {
				defer done()
				f.Inspect(&socketStream{ctx: ctx, fault: f.fault, conn: conn,
					frames: socket.NewConnection(conn, proto.NewBuffers())})
			}()
		}
	}()
	if f.fault == "another token" {
		return []byte("another token")
	}
	return sockets.Token()
}

// socketStream is a socket as a stream of gRPC. Its fault breaks the frames of responses.
type socketStream struct {
	grpc.ServerStream // nil: no other method is called
	ctx               context.Context
	fault             string
	conn              net.Conn
	frames            *socket.Connection
}

func (s *socketStream) Context() context.Context { return s.ctx }

func (s *socketStream) Recv() (*pb.InspectRequest, error) {
	frame, err := s.frames.Receive(proto.MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	defer s.frames.Release(frame)
	var request pb.InspectRequest
	return &request, protobuf.Unmarshal(*frame, &request)
}

func (s *socketStream) Send(response *pb.InspectResponse) error {
	content, err := protobuf.Marshal(response)
	if err != nil {
		return err
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
	if response.Verdicts == nil || response.Verdicts[0].Reason != "faulty" {
		_, err := s.conn.Write(frame)
		return err
	}
	switch s.fault {
	case "a frame that is cut off":
		s.conn.Write(frame[:len(frame)-1])
		return io.EOF
	case "dies within a frame":
		s.conn.Write(frame[:2])
		os.Exit(3)
	case "a frame of 4 GiB":
		frame = []byte("\xff\xff\xff\xff")
	case "a frame that is not protobuf":
		frame = []byte("\x00\x00\x00\x02\xff\xff")
	case "an empty frame":
		frame = make([]byte, 4)
	case "two responses":
		frame = append(frame, frame...)
	case "a response in pieces":
		for _, b := range frame {
			if _, err := s.conn.Write([]byte{b}); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	_, err = s.conn.Write(frame)
	return err
}

// Requests reach a plugin of the SDK over sockets, and other plugins over gRPC. A socket that a
// program between Gatekit and the plugin has closed or replaced is not used.
func TestRequestsGoOverSocketsOrGRPC(t *testing.T) {
	shell := func(script string) plugins.Spec {
		s := programSpec("scripted")
		s.Command = []string{"/bin/sh", "-c", script + ` exec "$0" plugin scripted`, os.Args[0]}
		return s
	}
	for name, spec := range map[string]plugins.Spec{
		"sockets only":                programSpec("scripted", "socket: no gRPC"),
		"a response in pieces":        programSpec("scripted", "socket: a response in pieces"),
		"gRPC only":                   programSpec("scripted", "no fault"),
		"an inherited socket":         shell(""),
		"a closed socket":             shell("exec 3<&-;"),
		"a file instead of a socket":  shell("exec 3</dev/null;"),
		"a variable without a socket": shell("GATEKIT_PLUGIN_SOCKET=x;"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t, spec)
			var wg sync.WaitGroup
			for kind, newMessage := range messagesByKind {
				for range 4 {
					wg.Go(func() {
						if _, err := h.pass(newMessage("x")); err != nil {
							t.Errorf("%s: %v", kind, err)
						}
					})
				}
			}
			wg.Wait()
			if s := h.host.Status()[0]; s.Starts != 1 || s.InFlight != 0 {
				t.Errorf("the status is %+v, want one start and nothing in flight", s)
			}
		})
	}
}

func TestTokenOfAnotherSocketIsRefused(t *testing.T) {
	h := startHost(t)
	_, err := h.host.Load(t.Context(), []plugins.Spec{programSpec("scripted",
		"socket: another token")})
	const want = "returned the token of a socket that it did not get from Gatekit"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want %q", err, want)
	}
}

// When nobody waits for a verdict any more, the context of the inspection ends in the plugin, and
// the process goes on.
func TestInspectionIsCancelled(t *testing.T) {
	h := startHost(t, programSpec("scripted", "scripted"))
	spec := programSpec("scripted", "scripted")
	stage := h.set.Stages([]plugins.Spec{spec})[0].Stage
	for n := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err := stage.Inspect(ctx, messagesByKind["a request"]("until cancelled"))
		if err == nil {
			t.Error("a cancelled inspection returned a verdict")
		}
		for deadline := time.Now().Add(testTimeout); strings.Count(h.log.text(),
			"the inspection was cancelled") <= n; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d inspections were cancelled, want %d", n, n+1)
			}
		}
		h.waitUntilAllowed("a request")
	}
	if s := h.host.Status()[0]; s.Starts != 1 {
		t.Errorf("the status is %+v, want one start", s)
	}
}

// A process that does not read its requests holds up no message beyond its time, even if the
// requests are larger than the buffers of a socket.
func TestProcessThatDoesNotRead(t *testing.T) {
	s := programSpec("scripted", "scripted")
	s.Timeout = time.Second
	h := startHost(t, s)
	h.pass(messagesByKind["a request"]("stop"))
	large := addressed(mcp.NewRequest("1", "tools/call", fmt.Appendf(nil,
		`{"name":"x","do":"good","pad":%q}`, bytes.Repeat([]byte("x"), 2<<20))), mcp.ToServer)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := h.pass(large)
			requireDenied(t, err)
		})
	}
	wg.Wait()
	h.waitUntilAllowed("a request") // after three small messages, which end the process
	if _, err := h.pass(large); err != nil {
		t.Errorf("a large message: %v", err)
	}
	if s := h.host.Status()[0]; s.Starts != 2 || s.InFlight != 0 {
		t.Errorf("the status is %+v, want two starts and nothing in flight", s)
	}
}
