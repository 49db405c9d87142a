//go:build !linux

package transport

import "os"

const pipeBuffer = 1 << 20

func enlargePipe(*os.File, int) {} // pipes cannot be enlarged

const childPipeBuffer = pipeBuffer
