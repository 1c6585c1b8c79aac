//go:build linux || darwin

package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// TestChainTakesOverTheMarkOfASidecar, with the audit and the content; and from
// then on a guard on the server's own disk follows the chain.
func TestChainTakesOverTheMarkOfASidecar(t *testing.T) {
	path := filepath.Join(testenv.Memory(t), "artifact")
	local := guardOpen(t, path)
	guardPut(t, local, 5, "five")
	if _, err := local.Rekey(t.Context(), "tests/job", "ann", "moved"); err != nil {
		t.Fatal(err)
	}
	remote := chainOpen(t, fsys.OS{}, path)
	if mark, err := remote.Mark(t.Context()); err != nil || mark.Token != 5 {
		t.Errorf("before the first change: %+v, %v", mark, err)
	}
	if _, err := remote.Raise(t.Context(), guardStamp(5)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("below the sidecar's mark: %v, want it refused", err)
	}
	if got, _, err := chainContents(t.Context(), remote); err != nil || string(got) != "five" {
		t.Errorf("content %q, %v", got, err)
	}
	if r, err := remote.Rekeyed(t.Context()); err != nil || r.Note != "moved" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Lstat(local.sidecar); err == nil {
		t.Error("the sidecar is still there")
	}
	guardPut(t, local, 6, "six") // by the handle that was open all the time
	if r := guardPut(t, remote, 7, "seven"); r.Adopted {
		t.Error("guarded content was adopted")
	}
	if _, err := local.Write(t.Context(), guardStamp(6), strings.NewReader("late")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a stale write on the server's own disk: %v", err)
	}
	guardHas(t, local, 7, "seven")
}

// TestChainAndSidecarNeverBothAdmit holds a writer on the server's own disk at
// each of its steps, while another machine begins a chain. Either the chain has
// seen the write, or the writer is not told that it counts.
func TestChainAndSidecarNeverBothAdmit(t *testing.T) {
	for at := 0; ; at++ {
		path := filepath.Join(testenv.Memory(t), "artifact")
		guardPut(t, guardOpen(t, path), 1, "one")
		n := 0
		h := hold(func(fsys.Step) bool { n++; return n > at })
		local := guardOpen(t, path)
		local.fs = h
		answer := make(chan error, 1)
		go func() {
			_, err := local.Write(context.Background(), guardStamp(2), strings.NewReader("two"))
			answer <- err
		}()
		select {
		case err := <-answer: // it has fewer steps
			if err != nil || at == 0 {
				t.Fatal(at, err)
			}
			return
		case <-h.reached:
		}
		remote := chainOpen(t, fsys.OS{}, path)
		seen, err := remote.Raise(t.Context(), guardStamp(1))
		if err != nil && !errors.Is(err, fence.ErrStale) {
			t.Fatalf("step %d: beginning a chain: %v", at, err)
		}
		close(h.release)
		told := <-answer
		mark, err := remote.Mark(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := chainContents(t.Context(), remote)
		if err != nil {
			t.Fatal(err)
		}
		if told == nil && (mark.Token != 2 || string(got) != "two") {
			t.Fatalf("step %d: the write was admitted; the chain has token %d and %q (it began at %d)",
				at, mark.Token, got, seen.Token)
		}
		if plain, err := os.ReadFile(path); err != nil || !bytes.Equal(plain, got) {
			t.Fatalf("step %d: the file is %q, %v; committed is %q", at, plain, err, got)
		}
		guardPut(t, remote, 3, "three")
		guardHas(t, guardOpen(t, path), 3, "three")
	}
}

// TestChainRefusesAForeignSidecarBesideIt: some program does not know of it.
func TestChainRefusesAForeignSidecarBesideIt(t *testing.T) {
	path := filepath.Join(testenv.Memory(t), "artifact")
	guardPut(t, guardOpen(t, path), 9, "nine")
	image, err := os.ReadFile(path + guardSuffix)
	guardMust(t, err)
	f := chainOpen(t, fsys.OS{}, path)
	guardPut(t, f, 10, "ten")
	guardMust(t, os.WriteFile(f.sidecar, image, 0o600))
	if _, err := f.Write(t.Context(), guardStamp(11), strings.NewReader("eleven")); !errors.Is(err, ErrTwoGuards) {
		t.Errorf("%v, want ErrTwoGuards", err)
	}
	guardMust(t, os.WriteFile(f.sidecar, nil, 0o600)) // of a call that then found the chain
	guardPut(t, f, 11, "eleven")
}

// TestChainSurvivesACrashAtEveryStep: afterwards mark and content belong
// together, the copy is whole, and the next owner can write.
func TestChainSurvivesACrashAtEveryStep(t *testing.T) {
	for at := 0; ; at++ {
		path := filepath.Join(testenv.Memory(t), "artifact")
		if at%2 == 0 {
			guardPut(t, guardOpen(t, path), 1, "one") // the chain is begun, and takes over
		} else {
			guardPut(t, chainOpen(t, fsys.OS{}, path), 1, "one")
		}
		n := 0
		f := chainOpen(t, &fsys.Faulty{FS: fsys.OS{}, Before: func(fsys.Step) error {
			if n++; n > at/2 {
				return fsys.ErrCrashed
			}
			return nil
		}}, path)
		_, err := f.Write(t.Context(), guardStamp(2), strings.NewReader("two"))
		plain, failed := os.ReadFile(path)
		if failed != nil || string(plain) != "one" && string(plain) != "two" {
			t.Fatalf("step %d: the file is %q, %v", at, plain, failed)
		}
		whole := chainHas(t, path, 1, "one")
		if whole != nil {
			whole = chainHas(t, path, 2, "two")
		}
		if whole != nil {
			t.Fatalf("step %d (%v): %v", at, err, whole)
		}
		if err != nil && !errors.Is(err, fsys.ErrCrashed) && !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("step %d: %v", at, err)
		}
		after := chainOpen(t, fsys.OS{}, path)
		guardPut(t, after, 3, "three")
		if err := chainHas(t, path, 3, "three"); err != nil {
			t.Fatal(at, err)
		}
		if err == nil && n <= at/2 {
			return
		}
	}
}

// TestChainStaysSmall: old versions and contents go, and what dead writers left
// goes when it is a day old.
func TestChainStaysSmall(t *testing.T) {
	path := filepath.Join(testenv.Memory(t), "artifact")
	f := chainOpen(t, fsys.OS{}, path)
	for token := range fence.Token(3 * chainKeeps) {
		guardPut(t, f, token+1, fmt.Sprint("content ", token+1))
	}
	names, err := os.ReadDir(f.sidecar + chainSuffix)
	guardMust(t, err)
	kinds := map[string]int{}
	for _, entry := range names {
		kind, _, _ := strings.Cut(entry.Name(), "-")
		if _, ok := parseVersionName(entry.Name()); ok {
			kind = "version"
		}
		kinds[kind]++
	}
	if kinds["version"] > chainKeeps+chainPrune+1 || kinds[contentKind] != 2 || len(kinds) != 2 {
		t.Errorf("the folder holds %v", kinds)
	}
}
