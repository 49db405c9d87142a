//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// The backend is a server of both eras that does as little as possible: it extracts the few members
// that it needs from the request, without parsing the rest.

// serveEchoStdio serves stdin and stdout until the end of stdin.
func serveEchoStdio() error {
	in, out := newLineReader(inheritedPipe(os.Stdin)), inheritedPipe(os.Stdout)
	var buf []byte
	for {
		line, err := in.next()
		if err != nil {
			return nil
		}
		if buf = appendAnswer(buf[:0], line, 1); len(buf) == 0 {
			continue
		}
		if _, err := out.Write(append(buf, '\n')); err != nil {
			return err
		}
	}
}

// serveEchoHTTP serves HTTP on a free port until stdin ends. It prints the address first. A client
// of the path /tools/N/… sees N tools. A path that ends in /streams offers a GET stream, like
// servers that send notifications.
//
// With a path that ends in /new, one tool of each list is new.
func serveEchoHTTP() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var lists atomic.Int64
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serveEchoConn(c, &lists)
	}
}

// newItems is the last segment of the path of a backend whose lists have a new tool each time.
const newItems = "new"

// serveEchoConn serves one HTTP connection. It counts the lists with a new tool in lists.
func serveEchoConn(c net.Conn, lists *atomic.Int64) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	var body, head, buf []byte
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if body, err = appendBody(body[:0], req.Body, req.ContentLength); err != nil {
			return
		}
		tools := 1
		if n, ok := strings.CutPrefix(req.URL.Path, "/tools/"); ok {
			n, _, _ = strings.Cut(n, "/")
			tools, _ = strconv.Atoi(n)
		}
		head = append(head[:0], "HTTP/1.1 "...)
		buf = buf[:0]
		switch {
		case req.Method == "GET" && strings.HasSuffix(req.URL.Path, "/streams"):
			head = append(head, "200 OK\r\nContent-Type: "+
				"text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"...)
			c.Write(head)
			io.Copy(io.Discard, c)
			return
		case req.Method == "DELETE":
			head = append(head, "200 OK\r\n"...)
		case req.Method != "POST":
			head = append(head, "405 Method Not Allowed\r\n"...)
		default:
			if buf = appendAnswer(buf, body, tools); len(buf) == 0 {
				head = append(head, "202 Accepted\r\n"...)
				break
			}
			head = append(head, "200 OK\r\nContent-Type: application/json\r\n"...)
			if strings.HasSuffix(req.URL.Path, "/"+newItems) {
				title := fmt.Appendf(nil, "A new tool %d", lists.Add(1))
				buf = bytes.Replace(buf, []byte("A tool of the bench"), title, 1)
			}
			if string(member(body, "method")) == `"initialize"` {
				head = append(head, "Mcp-Session-Id: "...)
				head = append(head, randomID()...)
				head = append(head, "\r\n"...)
			}
		}
		head = append(head, "Content-Length: "...)
		head = strconv.AppendInt(head, int64(len(buf)), 10)
		head = append(head, "\r\n\r\n"...)
		if _, err := (&net.Buffers{head, buf}).WriteTo(c); err != nil {
			return
		}
	}
}

// appendBody appends a body to dst. length is -1 when it is unknown.
func appendBody(dst []byte, r io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		b, err := io.ReadAll(r)
		return append(dst, b...), err
	}
	if int64(cap(dst)) < length {
		dst = make([]byte, 0, length)
	}
	_, err := io.ReadFull(r, dst[:length])
	return dst[:length], err
}

// appendAnswer appends the answer to the message msg to dst. If msg is a notification, it appends
// nothing. The server has as many tools as the parameter tools says.
func appendAnswer(dst, msg []byte, tools int) []byte {
	id, method, params := member(msg, "id"), member(msg, "method"), member(msg, "params")
	if len(id) == 0 || len(method) == 0 {
		return dst
	}
	dst = append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
	dst = append(dst, `,"result":{`...)
	if bytes.Contains(member(params, "_meta"),
		[]byte(`"io.modelcontextprotocol/protocolVersion"`)) {
		dst = append(dst, `"resultType":"complete",`...)
	}
	switch string(method) {
	case `"initialize"`:
		dst = append(append(dst, `"protocolVersion":`...), member(params, "protocolVersion")...)
		dst = append(dst, `,"capabilities":{"tools":{}},`...)
		dst = append(dst, `"serverInfo":{"name":"echo","version":"1"}`...)
	case `"server/discover"`:
		dst = append(dst, `"supportedVersions":["2026-07-28","2025-11-25"],`...)
		dst = append(dst, `"capabilities":{"tools":{}},`...)
		dst = append(dst, `"serverInfo":{"name":"echo","version":"1"},`...)
		dst = append(dst, `"ttlMs":0,"cacheScope":"private"`...)
	case `"tools/list"`:
		dst = append(dst, `"ttlMs":0,"cacheScope":"private","tools":[`...)
		for i := range tools {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendTool(dst, i)
		}
		dst = append(dst, ']')
	case `"tools/call"`:
		dst = append(append(dst, `"content":[{"type":"text","text":`...),
			member(member(params, "arguments"), "text")...)
		dst = append(dst, "}]"...)
	case `"ping"`:
	default:
		dst = dst[:bytes.LastIndex(dst, []byte(`"result"`))]
		return append(dst, `"error":{"code":-32601,"message":"method not found"}}`...)
	}
	dst = bytes.TrimSuffix(dst, []byte(",")) // ping has no member to follow resultType
	return append(dst, "}}"...)
}

// appendTool appends the tool with the number i. The tool has about 745 bytes, a common size.
func appendTool(dst []byte, i int) []byte {
	if i == 0 {
		dst = append(dst, `{"name":"echo"`...)
	} else {
		dst = fmt.Appendf(dst, `{"name":"tool_%03d"`, i)
	}
	return append(dst, toolMembers...)
}

// toolMembers are the members of a tool that follow its name.
var toolMembers = `,"title":"A tool of the bench",` +
	`"description":"Looks up the records that match a query, newest first, ` +
	`and answers them one by one. Use it when the user asks for what was written, by whom, ` +
	`or when; do not use it to change anything.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"text":{"type":"string","description":` +
	`"What to look for; words are joined by and, quotes keep them together"},` +
	`"limit":{"type":"integer","minimum":1,"maximum":100,"default":20,` +
	`"description":"How many records to answer at most"},` +
	`"since":{"type":"string","format":"date-time",` +
	`"description":"Only records that are younger"}},` +
	`"required":["text"],"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"openWorldHint":false,"idempotentHint":true}}`
