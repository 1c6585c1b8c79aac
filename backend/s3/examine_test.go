package s3

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
)

func examined(t *testing.T, st *Store) map[string]store.Finding {
	t.Helper()
	findings, err := st.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]store.Finding{}
	for _, f := range findings {
		if f.Seen == "" || f.Level != store.OK && f.Advice == "" {
			t.Errorf("a finding says nothing: %+v", f)
		}
		by[f.Check] = f
	}
	return by
}

// TestAGoodBucketIsFoundGood: and the findings do not show its credentials.
func TestAGoodBucketIsFoundGood(t *testing.T) {
	t.Parallel()
	server := testenv.S3Alone(t)
	st := open(t, server, dial(server), Options{})
	if a := one(t.Context(), st, claim("k", "ann")); a.Err != nil {
		t.Fatal(a.Err)
	}
	by := examined(t, st)
	for _, check := range []string{"bucket", "credentials", "conditions", "clock", "dates", "versioning", "lifecycle", "keys"} {
		if f := by[check]; f.Level != store.OK {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if seen := by["credentials"].Seen; strings.Contains(seen, server.AccessKey+",") || strings.Contains(seen, server.SecretKey) {
		t.Errorf("the credentials are shown: %s", seen)
	}
	if by["keys"].Seen != "1" {
		t.Errorf("keys: %+v", by["keys"])
	}
	_, err := dial(server).PutBucketVersioning(t.Context(), &awss3.PutBucketVersioningInput{Bucket: &server.Bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	if err != nil {
		t.Fatal(err)
	}
	if f := examined(t, st)["versioning"]; f.Level != store.Warn {
		t.Errorf("versioning is on: %+v", f)
	}
}

// TestAnEndpointThatIgnoresConditionsIsFoundBad: also if the store was opened
// without a trial.
func TestAnEndpointThatIgnoresConditionsIsFoundBad(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g := newGateway(t, server)
	g.strip = []string{"If-Match"}
	if f := examined(t, open(t, server, g.client(server), Options{SkipProbe: true}))["conditions"]; f.Level != store.Bad || !strings.Contains(f.Seen, "If-Match") {
		t.Errorf("%+v", f)
	}
}

func TestLifecycleRulesThatTakeRecordsAwayAreFound(t *testing.T) {
	rule := func(prefix string, change func(*types.LifecycleRule)) types.LifecycleRule {
		r := types.LifecycleRule{ID: aws.String("r"), Status: types.ExpirationStatusEnabled, Filter: &types.LifecycleRuleFilter{Prefix: &prefix}}
		change(&r)
		return r
	}
	days := func(r *types.LifecycleRule) { r.Expiration = &types.LifecycleExpiration{Days: aws.Int32(30)} }
	date := func(r *types.LifecycleRule) { r.Expiration = &types.LifecycleExpiration{Date: aws.Time(time.Now())} }
	archive := func(r *types.LifecycleRule) { r.Transitions = []types.Transition{{Days: aws.Int32(1)}} }
	old := func(r *types.LifecycleRule) {
		r.NoncurrentVersionExpiration = &types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(1)}
	}
	off := func(r *types.LifecycleRule) { days(r); r.Status = types.ExpirationStatusDisabled }
	for _, c := range []struct {
		rules []types.LifecycleRule
		want  store.Level
	}{
		{nil, store.OK},
		{[]types.LifecycleRule{rule("", days)}, store.Warn},
		{[]types.LifecycleRule{rule("team/", days)}, store.Warn},
		{[]types.LifecycleRule{rule("other/", days), rule("team/croft/leases/3f", old)}, store.OK},
		{[]types.LifecycleRule{rule("team/croft/leases/3f", days)}, store.Warn},
		{[]types.LifecycleRule{rule("team/", days), rule("", date)}, store.Bad},
		{[]types.LifecycleRule{rule("team/croft/", archive)}, store.Bad},
		{[]types.LifecycleRule{rule("", off)}, store.OK},
		{[]types.LifecycleRule{{Status: types.ExpirationStatusEnabled, Filter: &types.LifecycleRuleFilter{And: &types.LifecycleRuleAndOperator{Prefix: aws.String("team/")}}, Expiration: &types.LifecycleExpiration{Days: aws.Int32(1)}}}, store.Warn},
	} {
		if f := judgeRules("team/croft/leases/", c.rules); f.Level != c.want {
			t.Errorf("%+v: %+v, want %s", c.rules, f, c.want)
		}
	}
}
