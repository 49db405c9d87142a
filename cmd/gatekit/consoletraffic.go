package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"gatekit/audit"
	"gatekit/audit/query"
	"gatekit/transport/console"
)

// Bounds of one list of calls.
const (
	consoleCalls   = 200    // calls in a list
	consoleRecords = 50_000 // records that are searched for them
	consoleLongest = 5_000  // records after the list that are searched for the ends of its calls
)

// Bounds of the calls that a viewer follows. They bound the costs of the viewers, whatever the
// traffic is. Reading a record and rendering its line costs about the same for each viewer, so
// the viewers share the bounds of a few.
const (
	followShared  = 4 // viewers that have the bounds below; more viewers share those of four
	followPoll    = 500 * time.Millisecond
	followRecords = 100   // records that are read in a second, on average
	followBurst   = 1_000 // records that are read at once after a quiet time
	// records before the last one that are read again after an interruption; the viewers share them
	followOverlap = 2_000
)

// consoleTraffic implements console.Traffic.
type consoleTraffic struct {
	file      string        // of the audit log
	committed func() uint64 // seq of the last record that may be read
	viewers   atomic.Int64  // calls of Follow that have not returned
}

// Calls implements console.Traffic.
func (t *consoleTraffic) Calls(ctx context.Context, expression string,
	before uint64) (*console.CallList, error) {
	filter, words, err := parseFilter(expression)
	if err != nil {
		return nil, &console.FilterError{Err: err}
	}
	list := &console.CallList{Words: words, Through: t.committed()}
	end := list.Through + 1
	if before != 0 {
		end = min(end, before)
	}
	first := end
	// Calls may begin before the part that is searched first, and long before their ends. So each
	// part begins earlier than the one before, and only its older calls are new.
	for span := uint64(1000); first > 1 && end-first < consoleRecords; span *= 4 {
		first = end - min(span, end-1)
		list.Calls, err = t.between(ctx, filter, first, end)
		if err != nil {
			return nil, err
		}
		if len(list.Calls) >= consoleCalls {
			break
		}
	}
	if n := len(list.Calls); n > consoleCalls {
		list.Calls = list.Calls[:consoleCalls]
		first = list.Calls[consoleCalls-1].FirstSeq
	}
	if first > 1 {
		list.Before = first
	}
	return list, nil
}

// Follow implements console.Traffic. Each viewer reads the log by itself, so following costs
// nothing when nobody looks. The more viewers there are, the more records each of them skips.
func (t *consoleTraffic) Follow(ctx context.Context, expression string, after uint64,
	send func(console.NewCalls) error) error {
	filter, _, err := parseFilter(expression)
	if err != nil {
		return err
	}
	viewers := t.viewers.Add(1)
	defer t.viewers.Add(-1)
	after = min(after, t.committed())
	// The calls that are open now began before. They are read again from their beginning.
	overlap := max(followOverlap/uint64(viewers), followRecords)
	from := after + 1 - min(after, overlap)
	skipped := uint64(0)
	if now := t.committed(); now > after+overlap { // after a long interruption
		from = now - followRecords + 1
		skipped = from - after - 1
	}
	allowance := rate.NewLimiter(followRecords, followBurst)
	for ctx.Err() == nil {
		t.shareAllowance(allowance)
		through, err := t.followFrom(ctx, filter, from, skipped, allowance, send)
		if err != nil {
			return err
		}
		from, skipped = through+1, 0
		if now := t.committed(); ctx.Err() == nil && now > through {
			allowed := uint64(max(1, allowance.Tokens()))
			from = max(from, now-min(now, allowed)+1)
			skipped = from - through - 1
			allowance.AllowN(time.Now(), int(now-from+1))
		}
	}
	return nil
}

// shareAllowance sets the allowance of one viewer to its share.
func (t *consoleTraffic) shareAllowance(allowance *rate.Limiter) {
	viewers := max(int(t.viewers.Load()), followShared)
	allowance.SetLimit(rate.Limit(followRecords*followShared) / rate.Limit(viewers))
	allowance.SetBurst(followBurst * followShared / viewers)
}

// followFrom sends calls until the records are written faster than they are read. It returns the
// seq of the last record that it has read.
func (t *consoleTraffic) followFrom(ctx context.Context, filter *query.Filter, from,
	skipped uint64, allowance *rate.Limiter,
	send func(console.NewCalls) error) (through uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	through = t.committed()
	reader := &audit.Reader{File: t.file, From: from, Seek: true, Poll: followPoll,
		Limit: func() uint64 {
			t.shareAllowance(allowance)
			now := t.committed()
			if allowance.AllowN(time.Now(), int(now-through)) {
				through = now
			} else {
				cancel()
			}
			return through
		}}
	calls := []*query.Call{}
	flush := func() error {
		if len(calls) == 0 && skipped == 0 {
			return nil
		}
		err := send(console.NewCalls{Calls: calls, Skipped: skipped, Through: through})
		calls, skipped = nil, 0
		return err
	}
	for c, callErr := range query.Calls(ctx, reader, filter, query.Options{Follow: true,
		KeepRecords: true, Idle: func() {
			if err == nil {
				if err = flush(); err != nil {
					cancel()
				}
			}
		}}) {
		if callErr != nil {
			return through, callErr
		}
		// The beginning of the call was skipped.
		if c.Kind != "response" && c.Kind != "error" {
			calls = append(calls, c)
		}
	}
	if err == nil {
		err = flush()
	}
	return through, err
}

// between returns the calls that begin with one of the records from first to before end, newest
// first.
func (t *consoleTraffic) between(ctx context.Context, filter *query.Filter,
	first, end uint64) (calls []*query.Call, err error) {
	reader := &audit.Reader{File: t.file, From: first, Seek: true,
		Through: min(end+consoleLongest, t.committed())}
	for c, err := range query.Calls(ctx, reader, filter, query.Options{KeepRecords: true}) {
		if err != nil {
			return nil, err
		}
		if c.FirstSeq >= end {
			continue
		}
		calls = append(calls, c)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(calls, func(a, b *query.Call) int { return int(b.FirstSeq) - int(a.FirstSeq) })
	return calls, nil
}

// parseFilter parses a filter with the flags of gatekit audit show: --server github --action deny.
// The dashes may be left out: server=github. The words describe the filter to people.
func parseFilter(expression string) (f *query.Filter, words []string, err error) {
	args, err := splitExpression(expression)
	if err != nil {
		return nil, nil, err
	}
	for i, arg := range args {
		if name, _, ok := strings.Cut(arg, "="); ok && !strings.HasPrefix(arg, "-") &&
			name != "" {
			args[i] = "--" + arg
		}
	}
	c := &cobra.Command{}
	c.SetOut(io.Discard)
	read := filterFlags(c)
	if err := c.ParseFlags(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			err = errors.New("a filter is written as --server github --action deny")
		}
		return nil, nil, fmt.Errorf("filter: %w", err)
	}
	if rest := c.Flags().Args(); len(rest) > 0 {
		return nil, nil, fmt.Errorf("filter: %q belongs to no flag\nhint: write --tool %s, or "+
			"--server, --action, --since, …", rest[0], rest[0])
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		value := strings.Trim(f.Value.String(), "[]")
		words = append(words, f.Name+" "+strings.ReplaceAll(value, ",", " or "))
	})
	f, err = read()
	return f, words, err
}

// splitExpression splits a text at spaces. Text in single or double quotes is one word.
func splitExpression(text string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("filter: a quote %c is not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
