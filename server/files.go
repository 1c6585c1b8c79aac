package server

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/tenure"
)

// Files opens the guarded files that a server offers to machines which do not
// share its disk. path has slashes, and no empty, "." or ".." segments. The
// error matches fs.ErrNotExist if no file can be there, and fence.ErrInvalid if
// the path names none that clients may use. The server closes the guard.
type Files func(ctx context.Context, path string) (guard.Artifact, error)

// FilesPrefix begins the keys by which a policy allows files: to read the file
// at a/b needs Read on "files/a/b", to write it Work, and to rekey or reset it
// Operate.
const FilesPrefix = "files/"

// maxTransfers is how many files are sent and received at a time. One client of
// a policy may have half of them.
const maxTransfers = 32

// file is a guarded file that a call is about.
type file struct {
	guard.Artifact
	key string // for the policy, and in the audit log
}

// file opens the file in the path of a call, if the identity may do verb with
// it. Without the right to read it, the answer is that no such file exists.
func (s *Server) file(c *call, verb Verb) (*file, error) {
	if s.o.Files == nil {
		return nil, refuse(wire.NewProblem(wire.NotFound, "this server offers no files"))
	}
	path, err := c.filePath()
	if err != nil {
		return nil, err
	}
	key := FilesPrefix + path
	if !s.may(c.id, Read, key) {
		return nil, refuse(unseen())
	}
	if !s.may(c.id, verb, key) {
		return nil, refuse(wire.NewProblem(wire.NotAllowed, "%s may not %s %q; ask the operator of this server",
			c.id.Name, verb, key))
	}
	g, err := s.o.Files(c.Context(), path)
	if err != nil {
		return nil, c.fileError(err)
	}
	return &file{g, key}, nil
}

// NamedFile opens the file of this server that a target names, for somebody who
// asks by r. It must be called by the name by which r calls the server. If the
// target is elsewhere, or no file that the identity may read, the error matches
// guard.ErrElsewhere.
func (s *Server) NamedFile(r *http.Request, id Identity, target string) (guard.Guard, error) {
	u, err := url.Parse(target)
	if s.o.Files == nil || err != nil || u.User != nil || u.Fragment != "" || !sameHost(u, r) {
		return nil, guard.ErrElsewhere
	}
	path, ok := strings.CutPrefix(u.Path, "/files/")
	key := FilesPrefix + path
	if !ok || fence.CheckKey(key) != nil || checkName(path) != nil || !s.may(id, Read, key) {
		return nil, guard.ErrElsewhere
	}
	return s.o.Files(r.Context(), path)
}

// sameHost reports whether a URL leads to the server that a request came to.
func sameHost(u *url.URL, r *http.Request) bool {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, ""
	}
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return usual != "" && hostName(u.Hostname()) == hostName(strings.Trim(host, "[]")) &&
		cmp.Or(u.Port(), usual) == cmp.Or(port, usual)
}

// filePath returns the path of the file that a call is about.
func (c *call) filePath() (string, error) {
	path := c.PathValue("path")
	if err := fence.CheckKey(FilesPrefix + path); err != nil {
		return "", refuse(wire.NewProblem(wire.Invalid, "the path of the file cannot be: %s", err.Error()))
	}
	return path, checkName(path)
}

// transfer takes the slots for a long call. They are in place of the call's
// own.
func (s *Server) transfer(c *call) (leave func(), err error) {
	give, ok := s.transferShares.take(c.id.Name, 1)
	if !ok {
		return nil, busy("transfers of one client")
	}
	if !s.transfers.enter() {
		give()
		return nil, busy("transfers")
	}
	c.slot()
	return func() { s.transfers.leave(); give() }, nil
}

// getFile answers GET /files/{path}: the committed content.
func (s *Server) getFile(c *call) error {
	f, err := s.file(c, Read)
	if err != nil {
		return err
	}
	defer f.Close()
	leave, err := s.transfer(c)
	if err != nil {
		return err
	}
	defer leave()
	r, ok := f.Artifact.(guard.Reader)
	if !ok {
		return errors.ErrUnsupported
	}
	content, err := r.Open(c.Context())
	if err != nil {
		return c.fileError(err)
	}
	defer content.Close()
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'") // a browser must run nothing of it
	h.Set("Content-Length", strconv.FormatInt(content.Size, 10))
	h.Set(wire.MarkHeader, wire.MarkText(content.Mark))
	if c.Method == http.MethodHead {
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	out := bufio.NewWriterSize(deadlined{c}, 64<<10)
	_, err = io.Copy(out, content)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the client must not take this for the whole
	}
	return nil
}

// putFile answers PUT /files/{path}: a write under the stamp in its header.
func (s *Server) putFile(c *call) error {
	stamp, err := s.fileStamp(c, c.Header.Values(wire.StampHeader))
	if err != nil {
		return err
	}
	f, err := s.file(c, Work)
	if err != nil {
		return err
	}
	defer f.Close()
	leave, err := s.transfer(c)
	if err != nil {
		return err
	}
	defer leave()
	if c.ContentLength > s.o.MaxFile {
		return tooLong(s.o.MaxFile)
	}
	if c.Header.Get(wire.UploadHeader) != "" {
		return s.putPart(c, f, stamp)
	}
	if err := s.mayWrite(c, f, stamp); err != nil {
		return c.fileError(err)
	}
	body := &upload{c: c, from: http.MaxBytesReader(c.w.ResponseWriter, c.Request.Body, s.o.MaxFile)}
	body.check = func() error { return s.mayWrite(c, f, stamp) }
	receipt, err := f.Write(c.Context(), stamp, body)
	broken, refusal := body.end()
	var long *http.MaxBytesError
	switch {
	case errors.As(broken, &long):
		return tooLong(s.o.MaxFile)
	case refusal != nil:
		return c.fileError(refusal)
	case broken != nil:
		return notWhole()
	case err != nil:
		return c.fileError(err)
	}
	_ = c.out.SetReadDeadline(time.Time{})
	told := wire.File{Mark: receipt.Mark, Bytes: receipt.Bytes, Adopted: receipt.Adopted}
	c.send(http.StatusOK, wire.JSON, told.Write())
	return nil
}

func notWhole() error {
	p := wire.NewProblem(wire.Unknown, "the content did not arrive whole; nothing was changed; write it again")
	p.Title, p.Status = http.StatusText(http.StatusRequestTimeout), http.StatusRequestTimeout
	return refuse(p)
}

func tooLong(most int64) error {
	return refuse(wire.NewProblem(wire.TooLarge, "the content has more than %d bytes; nothing was changed", most))
}

// filePart is how much of the content must arrive within receiveWithin.
// Otherwise a client that sends a byte now and then keeps its slot for years.
const filePart = 64 << 10

// upload reads content from a client, which has only so much time for each
// part. The time that the guard takes in between does not count. If the content
// took long, it asks at its end whether the writer is still the current owner.
// A guard may read on a goroutine of its own, which can outlive the write.
type upload struct {
	c     *call
	from  io.Reader
	check func() error // nil: the owner is checked elsewhere
	begun time.Time    // of the first Read

	left    time.Duration // for the rest of this part
	arrived int           // bytes of this part

	mu           sync.Mutex // guards the fields below
	over         bool       // the write has ended: leave the connection alone
	err, refusal error
}

// end returns why the content could not be read whole, or was refused at its
// end.
func (u *upload) end() (err, refusal error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	return u.err, u.refusal
}

// more gives the client the time that is left for this part. It reports false
// if the write has ended.
func (u *upload) more() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		_ = u.c.out.SetReadDeadline(time.Now().Add(u.left))
	}
	return !u.over
}

// lateAfter is how long the content may take before the owner is checked again.
const lateAfter = time.Second

func (u *upload) Read(b []byte) (int, error) {
	if u.begun.IsZero() {
		u.begun, u.left = time.Now(), receiveWithin
	}
	if !u.more() {
		return 0, io.ErrClosedPipe
	}
	before := time.Now()
	n, err := u.from.Read(b)
	u.left -= time.Since(before)
	if u.arrived += n; u.arrived >= filePart {
		u.arrived, u.left = 0, receiveWithin
	}
	if err == nil {
		return n, nil
	}
	var refusal error
	if errors.Is(err, io.EOF) {
		if u.check != nil && time.Since(u.begun) > lateAfter {
			refusal = u.check()
		}
		if refusal == nil {
			return n, io.EOF
		}
		err = refusal
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err, u.refusal = err, refusal
	return n, err
}

// fileStamp reads the stamp of a write, and checks whether this client may
// write under it.
func (s *Server) fileStamp(c *call, values []string) (stamp fence.Stamp, err error) {
	if len(values) != 1 {
		return stamp, refuse(wire.NewProblem(wire.Invalid, "a write carries one stamp, in the header %s",
			wire.StampHeader))
	}
	if stamp, err = fence.ParseStamp(values[0]); err != nil {
		return stamp, err
	}
	if err := s.o.Keys.CheckNow(stamp); err != nil {
		return stamp, err
	}
	if !s.may(c.id, Read, stamp.Key) {
		return stamp, refuse(unseen())
	}
	if !s.may(c.id, Work, stamp.Key) {
		return stamp, refuse(wire.NewProblem(wire.NotAllowed, "%s may not work on %q; ask the operator of this server",
			c.id.Name, stamp.Key))
	}
	return stamp, nil
}

// mayWrite refuses a stamp whose owner is not the current one. If the mark
// refuses it, too, that is the reason.
func (s *Server) mayWrite(c *call, f *file, stamp fence.Stamp) error {
	var err error
	if s.o.Current != nil {
		err = s.o.Current.Check(c.Context(), stamp)
	} else {
		err = s.checkCurrent(c, stamp)
	}
	if err == nil {
		return nil
	}
	if mark, markErr := f.Mark(c.Context()); markErr == nil {
		if _, refused := mark.Admit(stamp); guard.Refused(refused) {
			return refused
		}
	}
	return err
}

// readFileMark answers GET /v1/files/{path}: the mark, and the last act by
// hand.
func (s *Server) readFileMark(c *call) error {
	f, err := s.file(c, Read)
	if err != nil {
		return err
	}
	defer f.Close()
	mark, err := f.Mark(c.Context())
	if err != nil {
		return c.fileError(err)
	}
	rekeyed, err := f.Rekeyed(c.Context())
	if err != nil {
		return c.fileError(err)
	}
	c.send(http.StatusOK, wire.JSON, wire.File{Mark: mark, Rekeyed: rekeyed}.Write())
	return nil
}

// actOnFile answers POST /v1/files/{path}: a raise, or an operator's act.
func (s *Server) actOnFile(c *call) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	act, err := wire.ReadFileAct(body)
	if err != nil {
		return err
	}
	var mark fence.Mark
	switch act.Act {
	case wire.RaiseFile:
		mark, err = s.raiseFile(c, act)
	case wire.RekeyFile, wire.ResetFile:
		mark, err = s.moveFile(c, act)
	default:
		return refuse(wire.NewProblem(wire.Invalid, "act: it is raise, rekey or reset"))
	}
	if err != nil {
		return err
	}
	c.send(http.StatusOK, wire.JSON, wire.File{Mark: mark}.Write())
	return nil
}

// raiseFile raises the mark. The key's newest grant may do so also after its
// lease has ended: it shuts out only older owners.
func (s *Server) raiseFile(c *call, act wire.FileAct) (mark fence.Mark, err error) {
	stamp, err := s.fileStamp(c, []string{act.Stamp})
	if err != nil {
		return mark, err
	}
	f, err := s.file(c, Work)
	if err != nil {
		return mark, err
	}
	defer f.Close()
	err = s.mayWrite(c, f, stamp)
	var notOwned *tenure.NotOwnedError
	newest := errors.As(err, &notOwned) && notOwned.Record.Token == stamp.Token && notOwned.Record.Grant == stamp.Grant
	if err != nil && !newest {
		return mark, c.fileError(err)
	}
	mark, err = f.Raise(c.Context(), stamp)
	return mark, c.fileError(err)
}

// moveFile moves the file to another key, or takes back a mark that was made
// up. The audit log has every such act that is well-formed.
func (s *Server) moveFile(c *call, act wire.FileAct) (mark fence.Mark, err error) {
	if c.id.Name != "" {
		act.Actor = c.id.Name
	}
	path, err := c.filePath()
	switch {
	case err != nil:
	case act.Act == wire.RekeyFile:
		err = guard.CheckRekey(act.Key, act.Actor, act.Note)
	default:
		err = guard.CheckReset(act.Actor, act.Note)
	}
	if err != nil {
		return mark, err
	}
	defer func() {
		s.o.Observe(Event{
			Kind: Acted, Identity: c.id.Name, Remote: c.RemoteAddr, Act: tenure.Verb(act.Act),
			Key: FilesPrefix + path, Actor: act.Actor, Note: act.Note, Err: err,
		})
	}()
	f, err := s.file(c, Operate)
	if err != nil {
		return mark, err
	}
	defer f.Close()
	if act.Act == wire.RekeyFile {
		mark, err = f.Rekey(c.Context(), act.Key, act.Actor, act.Note)
	} else {
		mark, err = f.Reset(c.Context(), act.Floor, act.Actor, act.Note)
	}
	return mark, c.fileError(err)
}

// fileError is the answer to an error of a guarded file. Clients are not told
// the folders of the server, so its log has the other errors.
func (c *call) fileError(err error) error {
	var r refusal
	switch {
	case err == nil || errors.As(err, &r) || guard.Refused(err) || errors.Is(err, tenure.ErrNotOwned) ||
		errors.Is(err, fence.ErrInvalid) || errors.Is(err, errBusy):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return refuse(unseen())
	case errors.Is(err, guard.ErrBusy):
		return busy("writes to this file")
	}
	c.told.Err = err
	return refuse(wire.NewProblem(wire.Unknown, "the server could not tell who the current owner is, or could not "+
		"use the file; its log says why; see the mark before writing again"))
}

// checkName refuses the names of files that guards keep beside theirs, and
// hidden files.
func checkName(path string) error {
	for name := range strings.SplitSeq(strings.ToLower(path), "/") {
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".fence") || strings.HasSuffix(name, ".fence.d") {
			return fmt.Errorf("%w path: %q is a name that guards keep for themselves, or a hidden one",
				fence.ErrInvalid, name)
		}
	}
	return nil
}
