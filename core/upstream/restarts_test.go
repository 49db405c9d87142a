package upstream_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatekit/core/pipeline"
	"gatekit/core/proxy"
	"gatekit/core/upstream"
	"gatekit/test/upstreamtest"
)

// A client may call again at once when its call failed because the connection was lost. The second
// call waits for the restart.
func TestCallAfterALostCallWaitsForTheRestart(t *testing.T) {
	const calls = 50
	callTwice := func(t *testing.T, s proxy.Server, st *upstreamtest.Launcher,
		request func(id int) string) {
		var passed []pipeline.Passed
		for i := range 2 * calls {
			passed = append(passed, upstreamtest.Pass(t, request(i)))
		}
		old := st.Last(t)
		var lost, followed sync.WaitGroup
		lost.Add(calls)
		for i := range calls {
			followed.Go(func() {
				_, err := s.Call(t.Context(), passed[i], &upstreamtest.Client{})
				lost.Done()
				if err == nil {
					t.Error("a call to a process that has ended succeeded, want an error")
				}
				if _, err := s.Call(t.Context(), passed[calls+i],
					&upstreamtest.Client{}); err != nil {
					t.Errorf("the next call failed: %v", err)
				}
			})
		}
		for range calls {
			old.Expect(t, "tools/call")
		}
		old.Close()
		lost.Wait()
		time.Sleep(time.Second) // longer than the first delay
		srv := st.Last(t)
		go func() {
			for {
				select {
				case b := <-srv.Written:
					if m := upstreamtest.ParseMessage(t, b); m.Method == "initialize" {
						srv.Answer(m.ID, initializeResult)
					} else if m.ID != nil {
						srv.Answer(m.ID, `{}`)
					}
				case <-srv.Gone:
					return
				}
			}
		}()
		followed.Wait()
	}
	t.Run("legacy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := startLegacyServer(t, upstream.Options{Restart: true})
			defer l.close(t)
			callTwice(t, l, l.Launcher, func(id int) string {
				return fmt.Sprintf(
					`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, id)
			})
		})
	})
	t.Run("modern", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var events []string
			u, st := newModernUpstream(upstream.Options{Restart: true, Event: func(action, _ string,
				_ error) {
				events = append(events, action)
			}})
			defer u.Close()
			s := openModernSession(t, u, "a", "")
			first := upstreamtest.StartCall(t, s, &upstreamtest.Client{},
				upstreamtest.ModernRequest(`"first"`, "tools/call", ``,
					`,"name":"x"`))
			st.Last(t).Answer(st.Last(t).Next(t).ID, `{}`)
			first.ExpectAnswer(`{"jsonrpc":"2.0","id":"first","result":{}}`)
			callTwice(t, s, st, func(id int) string {
				return upstreamtest.ModernRequest(fmt.Sprint(id), "tools/call", ``, `,"name":"x"`)
			})
			if want := []string{"lost", "restarted"}; !slices.Equal(events, want) {
				t.Errorf("the events are %v, want %v", events, want)
			}
		})
	})
	t.Run("legacy over HTTP", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newLegacySite(t, upstream.Options{})
			s.onRequest = func(r request) *upstream.HTTPResponse {
				return resultResponse(r.ID, `{}`)
			}
			s.initialize(t)
			defer s.close(t)
			s.sessions++ // the server does not know the first session any more
			m := upstreamtest.Pass(t, toolsCall)
			for range 2 {
				if _, err := s.Call(t.Context(), m, &upstreamtest.Client{}); err != nil {
					t.Errorf("a call after the session has ended failed: %v", err)
				}
			}
		})
	})
}
