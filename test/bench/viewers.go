//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

// viewerCounts are the numbers of viewers that are compared with none.
var viewerCounts = []int{1, 32}

// viewersWorkers is the number of concurrent calls in the part viewers.
const viewersWorkers = 8

// measureViewers compares the processor time that Gatekit needs while viewers of the console follow
// the traffic with its time without viewers. One process is measured in turns, at a fixed rate of
// calls. Each round has four turns: without viewers, with them, with them, and without. So a
// machine that becomes slower during a round does not count for the viewers.
func (p *plan) measureViewers(s setup, out report) (err error) {
	s.route, s.era, s.workers = httpHTTP, p.eras[0], viewersWorkers
	admin, err := freeAddress()
	if err != nil {
		return err
	}
	state := filepath.Join(s.dir, "state")
	s.variants = []variant{{name: "console", env: []string{"XDG_STATE_HOME=" + state},
		tables: fmt.Sprintf("[admin]\nhttp = %q\nconsole = \"read\"\n", admin)}}
	targets, end, err := s.open("console")
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return err
	}
	t := targets[0]
	token, err := logIn(s.gatekit, t.config, state)
	if err != nil {
		return err
	}
	out.viewersHeader(p.rounds, p.length, p.viewedRate)
	if _, err = p.measureTurn(t, viewersWorkers, p.length); err != nil { // to warm up
		return err
	}
	for _, n := range viewerCounts {
		c := make(comparison, 2)
		for range p.rounds {
			var round [2]measurement
			for _, withViewers := range []int{0, 1, 1, 0} {
				m, err := p.measureWith(t, admin, token, withViewers*n)
				if err != nil {
					return err
				}
				round[withViewers].calls += m.calls
				round[withViewers].cpu += m.cpu
				round[withViewers].rate += m.rate / 2
			}
			for i := range c {
				c[i] = append(c[i], round[i])
			}
		}
		out.viewersRow(n, c)
	}
	return nil
}

// measureWith measures one turn with a number of viewers, who have read what was there before.
func (p *plan) measureWith(t *target, admin, token string, viewers int) (measurement, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	for range viewers {
		answer, err := openViewer(ctx, admin, token)
		if err != nil {
			return measurement{}, err
		}
		reading.Go(func() {
			defer answer.Body.Close()
			io.Copy(io.Discard, answer.Body)
		})
	}
	if _, err := p.measureTurn(t, viewersWorkers, p.length/4); err != nil { // not measured
		return measurement{}, err
	}
	return p.measureTurn(t, viewersWorkers, p.length)
}

// openViewer opens the stream of a viewer. It waits for Gatekit to notice that the viewers of the
// turn before have left.
func openViewer(ctx context.Context, admin, token string) (*http.Response, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+
			"/console/api/live/traffic?after=18446744073709551615", nil) // from now on
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil || answer.StatusCode == http.StatusOK {
			return answer, err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return nil, fmt.Errorf("viewer of the console: %s", answer.Status)
		}
	}
}

// measureTurn calls the tool at the rate of the plan, and returns the processor time of the proxy.
// If the machine is too slow for the rate, the calls are made as fast as possible.
func (p *plan) measureTurn(t *target, workers int, length time.Duration) (measurement, error) {
	before, begin := t.proxy.threadsCPU(), time.Now()
	var due atomic.Int64
	durations, err := callRepeatedly(t.client, workers, echoCall(t.tool, p.sizes[0]),
		func(int64) bool {
			at := begin.Add(time.Duration(due.Add(1)) * time.Second / time.Duration(p.viewedRate))
			time.Sleep(time.Until(at))
			return time.Since(begin) < length
		})
	n := len(durations)
	return measurement{calls: n, rate: float64(n) / time.Since(begin).Seconds(),
		cpu: t.proxy.threadsCPU() - before}, err
}

// logIn returns a token of the console.
func logIn(gatekit, config, state string) (token string, err error) {
	c := exec.Command(gatekit, "console", "--json", "--config", config)
	c.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("gatekit console: %w", err)
	}
	var opened struct{ URL string }
	if err := json.Unmarshal(out, &opened, json.MatchCaseInsensitiveNames(true)); err != nil {
		return "", err
	}
	address, code, _ := strings.Cut(opened.URL, "#")
	answer, err := http.PostForm(address+"api/session", url.Values{"code": {code}})
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var session struct{ Token string }
	err = json.UnmarshalRead(answer.Body, &session, json.MatchCaseInsensitiveNames(true))
	if err == nil && session.Token == "" {
		err = fmt.Errorf("log in to the console: %s", answer.Status)
	}
	return session.Token, err
}
