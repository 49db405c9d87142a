package transport_test

import (
	"bufio"
	"net/http"
	"testing"
	"time"
)

// TestReserveIsOpenedAgain has no file descriptor left twice. The first time, the server uses the
// descriptor that it keeps in reserve. It must have a reserve again the second time, since
// otherwise the client gets no answer.
func TestReserveIsOpenedAgain(t *testing.T) {
	server := listen(t, nil)
	for i := range 2 {
		restore := takeDescriptors(t)
		defer restore()
		c := server.dial(t, post("x"))
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("no answer without a free descriptor, time %d: %v", i+1, err)
		}
		r.Body.Close()
		c.Close()
		restore()
		c = server.dial(t, post("x"))
		if r, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 200 {
			t.Fatalf("with free descriptors: got %v and the error %v, want status 200", r, err)
		}
		r.Body.Close()
		c.Close()
		server.waitUntilIdle(0)
	}
}
