package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// filesPath comes before the path of a file in the URL of a server.
const filesPath = "/files/"

// File is a guarded file on the disk of a Croft server, for machines that do
// not share that disk. Its methods are safe for concurrent use.
//
// Write first keeps a copy of the content in a temporary file. A slow producer
// then keeps no connection, and a producer that fails has sent nothing. Content
// of more than 1 MiB goes in parts. If the connection breaks, Write sends the
// last part again, also to a server that was restarted, until nothing has moved
// for a minute. After an error that matches [store.ErrUnknown] a call may or
// may not have taken effect.
type File struct {
	s     *Store
	path  string // percent-encoded
	owned bool   // the store belongs to this file
}

var (
	_ guard.Artifact = (*File)(nil)
	_ guard.Reader   = (*File)(nil)
	_ guard.Host     = (*Store)(nil)
)

// OpenFile opens a guarded file on the disk of the server. path is below the
// folder that the server offers, with slashes. OpenFile sends nothing. The
// caller closes the store.
func (s *Store) OpenFile(path string) (*File, error) {
	if err := fence.CheckKey("files/" + path); err != nil {
		return nil, fmt.Errorf("%w target: the path %.80q cannot be that of a file: %w", fence.ErrInvalid, path, err)
	}
	return &File{s: s, path: (&url.URL{Path: path}).EscapedPath()}, nil
}

// openFileURL opens https://HOST/files/PATH, with the options of a store.
func openFileURL(_ context.Context, u *url.URL) (guard.Guard, error) {
	base, path, ok := strings.Cut(u.Path, filesPath)
	if !ok || u.Fragment != "" {
		return nil, fmt.Errorf("%w target %q: write https://HOST/files/PATH",
			fence.ErrInvalid, store.Redact(u.String()))
	}
	server := *u
	server.Path, server.RawPath = base+"/", ""
	s, err := fromURL(&server)
	if err != nil {
		return nil, err
	}
	f, err := s.OpenFile(path)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	f.owned = true
	return f, nil
}

// Guard opens the guard of a file on this server: see [guard.Host].
func (s *Store) Guard(_ context.Context, target string) (guard.Guard, error) {
	u, err := url.Parse(target)
	if err != nil || u.User != nil || u.Fragment != "" {
		return nil, guard.ErrElsewhere
	}
	base, path, ok := strings.Cut(u.Path, filesPath)
	server := &url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host), Path: base}
	if !ok || server.String() != s.base {
		return nil, guard.ErrElsewhere
	}
	return s.OpenFile(path)
}

// Target returns the URL of the file, without options.
func (f *File) Target() string { return f.s.base + filesPath + f.path }

// Close frees what the file needed alone.
func (f *File) Close() error {
	if f.owned {
		return f.s.Close()
	}
	return nil
}

// Mark returns the newest admitted stamp.
func (f *File) Mark(ctx context.Context) (fence.Mark, error) {
	told, err := f.ask(ctx, http.MethodGet, nil)
	return told.Mark, err
}

// Rekeyed returns the last Rekey or Reset.
func (f *File) Rekeyed(ctx context.Context) (guard.Rekeyed, error) {
	told, err := f.ask(ctx, http.MethodGet, nil)
	return told.Rekeyed, err
}

// Raise advances the mark without writing.
func (f *File) Raise(ctx context.Context, stamp fence.Stamp) (fence.Mark, error) {
	if err := stamp.CheckNow(); err != nil {
		return fence.Mark{}, err
	}
	told, err := f.act(ctx, wire.FileAct{Act: wire.RaiseFile, Stamp: stamp.String()})
	return told.Mark, presented(err, stamp)
}

// Rekey moves the file to another key. A server with a policy writes down the
// name of this client as the actor.
func (f *File) Rekey(ctx context.Context, key, actor, note string) (fence.Mark, error) {
	if err := guard.CheckRekey(key, actor, note); err != nil {
		return fence.Mark{}, err
	}
	told, err := f.act(ctx, wire.FileAct{Act: wire.RekeyFile, Key: key, Actor: actor, Note: note})
	return told.Mark, err
}

// Reset takes back a mark whose token was made up.
func (f *File) Reset(ctx context.Context, floor fence.Token, actor, note string) (fence.Mark, error) {
	if err := guard.CheckReset(actor, note); err != nil {
		return fence.Mark{}, err
	}
	told, err := f.act(ctx, wire.FileAct{Act: wire.ResetFile, Floor: floor, Actor: actor, Note: note})
	return told.Mark, err
}

func (f *File) act(ctx context.Context, act wire.FileAct) (wire.File, error) {
	return f.ask(ctx, http.MethodPost, act.Bytes())
}

// ask makes a call about the file that carries no content.
func (f *File) ask(ctx context.Context, method string, body []byte) (wire.File, error) {
	text, err := f.s.ask(ctx, method, "/v1"+filesPath+f.path, body, wire.MaxLine)
	if err != nil {
		return wire.File{}, err
	}
	told, err := wire.ReadFile(text)
	if err != nil {
		return wire.File{}, unread(err)
	}
	return told, nil
}

// presented makes the refusal of a stamp from that of the server.
func presented(err error, stamp fence.Stamp) error {
	var p *problemError
	if errors.As(err, &p) {
		if refused := p.p.RefusalOf(stamp); refused != nil {
			return refused
		}
	}
	return err
}

// Write replaces the content if the stamp is admitted.
func (f *File) Write(ctx context.Context, stamp fence.Stamp, r io.Reader) (guard.Receipt, error) {
	if err := stamp.CheckNow(); err != nil {
		return guard.Receipt{}, err
	}
	if ctx.Err() != nil {
		return guard.Receipt{}, wait.Ended(ctx)
	}
	spool, err := os.CreateTemp("", "croft-write-*")
	if err != nil {
		return guard.Receipt{}, fmt.Errorf("keeping a copy of the content: %w", err)
	}
	removed := os.Remove(spool.Name()) // not everywhere while it is open
	defer func() {
		_ = spool.Close()
		if removed != nil {
			_ = os.Remove(spool.Name())
		}
	}()
	sum := sha256.New()
	size, err := wait.For(ctx, func() (int64, error) { return io.Copy(io.MultiWriter(spool, sum), r) })
	if err != nil {
		return guard.Receipt{}, fmt.Errorf("reading the content: %w", err)
	}
	up := &upload{f: f, stamp: stamp, content: spool, Upload: wire.Upload{
		ID: string(tenure.NewSecret()), Size: size, Sum: hex.EncodeToString(sum.Sum(nil)),
	}}
	told, err := up.send(ctx)
	if err != nil {
		return guard.Receipt{}, err
	}
	return guard.Receipt{Mark: told.Mark, Bytes: told.Bytes, Adopted: told.Adopted}, nil
}

// put sends a part of the content. The call breaks if nothing moves for too
// long. sent reports whether the server may have all of the part. header
// describes the part; "" for content in one piece.
func (f *File) put(
	ctx context.Context, stamp fence.Stamp, part *io.SectionReader, header string,
) (told wire.File, sent bool, err error) {
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(f.s.life, func() { cancel(ErrClosed) })
	defer stop()
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer timer.Stop()
	moved := &moving{timer: timer, left: part.Size()}
	body := func() (io.ReadCloser, error) {
		return io.NopCloser(moved.from(io.NewSectionReader(part, 0, part.Size()))), nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, f.s.base+filesPath+f.path, http.NoBody)
	if err != nil {
		return told, false, err
	}
	if part.Size() > 0 {
		req.Body, _ = body()
		req.GetBody, req.ContentLength = body, part.Size()
		req.Header.Set("Expect", "100-continue")
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set(wire.StampHeader, stamp.String())
	if header != "" {
		req.Header.Set(wire.UploadHeader, header)
	}
	resp, err := f.s.send(req)
	if err != nil {
		return told, moved.all(), f.s.explain(caller, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxLine))
	if err != nil {
		return told, true, f.s.failure(caller, err)
	}
	if told, err = wire.ReadFile(text); err != nil {
		return told, true, unread(err)
	}
	return told, true, nil
}

// Open opens the committed content.
func (f *File) Open(ctx context.Context) (*guard.Content, error) {
	resp, err := f.s.open(ctx, filesPath+f.path)
	if isNotFound(err) {
		return nil, fmt.Errorf("%s: %w", f.Target(), fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	mark, err := wire.ReadMarkText(resp.Header.Get(wire.MarkHeader))
	if err == nil && resp.ContentLength < 0 {
		err = errors.New("it has no length")
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, unread(err)
	}
	return &guard.Content{ReadCloser: resp.Body, Mark: mark, Size: resp.ContentLength}, nil
}
