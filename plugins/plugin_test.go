package plugins_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"
	"gatekit/plugins/sdk"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	protobuf "google.golang.org/protobuf/proto"
)

// TestMain runs the tests, or serves the plugins that the tests start: the test binary is also the
// plugin.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "plugin" {
		servePlugins()
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"))
}

// scripted returns a plugin that follows the instruction in each message. The instruction is the
// text at "do" in the body or, without it, the message of a JSON-RPC error.
func scripted(name string) sdk.Plugin {
	return sdk.Plugin{
		Name: name, Version: "1", Doc: "does what a message tells it",
		Schema: []byte(`{"additionalProperties":false,"properties":{
			"mark":{"type":"string"},"refuse":{"type":"boolean"},
			"methods":{"type":"array"},"file":{"type":"string"},
			"servers":{"type":"array"},"tools":{"type":"object"},"prompts":{"type":"object"},
			"restore":{"type":"boolean"}}}`),
		Needs: sdk.Needs{Body: true, Request: true},
		New: func(config []byte) (sdk.Stage, error) {
			var c struct {
				Mark    string // added to the field "mark" of each message
				Refuse  bool   // deny each message that has no other instruction
				Methods []string
				File    string // file that must exist
				Servers []string
				Tools   map[string]string // renamed tools
				Prompts map[string]string // renamed prompts
				Restore bool              // redacted values are restored for a minute
			}
			d := json.NewDecoder(bytes.NewReader(config))
			d.DisallowUnknownFields()
			if err := d.Decode(&c); err != nil {
				return nil, fmt.Errorf("invalid configuration: %w", err)
			}
			if _, err := os.Stat(c.File); c.File != "" && err != nil {
				return nil, err
			}
			stage := scriptedStage{mark: c.Mark, refuse: c.Refuse,
				wants:   pipeline.Wants{Methods: c.Methods, Servers: c.Servers},
				renames: pipeline.Renames{Tools: c.Tools, Prompts: c.Prompts}}
			if c.Restore {
				stage.restore = &pipeline.Restore{For: time.Minute}
			}
			return stage, nil
		},
		SelfTest: func([]byte) *sdk.SelfTest {
			m := mcp.NewRequest("0", "tools/call", []byte(`{"name":"x","do":"deny"}`))
			m.Direction, m.Server, m.Name = mcp.ToServer, "a", "x"
			return &sdk.SelfTest{Description: "the instruction to deny", Message: m,
				Action: pipeline.Deny}
		},
	}
}

type scriptedStage struct {
	mark    string
	refuse  bool
	wants   pipeline.Wants
	renames pipeline.Renames
	restore *pipeline.Restore
}

func (s scriptedStage) Wants() pipeline.Wants      { return s.wants }
func (s scriptedStage) Renames() pipeline.Renames  { return s.renames }
func (s scriptedStage) Restore() *pipeline.Restore { return s.restore }

func (s scriptedStage) Close() error {
	fmt.Fprintf(os.Stderr, "closed the stage %q\n", s.mark)
	return nil
}

func (s scriptedStage) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	instruction, _ := m.Text("/do")
	if instruction == "" && m.Kind == mcp.Error {
		instruction, _ = m.Text("/message")
	}
	self, _ := os.FindProcess(os.Getpid())
	switch instruction {
	case "deny":
		return sdk.Deny("denied as instructed"), nil
	case "fail":
		return sdk.Verdict{}, errors.New("failed as instructed")
	case "panic":
		panic("as instructed")
	case "hang":
		time.Sleep(time.Hour)
	case "wait":
		time.Sleep(300 * time.Millisecond)
	case "wait for a file":
		name, _ := m.Text("/file")
		if err := os.WriteFile(name+".waits", nil, 0o600); err != nil {
			return sdk.Verdict{}, err
		}
		for {
			if _, err := os.Stat(name); err == nil {
				return sdk.Allow(), nil
			}
			time.Sleep(5 * time.Millisecond)
		}
	case "read", "append", "write to", "connect", "listen":
		path, _ := m.Text("/file")
		if err := attempt(instruction, path); err != nil {
			return sdk.Deny(err.Error()), nil
		}
		return sdk.Allow(), nil
	case "show the process":
		return sdk.Deny(strconv.Itoa(os.Getpid())), nil
	case "wait and die":
		time.Sleep(200 * time.Millisecond)
		self.Kill()
		time.Sleep(time.Hour)
	case "die":
		self.Kill()
		time.Sleep(time.Hour)
	case "stop":
		self.Signal(syscall.SIGSTOP)
		time.Sleep(time.Hour)
	case "use memory":
		var all [][]byte
		for len(all) < 1<<20 {
			b := make([]byte, 16<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
		}
	case "use 320 MiB":
		b := make([]byte, 320<<20)
		for i := 0; i < len(b); i += 1 << 10 {
			b[i] = 1
		}
		time.Sleep(time.Hour)
		runtime.KeepAlive(b)
	case "show":
		request := "none"
		if m.Request != nil {
			request = string(m.Request.Body())
		}
		return sdk.Deny(fmt.Sprintf("%v %v %s|%s|%s|%s|%s|%s", m.Kind, m.Direction, m.Session,
			m.Principal.ID(), m.Method, m.Server, m.Name, request)), nil
	case "answer":
		return sdk.Verdict{Action: pipeline.Answer, Answer: []byte(`{"told":true}`)}, nil
	case "hide":
		return sdk.Verdict{Action: pipeline.Modify, Hide: []string{"h"}}, nil
	case "hide 100000", "hide 100001":
		count, _ := strconv.Atoi(strings.TrimPrefix(instruction, "hide "))
		return sdk.Verdict{Action: pipeline.Modify, Hide: slices.Repeat([]string{"h"}, count)}, nil
	case "label", "100 labels", "101 labels":
		count, _ := strconv.Atoi(strings.TrimSuffix(instruction, " labels"))
		return sdk.Verdict{Action: pipeline.Allow,
			Labels: slices.Repeat([]string{"l"}, max(count, 1))}, nil
	case "1000 findings", "1001 findings":
		count, _ := strconv.Atoi(strings.TrimSuffix(instruction, " findings"))
		return sdk.Verdict{Action: pipeline.Allow,
			Findings: slices.Repeat([]pipeline.Finding{{Type: "x"}}, count)}, nil
	case "until cancelled":
		<-ctx.Done()
		fmt.Fprintln(os.Stderr, "the inspection was cancelled")
		return sdk.Verdict{}, ctx.Err()
	case "write":
		fmt.Fprintln(os.Stderr, "written after Serve")
	case "edit a large text":
		text, _ := m.Text("/text")
		return sdk.Modify("", []mcp.Edit{mcp.Set("/text", mcp.Quote(text[1:]))}), nil
	case "show the environment":
		work, _ := os.Getwd()
		files, _ := os.ReadDir(work)
		n, err := os.Stdin.Read(make([]byte, 1))
		var names []string
		for _, e := range os.Environ() {
			name, _, _ := strings.Cut(e, "=")
			if name == "GOMEMLIMIT" {
				name = e
			}
			names = append(names, name)
		}
		return sdk.Deny(fmt.Sprintf("%d files, stdin %d %v, env %s", len(files), n, err,
			strings.Join(names, " "))), nil
	}
	if s.refuse {
		return sdk.Deny("denies everything"), nil
	}
	if s.mark != "" {
		before, _ := m.Text("/mark")
		return sdk.Modify("marked", []mcp.Edit{mcp.Set("/mark", mcp.Quote(before+s.mark))},
			pipeline.Finding{Type: "mark", Pointer: "/mark"}), nil
	}
	return sdk.Allow(), nil
}

// attempt does what a hostile plugin might try.
func attempt(name, target string) error {
	network, address, _ := strings.Cut(target, " ")
	switch name {
	case "read":
		_, err := os.ReadFile(target)
		return err
	case "append":
		f, err := os.OpenFile(target, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return f.Close()
	case "write to":
		return os.WriteFile(target, []byte("x"), 0o600)
	case "listen":
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		return l.Close()
	}
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	return c.Close()
}

// servePlugins serves the scripted plugins. If the arguments name another program, it serves that
// program; most of them break the protocol.
func servePlugins() {
	fmt.Fprintln(os.Stderr, "hello \x1b[31mred")
	if len(os.Args) < 3 || os.Args[2] == "scripted" {
		sdk.Serve(scripted("scripted"), scripted("second"), counting(), sharing())
		return
	}
	switch os.Args[2] {
	case "sharing":
		sdk.Serve(sharing())
		return
	case "counting":
		serveCounting()
		return
	case "allow-all":
		allow := func(context.Context, *mcp.Message) (sdk.Verdict, error) {
			return sdk.Allow(), nil
		}
		sdk.Serve(sdk.Plugin{Name: "allow-all", Version: "1", Needs: sdk.Needs{Body: true},
			New: func([]byte) (sdk.Stage, error) { return sdk.StageFunc(allow), nil }})
		return
	case "no handshake":
		time.Sleep(time.Hour)
	case "another handshake":
		fmt.Println("hello")
		time.Sleep(time.Hour)
	case "no certificate":
		fmt.Printf("1|1|unix|%s/plain.sock|grpc\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		time.Sleep(time.Hour)
	case "another folder":
		fmt.Println("1|1|unix|/tmp/elsewhere.sock|grpc|")
		time.Sleep(time.Hour)
	case "another network":
		fmt.Printf("1|1|tcp|%s/plain.sock|grpc|\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		time.Sleep(time.Hour)
	}
	fault, overSockets := strings.CutPrefix(os.Args[2], "socket: ")
	faulty := faultyServer{fault: fault, stop: new(func()), streams: new(atomic.Int64),
		PluginServer: sdk.NewServer(scripted("scripted"))}
	if overSockets {
		faulty.token = faulty.serveSockets()
	}
	plugin.Serve(&plugin.ServeConfig{HandshakeConfig: proto.Handshake(),
		Logger: hclog.NewNullLogger(), Plugins: plugin.PluginSet{proto.ServiceName: faulty},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, grpc.MaxRecvMsgSize(64<<20))...)
		}})
}

// faultyServer serves a scripted plugin and breaks the protocol in Inspect.
type faultyServer struct {
	plugin.NetRPCUnsupportedPlugin
	pb.PluginServer
	fault   string
	stop    *func()       // stops the gRPC server
	streams *atomic.Int64 // number of streams that were opened
	token   []byte        // of the control socket; nil for requests over gRPC
}

func (f faultyServer) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	if f.token != nil {
		f.fault = "the end of the stream" // of gRPC
	}
	pb.RegisterPluginServer(s, f)
	*f.stop = s.Stop
	return nil
}

func (faultyServer) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any,
	error) {
	return nil, errors.New("no")
}

// Describe offers as many plugins as the name of the fault says, in "5 plugins".
func (f faultyServer) Describe(ctx context.Context, r *pb.DescribeRequest) (*pb.DescribeResponse,
	error) {
	number, ok := strings.CutSuffix(f.fault, " plugins")
	if !ok {
		response, err := f.PluginServer.Describe(ctx, r)
		response.SocketToken = f.token
		response.Plugins[0].SharedState = strings.HasPrefix(f.fault, "state: ")
		return response, err
	}
	count, _ := strconv.Atoi(number)
	var response pb.DescribeResponse
	for i := range count {
		response.Plugins = append(response.Plugins, &pb.Description{Name: fmt.Sprint("p", i)})
	}
	return &response, nil
}

func (f faultyServer) Configure(ctx context.Context,
	r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	switch f.fault {
	case "no stage":
		return &pb.ConfigureResponse{}, nil
	case "a verdict for the first stage only":
		response, err := f.PluginServer.Configure(ctx, r)
		if err == nil {
			response.Reuse = &pb.Reuse{}
		}
		return response, err
	case "a self-test of no direction":
		return &pb.ConfigureResponse{Stage: 1, Canary: &pb.Canary{
			Message: &pb.Message{Kind: pb.Kind_KIND_REQUEST}}}, nil
	case "a self-test that is not JSON":
		return &pb.ConfigureResponse{Stage: 1, Canary: &pb.Canary{
			Message: &pb.Message{Kind: pb.Kind_KIND_REQUEST, Body: []byte("{")}}}, nil
	}
	return f.PluginServer.Configure(ctx, r)
}

func (f faultyServer) Inspect(stream grpc.BidiStreamingServer[pb.InspectRequest,
	pb.InspectResponse]) error {
	number := f.streams.Add(1)
	if f.fault == "no fault, and edits" {
		return f.PluginServer.Inspect(stream)
	}
	for {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		allow := &pb.Verdict{Action: pb.Action_ACTION_ALLOW, Reason: "faulty"}
		response := &pb.InspectResponse{Seq: request.Seq, Verdicts: []*pb.Verdict{allow}}
		if request.Result != nil {
			allow.Action, allow.Reason = pb.Action_ACTION_DENY, "settled"
		}
		if bytes.Contains(request.GetMessage().GetBody(), []byte(`"good"`)) {
			allow.Reason = ""
			stream.Send(response)
			continue
		}
		switch f.fault {
		case "another sequence number":
			response.Seq++
		case "an unknown action":
			allow.Action = 99
		case "no verdict":
			response.Verdicts = nil
		case "state: a call without the state":
			allow.State = &pb.StateCalls{Release: &pb.StateLease{Name: []byte("x")}}
		case "state: a time that is none":
			allow.State = &pb.StateCalls{Release: &pb.StateLease{Name: []byte("x"), Ttl: -1}}
		case "state: no fault", "state: an admission before another verdict",
			"state: an admission after a result", "state: a lease after a result":
			allow.State = &pb.StateCalls{Admit: &pb.StateAdmission{Limits: []*pb.StateLimit{{}}}}
			if f.fault == "state: a lease after a result" && request.Result != nil {
				allow.State = &pb.StateCalls{Release: &pb.StateLease{Name: []byte("x")}}
			}
			if f.fault == "state: an admission before another verdict" {
				response.Verdicts = append(response.Verdicts, &pb.Verdict{
					Action: pb.Action_ACTION_ALLOW})
			}
		case "two verdicts":
			response.Verdicts = append(response.Verdicts, allow)
		case "an edit that is not JSON":
			allow.Action, allow.Edits = pb.Action_ACTION_MODIFY,
				[]*pb.Edit{{Pointer: "/x", Value: []byte("{")}}
		case "an edit with the action allow":
			allow.Edits = []*pb.Edit{{Pointer: "/x", Value: []byte("1")}}
		case "a reason of 10 MiB":
			allow.Reason = strings.Repeat("x", 10<<20)
		case "a reason of 2 MiB":
			allow.Reason = strings.Repeat("x", 2<<20)
		case "a reason of 20 MiB":
			allow.Reason = strings.Repeat("x", 20<<20)
		case "the largest verdict", "a verdict that is a byte too large":
			limit := protobuf.Size(request) + 1<<20
			if f.fault != "the largest verdict" {
				limit++
			}
			allow.Reason = strings.Repeat("x", limit)
			allow.Reason = allow.Reason[protobuf.Size(allow)-limit:]
		case "the number of the stream":
			allow.Action, allow.Reason = pb.Action_ACTION_DENY, strconv.FormatInt(number, 10)
		case "a gRPC error":
			return errors.New("no")
		case "the end of the stream":
			return nil
		case "stops serving":
			time.AfterFunc(10*time.Millisecond, *f.stop)
		case "dies after its response":
			time.AfterFunc(50*time.Millisecond, func() { os.Exit(3) })
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}
