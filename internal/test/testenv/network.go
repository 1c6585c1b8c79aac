package testenv

import (
	"testing"

	"github.com/croft-dev/croft/internal/test/faultnet"
)

// Network is a network to a server that can be made bad. It loses nothing until
// it is told to.
type Network struct {
	Addr string // address of the server over this network
	tb   testing.TB
	link *faultnet.Link
}

// NewNetwork makes a network to the server at an address, until the test ends.
func NewNetwork(tb testing.TB, addr string) *Network {
	tb.Helper()
	l, err := faultnet.New(func() string { return addr })
	if err != nil {
		tb.Fatalf("testenv: no network before %s: %v", addr, err)
	}
	tb.Cleanup(l.Close)
	return &Network{Addr: l.Addr(), tb: tb, link: l}
}

// LoseRequests runs do while no request reaches the server: connections break
// when a request comes.
func (n *Network) LoseRequests(do func()) { n.during(faultnet.Deaf, do) }

// LoseReplies runs do while no reply reaches a client: connections break when
// the server answers.
func (n *Network) LoseReplies(do func()) { n.during(faultnet.Cut, do) }

func (n *Network) during(kind faultnet.Kind, do func()) {
	n.link.Set(faultnet.Fault{Kind: kind})
	defer n.link.Set(faultnet.Fault{})
	do()
	n.link.BreakAll() // bytes in flight are lost, too
}

// LoseReply runs do, whose requests reach the server while its replies do not.
// It holds the replies back until arrived returns nil, which says that the
// server has acted. Then connections break until do returns.
func (n *Network) LoseReply(do func(), arrived func() error) {
	n.tb.Helper()
	n.link.Set(faultnet.Fault{Kind: faultnet.Mute})
	defer n.link.Set(faultnet.Fault{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	Eventually(n.tb, "the server does what reached it", arrived)
	n.link.Set(faultnet.Fault{Kind: faultnet.Cut})
	<-done
}
