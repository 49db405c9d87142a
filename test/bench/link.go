//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// serveLink relays TCP connections to an address until stdin ends, as a link between two machines
// would: all bytes arrive later by half of roundTrip in each direction. It prints its own address
// first.
func serveLink(to, roundTrip string) error {
	d, err := time.ParseDuration(roundTrip)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	for {
		from, err := l.Accept()
		if err != nil {
			return nil
		}
		other, err := net.Dial("tcp", to)
		if err != nil {
			from.Close()
			continue
		}
		go delay(from, other, d/2)
		go delay(other, from, d/2)
	}
}

// delay copies bytes, each of which arrives late by the time d.
func delay(from, to net.Conn, d time.Duration) {
	type chunk struct {
		bytes []byte
		due   time.Time
	}
	chunks := make(chan chunk, 1000)
	go func() {
		defer to.Close()
		// Timers of Go are late by up to a millisecond, and those of a thread by 50 µs.
		runtime.LockOSThread()
		unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		for c := range chunks {
			if rest := time.Until(c.due); rest > 0 {
				t := unix.NsecToTimespec(rest.Nanoseconds())
				unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &t, nil)
			}
			if _, err := to.Write(c.bytes); err != nil {
				from.Close()
			}
		}
	}()
	defer close(chunks)
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			chunks <- chunk{b[:n], time.Now().Add(d)}
		}
		if err != nil {
			return
		}
	}
}
