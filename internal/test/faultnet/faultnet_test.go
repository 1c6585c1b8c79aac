package faultnet

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// patience limits how long a test may hang. It is no measure of speed.
const patience = time.Minute

// echo is a server that sends every line back, and counts the lines.
func echo(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	heard := &atomic.Int64{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					text, err := r.ReadString('\n')
					if err != nil {
						return
					}
					heard.Add(1)
					if _, err := io.WriteString(conn, text); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), heard
}

func open(t *testing.T, addr string) *Link {
	t.Helper()
	l, err := New(func() string { return addr })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// dial connects through a link, and makes sure that the connection works.
func dial(t *testing.T, l *Link) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if got, err := say(conn, r, "hello"); err != nil || got != "hello" {
		t.Fatalf("through a fair link: %q, %v", got, err)
	}
	return conn, r
}

func say(conn net.Conn, r *bufio.Reader, text string) (string, error) {
	if _, err := io.WriteString(conn, text+"\n"); err != nil {
		return "", err
	}
	got, err := r.ReadString('\n')
	return strings.TrimSuffix(got, "\n"), err
}

func TestASlowLinkDeliversLaterAndWhole(t *testing.T) {
	addr, _ := echo(t)
	l := open(t, addr)
	conn, r := dial(t, l)
	const delay = 200 * time.Millisecond
	l.Set(Fault{Kind: Slow, Delay: delay})
	start := time.Now()
	if got, err := say(conn, r, "slowly"); err != nil || got != "slowly" {
		t.Fatalf("%q, %v", got, err)
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("there and back took %s, less than twice the delay", took)
	}
	l.Set(Fault{})
	if got, err := say(conn, r, "again"); err != nil || got != "again" {
		t.Errorf("after it: %q, %v", got, err)
	}
}

func TestACutLinkDeliversTheRequestAndLosesTheReply(t *testing.T) {
	addr, heard := echo(t)
	l := open(t, addr)
	conn, r := dial(t, l)
	l.Set(Fault{Kind: Cut})
	if got, err := say(conn, r, "lost"); err == nil {
		t.Fatalf("the reply came: %q", got)
	}
	if heard.Load() != 2 {
		t.Errorf("the server heard %d lines, want both", heard.Load())
	}
}

func TestADeafLinkLosesTheRequest(t *testing.T) {
	addr, heard := echo(t)
	l := open(t, addr)
	conn, r := dial(t, l)
	l.Set(Fault{Kind: Deaf})
	if got, err := say(conn, r, "lost"); err == nil {
		t.Fatalf("it was answered: %q", got)
	}
	l.Set(Fault{})
	dial(t, l)
	if heard.Load() != 2 {
		t.Errorf("the server heard %d lines, want the two without a fault", heard.Load())
	}
}

func TestAHoleSwallowsAndAVaultDeliversLate(t *testing.T) {
	for kind, want := range map[Kind]int64{Hole: 1, Vault: 2} {
		t.Run(string(kind), func(t *testing.T) {
			addr, heard := echo(t)
			l := open(t, addr)
			conn, r := dial(t, l)
			l.Set(Fault{Kind: kind})
			if _, err := io.WriteString(conn, "into the dark\n"); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(250 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			var timeout net.Error
			if got, err := r.ReadString('\n'); !errors.As(err, &timeout) || !timeout.Timeout() || heard.Load() != 1 {
				t.Fatalf("inside: %q, %v, the server heard %d lines", got, err, heard.Load())
			}
			l.Set(Fault{})
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if got, err := r.ReadString('\n'); err == nil {
				t.Fatalf("the connection went on: %q", got)
			}
			if heard.Load() != want {
				t.Errorf("the server heard %d lines, want %d", heard.Load(), want)
			}
			dial(t, l)
		})
	}
}

// TestAMuteLinkDeliversTheRequestAndKeepsTheReply: the reply does not come when
// the connection breaks, either.
func TestAMuteLinkDeliversTheRequestAndKeepsTheReply(t *testing.T) {
	addr, heard := echo(t)
	l := open(t, addr)
	conn, r := dial(t, l)
	l.Set(Fault{Kind: Mute})
	if _, err := io.WriteString(conn, "unanswered\n"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); heard.Load() != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server did not hear it")
		}
	}
	l.Set(Fault{Kind: Cut})
	if got, err := r.ReadString('\n'); err == nil {
		t.Fatalf("the reply came: %q", got)
	}
}

// TestAFrailNetworkLosesTheSameWithTheSameSeed: some requests, some replies,
// and not all of them.
func TestAFrailNetworkLosesTheSameWithTheSameSeed(t *testing.T) {
	t.Parallel()
	const exchanges = 40
	run := func(seed uint64) (answered string, reached int64) {
		addr, heard := echo(t)
		l := open(t, addr)
		l.Set(Fault{Kind: Frail, OneIn: 4, Seed: seed})
		for range exchanges {
			conn, err := net.Dial("tcp", l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, "hello\n")
			text, err := bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
			var late net.Error
			switch {
			case err == nil && text == "hello\n":
				answered += "+"
			case err == nil || errors.As(err, &late) && late.Timeout():
				t.Fatalf("%q, %v; want an answer or a broken connection", text, err)
			default:
				answered += "-"
			}
		}
		return answered, heard.Load()
	}
	first, reached := run(1)
	n := int64(strings.Count(first, "+"))
	if n == 0 || reached <= n || reached >= exchanges {
		t.Errorf("%s: %d reached the server; want some requests and some replies to be lost", first, reached)
	}
	if again, _ := run(1); again != first {
		t.Errorf("with the same seed %s, then %s", first, again)
	}
	if other, _ := run(2); other == first {
		t.Errorf("with another seed also %s", other)
	}
}
