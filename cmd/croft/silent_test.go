package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/cmd/croft/internal/cli"
)

// TestAListingTellsASilentStoreWithinTheTimeout: a listing may take a minute,
// but not if the store does not answer at all.
func TestAListingTellsASilentStoreWithinTheTimeout(t *testing.T) {
	t.Parallel()
	// Nobody accepts: the kernel takes the connection, and no byte comes back.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	stores := []string{
		"postgres://ann@" + silent.Addr().String() + "/db?sslmode=disable",
		"etcd://" + silent.Addr().String() + "/leases", // it has the time from this machine
	}
	commands := []string{"ls", "status", "inventory", "inventory --advise", "watch --lines", "doctor"}
	for i := range len(stores) * len(commands) {
		command, storeURL := commands[i%len(commands)], stores[i/len(commands)]
		scheme, _, _ := strings.Cut(storeURL, ":")
		t.Run(command+" "+scheme, func(t *testing.T) {
			args := append(strings.Fields(command), "--timeout", "50ms", "--store", storeURL)
			var stdout, stderr strings.Builder
			before := time.Now()
			code := Main(args, strings.NewReader(""), &stdout, &stderr)
			if took := time.Since(before); code != cli.ExitUnknown || took > cli.ListTimeout/2 {
				t.Errorf("exit code %d after %s: %s", code, took, stderr.String())
			}
			if said := stderr.String(); !strings.Contains(said, "no answer came in time") {
				t.Errorf("it says %q", said)
			}
		})
	}
}
