//go:build !linux

package transport

import "os"

const pipeBuffer = 1 << 20

func enlarge(*os.File, int) {} // pipes grow by themselves, or not at all

const childBuffer = pipeBuffer
