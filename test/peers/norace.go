//go:build !race

package peers

const race = false
