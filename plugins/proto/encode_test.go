package proto_test

import (
	"slices"
	"testing"

	"gatekit/plugins/proto"
	pb "gatekit/plugins/proto/gatekit/plugin/v1"

	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The parts of a request are its encoding, and do not copy the bodies.
func TestRequestParts(t *testing.T) {
	full := &pb.Message{Kind: pb.Kind_KIND_RESPONSE, Direction: pb.Direction_DIRECTION_TO_CLIENT,
		Session: "s", Principal: "p", Exchange: "e", Method: "m", Server: "v", Name: "n",
		Body: []byte(`{"a":1}`), Request: []byte(`{"b":2}`)}
	set := 0
	full.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		set++
		return true
	})
	if all := full.ProtoReflect().Descriptor().Fields().Len(); set != all {
		t.Fatalf("the test sets %d of %d fields of Message", set, all)
	}
	for name, m := range map[string]*pb.Message{
		"all fields": full,
		"no body":    {Kind: pb.Kind_KIND_REQUEST, Method: "m", Request: []byte("1")},
		"no request": {Kind: pb.Kind_KIND_REQUEST, Method: "m", Body: []byte("1")},
		"nothing":    {},
		"a result":   nil,
	} {
		want := &pb.InspectRequest{Seq: 300, Stages: []uint32{1, 200}, Message: m}
		if m == nil {
			want.Result = &pb.StateResult{Refused: 1}
		}
		q := protobuf.Clone(want).(*pb.InspectRequest)
		parts, _, err := proto.RequestParts(q, []byte{})
		if err != nil {
			t.Fatal(err)
		}
		if !protobuf.Equal(q, want) {
			t.Errorf("%s: RequestParts has changed the request to %v", name, q)
		}
		var got pb.InspectRequest
		if err := protobuf.Unmarshal(slices.Concat(parts...), &got); err != nil ||
			!protobuf.Equal(&got, want) {
			t.Errorf("%s: the parts are the encoding of %v, %v, want %v", name, &got, err, want)
		}
		for what, body := range map[string][]byte{"body": q.GetMessage().GetBody(),
			"request": q.GetMessage().GetRequest()} {
			if len(body) > 0 && !slices.ContainsFunc(parts, func(p []byte) bool {
				return len(p) > 0 && &p[0] == &body[0]
			}) {
				t.Errorf("%s: the %s was copied", name, what)
			}
		}
	}
}
