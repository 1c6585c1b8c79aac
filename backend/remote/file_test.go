package remote

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft"
	guarded "github.com/croft-dev/croft/backend/file"
	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/guardtest"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
)

// filesIn offers the files in a folder.
func filesIn(folder string) server.Files {
	return func(_ context.Context, path string) (guard.Artifact, error) {
		return guarded.Open(filepath.Join(folder, filepath.FromSlash(path)), &guarded.Options{LockWait: testenv.Patience})
	}
}

// anybody takes every stamp for that of the current owner. The suite of guards
// makes its stamps up.
type anybody struct{}

func (anybody) Check(context.Context, fence.Stamp) error { return nil }

func openFile(tb testing.TB, st *Store, path string) *File {
	tb.Helper()
	f, err := st.OpenFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// TestGuardConformance runs the whole suite of guards on files behind a server.
func TestGuardConformance(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Harness{MarkLeads: true, Slow: true, Make: func(tb testing.TB) guardtest.Resource {
		folder := testenv.Memory(tb)
		const path = "a file: ü?#%.txt"
		through := func(tb testing.TB, keys *signed.Keys) guardtest.Handle {
			front := serve(tb, mem.New(nil), &server.Options{Files: filesIn(folder), Current: anybody{}, Keys: keys})
			return guardtest.Artifact(openFile(tb, connect(tb, front.URL, nil), path))
		}
		plain := serve(tb, mem.New(nil), &server.Options{Files: filesIn(folder), Current: anybody{}})
		return guardtest.Resource{
			Open: func(tb testing.TB) guardtest.Handle {
				return guardtest.Artifact(openFile(tb, connect(tb, plain.URL, nil), path))
			},
			Read: func(context.Context) ([]byte, bool, error) {
				content, err := os.ReadFile(filepath.Join(folder, path))
				if errors.Is(err, fs.ErrNotExist) {
					return nil, false, nil
				}
				return content, err == nil, err
			},
			Signed: through,
		}
	}})
}

// TestAFileOfAServerIsOpenedByItsURL, by anybody and by the server's own
// client. Other URLs are refused before anything is sent.
func TestAFileOfAServerIsOpenedByItsURL(t *testing.T) {
	t.Parallel()
	front := serve(t, mem.New(nil), &server.Options{Files: filesIn(t.TempDir()), Current: anybody{}})
	st := connect(t, front.URL, nil)
	mine := openFile(t, st, "out é.json")
	guardtest.ByURL(t, mine, front.URL, front.URL+"/files/", front.URL+"/files/a/../b", front.URL+"/files/a//b",
		front.URL+"/files/a?token=x", front.URL+"/files/a#b", "http://user:secret@127.0.0.1/files/a",
		"http://croft.example/files/a")
	if g, err := st.Guard(t.Context(), mine.Target()); err != nil || g.Target() != mine.Target() {
		t.Errorf("%v, %v; want the file", g, err)
	}
	for _, target := range []string{"http://127.0.0.1:1/files/a", "https" + strings.TrimPrefix(front.URL, "http") + "/files/a", front.URL, "/files/a", front.URL + "/other/files/a"} {
		if _, err := st.Guard(t.Context(), target); !errors.Is(err, guard.ErrElsewhere) {
			t.Errorf("%s: %v; want it elsewhere", target, err)
		}
	}
	if _, err := st.OpenFile("../x"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a path that leads out: %v", err)
	}
}

// TestAFileIsWrittenByTheCurrentOwnerAlone: the server asks its store. A
// replaced owner is refused before its successor has written, and a takeover
// raises the fence over the client's own connection.
func TestAFileIsWrittenByTheCurrentOwnerAlone(t *testing.T) {
	t.Parallel()
	key := signed.NewKey()
	front := serve(t, mem.New(nil), &server.Options{Files: filesIn(t.TempDir()), SignKey: key})
	st := connect(t, front.URL, nil)
	client := croft.New(st, &croft.Options{Owner: "ann"})
	t.Cleanup(func() { _ = client.Close() })
	f := openFile(t, st, "out.json")
	put := func(s fence.Stamp, text string) error {
		_, err := f.Write(t.Context(), s, strings.NewReader(text))
		return err
	}
	lease, err := client.Acquire(t.Context(), "jobs/a", &croft.LeaseOptions{TTL: time.Minute, Guards: []croft.Guard{f}})
	if err != nil {
		t.Fatal(err)
	}
	if err := put(lease.Stamp(), "first"); err != nil {
		t.Fatal(err)
	}
	invented := lease.Stamp()
	invented.Token++
	if err := put(invented, "invented"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("an invented stamp: %v", err)
	}
	if err := put(key.Sign(invented), "never issued"); !errors.Is(err, croft.ErrNotOwned) {
		t.Errorf("a signed stamp that the store does not know: %v", err)
	}
	taken, err := client.Takeover(t.Context(), "jobs/a", croft.ByHand{Note: "stuck"})
	if err != nil {
		t.Fatalf("%v: want the fence raised", err)
	}
	if mark, err := f.Mark(t.Context()); err != nil || mark != taken.Deed.Stamp().Mark() {
		t.Errorf("after the takeover the mark is %+v, %v; want %+v", mark, err, taken.Deed.Stamp())
	}
	if err := put(lease.Stamp(), "late"); !errors.Is(err, croft.ErrStale) {
		t.Errorf("the replaced owner: %v", err)
	}
	if err := put(taken.Deed.Stamp(), "second"); err != nil {
		t.Error(err)
	}
	content, err := f.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil || string(text) != "second" || content.Mark != taken.Deed.Stamp().Mark() || content.Size != 6 {
		t.Errorf("%q under %+v, %d bytes, %v", text, content.Mark, content.Size, err)
	}
}

// TestALostReplyToAFileIsUnknown to a client that cannot ask again. The same
// numbered write is then refused as repeated: it was made.
func TestALostReplyToAFileIsUnknown(t *testing.T) {
	t.Parallel()
	front := serve(t, mem.New(nil), &server.Options{Files: filesIn(t.TempDir()), Current: anybody{}})
	net := testenv.NewNetwork(t, front.Listener.Addr().String())
	far, near := connect(t, "http://"+net.Addr, nil), connect(t, front.URL, nil)
	s := fence.Stamp{Key: "jobs/a", Token: 5, Grant: fence.Grant(strings.Repeat("a", 32)), Seq: 1}
	f := openFile(t, far, "out")
	write := func(ctx context.Context, text string) error {
		_, err := f.Write(ctx, s, strings.NewReader(text))
		return err
	}
	if err := write(t.Context(), "zero"); err != nil {
		t.Fatal(err)
	}
	s.Seq++
	// Without content, the client does not wait to be told to go on.
	ctx, giveUp := context.WithCancel(t.Context())
	net.LoseReply(func() {
		if err := write(ctx, ""); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%v; want an unknown outcome of a write that was given up", err)
		}
	}, func() error {
		mark, err := openFile(t, near, "out").Mark(t.Context())
		if err == nil && mark.Seq != s.Seq {
			err = errors.New("the write has not arrived")
		}
		if err == nil {
			giveUp()
		}
		return err
	})
	if err := write(t.Context(), ""); !errors.Is(err, fence.ErrRepeated) {
		t.Errorf("the same write again: %v", err)
	}
}
