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
	"testing"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/internal/test/testenv"
)

func TestGuardConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Harness{MarkLeads: true, Make: func(t testing.TB) guardtest.Resource {
		path := filepath.Join(testenv.Memory(t), "artifact")
		return guardtest.Resource{
			Open: func(t testing.TB) guardtest.Handle { return guardtest.Artifact(guardOpen(t, path)) },
			Read: func(context.Context) ([]byte, bool, error) {
				content, err := os.ReadFile(path)
				if errors.Is(err, fs.ErrNotExist) {
					return nil, false, nil
				}
				return content, err == nil, err
			},
			Signed: func(t testing.TB, keys *signed.Keys) guardtest.Handle {
				f, err := Open(path, &Options{LockWait: 2 * time.Minute, Keys: keys})
				if err != nil {
					t.Fatal(err)
				}
				return guardtest.Artifact(f)
			},
		}
	}})
}

// guardOpen opens a guard that waits long enough for a slow machine.
func guardOpen(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path, &Options{LockWait: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// guardStamp is a stamp of the tests' only key. Every token has its own grant.
func guardStamp(token fence.Token) fence.Stamp {
	return fence.Stamp{Key: "tests/job", Token: token, Grant: fence.Grant(fmt.Sprintf("%032x", int64(token)))}
}

func guardPut(t testing.TB, f *File, token fence.Token, content string) guard.Receipt {
	t.Helper()
	receipt, err := f.Write(t.Context(), guardStamp(token), strings.NewReader(content))
	if err != nil {
		t.Fatalf("write with token %d: %v", token, err)
	}
	return receipt
}

// guardHas checks content and mark.
func guardHas(t testing.TB, f *File, token fence.Token, content string) {
	t.Helper()
	if got, err := os.ReadFile(f.path); err != nil || string(got) != content {
		t.Errorf("content %q, %v; want %q", got, err, content)
	}
	if mark, err := f.Mark(t.Context()); err != nil || mark.Token != token {
		t.Errorf("mark %+v, %v; want token %d", mark, err, token)
	}
}

// guardAlone checks that no staged file is left in the directory.
func guardAlone(t testing.TB, f *File) {
	t.Helper()
	names, err := fsys.OS{}.Names(fsys.Anywhere(f.folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if guardIsStage(name) {
			t.Errorf("%s is left in the directory", name)
		}
	}
}

func TestGuardFirstWriteOfAnUnguardedFileAdoptsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte("from before"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := guardOpen(t, path)
	// A raise is not a write: nobody has written the content yet.
	if _, err := f.Raise(t.Context(), guardStamp(1)); err != nil {
		t.Fatal(err)
	}
	if r := guardPut(t, f, 2, "two"); !r.Adopted || r.Bytes != 3 || r.Mark != guardStamp(2).Mark() {
		t.Errorf("first write: %+v, want it adopted", r)
	}
	if r := guardPut(t, f, 3, "three"); r.Adopted {
		t.Errorf("second write: %+v, want it not adopted", r)
	}
	fresh := guardOpen(t, filepath.Join(t.TempDir(), "new"))
	if r := guardPut(t, fresh, 1, "one"); r.Adopted {
		t.Errorf("first write of a new file: %+v, want it not adopted", r)
	}
}

func TestGuardRefusesAStaleWriteBeforeReadingIt(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardPut(t, f, 2, "two")
	_, err := f.Write(t.Context(), guardStamp(1), guardReader(func([]byte) (int, error) {
		t.Error("read a byte of what was refused from the start")
		return 0, io.EOF
	}))
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("%v, want it stale", err)
	}
	guardAlone(t, f)
}

// guardReader makes a function a reader.
type guardReader func([]byte) (int, error)

func (r guardReader) Read(p []byte) (int, error) { return r(p) }

func TestGuardLeavesNothingStagedBehind(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardPut(t, f, 5, "five")
	broken := errors.New("broken")
	for name, r := range map[string]guardReader{
		"a broken reader": func([]byte) (int, error) { return 0, broken },
		"a wrapped end of file": func([]byte) (int, error) {
			return 0, fmt.Errorf("wrapping the end of file is no end: %w", io.EOF)
		},
		"an overtaken write": func() guardReader {
			n := 0
			return func(p []byte) (int, error) {
				if n++; n == 1 {
					_, err := f.Raise(context.Background(), guardStamp(9))
					return copy(p, "late"), err
				}
				return 0, io.EOF
			}
		}(),
	} {
		if _, err := f.Write(t.Context(), guardStamp(6), r); err == nil {
			t.Errorf("%s was admitted", name)
		}
		guardAlone(t, f)
	}
	guardHas(t, f, 9, "five")
}

func TestGuardRekeyIsKeptThroughWrites(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardPut(t, f, 1, "one")
	before := time.Now()
	if _, err := f.Rekey(t.Context(), "tests/other", "ann@host", "the job was split"); err != nil {
		t.Fatal(err)
	}
	for token := range fence.Token(5) {
		s := guardStamp(token + 2)
		s.Key = "tests/other"
		if _, err := f.Write(t.Context(), s, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	r, err := f.Rekeyed(t.Context())
	if err != nil || r.From != "tests/job" || r.Actor != "ann@host" || r.Note != "the job was split" || r.At.Before(before.Add(-time.Second)) || r.At.After(time.Now()) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestGuardSidecarIsReadableByPeople(t *testing.T) {
	f := guardOpen(t, filepath.Join(t.TempDir(), "artifact"))
	guardPut(t, f, 7, "seven")
	guardPut(t, f, 8, "eight")
	text, err := os.ReadFile(f.sidecar)
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.ReplaceAll(string(text), "\x00", "") // as a terminal does
	for _, line := range []string{"croft fence 1\n", "key tests/job\n", "token 7\n", "token 8\n", "writes 2\n", "nobody is inside\n"} {
		if !strings.Contains(shown, line) {
			t.Errorf("it does not say %q:\n%s", line, shown)
		}
	}
	if strings.IndexFunc(shown, func(r rune) bool { return r < ' ' && r != '\n' }) >= 0 {
		t.Errorf("it has control characters: %q", shown)
	}
}
