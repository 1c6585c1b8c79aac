package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/cas"
)

// Examine reports how fit the bucket is for leases. `croft doctor` prints the
// findings. Examine tries the conditions again. It also reports the checks for
// which these credentials lack a permission.
func (r *register) Examine(ctx context.Context) ([]store.Finding, error) {
	tried, err := r.probe(ctx, r.layout.Trial())
	if err != nil && !errors.Is(err, ErrPreconditions) {
		return nil, store.Unknown(store.Unreachable(err))
	}
	findings := []store.Finding{r.location(), r.credentials(ctx), r.conditions(err)}
	if err == nil {
		findings = append(findings, r.clocks(ctx), dates(tried))
	}
	return append(findings, r.versioning(ctx), r.lifecycle(ctx), r.keys(ctx)), nil
}

func (r *register) location() store.Finding {
	return examine.Found("bucket", store.OK, fmt.Sprintf("%s, region %s", r, r.client.Options().Region), "")
}

func (r *register) credentials(ctx context.Context) store.Finding {
	const check = "credentials"
	provider := r.client.Options().Credentials
	if provider == nil {
		return examine.Found(check, store.Warn,
			"none: requests are anonymous", "give the client credentials of its own")
	}
	found, err := provider.Retrieve(ctx)
	if err != nil {
		return examine.Found(check, store.Bad, err.Error(), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"+
			" name a profile with ?profile=, or run where a role is attached")
	}
	seen := fmt.Sprintf("access key %s, from %s", masked(found.AccessKeyID), found.Source)
	if found.CanExpire {
		seen += fmt.Sprintf(", until %s", found.Expires.UTC().Format(time.RFC3339))
	}
	return examine.Found(check, store.OK, seen, "")
}

// masked shows only enough of an access key to tell it from others.
func masked(id string) string {
	if len(id) <= 8 {
		return strings.Repeat("*", len(id))
	}
	return id[:4] + strings.Repeat("*", len(id)-8) + id[len(id)-4:]
}

func (r *register) conditions(err error) store.Finding {
	if err != nil {
		return examine.Found("conditions", store.Bad, err.Error(),
			"use a server that honours If-Match and If-None-Match on PUT, or another kind of store")
	}
	return examine.Found("conditions", store.OK,
		"PUT honours If-None-Match and If-Match, and a late DELETE is refused,"+
			" tried just now: leases and guards are consistent", "")
}

func (r *register) clocks(ctx context.Context) store.Finding {
	const check = "clock"
	before := time.Now()
	date, err := r.now(ctx)
	if err != nil {
		return examine.Found(check, store.Warn, err.Error(), "ask again")
	}
	took := time.Since(before)
	offset := before.Sub(date) // the date has no fraction of a second
	seen := fmt.Sprintf("this machine's clock and the service's differ by %s, as far as whole seconds show",
		offset.Truncate(time.Second))
	if offset.Abs() > grain+time.Second+took {
		return examine.Found(check, store.Warn, seen, "leases go by the service's clock and are not harmed,"+
			" but beyond 15 minutes requests are refused: run NTP")
	}
	return examine.Found(check, store.OK, seen, "")
}

// dates compares two clocks of a service: that of the response, and that of the
// object written just before.
func dates(tried object) store.Finding {
	apart := tried.date.Sub(tried.modified)
	seen := fmt.Sprintf("the Date of a response and the Last-Modified of what was written before it are %s apart",
		apart)
	if apart > 2*grain+5*time.Second || apart < -2*grain {
		return examine.Found("dates", store.Bad, seen, "leases may end early: whatever stands before the service"+
			" must pass its Date on, and its nodes need the same time")
	}
	return examine.Found("dates", store.OK, seen, "")
}

func (r *register) versioning(ctx context.Context) store.Finding {
	const check = "versioning"
	out, err := r.client.GetBucketVersioning(ctx, &awss3.GetBucketVersioningInput{Bucket: &r.name})
	switch {
	case err != nil:
		return unseen(check, err, "s3:GetBucketVersioning",
			"where it is on, every renewal leaves an old version that is paid for")
	case out.Status == types.BucketVersioningStatusEnabled:
		return examine.Found(check, store.Warn, "on: every renewal leaves an old version that is paid for",
			"add a lifecycle rule that expires noncurrent versions and lone delete markers under "+
				r.layout.Prefix()+" after a day")
	}
	return examine.Found(check, store.OK, "off", "")
}

// unseen is the finding about a check that failed: the server does not have it,
// or the credentials lack a permission.
func unseen(check string, err error, right, why string) store.Finding {
	if status, _ := answerOf(err); status == http.StatusNotImplemented {
		return examine.Found(check, store.OK, "this server has none", "")
	}
	return examine.Found(check, store.Warn,
		"cannot be seen: "+firstLine(err), "allow "+right+", or make sure by hand: "+why)
}

func firstLine(err error) string {
	if _, code := answerOf(err); code != "" {
		return code
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func (r *register) lifecycle(ctx context.Context) store.Finding {
	const check = "lifecycle"
	out, err := r.client.GetBucketLifecycleConfiguration(ctx,
		&awss3.GetBucketLifecycleConfigurationInput{Bucket: &r.name})
	if _, code := answerOf(err); code == "NoSuchLifecycleConfiguration" {
		return examine.Found(check, store.OK, "no rules", "")
	}
	if err != nil {
		return unseen(check, err, "s3:GetLifecycleConfiguration",
			"a rule that expires objects forgets leases, and a rule that archives them makes them unreadable")
	}
	return judgeRules(r.layout.Records(), out.Rules)
}

// judgeRules looks for lifecycle rules that delete or archive records.
func judgeRules(records string, rules []types.LifecycleRule) store.Finding {
	const check = "lifecycle"
	worst := examine.Found(check, store.OK,
		fmt.Sprintf("%d rules, none of which touches what leases rest on", len(rules)), "")
	for _, rule := range rules {
		prefix := rulePrefix(rule)
		if rule.Status != types.ExpirationStatusEnabled ||
			!strings.HasPrefix(records, prefix) && !strings.HasPrefix(prefix, records) {
			continue
		}
		name := fmt.Sprintf("rule %q on prefix %q", aws.ToString(rule.ID), prefix)
		switch {
		case len(rule.Transitions) > 0:
			return examine.Found(check, store.Bad, name+" archives records: they can then not be read",
				"leave "+records+" out of it")
		case rule.Expiration != nil && rule.Expiration.Date != nil:
			return examine.Found(check, store.Bad, name+" deletes all records on a date, and with them who holds what",
				"leave "+records+" out of it")
		case rule.Expiration != nil && aws.ToInt32(rule.Expiration.Days) > 0:
			worst = examine.Found(check, store.Warn,
				fmt.Sprintf("%s deletes records %d days after they were last written,"+
					" whatever they say: leases with a longer TTL, holds and periods are forgotten",
					name, *rule.Expiration.Days),
				"leave "+records+" out of it: Croft deletes what it no longer needs by itself")
		}
	}
	return worst
}

func rulePrefix(rule types.LifecycleRule) string {
	switch {
	case rule.Filter != nil && rule.Filter.Prefix != nil:
		return *rule.Filter.Prefix
	case rule.Filter != nil && rule.Filter.And != nil:
		return aws.ToString(rule.Filter.And.Prefix)
	}
	return aws.ToString(rule.Prefix) //nolint:staticcheck // old rules still have it there
}

func (r *register) keys(ctx context.Context) store.Finding {
	n := 0
	for _, err := range r.Scan(ctx) {
		if errors.Is(err, cas.ErrDamaged) {
			return examine.Found("keys", store.Bad, err.Error(), "delete what is named, if the key may be forgotten")
		}
		if err != nil {
			return examine.Found("keys", store.Warn, err.Error(), "ask again")
		}
		n++
	}
	return examine.Found("keys", store.OK, strconv.Itoa(n), "")
}
