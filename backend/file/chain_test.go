//go:build linux || darwin

package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

// chainOpen opens the guard of a file as if it lay on a network mount.
func chainOpen(t testing.TB, fsy fsys.FS, path string) *File {
	t.Helper()
	f := guardOpen(t, path)
	f.remote, f.fs = true, fsy
	return f
}

// chainContents returns the committed content, and whether there is any.
func chainContents(ctx context.Context, f *File) ([]byte, bool, error) {
	content, err := f.Open(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer content.Close()
	data, err := io.ReadAll(content)
	return data, err == nil, err
}

// chainResource is a guarded file that each handle reaches by one of several
// paths.
func chainResource(open func(t testing.TB, handle int) *File) guardtest.Resource {
	handles := 0
	return guardtest.Resource{
		Open: func(t testing.TB) guardtest.Handle {
			handles++
			return guardtest.Artifact(&oneTarget{open(t, handles)})
		},
		Read: func(ctx context.Context) ([]byte, bool, error) { return chainContents(ctx, open(nil, 0)) },
	}
}

// oneTarget goes by the file's name alone: its path differs between mounts.
type oneTarget struct{ *File }

func (o *oneTarget) Target() string { return filepath.Base(o.path) }

func TestChainConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Harness{Make: func(t testing.TB) guardtest.Resource {
		path := filepath.Join(testenv.Memory(t), "artifact")
		return chainResource(func(testing.TB, int) *File { return chainOpen(t, fsys.OS{}, path) })
	}})
}

// TestChainConformanceOnANetworkFileSystem: two mounts of one folder, used in
// turn, and neither told of the other's changes.
func TestChainConformanceOnANetworkFileSystem(t *testing.T) {
	_, mounts := testenv.Share(t, 2)
	var made atomic.Int64
	guardtest.Run(t, guardtest.Harness{Slow: true, Make: func(t testing.TB) guardtest.Resource {
		name := fmt.Sprintf("artifact%d.json", made.Add(1))
		return chainResource(func(_ testing.TB, handle int) *File {
			f := guardOpen(t, filepath.Join(mounts[handle%2], name))
			if !f.remote {
				t.Fatalf("%s is taken for a local disk", f.path)
			}
			return f
		})
	}})
}

// TestAReaderThatMeetsTheFirstWriteGetsACommittedContent: the reader has seen
// that nothing is guarded. Then the first write comes, before the file is
// opened.
func TestAReaderThatMeetsTheFirstWriteGetsACommittedContent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testenv.Memory(t), "artifact")
	if err := os.WriteFile(path, []byte("unguarded"), 0o600); err != nil {
		t.Fatal(err)
	}
	writer := chainOpen(t, fsys.OS{}, path)
	first := sync.OnceFunc(func() { guardPut(t, writer, 7, "guarded") })
	reader := chainOpen(t, &fsys.Faulty{FS: fsys.OS{}, Before: func(s fsys.Step) error {
		if s.Op == "open" && s.Path == path {
			first()
		}
		return nil
	}}, path)
	content, err := reader.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if data, err := io.ReadAll(content); err != nil || string(data) != "guarded" || content.Mark.Token != 7 {
		t.Errorf("it reads %q under token %d, %v", data, content.Mark.Token, err)
	}
}

// TestAFileThatEndsEarlyIsNotReadAsAWhole: over a network mount a file ends
// early when a shorter one takes its place.
func TestAFileThatEndsEarlyIsNotReadAsAWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testenv.Memory(t), "artifact")
	if err := os.WriteFile(path, []byte("the whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := chainOpen(t, fsys.OS{}, path).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if err := os.Truncate(path, 3); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(content); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("it reads %q, %v", data, err)
	}
}

// TestChainOfTwoMountsAndTheServersOwnDisk: two machines and the server itself
// write the file of the first example.
func TestChainOfTwoMountsAndTheServersOwnDisk(t *testing.T) {
	served, mounts := testenv.Share(t, 2)
	open := func(folder string) *File { return guardOpen(t, filepath.Join(folder, "today.json")) }
	says := func(f *File, want string) {
		t.Helper()
		findings, err := f.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range findings {
			if found.Level != store.OK {
				t.Errorf("%+v", found)
			}
			if found.Check == "guard" && !strings.Contains(found.Seen, want) {
				t.Errorf("it says %q, want %q", found.Seen, want)
			}
		}
	}
	local, one, two := open(served), open(mounts[0]), open(mounts[1])
	says(local, "because the file lies on a local disk")
	says(one, "from the first write on")
	guardPut(t, local, 1, "by the server")
	guardPut(t, one, 2, "by machine one")
	guardHas(t, local, 2, "by machine one")
	guardPut(t, local, 3, "by the server again")
	for _, f := range []*File{local, one, two} {
		if _, err := f.Write(t.Context(), guardStamp(2), strings.NewReader("late")); !errors.Is(err, fence.ErrStale) {
			t.Errorf("a stale write at %s: %v", f.path, err)
		}
		if got, _, err := chainContents(t.Context(), f); err != nil || string(got) != "by the server again" {
			t.Errorf("%s: %q, %v", f.path, got, err)
		}
	}
	says(local, "because other machines write the file over a network mount")
	says(two, "because the file lies on a network or FUSE mount (fuse)")
	guardtest.ByURL(t, two)
}
