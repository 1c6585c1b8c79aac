//go:build linux || darwin

package file

import (
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

// isVersionLink reports whether a step gives a version its name.
func isVersionLink(s fsys.Step) bool {
	_, ok := parseVersionName(filepath.Base(s.Path))
	return ok && s.Op == "link"
}

// held is a file system that holds back the first step that is chosen, until
// it is let go.
type held struct {
	fsys.Faulty
	reached, release chan struct{}
}

func hold(choose func(fsys.Step) bool) *held {
	h := &held{reached: make(chan struct{}), release: make(chan struct{})}
	done := false
	h.FS = fsys.OS{}
	h.Before = func(s fsys.Step) error {
		if !done && choose(s) {
			done = true
			close(h.reached)
			<-h.release
		}
		return nil
	}
	return h
}

// chainHas checks the committed content, its mark, and the plain copy.
func chainHas(t testing.TB, path string, token fence.Token, content string) error {
	t.Helper()
	f := chainOpen(t, fsys.OS{}, path)
	mark, err := f.Mark(t.Context())
	if err != nil || mark.Token != token {
		return fmt.Errorf("mark %+v, %w; want token %d", mark, err, token)
	}
	if got, _, err := chainContents(t.Context(), f); err != nil || string(got) != content {
		return fmt.Errorf("committed %q, %w; want %q", got, err, content)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != content {
		return fmt.Errorf("the file is %q, %w; want %q", got, err, content)
	}
	return nil
}

// lateLink holds one writer back just before its commit, until the number it
// aims at has been taken and pruned again, and then lets it go on.
func lateLink(t testing.TB, omit omissions) error {
	path := filepath.Join(testenv.Memory(t), "artifact")
	others := chainOpen(t, fsys.OS{}, path)
	others.omit = omit
	guardPut(t, others, 1, "first")
	h := hold(isVersionLink)
	late := chainOpen(t, h, path)
	late.omit = omit
	answer := make(chan error, 1)
	go func() {
		_, err := late.Write(context.Background(), guardStamp(2), strings.NewReader("late"))
		answer <- err
	}()
	<-h.reached
	last := fence.Token(3 + chainKeeps + 2*chainPrune)
	for token := fence.Token(3); token <= last; token++ {
		guardPut(t, others, token, fmt.Sprint("content ", token))
	}
	if _, err := os.Lstat(filepath.Join(others.sidecar+chainSuffix, versionName(3))); err == nil {
		return errors.New("version 3 was never pruned")
	}
	close(h.release)
	if err := <-answer; err == nil {
		return errors.New("a late link to a pruned number was taken for a commit")
	} else if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("a late link: %w", err)
	}
	if err := chainHas(t, path, last, fmt.Sprint("content ", last)); err != nil {
		return err
	}
	// A process that knows only old versions must not go on from the stray.
	others.memory.known = 3
	guardPut(t, others, last+1, "after")
	return chainHas(t, path, last+1, "after")
}

func TestChainLateLinkToAPrunedNumberDoesNotCount(t *testing.T) {
	if err := lateLink(t, omissions{}); err != nil {
		t.Error(err)
	}
	if err := lateLink(t, omissions{confirm: true}); err == nil {
		t.Error("a chain that lets a late link through is not caught")
	}
}

// lostReply loses the answer to each link and each rename, as a network does.
// What the caller is told is the answer to the repetition.
func lostReply(s fsys.Step) error {
	switch s.Op {
	case "link":
		return &os.LinkError{Op: "link", New: s.Path, Err: os.ErrExist}
	case "rename":
		return &os.LinkError{Op: "rename", New: s.Path, Err: os.ErrNotExist}
	}
	return nil
}

func lostReplies(t testing.TB, omit omissions) error {
	path := filepath.Join(testenv.Memory(t), "artifact")
	guardPut(t, chainOpen(t, fsys.OS{}, path), 1, "one")
	f := chainOpen(t, &fsys.Faulty{FS: fsys.OS{}, After: lostReply}, path)
	f.omit = omit
	for seq := range uint64(3) {
		s := guardStamp(2)
		s.Seq = seq + 1
		if _, err := f.Write(t.Context(), s, strings.NewReader("two")); err != nil {
			return fmt.Errorf("a commit whose answer was lost: %w", err)
		}
	}
	newest, err := chainNewest(t, f)
	if err != nil || newest.Writes != 4 {
		return fmt.Errorf("%d writes were counted, %w; want 4", newest.Writes, err)
	}
	return chainHas(t, path, 2, "two")
}

func chainNewest(t testing.TB, f *File) (chainVersion, error) {
	v, err := f.visit()
	if err != nil {
		return chainVersion{}, err
	}
	defer v.leave()
	c, err := v.chain()
	if err != nil || c == nil {
		return chainVersion{}, fmt.Errorf("no chain: %w", err)
	}
	return c.look(t.Context())
}

func TestChainCommitsOnceWhenTheAnswerIsLost(t *testing.T) {
	if err := lostReplies(t, omissions{}); err != nil {
		t.Error(err)
	}
	if err := lostReplies(t, omissions{nonce: true}); err == nil {
		t.Error("a chain that does not look whose version stands there is not caught")
	}
}

// TestChainAnUnansweredLinkIsUnknown: the request may still be on its way. If
// it arrives later, the version that it makes must have its content.
func TestChainAnUnansweredLinkIsUnknown(t *testing.T) {
	path := filepath.Join(testenv.Memory(t), "artifact")
	guardPut(t, chainOpen(t, fsys.OS{}, path), 1, "one")
	var later func() error
	fsy := &fsys.Faulty{FS: fsys.OS{}, Before: func(s fsys.Step) error {
		if !isVersionLink(s) {
			return nil
		}
		folder := filepath.Dir(s.Path)
		staged, _ := filepath.Glob(filepath.Join(folder, newKind+"-*"))
		later = func() error { return os.Link(staged[0], s.Path) }
		return os.ErrDeadlineExceeded
	}}
	f := chainOpen(t, fsy, path)
	_, err := f.Write(t.Context(), guardStamp(2), strings.NewReader("two"))
	if !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("%v, want unknown", err)
	}
	if err := chainHas(t, path, 1, "one"); err != nil {
		t.Error(err)
	}
	if err := later(); err != nil {
		t.Fatal(err)
	}
	if err := chainHas(t, path, 2, "two"); err != nil {
		t.Error(err)
	}
}

// plainBehind lets one writer stand still before it refreshes the plain copy,
// with a copy that is old when it goes on, and kills it then.
func plainBehind(t testing.TB, omit omissions) error {
	path := filepath.Join(testenv.Memory(t), "artifact")
	h := hold(func(s fsys.Step) bool { return s.Op == "rename" && s.Path == path })
	after := h.Before
	dead := false
	h.Before = func(s fsys.Step) error {
		if dead {
			return fsys.ErrCrashed
		}
		return after(s)
	}
	h.After = func(s fsys.Step) error { dead = s.Op == "rename" && s.Path == path || dead; return nil }
	frozen := chainOpen(t, h, path)
	answer := make(chan error, 1)
	go func() {
		_, err := frozen.Write(context.Background(), guardStamp(1), strings.NewReader("one"))
		answer <- err
	}()
	<-h.reached
	other := chainOpen(t, fsys.OS{}, path)
	other.omit = omit
	guardPut(t, other, 2, "two")
	close(h.release)
	if err := <-answer; err == nil {
		return errors.New("the frozen writer was not killed")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "one" {
		return fmt.Errorf("the old copy is not there: %q, %w", got, err)
	}
	if got, _, err := chainContents(t.Context(), other); err != nil || string(got) != "two" {
		return fmt.Errorf("committed is %q, %w; want two", got, err)
	}
	if _, err := other.Mark(t.Context()); err != nil {
		return err
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "two" {
		return fmt.Errorf("the copy was not repaired: %q, %w", got, err)
	}
	return nil
}

func TestChainRepairsAnOldCopy(t *testing.T) {
	if err := plainBehind(t, omissions{}); err != nil {
		t.Error(err)
	}
	if err := plainBehind(t, omissions{repair: true}); err == nil {
		t.Error("a chain that never repairs the copy is not caught")
	}
}

// byRename commits by rename, which replaces what another has committed.
type byRename struct{ fsys.OS }

func (b byRename) Link(from, to fsys.Path) error {
	if isVersionLink(fsys.Step{Op: "link", Path: to.String()}) {
		return b.OS.Rename(from, to)
	}
	return b.OS.Link(from, to)
}

// overtaken holds one writer back just before its commit, while a newer owner
// commits.
func overtaken(t testing.TB, fsy fsys.FS) error {
	path := filepath.Join(testenv.Memory(t), "artifact")
	newer := chainOpen(t, fsy, path)
	guardPut(t, newer, 1, "one")
	h := hold(isVersionLink)
	h.FS = fsy
	older := chainOpen(t, h, path)
	answer := make(chan error, 1)
	go func() {
		_, err := older.Write(context.Background(), guardStamp(2), strings.NewReader("two"))
		answer <- err
	}()
	<-h.reached
	guardPut(t, newer, 3, "three")
	close(h.release)
	if err := <-answer; !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("a write overtaken just before its commit: %w; want it refused as stale", err)
	}
	return chainHas(t, path, 3, "three")
}

func TestChainRefusesAWriteOvertakenJustBeforeItsCommit(t *testing.T) {
	if err := overtaken(t, fsys.OS{}); err != nil {
		t.Error(err)
	}
	if err := overtaken(t, byRename{}); err == nil {
		t.Error("a chain that commits by rename is not caught")
	}
}
