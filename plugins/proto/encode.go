package proto

import (
	pb "gatekit/plugins/proto/gatekit/plugin/v1"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Numbers of fields in plugin.proto.
const (
	requestMessage = 3  // InspectRequest.message
	messageBody    = 9  // Message.body
	messageRequest = 10 // Message.request
)

// RequestParts returns the encoding of q in parts, without a copy of the body and the request of
// the message. The other parts are in the buffer that it returns, which begins with buf.
// RequestParts changes q while it runs.
func RequestParts(q *pb.InspectRequest, buf []byte) (parts [][]byte, _ []byte, err error) {
	m := q.Message
	if m == nil {
		buf, err = proto.MarshalOptions{}.MarshalAppend(buf, q)
		return [][]byte{buf}, buf, err
	}
	body, request := m.Body, m.Request
	m.Body, m.Request, q.Message = nil, nil, nil
	defer func() { m.Body, m.Request, q.Message = body, request, m }()
	size := proto.Size(m)
	if len(body) > 0 {
		size += protowire.SizeTag(messageBody) + protowire.SizeBytes(len(body))
	}
	if len(request) > 0 {
		size += protowire.SizeTag(messageRequest) + protowire.SizeBytes(len(request))
	}
	if buf, err = (proto.MarshalOptions{}).MarshalAppend(buf, q); err != nil {
		return nil, buf, err
	}
	buf = protowire.AppendTag(buf, requestMessage, protowire.BytesType)
	buf = protowire.AppendVarint(buf, uint64(size))
	if buf, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(buf, m); err != nil {
		return nil, buf, err
	}
	if len(body) > 0 {
		buf = appendTagAndSize(buf, messageBody, body)
	}
	beforeRequest := len(buf)
	if len(request) > 0 {
		buf = appendTagAndSize(buf, messageRequest, request)
	}
	return [][]byte{buf[:beforeRequest], body, buf[beforeRequest:], request}, buf, nil
}

func appendTagAndSize(buf []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendVarint(protowire.AppendTag(buf, number, protowire.BytesType),
		uint64(len(content)))
}
