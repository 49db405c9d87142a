//go:build linux

package main

import "errors"

// measureBefore compares the processor time of a call with that of an older binary.
func (p *plan) measureBefore(s setup, out report) error {
	if p.before == "" {
		return errors.New("-parts before: name the older binary with -before")
	}
	s.variants = []variant{{name: "before", binary: p.before}, {name: "after"}}
	out.beforeHeader(p.before)
	for _, s.route = range p.routes {
		for _, s.era = range p.eras {
			for _, s.workers = range p.workers {
				targets, end, err := s.open("before", "after")
				for _, size := range p.sizes {
					if err != nil {
						break
					}
					var c comparison
					c, err = compare(targets, s.workers, func(t *target) message {
						return echoCall(t.tool, size)
					}, p.rounds, p.length)
					if err == nil {
						out.beforeRow(s, size, c)
					}
				}
				if err = errors.Join(err, end()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
