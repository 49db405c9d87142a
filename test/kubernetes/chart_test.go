package kubernetes

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const chart = "../../examples/kubernetes"

// readValues returns the values of a file of the chart.
func readValues(t *testing.T, set string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValuesFile(filepath.Join(chart, "ci", set+"-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// render returns the manifest that the chart makes of the values, as helm template does.
func render(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(&action.Configuration{})
	install.DryRun, install.ClientOnly, install.Replace = true, true, true
	install.ReleaseName, install.Namespace = "gk", "mcp"
	install.KubeVersion = &chartutil.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"}
	release, err := install.Run(c, values)
	if err != nil {
		return "", err
	}
	return release.Manifest, nil
}

// objects are the objects of a manifest, decoded strictly: an unknown field is an error.
type objects struct {
	set         appsv1.StatefulSet
	services    map[string]corev1.Service
	config      corev1.ConfigMap
	account     corev1.ServiceAccount
	budget      policyv1.PodDisruptionBudget
	network     *networkingv1.NetworkPolicy
	certificate []string // kinds of cert-manager
}

func decode(t *testing.T, manifest string) *objects {
	t.Helper()
	o := &objects{services: map[string]corev1.Service{}}
	for _, document := range strings.Split(manifest, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		var service corev1.Service
		var network networkingv1.NetworkPolicy
		var into any
		switch kind.APIVersion + " " + kind.Kind {
		case "apps/v1 StatefulSet":
			into = &o.set
		case "v1 Service":
			into = &service
		case "v1 ConfigMap":
			into = &o.config
		case "v1 ServiceAccount":
			into = &o.account
		case "policy/v1 PodDisruptionBudget":
			into = &o.budget
		case "networking.k8s.io/v1 NetworkPolicy":
			into, o.network = &network, &network
		case "cert-manager.io/v1 Issuer", "cert-manager.io/v1 Certificate":
			o.certificate = append(o.certificate, kind.Kind)
			continue
		default:
			t.Errorf("the chart makes an object of an unknown kind: %+v", kind)
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Errorf("%s: %v\n%s", kind.Kind, err, document)
		}
		if service.Name != "" {
			o.services[service.Name] = service
		}
	}
	return o
}

var sets = []string{"minimal", "full"}

func TestLintFindsNothing(t *testing.T) {
	for _, set := range sets {
		result := lint.All(chart, readValues(t, set), "mcp", true)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("with the %s values: %s", set, m)
			}
		}
	}
}

// TestObjectsAreSafeAndFitTogether decodes the objects strictly, and checks what they must have.
func TestObjectsAreSafeAndFitTogether(t *testing.T) {
	for _, set := range sets {
		t.Run(set, func(t *testing.T) {
			manifest, err := render(t, readValues(t, set))
			if err != nil {
				t.Fatal(err)
			}
			o := decode(t, manifest)
			pod := o.set.Spec.Template.Spec
			c := pod.Containers[0]
			drain, shutdown := int64(20), int64(30)
			if set == "full" {
				drain, shutdown = 60, 120
			}
			if got := *pod.TerminationGracePeriodSeconds; got != drain+shutdown+25 {
				t.Errorf("the grace period is %d s, too short or too long for drain", got)
			}
			if *pod.AutomountServiceAccountToken || *o.account.AutomountServiceAccountToken {
				t.Error("the pods get a token of the cluster")
			}
			if s := pod.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 ||
				s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("the security context of the pods is %+v", s)
			}
			if s := c.SecurityContext; *s.AllowPrivilegeEscalation || *s.Privileged ||
				!*s.ReadOnlyRootFilesystem || fmt.Sprint(s.Capabilities.Drop) != "[ALL]" ||
				len(s.Capabilities.Add) > 0 {
				t.Errorf("the security context of the container is %+v", s)
			}
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("the resources are %+v", c.Resources)
			}
			for name, probe := range map[string]*corev1.Probe{"/livez": c.LivenessProbe,
				"/readyz": c.ReadinessProbe} {
				if probe.HTTPGet.Path != name || probe.HTTPGet.Port.StrVal != "http" {
					t.Errorf("the probe %s is %+v", name, probe.HTTPGet)
				}
			}
			notices := int64(c.ReadinessProbe.PeriodSeconds * c.ReadinessProbe.FailureThreshold)
			if notices >= drain {
				t.Errorf("the probe notices after %d s, and drain lasts %d s", notices, drain)
			}
			mounted := map[string]bool{}
			for _, v := range pod.Volumes {
				mounted[v.Name] = true
			}
			mounted[o.set.Spec.VolumeClaimTemplates[0].Name] = true
			for _, m := range c.VolumeMounts {
				if !mounted[m.Name] {
					t.Errorf("the volume %s of %s does not exist", m.Name, m.MountPath)
				}
			}
			for name, s := range o.services {
				if fmt.Sprint(s.Spec.Selector) != fmt.Sprint(o.set.Spec.Selector.MatchLabels) {
					t.Errorf("the service %s selects %v", name, s.Spec.Selector)
				}
			}
			between := o.services[o.set.Spec.ServiceName]
			if between.Spec.ClusterIP != "None" || !between.Spec.PublishNotReadyAddresses {
				t.Errorf("the service between replicas is %+v: replicas that drain must be in it",
					between.Spec)
			}
			if got := o.budget.Spec.MaxUnavailable.IntValue(); got < 1 ||
				got >= int(*o.set.Spec.Replicas) {
				t.Errorf("%d of %d replicas may be away", got, *o.set.Spec.Replicas)
			}
			var names []string // of the pods
			for i := range int(*o.set.Spec.Replicas) {
				names = append(names, fmt.Sprintf("%q", fmt.Sprintf("%s-%d", o.set.Name, i)))
			}
			want := "\nreplicas = [" + strings.Join(names, ",") + "]\n"
			if text := o.config.Data["gatekit.toml"]; !strings.Contains(text, want) {
				t.Errorf("the configuration does not name the replicas with %s:\n%s", want, text)
			}
			if o.network == nil || len(o.network.Spec.PolicyTypes) != 2 {
				t.Errorf("the network policy is %+v", o.network)
			}
			if got := len(o.certificate); (got == 4) != (set == "full") {
				t.Errorf("cert-manager gets %d objects", got)
			}
			if strings.Contains(manifest, "SERVER_TOKEN\n          value:") {
				t.Error("a secret is in the manifest by value")
			}
		})
	}
}

// TestWrongValuesAreRefused changes the minimal values.
func TestWrongValuesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name, key string
		value     any
		want      string
	}{
		{"a misspelt key", "replica", 3, "replica"},
		{"no replicas", "replicas", 0, "replicas"},
		{"an address without TLS", "publicURL", "http://gatekit.example.com", "publicURL"},
		{"no address", "publicURL", "", "publicURL"},
		{"no Secret of the state key", "stateKeySecret", "", "stateKeySecret"},
		{"no configuration", "config", "", "config"},
		{"no authentication", "config", "[server.a]\nurl = \"https://a.example/mcp\"\n",
			"config needs a table of [listen.auth...]"},
		{"a table that the chart writes", "config", "[cluster]\nname = \"a\"\n",
			"config must not have the table [cluster]"},
		{"no certificate", "cluster", map[string]any{},
			"replicas need a certificate: set cluster.secret"},
		{"a tag that moves", "image", map[string]any{"repository": "r", "tag": "latest"}, "tag"},
		{"a drain that is too short", "drainSeconds", 1, "drainSeconds"},
		{"a file that is neither secret nor map", "files",
			[]any{map[string]any{"name": "a"}}, "files"},
		{"a size without a unit", "storage", map[string]any{"size": "10"}, "size"},
	} {
		values := readValues(t, "minimal")
		if tt.name == "no certificate" {
			values[tt.key] = map[string]any{"secret": ""}
		} else {
			values[tt.key] = tt.value
		}
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got the error %v, want one with %q", tt.name, err, tt.want)
		}
	}
}

// newServer returns the URL of an MCP server without tools.
func newServer(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch _ = json.Unmarshal(body, &m); {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25",`+
				`"capabilities":{},"serverInfo":{"name":"files","version":"1"}}}`, m.ID)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/mcp"
}

// writeCertificates writes a certificate that signs itself as ca.crt, tls.crt and tls.key.
func writeCertificates(t *testing.T, dir string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"*.gk-replicas.mcp.svc"}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	write(t, filepath.Join(dir, "ca.crt"), block("CERTIFICATE", certificate))
	write(t, filepath.Join(dir, "tls.crt"), block("CERTIFICATE", certificate))
	write(t, filepath.Join(dir, "tls.key"), block("PRIVATE KEY", private))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// policy returns the policy of another example.
func policy(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../examples/03-policies/policies/house.rego")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestGatekitAcceptsTheConfiguration runs gatekit check on the rendered configuration, in a folder
// that stands for the file system of a pod.
func TestGatekitAcceptsTheConfiguration(t *testing.T) {
	gatekit := filepath.Join(t.TempDir(), "gatekit")
	build := exec.Command("go", "build", "-o", gatekit, "./cmd/gatekit")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build gatekit: %v\n%s", err, out)
	}
	url := newServer(t)
	for _, set := range sets {
		manifest, err := render(t, readValues(t, set))
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		in := func(path string) string { return filepath.Join(root, path) }
		text := strings.NewReplacer("/etc/gatekit", in("/etc/gatekit"), "/var/lib/gatekit",
			in("/var/lib/gatekit"), "https://mcp.example.com/mcp", url).Replace(
			decode(t, manifest).config.Data["gatekit.toml"])
		write(t, in("/etc/gatekit/config/gatekit.toml"), text)
		write(t, in("/etc/gatekit/state/state.key"), strings.Repeat("k", 64))
		write(t, in("/etc/gatekit/policies/house.rego"), policy(t))
		write(t, in("/var/lib/gatekit/.keep"), "")
		writeCertificates(t, in("/etc/gatekit/cluster"))
		check := exec.Command(gatekit, "check", "--config", in("/etc/gatekit/config/gatekit.toml"))
		check.Env = append(os.Environ(), "POD_NAME=gk-0", "SERVER_TOKEN=a token of the server",
			"XDG_STATE_HOME="+in("/var/lib/gatekit/state"))
		var out bytes.Buffer
		check.Stdout, check.Stderr = &out, &out
		if err := check.Run(); err != nil {
			t.Errorf("gatekit check with the %s values: %v\n%s\n%s", set, err, out.String(), text)
		}
	}
}
