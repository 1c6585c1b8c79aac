package sim

import "slices"

// Shrink looks for a smaller case that breaks the same law, with fewer clients,
// keys, kinds of faults and single faults. Leaving something out changes
// everything after it, so Shrink tries other seeds too: the shortest story that
// breaks the law wins. It makes at most that many runs, and returns the best
// with its timeline. If the case breaks no law, Shrink returns its result.
func Shrink(c Case, runs int) *Result {
	best := Run(c, false)
	if best.Broken == nil {
		return best
	}
	s := &shrinking{best: best, law: best.Broken.Law, runs: runs}
	for smaller := true; smaller && s.runs > 0; {
		before := s.best
		s.parties()
		s.kinds()
		s.occasions()
		smaller = s.best != before
	}
	return Run(s.best.Case, true)
}

type shrinking struct {
	best *Result
	law  Law
	runs int
}

// neighbours is how many other seeds are tried with each change.
const neighbours = 40

// size measures how much there is to read.
func size(r *Result) int { return 20*len(r.Fired) + r.Events }

// try keeps a case if it still breaks the law and is smaller than the best.
func (s *shrinking) try(c Case) bool {
	if s.runs == 0 {
		return false
	}
	s.runs--
	if s.law != Liveness { // Liveness breaks only at the end
		c.Limit = s.best.Broken.At // a longer case is no better
	}
	r := Run(c, false)
	if r.Broken == nil || r.Broken.Law != s.law || size(r) >= size(s.best) {
		return false
	}
	s.best = r
	return true
}

// near tries a case with its own seed and with others. The others run without
// Except, which fits its own seed only.
func (s *shrinking) near(c Case) {
	s.try(c)
	c.Except = nil
	for range neighbours {
		c.Seed++
		s.try(c)
	}
}

// parties tries fewer clients and keys.
func (s *shrinking) parties() {
	for _, n := range []int{1, 2} {
		if c := s.best.Case; c.Keys > n {
			c.Keys = n
			s.near(c)
		}
		if c := s.best.Case; c.Clients > n {
			c.Clients = n
			s.near(c)
		}
	}
}

// kinds leaves out whole kinds of faults.
func (s *shrinking) kinds() {
	for f := range faults {
		if slices.ContainsFunc(s.best.Fired, func(at Firing) bool { return at.Fault == f }) {
			c := s.best.Case
			c.Never = append(slices.Clone(c.Never), f)
			s.near(c)
		}
	}
}

// occasions leaves out single faults: half of them, a quarter, and so on, down
// to one at a time.
func (s *shrinking) occasions() {
	for n := max(len(s.best.Fired)/2, 1); ; n /= 2 {
		for at := 0; at < len(s.best.Fired) && s.runs > 0; {
			c := s.best.Case
			c.Except = append(slices.Clone(c.Except), s.best.Fired[at:min(at+n, len(s.best.Fired))]...)
			if !s.try(c) {
				at += n
			}
		}
		if n <= 1 {
			return
		}
	}
}
