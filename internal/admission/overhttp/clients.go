package overhttp

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// ClientOf names the client of a request: its address, or for IPv6 its network
// of 48 bits, because one site can have all the addresses in it.
func ClientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(48); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

// Hosts are the names by which clients call a proxy, beside its addresses and
// localhost. Without any, a proxy on a loopback address has no other names, and
// one on the network takes all.
type Hosts []string

// NewHosts checks the names.
func NewHosts(names []string) (Hosts, error) {
	hosts := make(Hosts, len(names))
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			return nil, fmt.Errorf("%w host name %q: give the name alone, "+
				"without a scheme or a port, as in orders.example", fence.ErrInvalid, name)
		}
		hosts[i] = HostName(name)
	}
	return hosts, nil
}

// Check refuses a request for a host by which the proxy is not called. The
// advice tells its operator how to allow a name.
func (h Hosts) Check(r *http.Request, advice string) error {
	if len(h) == 0 && !atLoopback(r) || h.has(r.Host) {
		return nil
	}
	return &admission.Refusal{Status: http.StatusMisdirectedRequest, Code: "invalid", Err: fmt.Errorf(
		"%w host %q: the proxy is not called by this name; use its address, "+
			"or have its operator allow the name (%s)", fence.ErrInvalid, HostName(r.Host), advice)}
}

// CheckOrigin refuses a request that a web page of another host has made. The
// host of the request must have been checked.
func (h Hosts) CheckOrigin(r *http.Request) error {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return nil
	}
	if origin, err := url.Parse(values[0]); err == nil && len(values) == 1 &&
		(origin.Scheme == "http" || origin.Scheme == "https") && origin.Host != "" {
		name := HostName(origin.Host)
		ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
		local := name == "localhost" || err == nil && ip.IsLoopback()
		if name == HostName(r.Host) || slices.Contains(h, name) || local && atLoopback(r) {
			return nil
		}
	}
	return &admission.Refusal{Status: http.StatusForbidden, Code: "invalid", Err: fmt.Errorf(
		"%w origin %.100q: web pages of other hosts may not call the proxy", fence.ErrInvalid, values)}
}

// has reports whether a host, with a port or without, is an address, localhost
// or one of the names.
func (h Hosts) has(host string) bool {
	host = HostName(host)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" || host == "localhost" {
		return true
	}
	return slices.Contains(h, host) || slices.Contains(h, "*")
}

// HostName returns a host's name in the form in which names are compared,
// without the port.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// atLoopback reports whether a request came to an address that only this
// machine can reach. Browsers on this machine are the way in for others.
func atLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}
