package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gatekit/core/clientfiles"
)

// TestClientsDocumentHasTheTable compares the table of docs/clients.md with the table of
// core/clientfiles.
func TestClientsDocumentHasTheTable(t *testing.T) {
	var want strings.Builder
	want.WriteString("| Name | Client | Files | In a project |\n|---|---|---|---|\n")
	for _, c := range clientfiles.Clients() {
		files := map[bool][]string{}
		for _, p := range c.Places {
			file := "`" + strings.ReplaceAll(p.Path, "|", " or ") + "`"
			switch p.OS {
			case "linux":
				file += " (Linux)"
			case "darwin":
				file += " (macOS)"
			}
			if p.Beyond != "" {
				file += " (listed only)"
			}
			isProject := p.Scope == clientfiles.Project
			files[isProject] = append(files[isProject], file)
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", c.ID, c.Name,
			strings.Join(files[false], ", "), strings.Join(files[true], ", "))
	}
	b, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), want.String()) {
		t.Errorf("docs/clients.md does not have the table\n%s", want.String())
	}
}
