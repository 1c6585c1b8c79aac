package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/fsys"
	"github.com/croft-dev/croft/store"
)

// chainLeftAge is how old a leftover must be to be removed. A writer that is
// slower finds its content gone, and nothing is written.
const chainLeftAge = 24 * time.Hour

func isStaged(name string) bool {
	nonce, ok := strings.CutPrefix(name, stageKind)
	return ok && isHex(nonce, nonceDigits)
}

// chainFile is content in the chain's folder that no version names yet.
type chainFile struct {
	c     *chain
	path  string
	nonce string
	size  int64
	sum   string
}

// stage reads content into the chain's folder, and syncs it.
func (c *chain) stage(ctx context.Context, old fs.FileInfo, r io.Reader) (*chainFile, error) {
	f := &chainFile{c: c, nonce: newNonce()}
	f.path = c.stageName(f.nonce)
	s, err := c.stageAt(f.path, old)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if f.size, err = guardCopy(ctx, io.MultiWriter(s.file, sum), r); err != nil {
		return nil, s.drop(c.failed("staging the new content", err))
	}
	if err := s.sync(); err != nil {
		return nil, s.drop(err)
	}
	f.sum = hex.EncodeToString(sum.Sum(nil))
	s.taken = true
	return f, s.drop(nil)
}

// aim gives the content the name it needs to be committed by a version.
func (f *chainFile) aim(next *chainVersion) error {
	name := partName(contentKind, next.Number, f.nonce)
	path := filepath.Join(f.c.home, name)
	if path != f.path {
		if err := f.c.fs.Rename(f.path, path); err != nil {
			// The answer to a rename that was made may be lost.
			if _, missing := f.c.fs.Lstat(path); missing != nil {
				return f.c.failed("naming the new content", err)
			}
		}
		f.path = path
	}
	if next.Content != nil {
		next.Previous = next.Content.Name
	}
	next.Content = &chainContent{Name: name, Size: f.size, SHA256: f.sum}
	return nil
}

// write is File.Write on a chain.
func (c *chain) write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	old, err := c.replaceable()
	if err != nil {
		return guard.Receipt{}, err
	}
	now, err := c.state(ctx)
	if err != nil {
		return guard.Receipt{}, err
	}
	if _, err := now.Mark.Admit(stamp); err != nil {
		c.repair(ctx)
		return guard.Receipt{}, err
	}
	c.sweepSometimes(ctx)
	content, err := c.stage(ctx, old, r)
	if err != nil {
		return guard.Receipt{}, err
	}
	receipt := guard.Receipt{Bytes: content.size}
	var replaced string
	next, err := c.commit(ctx, content, func(next *chainVersion) error {
		receipt.Adopted = old != nil && next.Writes == 0
		replaced = next.Previous
		next.Writes++
		var err error
		next.Mark, err = next.Mark.Admit(stamp)
		return err
	})
	if err != nil {
		if !errors.Is(err, store.ErrUnknown) { // otherwise a version may name it
			_ = c.fs.Remove(content.path)
			c.repair(ctx)
		}
		return guard.Receipt{}, err
	}
	receipt.Mark = next.Mark
	if replaced != "" {
		_ = c.fs.Remove(filepath.Join(c.home, replaced))
	}
	if err := c.refresh(context.WithoutCancel(ctx), next); err != nil {
		return receipt, fmt.Errorf("guard %s: the new content is committed under token %d, and croft read gives it, "+
			"but the file is still the old one: %w; the next call repairs it", c.path, next.Mark.Token, err)
	}
	return receipt, nil
}

// sweepSometimes removes leftovers once an hour, and says nothing if it fails.
func (c *chain) sweepSometimes(ctx context.Context) {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	if now := time.Now(); now.Sub(c.swept) >= guardStageAge {
		c.swept = now
		c.sweepBeside()
		_, _ = c.sweep(ctx)
	}
}

// adopt stages a copy of the artifact; nil if there is none.
func (c *chain) adopt(ctx context.Context) (*chainFile, error) {
	old, err := c.inspect()
	if err != nil || old == nil {
		return nil, err
	}
	file, err := c.fs.Open(c.path, os.O_RDONLY, 0)
	if err != nil {
		return nil, c.failed("reading the old content", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fsys.ErrNotRegular
	}
	if err != nil {
		return nil, c.failed("reading the old content", err)
	}
	return c.stage(ctx, old, io.NewSectionReader(file, 0, info.Size()))
}

// content opens the content that the newest version names, and checks it while
// it is read. It is nil if the version names none.
func (c *chain) content(ctx context.Context) (*guard.Content, error) {
	var missing string // was not there at the last look
	for {
		now, err := c.state(ctx)
		if err != nil || now.Content == nil {
			return nil, err
		}
		opened, err := c.open(now)
		if err == nil || !vanished(err) {
			return opened, err
		}
		if missing == now.Content.Name {
			return nil, c.damaged(c.versionPath(now.Number), "its content %s is not there", missing)
		}
		missing = now.Content.Name // replaced since, and removed
	}
}

func (c *chain) open(now chainVersion) (*guard.Content, error) {
	path := filepath.Join(c.home, now.Content.Name)
	file, err := c.fs.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, c.failed("reading the committed content", err)
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != now.Content.Size) {
		err = c.damaged(path, "it is not the file that was committed")
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	body := &checked{
		Reader: io.NewSectionReader(file, 0, now.Content.Size), Closer: file,
		sum: sha256.New(), want: now.Content.SHA256, path: path,
	}
	return &guard.Content{ReadCloser: body, Mark: now.Mark, Size: now.Content.Size}, nil
}

// checked compares the bytes that it reads with the committed checksum.
type checked struct {
	io.Reader
	io.Closer
	sum        hash.Hash
	want, path string
}

func (r *checked) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(r.sum.Sum(nil)) != r.want {
		return n, &ChainError{Path: r.path, Reason: "its checksum is not the committed one"}
	}
	return n, err
}
