package sqlite

import (
	"fmt"
	"os"
	"strings"
)

// holder says which process has the write lock, if that is known, and what to
// do about it.
func (b *base) holder() string {
	who, known := lockHolder(b.file)
	switch {
	case !known:
		return fmt.Sprintf("another process is in the middle of a transaction and does not leave; "+
			"find it with `lsof %s` and look whether it is stopped. "+
			"Resumed it goes on; killed, what it had not committed is undone, and nothing else is lost", b.name())
	case who.pid == os.Getpid():
		return "another connection of this very process is in the middle of a transaction and does not leave; " +
			"end that transaction"
	case who.stopped:
		return fmt.Sprintf("process %d (%s) is stopped in the middle of a transaction; "+
			"resume it with kill -CONT %d, or kill it: what it had not committed is undone, and nothing else is lost",
			who.pid, who.name, who.pid)
	}
	return fmt.Sprintf("process %d (%s) is in the middle of a transaction and does not leave; "+
		"wait for it, or end it: what it had not committed is undone, and nothing else is lost", who.pid, who.name)
}

// readers says which processes are reading, if that is known.
func (b *base) readers() string {
	var all []string
	for _, p := range logReaders(b.file) {
		switch {
		case p.pid == os.Getpid():
			all = append(all, "this very process")
		case p.stopped:
			all = append(all, fmt.Sprintf("process %d (%s), which is stopped", p.pid, p.name))
		default:
			all = append(all, fmt.Sprintf("process %d (%s)", p.pid, p.name))
		}
	}
	if len(all) == 0 {
		return fmt.Sprintf("`lsof %s` tells who has it open", b.name())
	}
	return strings.Join(all, ", ")
}

// held reports whether another process is known to have the write lock.
func (b *base) held() bool {
	who, known := lockHolder(b.file)
	return known && who.pid != os.Getpid()
}

// process is a process that has a lock.
type process struct {
	pid     int
	name    string
	stopped bool
}
