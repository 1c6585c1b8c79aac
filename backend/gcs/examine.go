package gcs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// Examine reports how fit the bucket is for leases. `croft doctor` prints the
// findings. Examine tries the conditions again, whatever the note says. It also
// reports the settings that these credentials may not see.
func (r *register) Examine(ctx context.Context) ([]store.Finding, error) {
	findings, err := r.examineConditions(ctx)
	if err != nil {
		return nil, err
	}
	deletes, err := r.examineDeletes(ctx)
	if err != nil {
		return nil, err
	}
	findings = append(findings, deletes, examine.Found("credentials", store.OK, r.found, ""), r.examineClock())
	attrs, err := r.settings(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, wait.Ended(ctx)
		}
		seen := fmt.Sprintf("its settings cannot be seen: %v", r.explain(ctx, "storage.buckets.get", err))
		return append(findings, examine.Found("bucket", store.Warn, seen,
			"grant storage.buckets.get to whoever runs doctor:"+
				" versioning, soft delete, lifecycle rules and retention policies can each do harm")), nil
	}
	return append(findings, examineBucket(attrs, r.layout.Records())...), nil
}

func (r *register) examineConditions(ctx context.Context) ([]store.Finding, error) {
	err := r.writesOnCondition(ctx, r.layout.Trial())
	var ignored *IgnoredError
	switch {
	case errors.As(err, &ignored):
		const advice = "use Google Cloud Storage itself, or an emulator and proxies that pass conditions on"
		return []store.Finding{
			examine.Found("tier", store.Bad, "none: one lease can be granted to many", advice),
			examine.Found("conditions", store.Bad, "the endpoint does not honour "+ignored.Condition, advice),
		}, nil
	case err != nil:
		return nil, err
	}
	return []store.Finding{
		examine.Found("tier", store.OK,
			"consistent: every change is one conditional write, and all see it at once", ""),
		examine.Found("conditions", store.OK, "ifGenerationMatch is honoured by "+r.address, ""),
	}, nil
}

func (r *register) examineDeletes(ctx context.Context) (store.Finding, error) {
	honoured, err := r.deletesOnCondition(ctx, r.layout.Trial())
	if err == nil && !honoured {
		return examine.Found("deletes", store.Warn, "ifGenerationMatch is not honoured on deletes:"+
			" records that are dropped leave a tombstone of a few bytes",
			"nothing rests on it; delete the whole prefix now and then, when nobody holds a lease"), nil
	}
	return examine.Found("deletes", store.OK, "ifGenerationMatch is honoured on deletes", ""), err
}

// examineClock compares the service's clock with this machine's, as far as
// whole seconds allow. A difference does no harm by itself, because deadlines
// go by the service's clock alone.
func (r *register) examineClock() store.Finding {
	earliest, latest, known := r.bucket.clock.Span()
	if !known {
		return examine.Found("clock", store.Bad, "the service does not say what time it is",
			"a proxy between must leave the Date header in place")
	}
	now := time.Now()
	seen := fmt.Sprintf("the service's clock is between %+.1fs and %+.1fs from this machine's",
		earliest.Sub(now).Seconds(), latest.Sub(now).Seconds())
	if earliest.Sub(now) > time.Second || now.Sub(latest) > time.Second {
		return examine.Found("clock", store.Warn, seen,
			"run a time service on this machine: deadlines do not depend on it, but what people read in logs does")
	}
	return examine.Found("clock", store.OK, seen, "")
}

// examineBucket grades the settings of a bucket.
func examineBucket(attrs *storage.Bucket, records string) []store.Finding {
	var rules []*storage.BucketLifecycleRule
	if attrs.Lifecycle != nil {
		rules = attrs.Lifecycle.Rule
	}
	return []store.Finding{
		examineVersioning(attrs), examineSoftDelete(attrs), examineRetention(attrs), examineClass(attrs),
		examineLifecycle(rules, records),
	}
}

func examineVersioning(attrs *storage.Bucket) store.Finding {
	if attrs.Versioning != nil && attrs.Versioning.Enabled {
		return examine.Found("versioning", store.Warn,
			"on: every renewal leaves an old version, which is paid for until it is deleted",
			"keep leases in a bucket without versioning,"+
				" or add a lifecycle rule that deletes noncurrent versions after a day")
	}
	return examine.Found("versioning", store.OK, "off", "")
}

func examineSoftDelete(attrs *storage.Bucket) store.Finding {
	if p := attrs.SoftDeletePolicy; p != nil && p.RetentionDurationSeconds > 0 {
		days := float64(p.RetentionDurationSeconds) / (24 * 60 * 60)
		return examine.Found("soft delete", store.Warn,
			fmt.Sprintf("what every renewal replaces is kept, and paid for, for %.0f days", days),
			"turn it off for a bucket of leases: gcloud storage buckets update gs://BUCKET --clear-soft-delete")
	}
	return examine.Found("soft delete", store.OK, "off", "")
}

func examineRetention(attrs *storage.Bucket) store.Finding {
	const advice = "keep leases in a bucket without it: what cannot be replaced can be neither renewed nor released"
	switch {
	case attrs.RetentionPolicy != nil && attrs.RetentionPolicy.RetentionPeriod > 0:
		period := time.Duration(attrs.RetentionPolicy.RetentionPeriod) * time.Second
		return examine.Found("retention", store.Bad,
			fmt.Sprintf("a policy keeps objects from being replaced for %s", period), advice)
	case attrs.DefaultEventBasedHold:
		return examine.Found("retention", store.Bad, "new objects are put on hold, and cannot be replaced", advice)
	}
	return examine.Found("retention", store.OK, "no policy freezes objects", "")
}

func examineClass(attrs *storage.Bucket) store.Finding {
	switch attrs.StorageClass {
	case "", "STANDARD", "MULTI_REGIONAL", "REGIONAL":
		return examine.Found("storage class", store.OK, "standard, in "+attrs.Location, "")
	}
	return examine.Found("storage class", store.Warn,
		attrs.StorageClass+": every write costs more, and is paid for as if it were kept for a month or longer",
		"keep leases in a bucket of the standard class")
}
