package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// consoleTraffic implements console.Traffic.
type consoleTraffic struct {
	file      string        // of the audit log
	committed func() uint64 // seq of the last record that may be read
	replica   string        // that of the calls, if there are several logs

	mu    sync.Mutex
	tails map[tailKind]*trafficTail
}

// tailKind has the messages that viewers follow only if their filter asks for them.
type tailKind struct{ notifications, own bool }

func newConsoleTraffic(file string, committed func() uint64) *consoleTraffic {
	return &consoleTraffic{file: file, committed: committed,
		tails: map[tailKind]*trafficTail{}}
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

// Follow implements console.Traffic. All viewers share a reader of the log.
func (t *consoleTraffic) Follow(ctx context.Context, expression string, after uint64,
	send func(console.NewCalls) error) error {
	filter, _, err := parseFilter(expression)
	if err != nil {
		return err
	}
	return t.tail(filter).follow(ctx, filter, after, send)
}

// tail returns the reader for viewers with a filter: there are four, at most.
func (t *consoleTraffic) tail(filter *query.Filter) *trafficTail {
	wants := tailKind{filter.WantsNotifications(), filter.WantsOwn()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tails[wants] == nil {
		t.tails[wants] = &trafficTail{file: t.file, committed: t.committed, replica: t.replica,
			options: query.Options{Notifications: wants.notifications, Own: wants.own}}
	}
	return t.tails[wants]
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
