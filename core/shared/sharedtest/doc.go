// Package sharedtest holds every shared.Store to the same behaviour, and has a store whose failures
// tests choose.
package sharedtest
