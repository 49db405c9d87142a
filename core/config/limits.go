package config

import "time"

// Limits is [limits]: what one client or server may make Gatekit hold or do. All are above zero.
type Limits struct {
	MessageBytes       int           `toml:"message_bytes"`
	Depth              int           `toml:"depth"`
	Tokens             int           `toml:"tokens"`
	Batch              int           `toml:"batch"`
	InFlight           int           `toml:"in_flight"`
	Sessions           int           `toml:"sessions"`
	SessionIdle        time.Duration `toml:"session_idle"`
	ResumeEvents       int           `toml:"resume_events"`
	ResumeBytes        int           `toml:"resume_bytes"`
	ReverseTimeout     time.Duration `toml:"reverse_timeout"`
	ListPages          int           `toml:"list_pages"`
	ListItems          int           `toml:"list_items"`
	PageItems          int           `toml:"page_items"`
	Listens            int           `toml:"listens"`
	Rounds             int           `toml:"rounds"`
	Parked             int           `toml:"parked"`
	ParkedPerPrincipal int           `toml:"parked_of_one"`
	ParkedFor          time.Duration `toml:"parked_for"`
	PluginMemory       int           `toml:"plugin_memory"`
}

func (l *Limits) setDefaults() {
	*l = Limits{
		MessageBytes: 16 << 20, Depth: 200, Tokens: 1_000_000, Batch: 100,
		InFlight: 256, Sessions: 1000, SessionIdle: 30 * time.Minute, ResumeEvents: 256,
		ResumeBytes: 1 << 20, ReverseTimeout: 5 * time.Minute,
		ListPages: 100, ListItems: 10_000, PageItems: 1000, Listens: 32, Rounds: 16, Parked: 1024,
		ParkedPerPrincipal: 64, ParkedFor: 10 * time.Minute, PluginMemory: 1 << 30,
	}
}
