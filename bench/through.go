package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/croft-dev/croft/backend/remote"
	"github.com/croft-dev/croft/backend/sqlite"
	"github.com/croft-dev/croft/server"
	"github.com/croft-dev/croft/store"
)

// serverRivals compare a store behind a server with the same store without one.
// The floor here is Croft itself.
func serverRivals(dir string) []rival {
	direct := croftSQLite(dir, false)
	direct.name = floorName
	return []rival{direct, throughServer(dir), httpAlone()}
}

// The sizes of the bodies of an acquire or release and of its answer.
const (
	askBytes    = 250
	answerBytes = 500
)

// httpAlone is two calls of net/http, each with a body and an answer as long as
// those of Croft, to a handler that does nothing. So it is what HTTP costs.
func httpAlone() rival {
	return rival{"HTTP without Croft, for scale", func(context.Context, int) (*opened, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		answer := bytes.Repeat([]byte("x"), answerBytes)
		front := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write(answer)
			},
		)}
		go func() { _ = front.Serve(l) }()
		transport := &http.Transport{}
		client, url, body := &http.Client{Transport: transport}, "http://"+l.Addr().String(), make([]byte, askBytes)
		ask := func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return errors.Join(err, resp.Body.Close())
		}
		one := func(ctx context.Context, _ string) (func(context.Context) error, error) { return ask, ask(ctx) }
		return &opened{takes: []take{one}, meter: &meter{}, close: func() {
			transport.CloseIdleConnections()
			_ = front.Close()
		}}, nil
	}}
}

// throughServer is Croft through a server in this process, over a real port.
func throughServer(dir string) rival {
	return rival{croftName, func(ctx context.Context, _ int) (*opened, error) {
		st, err := sqlite.Open(ctx, filepath.Join(dir, "server.db"), nil)
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		srv := server.New(st, nil)
		front := &http.Server{Handler: srv, ReadHeaderTimeout: time.Minute}
		go func() { _ = front.Serve(l) }()
		open := func(context.Context) (store.Store, error) { return remote.Open("http://"+l.Addr().String(), nil) }
		return openCroft(&meter{}, 1, open, func() {
			srv.Drain()
			_ = front.Close()
			_ = st.Close()
		})
	}}
}
