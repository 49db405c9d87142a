package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Config holds the values of one gatekit.toml. They are checked, and absent keys have their
// defaults. docs/configuration.md describes the keys.
type Config struct {
	// File is the absolute path of the file; empty when the configuration has no file.
	File string `toml:"-"`

	// Listen holds the settings for the connections of clients.
	Listen Listen `toml:"listen"`
	// Cluster holds the other replicas behind the same address; nil when the file has no [cluster].
	Cluster *Cluster `toml:"cluster"`
	// Shared holds the server in which replicas keep what they must know together; nil when the
	// file has no [shared].
	Shared *Shared `toml:"shared"`
	// Servers holds the MCP servers, at least one, in the order of the file.
	Servers []Server `toml:"server"`
	// Tokens holds the settings of the logins at servers.
	Tokens Tokens `toml:"tokens"`
	// Names holds the settings that make the names of different servers distinct.
	Names Names `toml:"names"`
	// Pins holds which definitions servers may declare; nil when the file has no [pins], and
	// gatekit run does not read the lock file.
	Pins *Pins `toml:"pins"`
	// Canaries holds the planted values, at most 256, in the order of the file.
	Canaries []Canary `toml:"canary"`
	// Plugins holds the plugins in the order in which they see a message; none by default.
	Plugins []Plugin `toml:"plugin"`
	// Policy holds the policies, which decide after the plugins; nil when the file has no [policy].
	Policy *Policy `toml:"policy"`
	// Audit holds the settings of the audit log and its sinks.
	Audit Audit `toml:"audit"`
	// Admin holds the settings of the endpoint for metrics and health checks.
	Admin Admin `toml:"admin"`
	// Stop holds what stops all traffic besides gatekit stop.
	Stop Stop `toml:"stop"`
	// Telemetry holds the settings of metrics and traces that are sent to a collector.
	Telemetry Telemetry `toml:"telemetry"`
	// Log holds the format and level of Gatekit's own log on stderr.
	Log Log `toml:"log"`
	// Deny holds the settings of the answers to denied messages.
	Deny Deny `toml:"deny"`
	// Allow holds the settings of allowances, which gatekit allow makes.
	Allow Allow `toml:"allow"`
	// Limits holds the limits for the resources that clients, servers and plugins can use.
	Limits Limits `toml:"limits"`

	source *snapshot // the files at the time of Load, for Watch; nil when there is no file
}

// Listen is [listen].
type Listen struct {
	// Stdio serves the client that started Gatekit, on stdin and stdout. Default: true when there
	// is no http, else false.
	Stdio bool `toml:"stdio"`
	// HTTP is the address for Streamable HTTP, as host:port. Default: none.
	HTTP string `toml:"http"`
	// Path is the path of the HTTP endpoint. Default: /mcp.
	Path string `toml:"path"`
	// SSE adds the endpoints of the 2024-11-05 transport, /sse and /messages. Default: false.
	SSE bool `toml:"sse"`
	// AllowedOrigins holds the origins of web pages that may call Gatekit. Default: none. Clients
	// that are not browsers send no Origin header and are not affected.
	AllowedOrigins []string `toml:"allowed_origins"`
	// AllowedHosts holds the values of the Host header that are accepted in addition to the
	// loopback names. Default: none.
	AllowedHosts []string `toml:"allowed_hosts"`
	// PublicURL is the address of Gatekit as clients reach it, without the path:
	// https://gatekit.example. With the path, it is the resource that access tokens are for. It
	// needs [listen.auth], unless only this machine can reach it. If it is https, Gatekit serves
	// its own client metadata document at PUBLIC_URL/connect/client.json. Default: none.
	PublicURL string `toml:"public_url"`
	// StateKey protects the state that clients hold between requests: at least 32 bytes. Instances
	// with the same key can continue each other's requests. Default: random at each start.
	StateKey Secret `toml:"state_key"`
	// Drain is how long Gatekit goes on serving HTTP clients when it is stopped, while /readyz says
	// no, so that a balancer sends clients elsewhere. It must be longer than the balancer needs to
	// notice. Default: none.
	Drain time.Duration `toml:"drain"`
	// ShutdownTimeout is how long calls in flight may take to end when Gatekit is stopped. After
	// that, Gatekit answers the remaining calls with an error. Default: 10s.
	ShutdownTimeout time.Duration `toml:"shutdown_timeout"`

	// Console serves the console below PUBLIC_URL/console/ to the principals of
	// [listen.auth.roles], who log in at their issuer. It shows the log of this process, so it is
	// not served together with [cluster]. Default: false.
	Console bool `toml:"console"`

	// TLS holds the certificate of the HTTP listener; nil when the file has no listen.tls, and
	// connections are not encrypted.
	TLS *ListenTLS `toml:"tls"`
	// Auth holds who may use the HTTP endpoint; nil when the file has no [listen.auth].
	Auth *Auth `toml:"auth"`
}

// Server is one [server.NAME]. It has either a command or a url.
type Server struct {
	// Name is the name in the header, and the prefix of the server's tools.
	Name string `toml:",name"`
	// Position is the position of the header in the file.
	Position Position `toml:"-"`

	// Command is the program to start: an absolute path, or a name that is looked up in PATH.
	Command string `toml:"command"`
	// Args holds the arguments of the program. Default: none.
	Args []string `toml:"args"`
	// Env holds environment variables for the program. The program also gets PATH, HOME, USER,
	// LOGNAME, SHELL, LANG, TERM and TMPDIR from Gatekit's environment. ${token:SERVER} is the
	// access token of the principal at a server with type = "oauth" or "id_jag"; each principal has
	// processes of its own. Default: none.
	Env map[string]Secret `toml:"env"`
	// Cwd is the absolute path of the program's working folder. Default: the folder of the file.
	Cwd string `toml:"cwd"`
	// Restart starts the program again when it ends. Default: true.
	Restart bool `toml:"restart"`
	// Keep keeps the server running while it is not used: limits.server_idle and limits.processes
	// do not end it. Set it for a server with state that a session needs, such as a browser or a
	// shell. Default: false.
	Keep bool `toml:"keep"`
	// Sandbox confines the program. Default: none, so that it may do everything that the user may.
	Sandbox *Sandbox `toml:"sandbox"`
	// Package is the folder of the installed package that Command starts. A sandbox lets the
	// program read it. No key sets it.
	Package string `toml:"-"`
	// Pins replaces keys of [pins] for this server; nil when the file has no [server.NAME.pins].
	Pins *ServerPins `toml:"pins"`

	// URL is the endpoint of a server that is reached over HTTP.
	URL string `toml:"url"`
	// Headers holds HTTP headers for every request to the server. Default: none.
	Headers map[string]Secret `toml:"headers"`
	// Auth holds the credentials with which Gatekit asks a server with a url; nil when the file has
	// no [server.NAME.auth].
	Auth *ServerAuth `toml:"auth"`

	// Era is the protocol era of the server: auto (ask the server), legacy (revisions up to
	// 2025-11-25) or modern (2026-07-28). Default: auto.
	Era string `toml:"era"`
	// Timeout is how long a call may take without an answer or progress. Default: 60s.
	Timeout time.Duration `toml:"timeout"`
	// MaxTimeout is how long a call may take in all. Default: 10m.
	MaxTimeout time.Duration `toml:"max_timeout"`
	// Methods holds methods that are not part of MCP and may pass. Each is a name, or a prefix such
	// as acme/*. Default: none.
	Methods []string `toml:"methods"`
}

// Names is [names].
type Names struct {
	// Prefix is "always" (tools are named server__tool) or "never" (only for a single server).
	// Default: always.
	Prefix string `toml:"prefix"`
	// Resources is how URIs name their server: scheme (files+file:///x), prefix
	// (files__file:///x) or transparent (file:///x). In transparent mode, URIs and templates that
	// several servers have in common are named as in scheme mode. Default: scheme.
	Resources string `toml:"resources"`
}

// Plugin is one [[plugin]]. It has either use or command.
type Plugin struct {
	// Position is the position of the plugin's header in the file.
	Position Position `toml:"-"`
	// KeyPositions holds the position of each key that the file sets.
	KeyPositions map[string]Position `toml:"-"`

	// Name is the name of the plugin in the audit log; unique among the plugins.
	Name string `toml:"name"`
	// Use is the name of a built-in plugin.
	Use string `toml:"use"`
	// Command is the program of a plugin that is not built in, and its arguments. The program runs
	// in an empty folder. So a program with a slash, and arguments that begin with ./ or ../, are
	// made absolute, as paths from the folder of the file.
	Command []string `toml:"command"`
	// SHA256 is the digest that the program must have, as 64 hexadecimal digits. Default: not
	// checked.
	SHA256 string `toml:"sha256"`
	// Env holds the whole environment of the program. Default: empty.
	Env map[string]Secret `toml:"env"`
	// Sandbox confines the program. Default: the level strict on Linux, if the system can hold it.
	Sandbox *PluginSandbox `toml:"sandbox"`
	// MTLS protects the connection to the program by TLS. Default: true.
	MTLS bool `toml:"mtls"`
	// Process is where a built-in plugin runs: shared (in one process with the other plugins that
	// share it) or own (in a process of its own). A program always has its own. Default: own for
	// limits, shared for the other built-in plugins.
	Process string `toml:"process"`
	// Servers holds the names of the servers whose messages the plugin sees, or *. Default: *.
	Servers []string `toml:"servers"`
	// See holds the parts of a message that the plugin sees: body, request, principal. Default:
	// all three.
	See []string `toml:"see"`
	// May holds what the plugin may do besides passing and denying a message: modify, answer,
	// hide, rename, label, restore. Default: all six.
	May []string `toml:"may"`
	// OnError is the effect of a failure of the plugin: deny (the message is denied) or skip (the
	// plugin is skipped). Default: deny.
	OnError string `toml:"on_error"`
	// Timeout is how long the plugin may take for one message. Default: 2s.
	Timeout time.Duration `toml:"timeout"`
	// Config holds the plugin's own settings. Default: empty.
	Config map[string]any `toml:"config"`
}

// Policy is [policy].
type Policy struct {
	// Position is the position of the header in the file.
	Position Position `toml:"-"`

	// Rules holds the names of rules of the library. Default: none.
	Rules []string `toml:"rules"`
	// Files holds the absolute paths of .rego files, folders of them, and bundles. Default: none.
	Files []string `toml:"files"`
	// Data holds the absolute paths of JSON documents that are merged into Rego's data.
	// Default: none.
	Data []string `toml:"data"`
	// Mode is the mode of the policies: enforce, or shadow, which only records what they would do.
	// Default: enforce.
	Mode string `toml:"mode"`
	// Labels is how long a label that a policy sets is kept: session (for the session, until it
	// ends) or principal (for the principal, until Gatekit ends). Default: session.
	Labels string `toml:"labels"`
	// Tests makes Gatekit run the tests of the policies before it starts and before a reload, and
	// refuse policies whose tests fail. Default: false.
	Tests bool `toml:"tests"`
	// Config holds the settings of rules, by the name of the rule.
	Config map[string]map[string]any `toml:"config"`
	// RulePositions holds the position in the file of each rule in Rules.
	RulePositions []Position `toml:"-"`
	// ConfigPositions holds the position of each rule's settings in the file.
	ConfigPositions map[string]Position `toml:"-"`

	// Keys holds the keys that verify bundles, in the order of the file. Default: none, so that
	// bundles need no signature.
	Keys []Key `toml:"key"`
	// Services holds the servers that bundles come from, in the order of the file.
	Services []Service `toml:"service"`
	// Bundles holds the bundles to get from services, in the order of the file.
	Bundles []Bundle `toml:"bundle"`

	// DecisionLogs sends the decisions of policies to a service; nil when the file has no
	// [policy.decision_logs].
	DecisionLogs *DecisionLogs `toml:"decision_logs"`
	// Status sends the state of the bundles to a service; nil when the file has no [policy.status].
	Status *Status `toml:"status"`
}

// Key is one [policy.key.NAME]. It verifies bundles.
type Key struct {
	// Name is the name in the header. It must be the key id of the signature.
	Name string `toml:",name"`

	// Key is the PEM of a public key or a certificate, or the secret of an HS algorithm.
	Key Secret `toml:"key"`
	// Algorithm is the algorithm of the signature: RS, PS, ES or HS, followed by 256, 384 or 512.
	// Default: RS256.
	Algorithm string `toml:"algorithm"`
	// Scope is the scope that the signature must name. Default: none.
	Scope string `toml:"scope"`
}

// Service is one [policy.service.NAME]: a server that bundles come from.
type Service struct {
	// Name is the name in the header.
	Name string `toml:",name"`

	// URL is the base address of the service's resources.
	URL string `toml:"url"`
	// Headers holds HTTP headers for every request. Default: none.
	Headers map[string]Secret `toml:"headers"`
	// CA is the PEM of the certificates to trust. Default: the certificates that the system trusts.
	CA string `toml:"ca"`
}

// Bundle is one [policy.bundle.NAME]: policies that are polled from a service.
type Bundle struct {
	// Name is the name in the header.
	Name string `toml:",name"`

	// Service is the name of the service. Default: the only service.
	Service string `toml:"service"`
	// Resource is the path below the URL of the service. Default: bundles/NAME.
	Resource string `toml:"resource"`
	// Key is the name of the key that must have signed the bundle. Default: any key of
	// [policy.key.NAME].
	Key string `toml:"key"`
	// Persist is the absolute path of a file that keeps the latest bundle. Gatekit starts with this
	// bundle when the service is down. Default: none.
	Persist string `toml:"persist"`
	// Rollback is the decision about a bundle that is older than the last active bundle: refuse or
	// allow. The last active revision is kept in the state folder. Default: refuse.
	Rollback string `toml:"rollback"`
	// MinDelay is the shortest time between two requests, in whole seconds. Default: 60s.
	MinDelay time.Duration `toml:"min_delay"`
	// MaxDelay is the longest time between two requests, in whole seconds. Default: 120s.
	MaxDelay time.Duration `toml:"max_delay"`
}

// DecisionLogs is [policy.decision_logs]: the service that gets the decisions of policies, without
// the content of messages.
type DecisionLogs struct {
	// Service is the name of the service. Default: the only service.
	Service string `toml:"service"`
	// Resource is the path below the URL of the service. Default: logs.
	Resource string `toml:"resource"`
	// Buffer is how many decisions can wait to be sent. When it is full, the oldest decision is
	// dropped. Default: 10000.
	Buffer int `toml:"buffer"`
	// MinDelay is the shortest time between two requests, in whole seconds. Default: 10s.
	MinDelay time.Duration `toml:"min_delay"`
	// MaxDelay is the longest time between two requests, in whole seconds. Default: 20s.
	MaxDelay time.Duration `toml:"max_delay"`
}

// Status is [policy.status]: the service that gets the state of the bundles.
type Status struct {
	// Service is the name of the service. Default: the only service.
	Service string `toml:"service"`
}

// Audit is [audit].
type Audit struct {
	// File is the absolute path of the audit log. Default: audit/gatekit.jsonl.
	File string `toml:"file"`
	// Bodies is the part of a message's body that a record contains: none (only its size), digest
	// (its size and SHA-256) or redacted (also the body, as plugins and policies left it). Default:
	// digest.
	Bodies string `toml:"bodies"`
	// Durability is where a record must be before its message is forwarded: write (handed to the
	// operating system), fsync (on the disk) or async (in a queue of 4 MiB). Default: write.
	Durability string `toml:"durability"`

	// SegmentBytes is the size, in bytes, at which a segment of the log is closed and renamed.
	// Default: 64 MiB.
	SegmentBytes int `toml:"segment_bytes"`
	// KeepFiles is how many closed segments are kept. Default: 0, which keeps all.
	KeepFiles int `toml:"keep_files"`
	// KeepBytes is how many bytes of closed segments are kept. Default: 0, which keeps all.
	KeepBytes int `toml:"keep_bytes"`
	// KeepFor is how long closed segments are kept. The time during which Gatekit is stopped counts
	// as at most a tenth of keep_for. Default: 0, which keeps all.
	KeepFor time.Duration `toml:"keep_for"`

	// Key is the absolute path of the key that signs checkpoints. Gatekit creates the key if the
	// file is absent. Default: empty, which is the path of the log with .key added.
	Key string `toml:"key"`
	// Anchor is the absolute path of a file that gets copies of checkpoints: at most one a minute,
	// and the last one when Gatekit stops. Default: none.
	Anchor string `toml:"anchor"`

	// Receipts adds a signed receipt to the _meta of each result of a tool: what was called, what
	// came back, the decision and its record. gatekit audit verify-receipt verifies it. Default:
	// false.
	Receipts bool `toml:"receipts"`

	// Sinks holds the sinks that records are sent to after they are in the log. Default: none.
	Sinks []Sink `toml:"sink"`
	// Witnesses holds the witnesses that cosign the checkpoints of the log, at most 16. Default:
	// none.
	Witnesses []Witness `toml:"witness"`
}

// Admin is [admin].
type Admin struct {
	// HTTP is the loopback address of /metrics, /healthz and /readyz, as host:port. Default: none.
	HTTP string `toml:"http"`
	// Console serves the console (gatekit console) below /console/: "off", "read" (it shows the log
	// and the state) or "approve" (it also approves requests and pins). Default: "off".
	Console string `toml:"console"`
	// Token allows the commands /stop and /resume of the endpoint: at least 32 random bytes.
	// Default: none, and there are no such commands.
	Token Secret `toml:"token"`
}

// Stop is [stop].
type Stop struct {
	// File is the path of a file that stops all traffic when it exists. It is looked at every
	// second. Removing it does not end the stop: gatekit resume does. Default: none.
	File string `toml:"file"`
}

// Telemetry is [telemetry].
type Telemetry struct {
	// Tools adds the names of tools to metrics, as labels. Default: false.
	Tools bool `toml:"tools"`

	// URL is the address of an OTLP collector. Default: none.
	URL string `toml:"url"`
	// Protocol is the protocol of the collector: grpc or http. Default: grpc.
	Protocol string `toml:"protocol"`
	// Headers holds headers for every request to the collector. Default: none.
	Headers map[string]Secret `toml:"headers"`
	// CA is the absolute path of a PEM file with the certificates to trust. Default: the
	// certificates that the system trusts.
	CA string `toml:"ca"`
	// Insecure allows a collector on another machine without TLS. Default: false.
	Insecure bool `toml:"insecure"`
	// Metrics sends metrics. Default: true.
	Metrics bool `toml:"metrics"`
	// Interval is the time between two reports of metrics. Default: 60s.
	Interval time.Duration `toml:"interval"`
	// Traces sends a span for each call. Default: false.
	Traces bool `toml:"traces"`
	// Sample is the share of calls to trace, from 0 to 1. It applies when the client does not
	// decide whether a call is traced. Default: 1.
	Sample float64 `toml:"sample"`
}

// Log is [log].
type Log struct {
	// Format is the format of the lines: text or json. Default: text.
	Format string `toml:"format"`
	// Level is the lowest level that is logged: debug, info, warn or error. Default: info.
	Level string `toml:"level"`
}

// Deny is [deny].
type Deny struct {
	// Reasons includes the reason of a denial in the answer to the client. Default: false.
	Reasons bool `toml:"reasons"`
	// ToolCalls is how a denied tools/call is answered: error (a JSON-RPC error) or result (a
	// result with isError). Default: error.
	ToolCalls string `toml:"tool_calls"`
}

// Allow is [allow].
type Allow struct {
	// Enabled lets the user who runs Gatekit allow single denials, redactions and hidden items for
	// a while, with gatekit allow. Default: true.
	Enabled bool `toml:"enabled"`
}

func (c *Config) setDefaults() {
	c.Listen.Path, c.Listen.ShutdownTimeout = "/mcp", 10*time.Second
	c.Names = Names{Prefix: "always", Resources: "scheme"}
	c.Audit = Audit{File: "audit/gatekit.jsonl", Bodies: "digest", Durability: "write",
		SegmentBytes: 64 << 20}
	c.Deny.ToolCalls = "error"
	c.Allow.Enabled = true
	c.Admin.Console = "off"
	c.Telemetry = Telemetry{Protocol: "grpc", Metrics: true, Interval: time.Minute, Sample: 1}
	c.Log = Log{Format: "text", Level: "info"}
	c.Limits.setDefaults()
}

func (p *Pins) setDefaults() {
	p.File, p.What = "gatekit.lock", []string{"tools", "prompts", "templates", "instructions"}
	p.First, p.Changed, p.Package, p.Install = "ask", "hide", "warn", "npm"
}

func (s *Server) setDefaults() {
	s.Cwd, s.Restart, s.Era = ".", true, "auto"
	s.Timeout, s.MaxTimeout = time.Minute, 10*time.Minute
}

func (p *Plugin) setDefaults() {
	p.Servers, p.OnError, p.Timeout, p.MTLS = []string{"*"}, "deny", 2*time.Second, true
	p.See, p.May = []string{"body", "request", "principal"}, []string{"modify", "answer", "hide",
		"rename", "label", "restore"}
}

// defaultProcess returns the default of Process. The counters of limits must survive a crash of the
// process in which the other built-in plugins parse hostile texts.
func (p *Plugin) defaultProcess() string {
	if p.Use == "" || p.Use == "limits" {
		return "own"
	}
	return "shared"
}

func (p *Policy) setDefaults() { p.Mode, p.Labels = "enforce", "session" }

func (c *Canary) setDefaults() { c.Action = "deny" }

func (k *Key) setDefaults() { k.Algorithm = "RS256" }

func (d *DecisionLogs) setDefaults() {
	d.Resource, d.Buffer, d.MinDelay, d.MaxDelay = "logs", 10_000, 10*time.Second, 20*time.Second
}

func (b *Bundle) setDefaults() {
	b.Rollback, b.MinDelay, b.MaxDelay = "refuse", time.Minute, 2*time.Minute
}

// Secret is a string that may be secret. It is printed and encoded as "[redacted]". A conversion
// to string returns the value.
type Secret string

const redacted = "[redacted]"

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// GoString returns "[redacted]".
func (Secret) GoString() string { return redacted }

// LogValue returns "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// String returns the path of the file and the names of the servers. It leaves out arguments, URLs,
// headers and variables, since they may contain secrets.
func (c Config) String() string {
	return fmt.Sprintf("%s (servers: %s)", cmp.Or(c.File, "no file"),
		strings.Join(c.serverNames(), ", "))
}

// GoString returns the same as String.
func (c Config) GoString() string { return c.String() }

// LogValue returns the same as String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c *Config) serverNames() []string {
	names := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		names[i] = s.Name
	}
	return names
}

// String returns the name of the server. The other fields may hold secrets.
func (s Server) String() string { return s.Name }

// GoString returns the same as String.
func (s Server) GoString() string { return s.Name }

// LogValue returns the name of the server.
func (s Server) LogValue() slog.Value { return slog.StringValue(s.Name) }
