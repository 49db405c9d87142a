package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gatekit/transport"
)

// mode is an environment variable. Its value names one of the servers below, which the test binary
// then runs instead of the tests.
const mode = "TRANSPORT_TEST_SERVER"

func TestMain(m *testing.M) {
	if name := os.Getenv(mode); name != "" {
		servers[name]()
		return
	}
	goleak.VerifyTestMain(m)
}

var servers = map[string]func(){
	"echo": echo,
	"env": func() { // sends its environment
		b, _ := json.Marshal(os.Environ())
		fmt.Println(string(b[:0]) + `{"env":` + string(b) + `}`)
		echo()
	},
	"noisy": func() { // writes lines to stdout that are not JSON
		fmt.Println("Starting server v1.2.3 ...")
		fmt.Println("[info] ready")
		fmt.Println("{'level': 'info'}")
		fmt.Println("")
		fmt.Println("\x1b[31mred\x1b[0m")
		echo()
	},
	"garbage": func() { // writes such lines without end
		for {
			if _, err := fmt.Println("still starting"); err != nil {
				return
			}
		}
	},
	"chatty": func() { // writes 10 MiB to stderr before it reads its stdin
		line := strings.Repeat("e", 1023) + "\n"
		for range 10 << 10 {
			os.Stderr.WriteString(line)
		}
		os.Stderr.WriteString("the very last words\x1b]0;evil\a\n")
		echo()
	},
	"flood": func() { // writes 21 MiB to stderr, more than one overflow file holds
		pad := strings.Repeat("e", 1<<10)
		for i := range 21 << 10 {
			fmt.Fprintf(os.Stderr, "line %d %s\n", i, pad)
		}
		echo()
	},
	"blabber": func() { // writes its secret TOKEN to stderr and exits
		fmt.Fprintf(os.Stderr, "a cut line %s%s\n", strings.Repeat("e", 4<<10-19),
			os.Getenv("TOKEN"))
		fmt.Fprintf(os.Stderr, "the token %s and the pin 1234\n", os.Getenv("TOKEN"))
		os.Exit(3)
	},
	"cutter": func() { // writes a line that is cut after its argument, and exits
		end := os.Args[1]
		fmt.Fprintf(os.Stderr, "%s%s and more\n", strings.Repeat(".", 4<<10-len(end)), end)
	},
	"deaf": ignoreSignals,
	"grandparent": func() { // has a child "deaf" in its process group
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), mode+"=deaf")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Printf(`{"pid":%d}`+"\n", child.Process.Pid)
		echo()
	},
	"escaper": func() { // exits; its child "sleeper" has left the process group and holds the pipes
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), mode+"=sleeper")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println(`{"last":"message"}`)
	},
	"gatekit": func() { // has a server "pid", as Gatekit would
		child, err := transport.Spawn(context.Background(),
			transport.Command{Path: "/proc/self/exe", Env: map[string]string{mode: "pid"}})
		if err != nil {
			panic(err)
		}
		b, _ := child.Read(context.Background())
		fmt.Printf("%s\n", b)
		time.Sleep(time.Minute)
	},
	"grandgatekit": func() { // has a server "grandparent"
		child, err := transport.Spawn(context.Background(), transport.Command{
			Path: "/proc/self/exe", Env: map[string]string{mode: "grandparent"}})
		if err != nil {
			panic(err)
		}
		for {
			b, err := child.Read(context.Background())
			if err != nil {
				panic(err)
			}
			if bytes.Contains(b, []byte("pid")) {
				fmt.Printf("%s\n", b)
			}
		}
	},
	"pid": func() {
		fmt.Printf(`{"pid":%d}`+"\n", os.Getpid())
		ignoreSignals()
	},
	"sleeper": func() { time.Sleep(20 * time.Second) },
	"torn": func() { // exits in the middle of a message
		os.Stderr.WriteString("out of\tcheese\n")
		os.Stdout.WriteString(`{"jsonrpc":"2.0","id`)
		os.Exit(3)
	},
	"suicide": func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) },
}

func echo() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		os.Stdout.WriteString(line)
	}
}

// ignoreSignals is a server that ends neither when its stdin is closed nor by SIGTERM.
func ignoreSignals() {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println(`{"deaf":true}`)
	time.Sleep(time.Minute)
}
