//go:build !linux

package plugins

// watchMemory does nothing: this system has no portable way to measure another process's memory.
func (p *pluginProcess) watchMemory(int64) {}
