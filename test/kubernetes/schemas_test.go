package kubernetes

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
)

// custom are the kinds that Kubernetes does not know: cert-manager defines them.
var custom = []string{"Certificate", "Issuer"}

// conform returns what kubeconform says about each object of a manifest, by the kind of the object.
func conform(t *testing.T, manifest string) (invalid, skipped []string) {
	t.Helper()
	skip := map[string]struct{}{}
	for _, kind := range custom {
		skip[kind] = struct{}{}
	}
	v, err := validator.New([]string{"schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json"},
		validator.Opts{Strict: true, KubernetesVersion: "1.30.0", SkipKinds: skip})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Validate("manifest.yaml", io.NopCloser(strings.NewReader(manifest))) {
		signature, err := r.Resource.Signature()
		if err != nil {
			t.Fatal(err)
		}
		switch r.Status {
		case validator.Valid, validator.Empty:
		case validator.Skipped:
			skipped = append(skipped, signature.Kind)
		default:
			invalid = append(invalid, signature.Kind+": "+r.Err.Error())
		}
	}
	return invalid, skipped
}

// TestObjectsFitTheSchemas validates the objects with kubeconform.
func TestObjectsFitTheSchemas(t *testing.T) {
	for _, set := range sets {
		manifest, err := render(t, readValues(t, set))
		if err != nil {
			t.Fatal(err)
		}
		invalid, skipped := conform(t, manifest)
		for _, reason := range invalid {
			t.Errorf("with the %s values: %s", set, reason)
		}
		slices.Sort(skipped)
		if got := slices.Compact(skipped); len(got) > 0 && !slices.Equal(got, custom) ||
			(len(got) > 0) != (set == "full") {
			t.Errorf("with the %s values, no schema was used for %v", set, skipped)
		}
	}
}

// TestSchemasFindMistakes changes the minimal objects: each schema is in use, and strict.
func TestSchemasFindMistakes(t *testing.T) {
	manifest, err := render(t, readValues(t, "minimal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ kind, old, new string }{
		{"StatefulSet", "      containers:\n", "      container:\n"},
		{"StatefulSet", "runAsNonRoot: true", "runAsNonRoot: \"yes\""},
		{"StatefulSet", "terminationGracePeriodSeconds: ", "terminationGracePeriodSeconds: s"},
		{"Service", "clusterIP: None", "clusterip: None"},
		{"ServiceAccount", "automountServiceAccountToken:", "automountToken:"},
		{"PodDisruptionBudget", "maxUnavailable:", "maxUnavailables:"},
		{"NetworkPolicy", "policyTypes:", "policyType:"},
		{"ConfigMap", "\ndata:\n", "\ntexts:\n"},
	} {
		wrong := strings.Replace(manifest, tt.old, tt.new, 1)
		if wrong == manifest {
			t.Errorf("%s: the manifest has no %q", tt.kind, tt.old)
			continue
		}
		invalid, _ := conform(t, wrong)
		if len(invalid) != 1 || !strings.HasPrefix(invalid[0], tt.kind+": ") {
			t.Errorf("%s with %q: the invalid objects are %q", tt.kind, tt.new, invalid)
		}
	}
}
