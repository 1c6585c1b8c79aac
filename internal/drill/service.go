package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/croft-dev/croft/boundary/httpfence"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/guard/gate"
)

// service is an HTTP service that cannot check stamps: any write replaces its
// one file. In front of it is a proxy that checks them, unless the drill is
// unguarded.
type service struct {
	url     string // the address that workers write to
	proxy   *httpfence.Proxy
	servers []*http.Server
}

// openService starts a service that keeps its file at path, and the fence in
// front of it. The fence tells the meter of every write.
func (d *director) openService(name, path string, meter *Meter) (*service, error) {
	s := &service{}
	upstream, err := s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			http.Error(w, "this service is only written to", http.StatusMethodNotAllowed)
			return
		}
		if _, err := plain(path).Write(r.Context(), fence.Stamp{}, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	if err != nil || d.o.Unguarded {
		s.url = upstream
		return s, err
	}
	to, err := url.Parse(upstream)
	if err != nil {
		return s, err
	}
	s.proxy, err = httpfence.NewProxy(to, httpfence.ProxyOptions{Options: httpfence.Options{
		Rules:  []httpfence.Rule{{Pattern: "/{path...}", Resource: name}},
		Client: d.client, LeasePrefix: d.keys + "proxy/",
		Marks: func(ctx context.Context, _ string) (guard.Guard, error) {
			return guard.Open(ctx, d.o.Target(path+".mark"))
		},
		Observe: func(e gate.Event) {
			switch e.Kind {
			case gate.Admitted, gate.Refused:
				meter.Write(s.url, fence.Stamp{Key: e.Key, Token: e.Token}, e.Err)
			}
		},
	}})
	if err == nil {
		s.url, err = s.serve(s.proxy)
	}
	return s, err
}

// serve listens at a free port of this machine. It returns the URL.
func (s *service) serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("the drill's HTTP service cannot be started: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	s.servers = append(s.servers, server)
	go func() { _ = server.Serve(l) }() // until close
	return "http://" + l.Addr().String(), nil
}

func (s *service) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if s.proxy != nil {
		_ = s.proxy.Close(ctx) // if this fails, its lease expires
	}
	for _, server := range s.servers {
		_ = server.Close()
	}
}

// put writes over HTTP under the stamp of the worker's last grant, without
// looking at its lease.
func (e *executor) put(ctx context.Context, o order) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, o.URL+"/result", strings.NewReader(o.Text+"\n"))
	if err != nil {
		return reply{}, err
	}
	// The service is on this machine, so ignore proxies that the environment
	// names. Every write has its own connection, so that none has slept with
	// the worker.
	base := &http.Transport{DisableKeepAlives: true}
	resp, err := (&httpfence.Transport{Source: httpfence.Fixed(e.deed.Stamp()), Base: base}).RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{Status: resp.StatusCode}
	if err := httpfence.RefusalIn(resp); err != nil {
		return r, err
	}
	if resp.StatusCode >= 300 {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return r, errors.Join(fmt.Errorf("the service answered %s: %s", resp.Status, text), err)
	}
	return r, nil
}
