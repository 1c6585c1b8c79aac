// Package examine makes the findings of stores that examine themselves.
package examine

import "github.com/croft-dev/croft/store"

// Found makes a finding. A finding that is OK has no advice.
func Found(check string, level store.Level, seen, advice string) store.Finding {
	if level == store.OK {
		advice = ""
	}
	return store.Finding{Check: check, Level: level, Seen: seen, Advice: advice}
}
