package config

// BuiltIn returns the configuration of a built-in plugin that has only a name and settings.
func BuiltIn(name string, settings map[string]any) Plugin {
	p := Plugin{Name: name, Use: name, Config: settings}
	p.setDefaults()
	return p
}

// Wrap returns the configuration of one stdio server that has no file. The server is served on
// stdio under its own names; all else has the defaults of Load. Paths are relative to the working
// folder. There is no file for Watch.
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
