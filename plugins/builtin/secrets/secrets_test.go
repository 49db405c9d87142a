package secrets_test

import (
	"testing"

	"gatekit/core/mcp"
	"gatekit/core/pipeline"
	"gatekit/plugins/builtin/secrets"
	"gatekit/plugins/sdk"
)

func newStage(t testing.TB, config string) sdk.Stage {
	t.Helper()
	s, err := secrets.Plugin().New([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func inspect(t testing.TB, s sdk.Stage, m *mcp.Message) sdk.Verdict {
	t.Helper()
	v, err := s.Inspect(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func types(v pipeline.Verdict) (ids []string) {
	for _, f := range v.Findings {
		ids = append(ids, f.Type)
	}
	return ids
}
