package drillcmd

import (
	"fmt"

	"github.com/croft-dev/croft/internal/drill"
)

// drillAlert is an alert of observe/alerts.yml that a staged drill can bring
// nearer. It computes the alert's expression from the metrics of the drill.
// They began at 0, and the drill is shorter than the alert's window, so no
// rates are needed. A test compares this table with the file.
type drillAlert struct {
	name   string
	metric string
	value  func(drill.Metrics) float64
	what   string // says what is counted, with %s for the value
	share  bool   // the value is a share, shown in percent
	above  float64
	// window and lasts are the rule's range and its "for".
	window string
	lasts  string
}

var drillAlerts = []drillAlert{
	{
		"CroftNotOwned", "croft_operations_total", shareNotOwned,
		"%s of renewals, releases and reports are of leases not owned", true, 0.05, "10m", "15m",
	},
	{
		"CroftRenewFailing", "croft_renew_failures_total",
		func(m drill.Metrics) float64 { return m.Sum("croft_renew_failures_total") },
		"%s without an answer", false, 3, "10m", "5m",
	},
	{
		"CroftLeasesLost", "croft_leases_lost_total", mostLost, "%s lost in one way", false, 3, "15m", "5m",
	},
	{
		"CroftRefusedWrites", "croft_guarded_writes_total", func(m drill.Metrics) float64 {
			return m.Sum("croft_guarded_writes_total", `outcome="stale"`) +
				m.Sum("croft_guarded_writes_total", `outcome="repeated"`) +
				m.Sum("croft_guarded_writes_total", `outcome="wrong_key"`)
		}, "%s refused", false, 3, "15m", "5m",
	},
	{
		"CroftUnknownOutcomes", "croft_unknown_outcomes_total",
		func(m drill.Metrics) float64 { return m.Sum("croft_unknown_outcomes_total") },
		"%s of unknown outcome", false, 5, "15m", "10m",
	},
}

func shareNotOwned(m drill.Metrics) float64 {
	const name = "croft_operations_total"
	all := m.Sum(name, `operation="renew"`) + m.Sum(name, `operation="release"`) + m.Sum(name, `operation="report"`)
	if all == 0 {
		return 0
	}
	return m.Sum(name, `outcome="not_owned"`) / all
}

// mostLost is the highest number of leases that were lost for one reason.
func mostLost(m drill.Metrics) float64 {
	var most float64
	for _, loss := range []string{"superseded", "expired", "unreachable", "stalled", "held_too_long"} {
		most = max(most, m.Sum("croft_leases_lost_total", `loss="`+loss+`"`))
	}
	return most
}

// drillAlertView is an alert in JSON. State is "pending", as in Prometheus, if
// the alert fires should its condition last. It is "below" if the value is not
// yet above the limit.
type drillAlertView struct {
	Alert  string  `json:"alert"`
	State  string  `json:"state"`
	Value  float64 `json:"value"`
	Above  float64 `json:"above"`
	Window string  `json:"window"`
	Lasts  string  `json:"for"`

	text string
}

// alertsOf returns the alerts whose value a stage has raised.
func alertsOf(before, after drill.Metrics) []drillAlertView {
	on := []drillAlertView{}
	for _, a := range drillAlerts {
		value := a.value(after)
		if value <= a.value(before) {
			continue
		}
		v := drillAlertView{
			Alert: a.name, State: "below", Value: value, Above: a.above, Window: a.window,
			Lasts: a.lasts,
		}
		number := func(n float64) string {
			if a.share {
				return fmt.Sprintf("%.0f %%", 100*n)
			}
			return fmt.Sprintf("%g", n)
		}
		v.text = fmt.Sprintf(a.what, number(value))
		if value > a.above {
			v.State = "pending"
			v.text += fmt.Sprintf("; fires if it stays above %s for %s", number(a.above), a.lasts)
		} else {
			v.text += fmt.Sprintf("; more than %s within %s would set it off", number(a.above), a.window)
		}
		on = append(on, v)
	}
	return on
}
