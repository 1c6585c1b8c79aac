package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
)

const (
	// firstPart is how long the first part of an upload is. Each that arrives
	// lets the next be twice as long, and each that does not, half as long.
	firstPart = 1 << 20
	leastPart = 64 << 10
	mostPart  = 16 << 20
	// maxAnew is how often an upload begins anew.
	maxAnew = 3
)

// upload sends the content of one write.
type upload struct {
	wire.Upload
	f       *File
	stamp   fence.Stamp
	content io.ReaderAt
	// doubt says that the server may have written the content, although no
	// answer came.
	doubt bool
}

// send sends the content in parts, and the ones that got lost again. The first
// part is answered as any call: if the server refuses it, or is not there, send
// asks only once.
func (u *upload) send(ctx context.Context) (told wire.File, err error) {
	part, anew, pause := int64(firstPart), 0, retryFirst
	moved := time.Now() // when something arrived last
	for tried := false; ; tried = true {
		n := min(part, u.Size-u.Offset)
		section := io.NewSectionReader(u.content, u.Offset, n)
		last := u.Offset+n == u.Size
		told, sent, err := u.f.put(ctx, u.stamp, section, u.Text())
		var p *problemError
		refused := errors.As(err, &p)
		if err != nil && last && sent && !store.IsFault(err) && (!refused || p.p.Code == wire.Unknown) {
			u.doubt = true
		}
		switch {
		case err == nil && told.Arrived == 0:
			return u.done(told)
		case err == nil && told.Arrived != u.Offset+n:
			return told, unread(errors.New("the server has another part of the content"))
		case err == nil:
			u.Offset += n
			part, pause, moved = min(2*part, mostPart), retryFirst, time.Now()
			continue
		case refused && p.p.Code == wire.Gap:
			if anew++; anew > maxAnew || p.p.Arrived < 0 || p.p.Arrived > u.Size {
				return told, u.failed(err)
			}
			u.Offset = p.p.Arrived
			continue
		case refused && p.p.Code == wire.Unsupported && !last:
			told, _, err := u.f.put(ctx, u.stamp, io.NewSectionReader(u.content, 0, u.Size), "")
			if err != nil {
				return told, presented(err, u.stamp)
			}
			return u.done(told)
		case refused && p.p.Code != wire.Unknown && p.p.Code != wire.Busy:
			return u.refused(err)
		case !tried && (refused || store.IsFault(err)), ctx.Err() != nil, u.f.s.life.Err() != nil:
			return told, u.failed(err)
		case time.Since(moved) > silence:
			return told, u.failed(fmt.Errorf("nothing of the content has arrived for %s: %w", silence, err))
		}
		part = max(part/2, leastPart)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		case <-u.f.s.life.Done():
		}
		pause = min(2*pause, retryMost)
	}
}

const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
)

// done checks the answer to a content that was written.
func (u *upload) done(told wire.File) (wire.File, error) {
	if told.Bytes != u.Size {
		return told, unread(errors.New("the server has another number of bytes"))
	}
	return told, nil
}

// refused returns the refusal of a stamp. If a call before may have written the
// content, the outcome is unknown. A mark with the number of this very write
// shows that it was written.
func (u *upload) refused(err error) (wire.File, error) {
	err = presented(err, u.stamp)
	var repeated *fence.RefusedError
	if u.doubt && errors.Is(err, fence.ErrRepeated) && errors.As(err, &repeated) && repeated.Mark == u.stamp.Mark() {
		return wire.File{Mark: repeated.Mark, Bytes: u.Size}, nil
	}
	return wire.File{}, u.failed(err)
}

// failed is the error of the write.
func (u *upload) failed(err error) error {
	if u.doubt && (!errors.Is(err, store.ErrUnknown) || store.IsFault(err)) {
		return &store.UnknownError{Err: err}
	}
	return err
}

// moving watches content that is being sent. A call may send it again, on
// another connection.
type moving struct {
	timer *time.Timer
	left  int64
	whole atomic.Bool // all was sent
}

// all reports whether all was sent.
func (m *moving) all() bool { return m.left == 0 || m.whole.Load() }

// from is the content as it is sent.
func (m *moving) from(r io.Reader) io.Reader { return &sending{r, m, m.left} }

type sending struct {
	io.Reader
	m    *moving
	left int64
}

func (s *sending) Read(b []byte) (int, error) {
	s.m.timer.Reset(silence)
	n, err := s.Reader.Read(b)
	if s.left -= int64(n); s.left == 0 {
		s.m.whole.Store(true)
	}
	return n, err
}
