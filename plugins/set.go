package plugins

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"gatekit/core/display"
	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/proto"
)

const (
	// releaseAfter is how long the stages of a replaced configuration are kept for calls that began
	// under it.
	releaseAfter = 15 * time.Minute
	// maxReplaced is how many replaced configurations are kept. If there are more, the oldest is
	// released.
	maxReplaced = 4
)

// Set is the plugins of one configuration.
type Set struct {
	host        *Host
	stages      []*Stage // in the order of their specs
	releaseOnce sync.Once
}

// Stages returns the plugins of the set as stages for a pipeline, in the order of specs. The
// argument must be the specs that were passed to Load.
func (s *Set) Stages(specs []Spec) []pipeline.StageConfig {
	configs := make([]pipeline.StageConfig, len(s.stages))
	for i, stage := range s.stages {
		spec := specs[i]
		configs[i] = pipeline.StageConfig{Name: spec.Name, Stage: stage, Wants: stage.wants,
			Renames: stage.renames, Timeout: spec.Timeout, SkipOnError: spec.SkipOnError,
			KeepHidden: true, ReturnsOnCancel: true, Restore: stage.restore}
		if spec.isShared() {
			configs[i].Group = stageGroup{stage.process, stage.visibility}
		}
	}
	return configs
}

// SelfTest is a message on which a plugin must act. `gatekit check` runs it.
type SelfTest struct {
	Description string          // what the message contains
	Message     *mcp.Message    // the message to inspect
	Action      pipeline.Action // the action that the plugin must take
}

// SelfTest returns the self-test of the plugin at index i of the specs, or nil if the plugin has
// none.
func (s *Set) SelfTest(i int) (*SelfTest, error) {
	t := s.stages[i].selfTest
	if t == nil {
		return nil, nil
	}
	if !proto.HasValidBodies(t.Message) {
		return nil, errors.New("the body of the self-test's message is not valid JSON")
	}
	m, err := proto.ToMessage(t.Message)
	if err != nil {
		return nil, fmt.Errorf("the self-test's message: %w", err)
	}
	action, err := proto.ToAction(t.Action)
	return &SelfTest{Description: display.Clip(t.What, maxReason), Message: m, Action: action}, err
}

// Close marks the set as replaced: no new call will use the set. Calls in flight may use its stages
// for releaseAfter. Then the stages that are in no other set are closed.
func (s *Set) Close() {
	h := s.host
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.replaced = append(h.replaced, s)
	var oldest *Set
	if len(h.replaced) > maxReplaced {
		oldest, h.replaced = h.replaced[0], h.replaced[1:]
	}
	h.mu.Unlock()
	if oldest != nil {
		oldest.release()
	}
	time.AfterFunc(releaseAfter, s.release)
}

// release closes the stages that no other set uses, and the processes that have no stage left.
func (s *Set) release() {
	s.releaseOnce.Do(func() {
		h := s.host
		var unused []*supervisor
		h.mu.Lock()
		for _, stage := range s.stages {
			if stage.uses--; stage.uses > 0 {
				continue
			}
			if h.stages[stage.spec.stageKey()] == stage {
				delete(h.stages, stage.spec.stageKey())
			}
			key := stage.spec.processKey()
			isLast := stage.process.remove(stage)
			if isLast && h.supervisors[key] == stage.process {
				delete(h.supervisors, key)
				unused = append(unused, stage.process)
			}
		}
		h.mu.Unlock()
		for _, p := range unused {
			p.close()
		}
	})
}
