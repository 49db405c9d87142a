// Oracle runs gitleaks' own detector on the texts in a file. Each line of the file is a JSON object
// with the member "text". For each line, Oracle prints a JSON array with the rule and the secret of
// each finding. Oracle is a module of its own, so that Gatekit does not depend on gitleaks' 60
// modules.
//
//	cd plugins/builtin/secrets/testdata/oracle && go run . FILE > /tmp/oracle.jsonl
//	SECRETS_ORACLE=/tmp/oracle.jsonl go test -run Oracle -v ./plugins/builtin/secrets
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"strings"
	"time"

	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/spf13/viper"
)

func main() {
	viper.SetConfigType("toml")
	if err := viper.ReadConfig(strings.NewReader(config.DefaultConfig)); err != nil {
		log.Fatal(err)
	}
	var v config.ViperConfig
	if err := viper.Unmarshal(&v); err != nil {
		log.Fatal(err)
	}
	c, err := v.Translate()
	if err != nil {
		log.Fatal(err)
	}
	d := detect.NewDetector(c)
	d.IgnoreGitleaksAllow = true
	f, err := os.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	var took time.Duration
	for lines.Scan() {
		var x struct{ Text string }
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			log.Fatal(err)
		}
		began := time.Now()
		found := d.DetectString(x.Text)
		took += time.Since(began)
		all := [][2]string{}
		for _, f := range found {
			all = append(all, [2]string{f.RuleID, f.Secret})
		}
		out.Encode(all)
	}
	log.Print("took ", took)
}
