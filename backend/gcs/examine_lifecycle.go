package gcs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// examineLifecycle looks for rules that delete records, or move them to a class
// in which renewals cost more.
func examineLifecycle(rules []*storage.BucketLifecycleRule, records string) store.Finding {
	worst := examine.Found("lifecycle", store.OK, "no rule touches records", "")
	for _, rule := range rules {
		f := examineRule(rule, records)
		if f.Level == store.Bad || f.Level == store.Warn && worst.Level == store.OK {
			worst = f
		}
	}
	return worst
}

func examineRule(rule *storage.BucketLifecycleRule, records string) store.Finding {
	if rule.Action == nil || rule.Condition == nil {
		return examine.Found("lifecycle", store.OK, "", "")
	}
	c := rule.Condition
	days, live := liveAfter(c)
	if !live || !touches(c, records) {
		return examine.Found("lifecycle", store.OK, "", "")
	}
	const advice = "leave the store's prefix out of the rule, or delete noncurrent versions only"
	switch {
	case rule.Action.Type == "SetStorageClass":
		return examine.Found("lifecycle", store.Warn, fmt.Sprintf("a rule moves records to %s after %d days,"+
			" where replacing them costs more", rule.Action.StorageClass, days), advice)
	case rule.Action.Type != "Delete":
		return examine.Found("lifecycle", store.OK, "", "")
	case days == 0:
		return examine.Found("lifecycle", store.Bad,
			"a rule deletes records, also those of leases that are held", advice)
	case time.Duration(days)*24*time.Hour < tenure.MaxTTL:
		return examine.Found("lifecycle", store.Warn, fmt.Sprintf("a rule deletes records"+
			" that have not been written for %d days:"+
			" leases, holds and periods that last longer are forgotten", days), advice)
	}
	return examine.Found("lifecycle", store.OK, "", "")
}

// liveAfter returns after how many days a rule applies to an object that nobody
// has replaced, and whether it ever does. All its conditions must hold.
func liveAfter(c *storage.BucketLifecycleRuleCondition) (days int64, ever bool) {
	if c.Age != nil {
		days = *c.Age
	}
	switch {
	case c.IsLive != nil && !*c.IsLive, c.NumNewerVersions > 0,
		c.DaysSinceNoncurrentTime > 0, c.NoncurrentTimeBefore != "":
		return 0, false // old versions only
	case c.DaysSinceCustomTime > 0, c.CustomTimeBefore != "":
		return 0, false // records have no custom time
	case c.CreatedBefore != "":
		day, err := time.Parse(time.DateOnly, c.CreatedBefore)
		if err == nil && day.Before(time.Now().Add(-24*time.Hour)) {
			return days, days > 0 // only objects of the past
		}
	}
	return days, true
}

// touches reports whether a rule's patterns match records.
func touches(c *storage.BucketLifecycleRuleCondition, records string) bool {
	if len(c.MatchesPrefix) > 0 && !slices.ContainsFunc(c.MatchesPrefix, func(prefix string) bool {
		return strings.HasPrefix(records, prefix) || strings.HasPrefix(prefix, records)
	}) {
		return false
	}
	if len(c.MatchesStorageClass) > 0 && !slices.Contains(c.MatchesStorageClass, "STANDARD") {
		return false
	}
	const ending = ".json"
	return len(c.MatchesSuffix) == 0 || slices.ContainsFunc(c.MatchesSuffix, func(suffix string) bool {
		return strings.HasSuffix(suffix, ending) || strings.HasSuffix(ending, suffix)
	})
}
