package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wire"
)

const (
	// maxUploads is how many unfinished uploads the server keeps. One client of
	// a policy may have half of them.
	maxUploads = 2 * maxTransfers
	// uploadFor is how long an unfinished upload is kept after its last byte.
	// After uploadIdle it may have to make room for another.
	uploadFor  = time.Hour
	uploadIdle = time.Minute
	// uploadLook is how often the server looks for uploads that were given up.
	uploadLook = 10 * time.Minute
	// maxWhole is the longest content that is kept in memory, if it comes in
	// one part.
	maxWhole = 1 << 20
	// maxWrites is how many finished uploads the server remembers.
	maxWrites = 4096
)

// uploads keeps the parts of contents until each content is whole, a file for
// each. It also remembers which of them were written, so that a client that has
// lost the answer gets it again.
//
// Parts of one upload may arrive at the same time, because a client sends a
// part again while the server still waits on the former connection. They put
// the same bytes into the same places. If they do not, the check of the whole
// content finds it. Only one of them writes the content.
type uploads struct {
	root *os.Root // nil: none are kept
	most int      // of one client

	mu     sync.Mutex // guards the fields below, and the making of files
	writes map[string]*write
	order  []string // of the finished ones, the oldest first
	timer  bool     // removeOld runs again later
}

// write is the write of a content that is whole.
type write struct {
	ended chan struct{} // closed when the fields below are set
	told  wire.File
	err   error
}

// uploadName names the file of an upload. Only the same client, stamp, path and
// content lead to it. The name begins with that of the client.
func uploadName(id Identity, path string, s fence.Stamp, u wire.Upload) string {
	client := sha256.Sum256([]byte(id.Name))
	all := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %s %d %s", id.Name, path, s.String(), u.ID, u.Size, u.Sum))
	return hex.EncodeToString(client[:8]) + "-" + hex.EncodeToString(all[:16])
}

// putPart answers a PUT /files/{path} with a part of the content. The last part
// writes the content.
func (s *Server) putPart(c *call, f *file, stamp fence.Stamp) error {
	u, err := wire.ReadUpload(strings.Join(c.Header.Values(wire.UploadHeader), ","))
	switch {
	case err != nil:
		return err
	case c.ContentLength < 0 || c.ContentLength > u.Size-u.Offset:
		return refuse(wire.NewProblem(wire.Invalid, "a part has a Content-Length, and ends within the content"))
	case u.Size > s.o.MaxFile:
		return tooLong(s.o.MaxFile)
	}
	name := uploadName(c.id, c.PathValue("path"), stamp, u)
	if told, ok := s.uploads.written(name); ok {
		c.send(http.StatusOK, wire.JSON, told.Write())
		return nil
	}
	checked := time.Now()
	if err := s.mayWrite(c, f, stamp); err != nil {
		return c.fileError(err)
	}
	end := u.Offset + c.ContentLength
	body := &upload{c: c, from: c.Request.Body}
	var text []byte
	short := u.Offset == 0 && end == u.Size && end <= maxWhole
	if short {
		text, err = io.ReadAll(body)
	} else {
		err = kept(s.uploads.receive(name, u.Offset, body))
	}
	if broken, _ := body.end(); broken != nil {
		return notWhole()
	}
	if err != nil {
		return c.fileError(err)
	}
	_ = c.out.SetReadDeadline(time.Time{})
	told := wire.File{Arrived: end}
	if end == u.Size {
		told, err = s.uploads.once(c.Context(), name, func() (wire.File, error) {
			var content io.Reader = bytes.NewReader(text)
			if !short {
				f, err := s.uploads.root.Open(name)
				if err != nil {
					return wire.File{}, kept(err)
				}
				defer f.Close()
				content = f
			}
			whole := &verified{from: content, sum: u.Sum, left: u.Size, hash: sha256.New(), checked: checked}
			whole.check = func() error { return s.mayWrite(c, f, stamp) }
			receipt, err := f.Write(c.Context(), stamp, whole)
			if refusal := whole.refusal(); refusal != nil {
				err = refusal
			}
			return wire.File{Mark: receipt.Mark, Bytes: receipt.Bytes, Adopted: receipt.Adopted}, err
		})
	}
	if err != nil {
		return c.fileError(err)
	}
	c.send(http.StatusOK, wire.JSON, told.Write())
	return nil
}

// gap tells a client where to go on.
func gap(arrived int64, format string, args ...any) error {
	p := wire.NewProblem(wire.Gap, format, args...)
	p.Arrived = arrived
	return refuse(p)
}

// kept is the error of keeping an upload. An upload that is not there says
// nothing about the guarded file.
func kept(err error) error {
	var r refusal
	switch {
	case err == nil || errors.As(err, &r):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return gap(0, "nothing of the content is here, or no longer; begin anew")
	}
	return fmt.Errorf("keeping an upload: %w", err)
}

// receive adds a part to an upload. What arrives of it before the connection
// breaks counts.
func (k *uploads) receive(name string, offset int64, part io.Reader) error {
	if k.root == nil {
		return refuse(wire.NewProblem(wire.Unsupported, "this server takes content in one piece alone"))
	}
	f, err := k.open(name, offset)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if offset > info.Size() {
		return gap(info.Size(), "%d bytes of the content have arrived; go on there", info.Size())
	}
	_, err = io.Copy(io.NewOffsetWriter(f, offset), part)
	return errors.Join(err, f.Close())
}

// open opens the file of an upload, and makes it for the first part.
func (k *uploads) open(name string, offset int64) (*os.File, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := k.root.OpenFile(name, os.O_RDWR, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if offset > 0 {
		return nil, err
	}
	if err := k.makeRoom(name); err != nil {
		return nil, err
	}
	k.lookLater()
	return k.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}

// removeOld removes uploads that were given up, and looks again while there are
// others. A server begins with it, because it may have been restarted.
func (k *uploads) removeOld() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = false
	if all, err := k.unfinished(); err == nil && len(all) > 0 {
		k.lookLater()
	}
}

// lookLater runs removeOld after a while. The caller holds k.mu.
func (k *uploads) lookLater() {
	if !k.timer {
		k.timer = true
		time.AfterFunc(uploadLook, k.removeOld)
	}
}

// unfinished returns the files of all uploads. It removes those that were given
// up. The caller holds k.mu.
func (k *uploads) unfinished() ([]fs.FileInfo, error) {
	folder, err := k.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var all []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue // it has just been removed
		}
		if time.Since(info.ModTime()) > uploadFor {
			_ = k.root.Remove(info.Name()) // the next look tries again
			continue
		}
		all = append(all, info)
	}
	return all, nil
}

// makeRoom makes room for an upload. If there are too many, the one that is
// idle the longest has to go. The caller holds k.mu.
func (k *uploads) makeRoom(name string) error {
	all, err := k.unfinished()
	if err != nil {
		return err
	}
	client, _, _ := strings.Cut(name, "-")
	var own []fs.FileInfo
	for _, info := range all {
		if strings.HasPrefix(info.Name(), client+"-") {
			own = append(own, info)
		}
	}
	for _, group := range []struct {
		of   []fs.FileInfo
		most int
	}{{own, k.most}, {all, maxUploads}} {
		if len(group.of) < group.most {
			continue
		}
		idle := group.of[0]
		for _, info := range group.of {
			if info.ModTime().Before(idle.ModTime()) {
				idle = info
			}
		}
		if time.Since(idle.ModTime()) < uploadIdle {
			return busy("uploads")
		}
		return k.root.Remove(idle.Name())
	}
	return nil
}

// written returns what a finished upload was answered with.
func (k *uploads) written(name string) (told wire.File, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.writes[name]
	if w == nil {
		return told, false
	}
	select {
	case <-w.ended:
		return w.told, w.err == nil
	default:
		return told, false
	}
}

// once writes a content that is whole. If another call does so already, it
// waits for that one.
func (k *uploads) once(ctx context.Context, name string, do func() (wire.File, error)) (told wire.File, err error) {
	k.mu.Lock()
	for k.writes[name] != nil {
		w := k.writes[name]
		k.mu.Unlock()
		select {
		case <-w.ended:
		case <-ctx.Done():
			return told, ctx.Err()
		}
		if w.err == nil {
			return w.told, nil
		}
		k.mu.Lock()
	}
	w := &write{ended: make(chan struct{})}
	k.writes[name] = w
	k.mu.Unlock()
	err = errors.New("the write has failed") // if do panics
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		w.told, w.err = told, err
		if err != nil {
			delete(k.writes, name)
		} else if k.order = append(k.order, name); len(k.order) > maxWrites {
			delete(k.writes, k.order[0])
			k.order = k.order[1:]
		}
		var r refusal
		if k.root != nil && (err == nil || guard.Refused(err) || errors.As(err, &r)) {
			_ = k.root.Remove(name) // nobody needs it any more
		}
		close(w.ended)
	}()
	told, err = do()
	return told, err
}

// verified is content that must have a certain length and SHA-256. At its end
// it asks whether the writer is still the current owner, if the last answer is
// old. A guard may read on a goroutine of its own, which can outlive the write.
type verified struct {
	from    io.Reader
	sum     string
	left    int64
	hash    hash.Hash
	checked time.Time
	check   func() error

	mu  sync.Mutex
	err error // guarded by mu
}

// refusal returns why the content was refused at its end.
func (v *verified) refusal() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

func (v *verified) Read(b []byte) (int, error) {
	n, err := v.from.Read(b)
	v.hash.Write(b[:n])
	v.left -= int64(n)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	var refused error
	switch {
	case v.left != 0 || hex.EncodeToString(v.hash.Sum(nil)) != v.sum:
		refused = gap(0, "the content that has arrived does not have the SHA-256 that it should have; "+
			"nothing was changed; begin anew")
	case time.Since(v.checked) > lateAfter:
		refused = v.check()
	}
	if refused == nil {
		return n, io.EOF
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = refused
	return n, refused
}
