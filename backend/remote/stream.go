package remote

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/wire"
)

// Watch wakes waiters, if the store behind the server can.
func (s *Store) Watch(ctx context.Context, key string) (<-chan struct{}, error) {
	if err := fence.CheckKey(key); err != nil {
		return nil, err
	}
	resp, err := s.open(ctx, "/v1/watch?"+url.Values{"key": {key}}.Encode()) //nolint:bodyclose // events closes it
	if err != nil {
		return nil, err
	}
	return hints(ctx, resp.Body, "changed"), nil
}

// hints returns a channel that receives soon after an event of a stream. It is
// closed when the stream ends.
func hints(ctx context.Context, body io.ReadCloser, kind string) <-chan struct{} {
	woken := make(chan struct{}, 1)
	go func() {
		defer close(woken)
		events(ctx, body, kind, func(string) {
			select {
			case woken <- struct{}{}:
			default: // several changes may be one wake-up
			}
		})
	}()
	return woken
}

// Acts announces operators' acts, if the store behind the server can. It names
// only keys that this client may read.
func (s *Store) Acts(ctx context.Context) (<-chan string, error) {
	resp, err := s.open(ctx, "/v1/acts") //nolint:bodyclose // events closes it
	if err != nil {
		return nil, err
	}
	keys := make(chan string, 64)
	go func() {
		defer close(keys)
		events(ctx, resp.Body, "act", func(data string) {
			key, err := wire.ReadKeyEvent([]byte(data))
			if err != nil || fence.CheckKey(key) != nil {
				return
			}
			select {
			case keys <- key:
			case <-ctx.Done():
			}
		})
	}()
	return keys, nil
}

// events reads a stream until it ends, and tells the data of each event of a
// kind. ctx is the caller's: it ends the stream even while tell waits.
func events(ctx context.Context, body io.ReadCloser, kind string, tell func(data string)) {
	stop := context.AfterFunc(ctx, func() { _ = body.Close() })
	defer stop()
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 64<<10) // more than any event has
	event, data := "", ""
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			event = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data: "):
			data = strings.TrimPrefix(line, "data: ")
		case line == "":
			if event == kind {
				tell(data)
			}
			event, data = "", ""
		}
	}
}
