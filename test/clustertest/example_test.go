package clustertest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatekit/test/clustertest"
	"gatekit/test/harness"
	"gatekit/test/peers"
)

// eachBalancer runs a test with each balancer in front of three servers.
func eachBalancer(t *testing.T, f func(t *testing.T, b *backends)) {
	for _, name := range clustertest.ExampleBalancers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &backends{name: name, received: map[string][]int{}}
			var urls []string
			for i := range b.servers {
				b.servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
					r *http.Request) {
					b.serve(i, w, r)
				}))
				t.Cleanup(b.servers[i].Close)
				urls = append(urls, b.servers[i].URL)
			}
			b.url = "http://" + clustertest.StartExampleBalancer(t, name, urls...) + "/mcp"
			f(t, b)
		})
	}
}

// backends are three servers that count requests.
type backends struct {
	name    string // of the balancer
	url     string // of the balancer
	servers [3]*httptest.Server
	handler func(w http.ResponseWriter, r *http.Request) // for requests that are no probes
	ready   [3]atomic.Int32                              // the status of /readyz; 0 means 200

	mu       sync.Mutex
	received map[string][]int // the servers that received a request, by its name
}

const headerName = "Test-Name" // has the name of a request

func (b *backends) serve(i int, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		w.WriteHeader(max(int(b.ready[i].Load()), http.StatusOK))
		return
	}
	name := r.Header.Get(headerName)
	b.mu.Lock()
	b.received[name] = append(b.received[name], i)
	b.mu.Unlock()
	if b.handler != nil {
		b.handler(w, r)
	}
}

// receivers returns the servers that received a request.
func (b *backends) receivers(name string) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.received[name])
}

// post sends a request through the balancer, and returns the status of the answer.
func (b *backends) post(t *testing.T, name string, body io.Reader, headers ...string) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, b.url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(headerName, name)
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// TestRequestsGoToTheNextReplica sends requests one after the other.
func TestRequestsGoToTheNextReplica(t *testing.T) {
	eachBalancer(t, func(t *testing.T, b *backends) {
		last, seen := -1, map[int]int{}
		for n := range 9 {
			name := fmt.Sprint(n)
			if status := b.post(t, name, strings.NewReader("{}")); status != http.StatusOK {
				t.Fatalf("request %d got status %d", n, status)
			}
			got := b.receivers(name)
			if len(got) != 1 || got[0] == last {
				t.Errorf("request %d reached %v, want one replica that is not %d", n, got, last)
			}
			last = got[0]
			seen[last]++
		}
		if !maps.Equal(seen, map[int]int{0: 3, 1: 3, 2: 3}) {
			t.Errorf("the replicas got %v requests, want 3 each", seen)
		}
	})
}

// TestNoRequestIsSentTwice breaks the connection after a request has arrived: nobody knows whether
// it was run. The client must get an error, and no permission to send the request again. The second
// request of each client is on the connection of the first, if the balancer keeps it. In this case,
// haproxy by itself closes the connection without an answer, and curl sends the request again.
func TestNoRequestIsSentTwice(t *testing.T) {
	peers.Installed(t, "curl")
	eachBalancer(t, func(t *testing.T, b *backends) {
		b.handler = func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get(headerName) != "first" {
				panic(http.ErrAbortHandler)
			}
		}
		for n := range 6 {
			name := fmt.Sprint(n)
			if status := b.post(t, name, strings.NewReader("{}")); status != http.StatusBadGateway {
				t.Errorf("request %d got status %d, want 502", n, status)
			}
		}
		request := func(name string) []string {
			return []string{"-s", "-w", "%{http_code} ", "-o", "/dev/null", "-d", "{}", "-H",
				headerName + ": " + name, b.url}
		}
		out, err := exec.Command("curl", append(append(request("first"), "--next"),
			request("curl")...)...).CombinedOutput()
		if want := "200 502 "; err != nil || string(out) != want {
			t.Errorf("curl printed %q, %v, want %q", out, err, want)
		}
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		h2 := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
		defer h2.CloseIdleConnections()
		for _, name := range []string{"first", "h2"} {
			r, err := http.NewRequestWithContext(harness.Context(t), http.MethodPost, b.url,
				strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(headerName, name)
			if answer, err := h2.Do(r); err == nil {
				answer.Body.Close()
			}
		}
		for _, name := range []string{"0", "1", "2", "3", "4", "5", "curl"} {
			if got := b.receivers(name); len(got) != 1 {
				t.Errorf("request %s was sent to the replicas %v, want one", name, got)
			}
		}
		if got := b.receivers("h2"); len(got) > 1 {
			t.Errorf("a request over HTTP/2 was sent to the replicas %v", got)
		}
	})
}

// TestRequestsAvoidADeadReplica closes a replica. No request is lost, because none was sent to it.
func TestRequestsAvoidADeadReplica(t *testing.T) {
	eachBalancer(t, func(t *testing.T, b *backends) {
		b.servers[1].Close()
		// If another test starts a process at the same time, that process has the closed listener
		// for a moment, until it runs its program.
		harness.WaitUntilAtMost(t, "servers that still listen", 0, func() int {
			c, err := net.Dial("tcp", b.servers[1].Listener.Addr().String())
			if err != nil {
				return 0
			}
			c.Close()
			return 1
		})
		for n := range 9 {
			name := fmt.Sprint(n)
			if status := b.post(t, name, strings.NewReader("{}")); status != http.StatusOK {
				t.Errorf("request %d got status %d", n, status)
			}
		}
	})
}

// TestRequestsArriveUnchanged sends headers and bodies as large as Gatekit accepts them.
func TestRequestsArriveUnchanged(t *testing.T) {
	eachBalancer(t, func(t *testing.T, b *backends) {
		var got *http.Request
		var body []byte
		b.handler = func(_ http.ResponseWriter, r *http.Request) {
			got = r
			body, _ = io.ReadAll(r.Body)
		}
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
		token := strings.Repeat("t", 24<<10)
		if status := b.post(t, "x", bytes.NewReader(want), "Authorization", "Bearer "+token,
			"Mcp-Param-user_id", "7", "Mcp-Param-a.b", "8"); status != http.StatusOK {
			t.Fatalf("got status %d", status)
		}
		if !bytes.Equal(body, want) {
			t.Errorf("the body has %d bytes, want the %d that were sent", len(body), len(want))
		}
		for name, want := range map[string]string{"Authorization": "Bearer " + token,
			"Mcp-Param-User_id": "7", "Mcp-Param-A.b": "8", "X-Forwarded-For": "127.0.0.1"} {
			if got := got.Header.Get(name); got != want {
				t.Errorf("the header %s is %.100q, want %.100q", name, got, want)
			}
		}
		if want := strings.TrimSuffix(strings.TrimPrefix(b.url, "http://"),
			"/mcp"); got.Host != want {
			t.Errorf("the header Host is %q, want %q", got.Host, want)
		}
	})
}

// TestEventsArriveAtOnce opens a stream. The second event is sent only when the first has arrived.
// With haproxy, the replica fails its probes in between: streams go on.
func TestEventsArriveAtOnce(t *testing.T) {
	eachBalancer(t, func(t *testing.T, b *backends) {
		next := make(chan struct{}, 2)
		b.handler = func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for n := range 2 {
				fmt.Fprintf(w, "data: %d\n\n", n)
				w.(http.Flusher).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
				}
			}
		}
		answer, err := http.Get(b.url)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		for n := range 2 {
			if want := fmt.Sprintf("data: %d", n); !lines.Scan() || lines.Text() != want {
				t.Fatalf("got %q, %v, want %q", lines.Text(), lines.Err(), want)
			}
			lines.Scan() // the empty line
			if b.name == "haproxy" && n == 0 {
				for i := range b.ready {
					b.ready[i].Store(http.StatusServiceUnavailable)
				}
				awaitStatus(t, b, http.StatusServiceUnavailable)
			}
			next <- struct{}{}
		}
	})
}

// TestReplicaThatIsNotReadyGetsNoRequests fails the probes of a replica. nginx probes nothing.
func TestReplicaThatIsNotReadyGetsNoRequests(t *testing.T) {
	eachBalancer(t, func(t *testing.T, b *backends) {
		if b.name != "haproxy" {
			t.Skip("it probes nothing")
		}
		b.ready[1].Store(http.StatusServiceUnavailable)
		n, without := 0, 0 // requests, and those since the last that reached the replica
		for deadline := time.Now().Add(time.Minute); without < 9; n++ {
			name := fmt.Sprint(n)
			if status := b.post(t, name, strings.NewReader("{}")); status != http.StatusOK {
				t.Fatalf("request %d got status %d", n, status)
			}
			without++
			if slices.Contains(b.receivers(name), 1) {
				without = 0
			}
			if time.Now().After(deadline) {
				t.Fatal("the replica still gets requests")
			}
		}
	})
}

// awaitStatus waits until the balancer answers with a status.
func awaitStatus(t *testing.T, b *backends, want int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); b.post(t, "", nil) != want; {
		if time.Now().After(deadline) {
			t.Fatalf("the balancer does not answer with status %d", want)
		}
	}
}
