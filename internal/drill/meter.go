package drill

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/croft-dev/croft"
	"github.com/croft-dev/croft/fence"
)

// Meter counts the events in a process. The caller provides it: this package
// does not know how to count.
type Meter struct {
	// Event is called with every event of a client.
	Event func(croft.Event)
	// Write is called for every write at a guarded resource. err is nil if it
	// was admitted.
	Write func(target string, stamp fence.Stamp, err error)
	// Read returns the metrics so far.
	Read func() (Metrics, error)
}

// Metrics maps series to values. A series is written as Prometheus shows it,
// name{label="value",…}, with its labels in alphabetical order.
type Metrics map[string]float64

// Sum adds up all series of a name that have these labels. Each label is given
// as label="value".
func (m Metrics) Sum(name string, labels ...string) float64 {
	var sum float64
	for series, value := range m {
		if within(series, name, labels) {
			sum += value
		}
	}
	return sum
}

func within(series, name string, labels []string) bool {
	own, rest, _ := strings.Cut(series, "{")
	return own == name && !slices.ContainsFunc(labels, func(label string) bool {
		return !strings.Contains(","+rest, ","+label)
	})
}

// add returns the sum of two meters.
func (m Metrics) add(other Metrics) Metrics {
	sum := maps.Clone(m)
	for series, value := range other {
		sum[series] += value
	}
	return sum
}

// Movement is the change of a metric in a stage.
type Movement struct {
	// Series is the series that moved. If none or several moved, it is the
	// series that was looked for.
	Series   string
	From, To float64
}

// moved returns how the series with this name and these labels changed from
// before to after.
func moved(before, after Metrics, name string, labels ...string) Movement {
	m := Movement{Series: name, From: before.Sum(name, labels...), To: after.Sum(name, labels...)}
	if len(labels) > 0 {
		m.Series += "{" + strings.Join(labels, ",") + "}"
	}
	var changed []string
	for series, value := range after {
		if within(series, name, labels) && value != before[series] {
			changed = append(changed, series)
		}
	}
	if len(changed) == 1 {
		m = Movement{Series: changed[0], From: before[changed[0]], To: after[changed[0]]}
	}
	return m
}

// rise is how much a metric should move: exactly by that, or by at least that.
type rise struct {
	by    float64
	least bool
}

func (r rise) String() string {
	switch {
	case r.least:
		return fmt.Sprintf("rises by %g or more", r.by)
	case r.by == 0:
		return "stays as it is"
	}
	return fmt.Sprintf("rises by %g", r.by)
}

// met reports whether a metric has moved as it should.
func (r rise) met(m Movement) bool {
	by := m.To - m.From
	return by == r.by || r.least && by > r.by
}
