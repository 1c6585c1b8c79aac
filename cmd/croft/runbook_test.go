package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// incident is the situation that an operator finds. worker-1 holds the key, and
// has held it before. It has written to a guarded resource and reported
// progress.
const incident = `
exec croft acquire orders/nightly --owner worker-0 --ttl 10m
cp stdout first.lease
exec croft release @first.lease
exec croft acquire orders/nightly --owner worker-1 --ttl 10m --guard out/nightly.json
cp stdout worker.lease
env CROFT_LEASE=@worker.lease
stdin data.json
exec croft write out/nightly.json
exec croft report 'half of them' @worker.lease
env CROFT_LEASE=
exec bash -eu block.sh
! stderr 'error'

-- data.json --
{"total": 17}
-- out/.keep --
`

// backlog is the situation in a ledger. One item waits, worker-1 runs one, one
// is dead, and one is done. Nobody delivers one of its effects, and nobody
// knows what became of the other.
const backlog = `
env CROFT_STORE=sqlite://$WORK/work.db
exec croft work add thumbnails poisoned --attempts 1 --id 0198c0de000370008000000000000003
! exec croft work run thumbnails --once -- false
exec croft work add thumbnails paid --id 0198c0de000470008000000000000004
exec croft work run thumbnails --once -- bash -eu emit.sh
exec croft work dispatch --exec charge=false --until-empty
exec croft work add thumbnails running --id 0198c0de000270008000000000000002
exec croft work claim thumbnails --owner worker-1 --ttl 10m
exec croft work add thumbnails waiting --id 0198c0de000170008000000000000001
exec bash -eu block.sh
! stderr 'error'

-- emit.sh --
croft work emit charge '{"total": 17}' --at-most-once
croft work emit mail '{"to": "ann"}'
`

// forged is an incident with a made-up mark.
var forged = strings.Replace(incident, "exec bash -eu block.sh\n", `
env CROFT_MAX_AHEAD=2000000h
exec croft guard raise out/nightly.json --store no-store --stamp croft1:4000000000000000:00000000000000000000000000000001:0:orders/nightly
env CROFT_MAX_AHEAD=
exec bash -eu block.sh
`, 1)

// printsLease is a command that writes a lease, which has a secret, to a file.
var printsLease = regexp.MustCompile(`(?m)croft (work )?(acquire|takeover|claim)\b[^|\n]*[^2&\n]> *[\w$"]`)

// TestNoPageWritesALeaseThatOthersCanRead: a shell makes a new file readable
// for all users, unless the umask says otherwise.
func TestNoPageWritesALeaseThatOthersCanRead(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	manual, err := filepath.Glob("../../docs/man/*.1")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range slices.Concat(pages, manual, []string{"../../README.md"}) {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(string(page), "```") {
			for _, at := range printsLease.FindAllStringIndex(block, -1) {
				found++
				if !strings.Contains(block[:at[0]], "umask 077") {
					t.Errorf("%s writes a lease to a file that others can read: %s", path, block[at[0]:at[1]])
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d commands were found", found)
	}
}

// TestEveryCommandInTheRunbookWorks runs each block by itself, in the middle of
// an incident.
func TestEveryCommandInTheRunbookWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	blocks := strings.Split(string(page), "```sh\n")[1:]
	if len(blocks) < 15 {
		t.Fatalf("%d blocks of commands in the runbook", len(blocks))
	}
	for i, b := range blocks {
		b, _, closed := strings.Cut(b, "```\n")
		if !closed {
			t.Fatalf("block %d does not end", i+1)
		}
		found := incident
		if strings.Contains(b, "guard reset") {
			found = forged
		}
		if strings.Contains(b, "croft work ") && !strings.Contains(b, "orders") {
			found = backlog
		}
		script := found + "-- block.sh --\n" + b
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("block%02d.txtar", i+1)), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := scripts(t, "", func(e *testscript.Env) { e.Setenv("CROFT_STORE", filepath.Join(e.WorkDir, "store")) })
	p.Dir = dir
	testscript.Run(t, p)
}
