package testenv

import (
	"testing"

	"github.com/croft-dev/croft/internal/link"
)

// Network is a bad network before a server. It is fair while it is not asked to lose anything.
type Network struct {
	Addr string // where the server is to be found over it
	tb   testing.TB
	link *link.Link
}

// NewNetwork leads to the server at an address, until the test is over.
func NewNetwork(tb testing.TB, addr string) *Network {
	tb.Helper()
	l, err := link.New(func() string { return addr })
	if err != nil {
		tb.Fatalf("testenv: no network before %s: %v", addr, err)
	}
	tb.Cleanup(l.Close)
	return &Network{Addr: l.Addr(), tb: tb, link: l}
}

// LoseRequests does something whose requests do not reach the server: connections break when one comes.
func (n *Network) LoseRequests(do func()) { n.during(link.Deaf, do) }

// LoseReplies does something while nothing that the server says reaches a client: connections break when it speaks.
func (n *Network) LoseReplies(do func()) { n.during(link.Cut, do) }

func (n *Network) during(kind link.Kind, do func()) {
	n.link.Set(link.Weather{Kind: kind})
	defer n.link.Set(link.Weather{})
	do()
	n.link.BreakAll() // what is still on its way is lost, too
}

// LoseReply does something that the server does, too, and that nobody is told of: what the server says is kept back until arrived says that it has done what reached it, and then connections break, until the client has given up.
func (n *Network) LoseReply(do func(), arrived func() error) {
	n.tb.Helper()
	n.link.Set(link.Weather{Kind: link.Mute})
	defer n.link.Set(link.Weather{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	Eventually(n.tb, "the server does what reached it", arrived)
	n.link.Set(link.Weather{Kind: link.Cut})
	<-done
}
