// Package kubernetes tests the Helm chart in examples/kubernetes without a cluster. It is a module
// of its own, because of Helm.
package kubernetes
