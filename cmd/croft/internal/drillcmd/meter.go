package drillcmd

import (
	"context"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/drill"
	"github.com/croft-dev/croft/observe"
)

// drillMeter collects the same metrics that programs export, for one process of
// the drill. It reads them as Prometheus does.
func drillMeter() *drill.Meter {
	m := observe.New(nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	return &drill.Meter{
		Event: m.Observe,
		Write: func(target string, stamp fence.Stamp, err error) {
			m.Write(context.Background(), observe.Write{Target: target, Stamp: stamp, Err: err})
		},
		Read: func() (drill.Metrics, error) { return gather(registry) },
	}
}

// gather reads every series. A histogram gives its count and its sum.
func gather(from prometheus.Gatherer) (drill.Metrics, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, err
	}
	read := drill.Metrics{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := make([]string, 0, len(metric.GetLabel()))
			for _, l := range metric.GetLabel() {
				labels = append(labels, l.GetName()+"="+strconv.Quote(l.GetValue()))
			}
			of := "{" + strings.Join(labels, ",") + "}"
			switch name := family.GetName(); {
			case metric.GetCounter() != nil:
				read[name+of] = metric.GetCounter().GetValue()
			case metric.GetGauge() != nil:
				read[name+of] = metric.GetGauge().GetValue()
			case metric.GetHistogram() != nil:
				read[name+"_count"+of] = float64(metric.GetHistogram().GetSampleCount())
				read[name+"_sum"+of] = metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return read, nil
}
