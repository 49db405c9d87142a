// Package console tests the console of the real gatekit in Debian's Chromium, which chromedp
// controls. A test is skipped if there is no browser; with GATEKIT_TEST_REQUIRE=1 it fails.
//
//   - browser_test.go: the browser, and what every page must not do
//   - access_test.go: who may read and act
//   - traffic_test.go: the pages of the traffic and of a record
//   - pages_test.go: the other pages, and approving in the browser
//   - accessible_test.go: axe-core, light and dark, narrow and wide; the keyboard alone
package console
