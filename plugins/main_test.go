package plugins_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
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
)

// The test binary is also the plugin that the tests run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "plugin" {
		servePlugins()
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"))
}

// words is a plugin that does what a message tells it: the text "do" in its params, result or
// error, or in the request that it answers.
func words(name string) sdk.Plugin {
	return sdk.Plugin{Name: name, Version: "1", Doc: "does what it is told",
		Schema: []byte(`{"properties":{"mark":{"type":"string"},"refuse":{"type":"boolean"},"methods":{"type":"array"},"file":{"type":"string"}},"additionalProperties":false}`), Needs: sdk.Needs{Body: true, Request: true}, New: func(config []byte) (sdk.Stage, error) {
			var c struct {
				Mark    string // that it puts into each message
				Refuse  bool
				Methods []string
				File    string // that has to be there
			}
			d := json.NewDecoder(bytes.NewReader(config))
			d.DisallowUnknownFields()
			if err := d.Decode(&c); err != nil {
				return nil, fmt.Errorf("its configuration cannot be read: %w", err)
			}
			if _, err := os.Stat(c.File); c.File != "" && err != nil {
				return nil, err
			}
			return teller{mark: c.Mark, refuse: c.Refuse, methods: c.Methods}, nil
		}, SelfTest: func([]byte) *sdk.SelfTest {
			m := mcp.NewRequest("0", "tools/call", []byte(`{"name":"x","do":"deny"}`))
			m.Direction, m.Server, m.Name = mcp.ToServer, "a", "x"
			return &sdk.SelfTest{Description: "a word", Message: m, Action: pipeline.Deny}
		}}
}

type teller struct {
	mark    string
	refuse  bool
	methods []string
}

func (s teller) Wants() pipeline.Wants { return pipeline.Wants{Methods: s.methods} }

func (s teller) Inspect(ctx context.Context, m *mcp.Message) (sdk.Verdict, error) {
	word, _ := m.Text("/do")
	if word == "" && m.Kind == mcp.Error {
		word, _ = m.Text("/message")
	}
	self, _ := os.FindProcess(os.Getpid())
	switch word {
	case "deny":
		return sdk.Deny("it was told to"), nil
	case "fail":
		return sdk.Verdict{}, errors.New("it was told to fail")
	case "panic":
		panic("it was told to")
	case "hang":
		time.Sleep(time.Hour)
	case "die":
		self.Kill()
		time.Sleep(time.Hour)
	case "stop":
		self.Signal(syscall.SIGSTOP)
		time.Sleep(time.Hour)
	case "eat":
		var all [][]byte
		for len(all) < 1<<20 {
			b := make([]byte, 16<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
		}
	case "see":
		request := "none"
		if m.Request != nil {
			request = string(m.Request.Body())
		}
		return sdk.Deny(fmt.Sprintf("%v %v %s|%s|%s|%s|%s|%s", m.Kind, m.Direction, m.Session,
			m.Principal,
			m.Method, m.Server, m.Name, request)), nil
	case "answer":
		return sdk.Verdict{Action: pipeline.Answer, Answer: []byte(`{"told":true}`)}, nil
	case "hide":
		return sdk.Verdict{Action: pipeline.Modify, Hide: []string{"h"}}, nil
	case "write":
		fmt.Fprintln(os.Stderr, "said after Serve")
	case "large":
		text, _ := m.Text("/text")
		return sdk.Modify("", []mcp.Edit{mcp.Set("/text", mcp.Quote(text[1:]))}), nil
	case "env":
		work, _ := os.Getwd()
		files, _ := os.ReadDir(work)
		n, err := os.Stdin.Read(make([]byte, 1))
		var names []string
		for _, e := range os.Environ() {
			name, _, _ := strings.Cut(e, "=")
			names = append(names, name)
		}
		return sdk.Deny(fmt.Sprintf("%d files, stdin %d %v, env %s", len(files), n, err,
			strings.Join(names, " "))), nil
	}
	if s.refuse {
		return sdk.Deny("it refuses all"), nil
	}
	if s.mark != "" {
		before, _ := m.Text("/mark")
		return sdk.Modify("marked", []mcp.Edit{mcp.Set("/mark", mcp.Quote(before+s.mark))},
			pipeline.Finding{Type: "mark", Pointer: "/mark"}), nil
	}
	return sdk.Allow(), nil
}

// servePlugins serves words, and, where the arguments say so, a service that does not keep to the
// protocol.
func servePlugins() {
	fmt.Fprintln(os.Stderr, "hello \x1b[31mred")
	if len(os.Args) < 3 || os.Args[2] == "words" {
		sdk.Serve(words("words"), words("mine"))
		return
	}
	switch os.Args[2] {
	case "nods":
		nods := func(context.Context, *mcp.Message) (sdk.Verdict, error) { return sdk.Allow(), nil }
		sdk.Serve(sdk.Plugin{Name: "nods", Version: "1", Needs: sdk.Needs{Body: true},
			New: func([]byte) (sdk.Stage, error) { return sdk.StageFunc(nods), nil }})
	case "mute":
		time.Sleep(time.Hour)
	case "talks":
		fmt.Println("hello")
		time.Sleep(time.Hour)
	case "plain":
		fmt.Printf("1|1|unix|%s/plain.sock|grpc\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		time.Sleep(time.Hour)
	case "elsewhere":
		fmt.Println("1|1|unix|/tmp/elsewhere.sock|grpc|")
		time.Sleep(time.Hour)
	}
	plugin.Serve(&plugin.ServeConfig{HandshakeConfig: proto.Handshake(),
		Logger: hclog.NewNullLogger(),
		Plugins: plugin.PluginSet{proto.ServiceName: bad{how: os.Args[2], stop: new(func()),
			PluginServer: sdk.NewServer(words("words"))}},
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, grpc.MaxRecvMsgSize(64<<20))...)
		}})
}

type bad struct {
	plugin.NetRPCUnsupportedPlugin
	pb.PluginServer
	how  string
	stop *func()
}

func (b bad) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pb.RegisterPluginServer(s, b)
	*b.stop = s.Stop
	return nil
}

func (bad) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no")
}

func (b bad) Inspect(stream grpc.BidiStreamingServer[pb.InspectRequest, pb.InspectResponse]) error {
	for {
		q, err := stream.Recv()
		if err != nil {
			return err
		}
		allow := &pb.Verdict{Action: pb.Action_ACTION_ALLOW}
		r := &pb.InspectResponse{Seq: q.Seq, Verdicts: []*pb.Verdict{allow}}
		if bytes.Contains(q.Message.Body, []byte(`"good"`)) {
			stream.Send(r)
			continue
		}
		switch b.how {
		case "another id":
			r.Seq++
		case "an unknown action":
			allow.Action = 99
		case "no verdict":
			r.Verdicts = nil
		case "two verdicts":
			r.Verdicts = append(r.Verdicts, allow)
		case "no JSON":
			allow.Action, allow.Edits = pb.Action_ACTION_MODIFY,
				[]*pb.Edit{{Pointer: "/x", Value: []byte("{")}}
		case "an edit that it hides":
			allow.Edits = []*pb.Edit{{Pointer: "/x", Value: []byte("1")}}
		case "10 MiB":
			allow.Reason = strings.Repeat("x", 10<<20)
		case "an error of gRPC":
			return errors.New("no")
		case "the end of the stream":
			return nil
		case "stops serving":
			time.AfterFunc(10*time.Millisecond, *b.stop)
		case "dies after its answer":
			time.AfterFunc(50*time.Millisecond, func() { os.Exit(3) })
		}
		if err := stream.Send(r); err != nil {
			return err
		}
	}
}
