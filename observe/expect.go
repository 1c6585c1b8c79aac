package observe

import "github.com/croft-dev/croft"

// Counters of faults begin at 0 before the first fault, if they can. Prometheus
// sees no increase in a series that begins with 1, or with 100.

// expect makes the counters of a guard's outcomes begin at 0.
func (m *Metrics) expect(space, guard string) {
	if _, done := m.expected.LoadOrStore([2]string{space, guard}, true); done {
		return
	}
	for _, outcome := range []string{admitted, "stale", "collision", "repeated", "wrong_key", "not_owned"} {
		m.writes.WithLabelValues(space, guard, outcome)
		m.raises.WithLabelValues(space, guard, outcome)
		if outcome != admitted {
			m.observed.WithLabelValues(space, guard, outcome)
		}
	}
}

// expectLosses makes the counters of lost leases and failed renewals begin at
// 0.
func (m *Metrics) expectLosses(space string) {
	if _, done := m.expected.LoadOrStore([2]string{space}, true); done {
		return
	}
	for _, kind := range []string{timeout, unreachable} {
		m.failures.WithLabelValues(space, kind)
	}
	for _, loss := range []croft.Loss{
		croft.Superseded, croft.Expired, croft.TakenOver, croft.Unreachable, croft.Stalled, croft.HeldTooLong,
		croft.Closed,
	} {
		m.lost.WithLabelValues(space, string(loss))
	}
}
