package config_test

import (
	"fmt"
	"os"
	"path/filepath"

	"gatekit/core/config"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gatekit.toml")
	os.WriteFile(path, []byte("[server.files]\ncomand = \"npx\"\ntimeout = 60\n"), 0o600)

	_, err = config.Load(path)
	for _, e := range err.(config.Errors) {
		fmt.Printf("line %d: %s\n", e.Position.Line, e.Message)
	}
	// Output:
	// line 2: unknown key "comand" in [server.files], did you mean "command"?
	// line 3: server.files.timeout must be a duration such as "60s", not an integer
}

func ExampleWrap() {
	c := config.Wrap("files", "npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/data")
	fmt.Println(c.Servers[0].Name, c.Names.Prefix, c.Audit.Durability)
	// Output: files never write
}
