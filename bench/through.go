package main

import (
	"context"
	"errors"
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
	return []rival{direct, throughServer(dir)}
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
