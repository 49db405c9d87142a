package audit

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"gatekit/test/browsertest"
	"gatekit/test/harness"
	"gatekit/test/peers"
)

// verifyInChromium verifies receipts with the example in JavaScript, on a page of this machine in a
// real browser.
func verifyInChromium(t *testing.T, tests []receiptTest) (found []verified) {
	t.Helper()
	browser := browsertest.Start(t)
	site := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(peers.Top(), "examples",
		"receipts"))))
	defer site.Close()
	var receipts [][]any
	for _, tt := range tests {
		key, err := os.ReadFile(tt.key)
		if err != nil {
			t.Fatal(err)
		}
		wanted := tt.wanted
		if wanted == nil {
			wanted = map[string]string{}
		}
		receipts = append(receipts, []any{string(key), tt.result, tt.arguments, wanted})
	}
	texts, err := json.Marshal(receipts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(browser, harness.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(site.URL+"/verify-receipt.mjs")); err != nil {
		t.Fatal(err)
	}
	out, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](`(async () => {
		const { verifyReceipt } = await import("`+site.URL+`/verify-receipt.mjs");
		const found = [];
		for (const texts of `+string(texts)+`) {
			try {
				found.push({ valid: true, receipt: await verifyReceipt(...texts) });
			} catch (error) {
				found.push({ valid: false, error: error.message });
			}
		}
		return found;
	})()`, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &found); err != nil || len(found) != len(tests) {
		t.Fatalf("the page found %d of %d receipts: %v: %s", len(found), len(tests), err,
			harness.Clip(out))
	}
	return found
}
