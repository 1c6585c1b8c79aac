package main

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
)

// meter counts commands and round trips on the wire, so that it counts all
// libraries alike.
type meter struct{ commands, trips atomic.Int64 }

// wire is a metered connection. A round trip begins with the first write after
// a read.
type wire struct {
	net.Conn
	meter  *meter
	counts func([]byte) int64 // how many commands these bytes complete or begin
	heard  atomic.Bool
}

func (m *meter) overRedis(c net.Conn) net.Conn { return m.over(c, (&resp{}).feed) }

func (m *meter) overPostgres(c net.Conn) net.Conn { return m.over(c, (&pgMessages{}).feed) }

func (m *meter) over(c net.Conn, counts func([]byte) int64) net.Conn {
	w := &wire{Conn: c, meter: m, counts: counts}
	w.heard.Store(true)
	return w
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.heard.Store(true)
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	w.meter.commands.Add(w.counts(b))
	if w.heard.Swap(false) {
		w.meter.trips.Add(1)
	}
	return w.Conn.Write(b)
}

// resp finds commands in the bytes from a Redis client. Each command is an
// array of strings.
type resp struct {
	skip int    // remaining bytes of a string
	line []byte // beginning of a header that was cut in two
}

func (r *resp) feed(b []byte) (commands int64) {
	for len(b) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			r.skip -= n
			b = b[n:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			r.line = append(r.line, b...)
			return commands
		}
		line := slices.Concat(r.line, b[:end])
		b, r.line = b[end+1:], r.line[:0]
		switch {
		case bytes.HasPrefix(line, []byte("*")):
			commands++
		case bytes.HasPrefix(line, []byte("$")):
			if n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:]))); err == nil {
				r.skip = n + len("\r\n")
			}
		}
	}
	return commands
}

// pgMessages finds statements in the bytes from a PostgreSQL client. It counts
// those that are executed, not those that are only prepared.
type pgMessages struct {
	started bool // the first message has no type
	skip    int
	head    []byte
}

func (p *pgMessages) feed(b []byte) (commands int64) {
	for len(b) > 0 {
		if p.skip > 0 {
			n := min(p.skip, len(b))
			p.skip -= n
			b = b[n:]
			continue
		}
		size := 5
		if !p.started {
			size = 4
		}
		n := min(size-len(p.head), len(b))
		p.head = append(p.head, b[:n]...)
		b = b[n:]
		if len(p.head) < size {
			return commands
		}
		p.skip = int(binary.BigEndian.Uint32(p.head[size-4:])) - 4
		if p.started && (p.head[0] == 'E' || p.head[0] == 'Q') {
			commands++
		}
		p.started, p.head = true, p.head[:0]
	}
	return commands
}
