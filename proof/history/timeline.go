package history

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"math"
)

//go:embed timeline.html
var page string

var timeline = template.Must(template.New("timeline").Parse(page))

// bar is one operation on the page. Times are in milliseconds since the first.
type bar struct {
	Process string  `json:"p"`
	Victim  string  `json:"v,omitempty"`
	Key     string  `json:"k,omitempty"`
	Kind    string  `json:"w"`
	Outcome string  `json:"o"`
	Begin   float64 `json:"b"`
	End     float64 `json:"e"` // -1: never
	Text    string  `json:"t"`
	Guilty  []int   `json:"g,omitempty"` // indexes of the violations it is part of
}

type finding struct {
	Law  string `json:"law"`
	Key  string `json:"key"`
	Text string `json:"text"`
}

// Timeline writes an HTML page that shows violations. Each process has a row,
// and each operation on a key with a violation is a bar in it. Faults are shown
// too. The page needs no other file and no network.
func Timeline(w io.Writer, title string, ops []Op, found []Violation) error {
	keys := map[string]bool{}
	guilty := map[[2]any][]int{}
	findings := []finding{}
	for i, v := range found {
		keys[v.Key] = true
		findings = append(findings, finding{Law: string(v.Law), Key: v.Key, Text: v.Text})
		for _, op := range v.Ops {
			guilty[[2]any{op.Process, op.Number}] = append(guilty[[2]any{op.Process, op.Number}], i)
		}
	}
	start := int64(math.MaxInt64)
	for _, op := range ops {
		start = min(start, op.Begin)
	}
	millis := func(at int64) float64 { return math.Round(float64(at-start)/1e4) / 100 }
	bars := []bar{}
	for _, op := range ops {
		if op.Key != "" && !keys[op.Key] {
			continue
		}
		b := bar{
			Process: op.Process, Victim: op.Victim, Key: op.Key, Kind: string(op.Kind),
			Outcome: string(op.Outcome), Begin: millis(op.Begin), End: -1,
			Text: op.String(), Guilty: guilty[[2]any{op.Process, op.Number}],
		}
		if op.Kind == Lease {
			b.Kind = string(op.Verb)
		}
		if op.End != Never {
			b.End = millis(op.End)
		}
		bars = append(bars, b)
	}
	data, err := json.Marshal(map[string]any{"bars": bars, "findings": findings})
	if err != nil {
		return err
	}
	return timeline.Execute(w, map[string]any{"Title": title, "Data": template.JS(data)})
}
