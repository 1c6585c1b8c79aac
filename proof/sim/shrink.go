package sim

import "slices"

// Shrink looks for a smaller case that breaks the same law: fewer clients and keys, fewer requests, fewer kinds of faults, fewer faults. It makes at most so many runs, and returns
// the smallest with its timeline. A case that breaks no law is returned as it is.
func Shrink(c Case, runs int) *Result {
	best := Run(c, false)
	if best.Broken == nil {
		return best
	}
	s := &shrinking{best: best, law: best.Broken.Law, runs: runs}
	for smaller := true; smaller && s.runs > 0; {
		before := len(s.best.Fired) + s.best.Case.Clients + s.best.Case.Keys + s.best.Events
		s.parties()
		s.kinds()
		s.occasions()
		smaller = len(s.best.Fired)+s.best.Case.Clients+s.best.Case.Keys+s.best.Events < before
	}
	return Run(s.best.Case, true)
}

type shrinking struct {
	best *Result
	law  Law
	runs int
}

// try takes a case if it still breaks the law, with no more faults than before.
func (s *shrinking) try(c Case) bool {
	if s.runs == 0 {
		return false
	}
	s.runs--
	r := Run(c, false)
	if r.Broken == nil || r.Broken.Law != s.law || len(r.Fired) > len(s.best.Fired) {
		return false
	}
	s.best = r
	return true
}

// parties tries with fewer clients, keys and requests.
func (s *shrinking) parties() {
	for _, change := range []func(*Case){
		func(c *Case) { c.Clients = 1 },
		func(c *Case) { c.Clients = min(c.Clients, 2) },
		func(c *Case) { c.Keys = 1 },
		func(c *Case) { c.Keys = min(c.Keys, 2) },
		func(c *Case) { c.Ops /= 4 },
		func(c *Case) { c.Ops /= 2 },
	} {
		c := s.best.Case
		change(&c)
		if c.Clients != s.best.Case.Clients || c.Keys != s.best.Case.Keys || c.Ops != s.best.Case.Ops {
			s.try(c)
		}
	}
}

// kinds tries without whole kinds of faults.
func (s *shrinking) kinds() {
	for f := range faults {
		if slices.ContainsFunc(s.best.Fired, func(at Firing) bool { return at.Fault == f }) {
			c := s.best.Case
			c.Never = append(slices.Clone(c.Never), f)
			s.try(c)
		}
	}
}

// occasions tries without single faults: half of them, a quarter, and so on to each one alone.
func (s *shrinking) occasions() {
	for size := max(len(s.best.Fired)/2, 1); ; size /= 2 {
		for at := 0; at < len(s.best.Fired) && s.runs > 0; {
			c := s.best.Case
			c.Except = append(slices.Clone(c.Except), s.best.Fired[at:min(at+size, len(s.best.Fired))]...)
			if !s.try(c) {
				at += size
			}
		}
		if size <= 1 {
			return
		}
	}
}
