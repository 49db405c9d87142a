// Package config reads gatekit.toml.
package config
