package config

// BuiltIn is the plugin that comes with Gatekit under a name, with settings, as [[plugin]] has it
// when it says no more.
func BuiltIn(name string, settings map[string]any) Plugin {
	p := Plugin{Name: name, Use: name, Config: settings}
	p.setDefaults()
	return p
}

// Wrap is the configuration of one stdio server without a file: served on stdio under its own
// names, everything else as Load leaves it when a file does not say. Its paths are relative to the
// working folder, and there is nothing to Watch.
func Wrap(name, command string, args ...string) *Config {
	var c Config
	c.setDefaults()
	c.Listen.Stdio = true
	c.Names.Prefix = "never"
	s := Server{Name: name, Command: command, Args: args, Env: map[string]Secret{}}
	s.setDefaults()
	c.Servers = []Server{s}
	return &c
}
