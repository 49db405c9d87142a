//go:build linux

package main

import (
	"errors"
	"slices"
	"strings"
)

// measureDefinitions compares the merged list with and without the plugins that read all texts.
func (p *plan) measureDefinitions(s setup, out report) error {
	all, err := pluginVariants()
	if err != nil {
		return err
	}
	scanners := strings.Join(scannerNames(), "+")
	s.variants = slices.DeleteFunc(all, func(v variant) bool {
		return v.name != baseline && v.name != scanners
	})
	s.route, s.servers, s.tools, s.era = httpHTTP, p.servers, p.toolsPerServer, p.eras[0]
	var names []string
	for _, v := range s.variants {
		names = append(names, v.name)
	}
	out.definitionsHeader(s)
	for _, s.workers = range p.workers {
		for _, s.newItems = range []bool{false, true} {
			targets, end, err := s.open(names...)
			if err == nil {
				var c comparison
				c, err = compare(targets, s.workers, func(*target) message { return listTools },
					p.rounds, p.length)
				if err == nil {
					out.definitionsRows(s, c)
				}
			}
			if err = errors.Join(err, end()); err != nil {
				return err
			}
		}
	}
	return nil
}
