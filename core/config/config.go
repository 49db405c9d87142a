package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Config is one gatekit.toml, checked, with the defaults filled in. Its fields are described in
// gatekit.toml.example.
type Config struct {
	File string `toml:"-"` // absolute path of the file it was read from; "" when there is none

	Listen  Listen   `toml:"listen"`
	Servers []Server `toml:"server"` // in the order of the file
	Names   Names    `toml:"names"`
	Plugins []Plugin `toml:"plugin"`
	Policy  *Policy  `toml:"policy"` // nil when the file has none
	Audit   Audit    `toml:"audit"`
	Admin   Admin    `toml:"admin"`

	Telemetry Telemetry `toml:"telemetry"`
	Log       Log       `toml:"log"`

	Deny   Deny   `toml:"deny"`
	Limits Limits `toml:"limits"`

	source *snapshot // what Watch compares with; nil when there is no file
}

// Listen is [listen].
type Listen struct {
	Stdio          bool     `toml:"stdio"` // true when absent and there is no http
	HTTP           string   `toml:"http"`  // host:port, "" for none
	Path           string   `toml:"path"`
	SSE            bool     `toml:"sse"`
	AllowedOrigins []string `toml:"allowed_origins"`
	AllowedHosts   []string `toml:"allowed_hosts"`
	Insecure       bool     `toml:"insecure"`
	StateKey       Secret   `toml:"state_key"` // at least 32 bytes, or empty
}

// Server is one [server.NAME].
type Server struct {
	Name     string   `toml:",name"`
	Position Position `toml:"-"`

	Command string            `toml:"command"` // absolute, or a bare name to look up in PATH
	Args    []string          `toml:"args"`
	Env     map[string]Secret `toml:"env"`
	Cwd     string            `toml:"cwd"`
	Restart bool              `toml:"restart"`

	URL     string            `toml:"url"`
	Headers map[string]Secret `toml:"headers"`

	Era        string        `toml:"era"`
	Timeout    time.Duration `toml:"timeout"`
	MaxTimeout time.Duration `toml:"max_timeout"`
	Methods    []string      `toml:"methods"`
}

// Names is [names].
type Names struct {
	Prefix    string `toml:"prefix"`
	Resources string `toml:"resources"`
}

// Plugin is one [[plugin]].
type Plugin struct {
	Position Position `toml:"-"`

	Name    string            `toml:"name"`
	Use     string            `toml:"use"`
	Command []string          `toml:"command"`
	SHA256  string            `toml:"sha256"`
	Env     map[string]Secret `toml:"env"`
	MTLS    bool              `toml:"mtls"`
	Servers []string          `toml:"servers"`
	See     []string          `toml:"see"`
	May     []string          `toml:"may"`
	OnError string            `toml:"on_error"`
	Timeout time.Duration     `toml:"timeout"`
	Config  map[string]any    `toml:"config"`
}

// Policy is [policy].
type Policy struct {
	Position Position `toml:"-"`

	Rules  []string                  `toml:"rules"`
	Files  []string                  `toml:"files"` // absolute
	Data   []string                  `toml:"data"`  // absolute
	Mode   string                    `toml:"mode"`
	Config map[string]map[string]any `toml:"config"`

	ConfigPositions map[string]Position `toml:"-"` // where a rule's settings stand

	// In the order of the file:
	Keys     []Key     `toml:"key"`
	Services []Service `toml:"service"`
	Bundles  []Bundle  `toml:"bundle"`

	// nil when the file has none:
	DecisionLogs *DecisionLogs `toml:"decision_logs"`
	Status       *Status       `toml:"status"`
}

// Key is one [policy.key.NAME]: what bundles are verified with.
type Key struct {
	Name string `toml:",name"`

	Key       Secret `toml:"key"` // PEM with a public key or a certificate; the secret of HS…
	Algorithm string `toml:"algorithm"`
	Scope     string `toml:"scope"`
}

// Service is one [policy.service.NAME]: a server that bundles come from.
type Service struct {
	Name string `toml:",name"`

	URL     string            `toml:"url"`
	Headers map[string]Secret `toml:"headers"`
	CA      string            `toml:"ca"` // PEM; "" for those that the system trusts
}

// Bundle is one [policy.bundle.NAME]: policies that a service is asked for.
type Bundle struct {
	Name string `toml:",name"`

	Service  string        `toml:"service"` // when absent, the only one
	Resource string        `toml:"resource"`
	Key      string        `toml:"key"`     // "" for any of Keys
	Persist  string        `toml:"persist"` // absolute, "" for none
	MinDelay time.Duration `toml:"min_delay"`
	MaxDelay time.Duration `toml:"max_delay"`
}

// DecisionLogs is [policy.decision_logs]: where what the policies decide is told, without content.
type DecisionLogs struct {
	Service  string        `toml:"service"` // when absent, the only one
	Resource string        `toml:"resource"`
	Buffer   int           `toml:"buffer"`
	MinDelay time.Duration `toml:"min_delay"`
	MaxDelay time.Duration `toml:"max_delay"`
}

// Status is [policy.status]: where it is told which bundles are in force.
type Status struct {
	Service string `toml:"service"` // when absent, the only one
}

// Audit is [audit].
type Audit struct {
	File       string `toml:"file"` // absolute
	Bodies     string `toml:"bodies"`
	Durability string `toml:"durability"`

	SegmentBytes int           `toml:"segment_bytes"`
	KeepFiles    int           `toml:"keep_files"` // 0 is all, as of the two that follow
	KeepBytes    int           `toml:"keep_bytes"`
	KeepFor      time.Duration `toml:"keep_for"`

	Key    string `toml:"key"`    // absolute, or empty: beside the log
	Anchor string `toml:"anchor"` // absolute, or empty

	Sinks []Sink `toml:"sink"`
}

// Admin is [admin].
type Admin struct {
	HTTP string `toml:"http"` // host:port of this machine, "" for none
}

// Telemetry is [telemetry].
type Telemetry struct {
	Tools bool `toml:"tools"`

	URL      string            `toml:"url"` // of a collector, "" for none
	Protocol string            `toml:"protocol"`
	Headers  map[string]Secret `toml:"headers"`
	CA       string            `toml:"ca"` // absolute, or empty: the system's
	Insecure bool              `toml:"insecure"`
	Metrics  bool              `toml:"metrics"`
	Interval time.Duration     `toml:"interval"`
	Traces   bool              `toml:"traces"`
	Sample   float64           `toml:"sample"` // 0 to 1
}

// Log is [log].
type Log struct {
	Format string `toml:"format"`
	Level  string `toml:"level"`
}

// Deny is [deny].
type Deny struct {
	Reasons   bool   `toml:"reasons"`
	ToolCalls string `toml:"tool_calls"`
}

func (c *Config) setDefaults() {
	c.Listen.Path = "/mcp"
	c.Names = Names{Prefix: "always", Resources: "scheme"}
	c.Audit = Audit{File: "audit/gatekit.jsonl", Bodies: "digest", Durability: "write",
		SegmentBytes: 64 << 20}
	c.Deny.ToolCalls = "error"
	c.Telemetry = Telemetry{Protocol: "grpc", Metrics: true, Interval: time.Minute, Sample: 1}
	c.Log = Log{Format: "text", Level: "info"}
	c.Limits.setDefaults()
}

func (s *Server) setDefaults() {
	s.Cwd, s.Restart, s.Era = ".", true, "auto"
	s.Timeout, s.MaxTimeout = time.Minute, 10*time.Minute
}

func (p *Plugin) setDefaults() {
	p.Servers, p.OnError, p.Timeout, p.MTLS = []string{"*"}, "deny", 2*time.Second, true
	p.See, p.May = []string{"body", "request", "principal"}, []string{"modify", "answer", "hide",
		"rename", "label"}
}

func (p *Policy) setDefaults() { p.Mode = "enforce" }

func (k *Key) setDefaults() { k.Algorithm = "RS256" }

func (d *DecisionLogs) setDefaults() {
	d.Resource, d.Buffer, d.MinDelay, d.MaxDelay = "logs", 10_000, 10*time.Second, 20*time.Second
}

func (b *Bundle) setDefaults() { b.MinDelay, b.MaxDelay = time.Minute, 2*time.Minute }

// Secret is a value that may have come from the environment or a file. No way of printing or
// encoding it shows it; string(s) is the value.
type Secret string

const redacted = "[redacted]"

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// String is where the configuration came from and what it names: no argument, URL, header or
// variable, since any of these may hold a secret.
func (c Config) String() string {
	names := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		names[i] = s.Name
	}
	return fmt.Sprintf("%s (servers: %s)", cmp.Or(c.File, "no file"), strings.Join(names, ", "))
}

// GoString is String.
func (c Config) GoString() string { return c.String() }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String is the server's name and nothing that may hold a secret.
func (s Server) String() string { return s.Name }

// GoString is String.
func (s Server) GoString() string { return s.Name }

// LogValue is String.
func (s Server) LogValue() slog.Value { return slog.StringValue(s.Name) }
