package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatekit/audit/format"
	"gatekit/audit/sink"
	"gatekit/core/config"
)

// TestConfigAndSyslogSinkAcceptTheSameFacilities compares the lists of facilities of core/config
// and of the sink. There are two lists, because core does not import the sink.
func TestConfigAndSyslogSinkAcceptTheSameFacilities(t *testing.T) {
	form, err := format.New(format.JSONL, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for _, facility := range strings.Fields("kern user mail daemon auth syslog lpr news uucp " +
		"cron authpriv ftp ntp audit alert clock local0 local1 local2 local3 local4 local5 " +
		"local6 local7 other") {
		file := filepath.Join(t.TempDir(), "gatekit.toml")
		text := fmt.Sprintf("[server.a]\ncommand = \"a\"\n[audit]\nfile = "+
			"\"audit.jsonl\"\n[[audit.sink]]\nname = \"s\"\nkind = \"syslog\"\nurl = "+
			"\"udp://127.0.0.1:514\"\nfacility = %q\n", facility)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, configured := config.Load(file)
		_, made := sink.NewSyslog(sink.SyslogOptions{URL: "udp://127.0.0.1:514", Facility: facility,
			Encoder: form})
		if (configured == nil) != (made == nil) {
			t.Errorf("%s: the configuration returns %v and the sink %v, want an error of both or "+
				"no error", facility, configured, made)
		}
		if made == nil {
			accepted++
		}
	}
	if accepted != 13 {
		t.Errorf("%d facilities are accepted, want 13", accepted)
	}
}
