package observe

import "github.com/croft-dev/croft"

// Counters of what should not happen begin at 0 before it does, if they can: an increase from nothing to 1, or to 100, is none to Prometheus.

// expect does so for what a guard may say.
func (m *Metrics) expect(space, guard string) {
	if _, done := m.expected.LoadOrStore([2]string{space, guard}, true); done {
		return
	}
	for _, outcome := range []string{admitted, "stale", "collision", "repeated", "wrong_key", "not_owned"} {
		m.writes.WithLabelValues(space, guard, outcome)
		m.raises.WithLabelValues(space, guard, outcome)
	}
}

// expectLosses does so for what may become of a lease.
func (m *Metrics) expectLosses(space string) {
	if _, done := m.expected.LoadOrStore([2]string{space}, true); done {
		return
	}
	for _, kind := range []string{timeout, unreachable} {
		m.failures.WithLabelValues(space, kind)
	}
	for _, loss := range []croft.Loss{croft.Superseded, croft.Expired, croft.TakenOver, croft.Unreachable, croft.Stalled, croft.HeldTooLong, croft.Closed} {
		m.lost.WithLabelValues(space, string(loss))
	}
}
