package secrets_test

import (
	"slices"
	"strings"
	"testing"

	"gatekit/core/pipeline"
)

// TestOwnRules applies the rules of rules.toml to texts with a secret, which is between "«" and
// "»", and to texts without one.
func TestOwnRules(t *testing.T) {
	const alnum = "x7Kq2Lw9Rt4Zp8Vb3Nm6Yc1Hd5Jf0SgAuE2iTq4Wm9Bz3Xr7Dk1Lp6Vs8Hn2Gy5Fc0Jo4QaEw6Ui"
	const hex = "9f3c71d2ab8e4056c7d1f09b3e6a5284c0d7b1e9f2a46853"
	s := newStage(t, `{}`)
	for _, c := range []struct{ rule, text string }{
		{"url-password", "redis://:«s3cr3tpw»@cache:6379/0"},
		{"url-password", "clone https://jo:«glTok3n-abc»@git.example.com/x.git now"},
		{"authorization-header", `{"Authorization": "Bearer «` + alnum[:30] + `»"}`},
		{"authorization-header", "authorization=Basic «am86aHVudGVyMjpob3JzZQ==»"},
		{"bearer-token", "sent with bearer «" + alnum[:40] + "» by mistake"},
		{"connection-string-password", "Server=db;User Id=sa;Password=«Hunter2!x»;Encrypt=true"},
		{"connection-string-password", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=«" +
			alnum[:60] + "==»;EndpointSuffix=x"},
		{"netrc-password", "machine example.com\n  login jo\n  password «hunter2»\n"},
		{"password-hash", "root:«$6$rounds$" + alnum[:40] + alnum[:46] + "»:19000:0"},
		{"password-hash", "jo:«$2b$12$" + alnum[:53] + "»"},
		{"aws-secret-access-key", "aws_secret_access_key = «" + alnum[:20] + "/+" + alnum[20:38] +
			"»\n"},
		{"openai-style-api-key", "OPENAI: «sk-proj-" + alnum[:48] + "»"},
		{"openai-style-api-key", "OPENAI: «sk-" + alnum[:48] + "»"},
		{"openai-style-api-key", "«sk-or-v1-" + hex + hex[:16] + "»"},
		{"groq-api-key", "«gsk_" + alnum[:52] + "»"},
		{"xai-api-key", "«xai-" + alnum + alnum[:80-len(alnum)] + "»"},
		{"replicate-api-token", "«r8_" + alnum[:37] + "»"},
		{"google-oauth-client-secret", "«GOCSPX-" + alnum[:28] + "»"},
		{"google-oauth-token", "«ya29." + alnum[:50] + "»"},
		{"google-oauth-token", "«1//0" + alnum[:50] + "»"},
		{"docker-hub-token", "«dckr_pat_" + alnum[:27] + "»"},
		{"supabase-key", "«sbp_" + hex[:40] + "»"},
		{"discord-webhook", "https://discord.com/api/webhooks/«123456789012345678/" + alnum[:68] +
			"»"},
		{"azure-shared-access-signature", "https://a.blob.core.windows.net/c?sv=2024&sig=«" +
			alnum[:43] + "%3D»&se=1"},
		{"stripe-webhook-secret", "«whsec_" + alnum[:32] + "»"},
		{"atlassian-api-token", "jira_token: «" + strings.ToLower(alnum[:20]) + "a0f3»\n"},
		{"atlassian-api-token", "«ATATT3" + strings.Repeat("x7Kq2Lw9Rt", 18) + "aB3dE6»"},
		{"putty-private-key", "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\n«" + alnum[:64] +
			"\n" + alnum[:40] + "=»\nPrivate-MAC: x"},
	} {
		want := "[" + c.rule + "]"
		before, rest, _ := strings.Cut(c.text, "«")
		secret, after, _ := strings.Cut(rest, "»")
		m := result(before + secret + after)
		v := inspect(t, s, m)
		if !slices.Contains(types(v), c.rule) {
			t.Errorf("found %v in %q, want %s", types(v), c.text, c.rule)
			continue
		}
		if got := redacted(t, m, v); got != redactedText(before+want+after) {
			t.Errorf("%s: got %s, want %s", c.rule, got, redactedText(before+want+after))
		}
	}
	for _, text := range []string{
		"postgresql://user:pass@localhost/db and http://example.com:8080/@scope/package",
		"mailto:jo@example.com, ssh://git@github.com:22/x, npm:@scope/x@1.2.3",
		"Authorization: Bearer YOUR_TOKEN, Authorization: Bearer <token>, Authorization: Basic " +
			"credentials",
		"the bearer of this letter, a bearer token-based-authentication-scheme",
		"Server=db;Password=<password>;Uid=x; Pwd={0};PWD=%s;",
		"for machine learning login is by password only",
		"costs $5 and $6 or $1$ per $y$",
		"sk-learn-pipeline, sk-proj-name, task-management-system-for-everybody-who-wants-it, " +
			"sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"https://discord.com/api/webhooks/{id}/{token}, ?sig=short",
		"Private-Lines: 14",
	} {
		if v := inspect(t, s, result(text)); v.Action != pipeline.Allow || len(v.Findings) > 0 {
			t.Errorf("found %v in %q, want nothing", types(v), text)
		}
	}
}

func redactedText(text string) string { return string(result(text).Body()) }
