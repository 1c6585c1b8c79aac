package sim

import (
	"fmt"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
)

// guardKind is the way in which a guarded resource makes check and write one
// step.
type guardKind int

const (
	inOne    guardKind = iota // a server does both in one script or transaction
	file                      // the writer does both under a lock, the mark first
	manifest                  // the writer swaps one version for the next
	guardKinds
)

var guardNames = [guardKinds]string{"in one", "file", "manifest"}

// resource is a guarded resource with content.
type resource struct {
	w       *world
	key     string
	name    string
	kind    guardKind
	mark    fence.Mark
	content content
	lock    *entering   // the writer inside, for a file
	queue   []*entering // the writers that wait for the lock

	// The judge's view of it.
	shadow fence.Mark  // the newest stamp that took effect
	wrote  fence.Stamp // the newest write
}

// content is the state of a resource: the last writer's stamp, and the number
// of writes.
type content struct {
	version int
	by      fence.Stamp
}

func (r *resource) String() string { return fmt.Sprintf("%s (%s)", r.name, guardNames[r.kind]) }

// blindly is the version of writes whose writer has read nothing.
const blindly = -1

// act is a raise, or a write that rests on a version read before.
type act struct {
	stamp   fence.Stamp
	write   bool
	version int
}

func (r *resource) raise(c *client, s fence.Stamp, done func(error)) {
	r.enter(c, act{stamp: s}, done)
}

func (r *resource) write(c *client, s fence.Stamp, version int, done func(error)) {
	r.enter(c, act{stamp: s, write: true, version: version}, done)
}

// enter carries out an act. It calls done once, with an unknown outcome if no
// answer comes in time.
func (r *resource) enter(c *client, a act, done func(error)) {
	ended := once(func(_ int, err error) {
		r.coverAnswer(err)
		done(err)
	})
	finish := func(err error) { ended(0, err) }
	r.w.ops++
	switch r.kind {
	case inOne:
		r.w.carry(r.conn(c), func(_ message, reply func(func())) {
			err := r.step(a)
			reply(func() { finish(err) })
		}, func(err error) { finish(store.Unknown(err)) })
	case file:
		r.enterFile(c, a, finish)
	case manifest:
		r.enterManifest(c, a, finish)
	}
	c.timer(callTimeout, func() { finish(store.Unknown(errTimeout)) })
}

// once wraps a function so that only the first call counts.
func once[T any](do func(T, error)) func(T, error) {
	done := false
	return func(got T, err error) {
		if !done {
			done = true
			do(got, err)
		}
	}
}

func (r *resource) conn(c *client) conn {
	return conn{h: &c.host, up: func() bool { return true }, began: -1}
}

// read reads the version of the content.
func (r *resource) read(c *client, done func(int, error)) {
	finish := once(done)
	r.w.ops++
	r.w.carry(r.conn(c), func(_ message, reply func(func())) {
		version := r.content.version
		reply(func() { finish(version, nil) })
	}, func(err error) { finish(0, store.Unknown(err)) })
	c.timer(callTimeout, func() { finish(0, store.Unknown(errTimeout)) })
}

// step carries out an act in one step of the server.
func (r *resource) step(a act) error {
	next, err := r.decide(r.mark, a)
	if err != nil {
		r.refused(a, err)
		return err
	}
	if a.write && r.w.mutant.is("check-then-write") {
		r.w.at(r.w.now+upTo(r.w.luck[PausedStep], 3*time.Second), func() {
			r.mark = next
			r.wroteBy(a)
		})
		return nil
	}
	r.took(a)
	if a.write {
		r.wroteBy(a)
	}
	if !(r.w.mutant.is("raise-forgotten") && !a.write) {
		r.mark = next
	}
	return nil
}

// decide applies the rule of fences, or the mutant's.
func (r *resource) decide(m fence.Mark, a act) (fence.Mark, error) {
	if r.w.mutant != nil && r.w.mutant.Admit != nil {
		return r.w.mutant.Admit(m, a.stamp)
	}
	if a.write {
		return m.Admit(a.stamp)
	}
	return m.Raise(a.stamp)
}

// abandon releases the locks of a dead process.
func (r *resource) abandon(c *client) {
	var rest []*entering
	for _, e := range r.queue {
		if e.c != c {
			rest = append(rest, e)
		}
	}
	r.queue = rest
	if r.lock != nil && r.lock.c == c {
		r.unlock(r.lock)
	}
}
