package s3

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/test/testenv"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// old makes a record that a sweep will drop.
func (s *scene) old(key string) {
	s.t.Helper()
	gone := claim(key, "cleo")
	s.must(one(s.t.Context(), s.bob, gone))
	s.must(one(s.t.Context(), s.bob, then(tenure.Release, gone)))
	s.clock.Advance(2 * store.DefaultRetention)
}

// hastily shortens the times of announcements, so that a test can wait for
// them. The deletes have no condition.
func (s *scene) hastily(within, lapse time.Duration) { s.announcing(dropping{within, lapse, true}) }

// announcing sets how both clients drop records.
func (s *scene) announcing(how dropping) {
	for _, st := range []*Store{s.ann, s.bob} {
		st.reg.drop = how
	}
}

// lateDelete lets ann drop a record. Her DELETE is held up on the way until bob
// has been granted the key. It returns nil if bob still has his lease.
func (s *scene) lateDelete() error {
	ctx, mine := s.t.Context(), claim("drop/k", "bob")
	s.old(mine.Key)
	s.slow.set(func(r *http.Request) (int, bool) {
		if r.Method == http.MethodDelete {
			s.must(one(ctx, s.bob, mine)) // waits until he may
		}
		return 0, false
	})
	if _, err := s.ann.Sweep(ctx); err != nil {
		s.t.Fatal(err)
	}
	return owned(ctx, s.bob, mine)
}

// TestADeleteThatIsLateTakesNothingFromANewHolder: the service refuses it,
// because it was signed for a short time.
func TestADeleteThatIsLateTakesNothingFromANewHolder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.hastily(2*time.Second, 5*time.Second)
	if err := s.lateDelete(); err != nil {
		t.Errorf("the record was dropped under its holder: %v", err)
	}
	broken := newScene(t)
	broken.hastily(time.Hour, 0) // like a plain DELETE: valid for long, and nobody waits for it
	if err := broken.lateDelete(); err == nil {
		t.Error("a plain delete that is late does no harm: the test shows nothing")
	}
}

// TestAnAnnouncedDeletionIsWaitedFor: the key is granted as soon as the
// deletion has happened.
func TestAnAnnouncedDeletionIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ctx, mine := t.Context(), claim("drop/k", "bob")
	s.old(mine.Key)
	granted := make(chan store.Answer, 1)
	s.slow.set(func(r *http.Request) (int, bool) {
		if r.Method == http.MethodDelete {
			if rec, err := s.bob.Get(ctx, mine.Key); err != nil || !rec.IsZero() {
				t.Errorf("an announced deletion is read as %+v, %v; want nothing", rec, err)
			}
			go func() { granted <- one(ctx, s.bob, mine) }()
			time.Sleep(300 * time.Millisecond)
			select {
			case a := <-granted:
				t.Errorf("granted while a delete was under way: %v", a.Err)
			default:
			}
		}
		return 0, false
	})
	if n, err := s.ann.Sweep(ctx); n != 1 || err != nil {
		t.Fatalf("%d dropped, %v", n, err)
	}
	if a := <-granted; a.Err != nil || a.Record.Cause != tenure.First {
		t.Errorf("after the delete: %v, cause %q", a.Err, a.Record.Cause)
	}
	if err := owned(ctx, s.bob, mine); err != nil {
		t.Error(err)
	}
}

// TestAnAnnouncementLeftBehindIsInNobodysWay: the next sweep removes it, or the
// next record replaces it.
func TestAnAnnouncementLeftBehindIsInNobodysWay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.hastily(time.Second, 2*time.Second)
	ctx := t.Context()
	s.old("drop/taken")
	s.old("drop/swept")
	s.slow.set(func(r *http.Request) (int, bool) { // every delete is lost
		if r.Method == http.MethodDelete {
			return http.StatusServiceUnavailable, false
		}
		return 0, false
	})
	if n, err := s.ann.Sweep(ctx); n != 2 || err != nil {
		t.Fatalf("%d dropped, %v", n, err)
	}
	s.slow.set(nil)
	if names := s.objects(); len(names) != 2 {
		t.Fatalf("the announcements are %q", names)
	}
	mine := claim("drop/taken", "bob")
	s.must(one(ctx, s.bob, mine))
	s.hastily(time.Hour, 2*time.Second) // long enough for the next DELETE on a busy machine
	testenv.Eventually(t, "the other one is swept", func() error {
		_, err := s.bob.Sweep(ctx)
		if names := s.objects(); err == nil && len(names) != 1 {
			err = fmt.Errorf("%q are left", names)
		}
		return err
	})
	if err := owned(ctx, s.bob, mine); err != nil {
		t.Error(err)
	}
}

// objects lists the objects of all records.
func (s *scene) objects() (names []string) {
	s.t.Helper()
	for page, err := range s.bob.reg.list(s.t.Context(), s.bob.reg.layout.Records()) {
		if err != nil {
			s.t.Fatal(err)
		}
		for _, o := range page {
			names = append(names, o.name)
		}
	}
	return names
}

// TestASweepReadsOnlyWhatIsOld: reading a hundred thousand young records would
// cost more than keeping them.
func TestASweepReadsOnlyWhatIsOld(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	g := newGateway(t, server)
	st := open(t, server, g.client(server), Options{})
	for i := range 5 {
		if a := one(t.Context(), st, claim(fmt.Sprintf("young/%d", i), "ann")); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	g.requests()
	if n, err := st.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("%d dropped, %v", n, err)
	}
	for _, asked := range g.requests() {
		if strings.Contains(asked, "/leases/") && strings.HasPrefix(asked, "GET") {
			t.Errorf("the sweep asked for %s", asked)
		}
	}
}

// TestADamagedRecordIsNamedAndLeftAlone: the error names the object, and
// nothing overwrites it.
func TestADamagedRecordIsNamedAndLeftAlone(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	clock := storetest.NewClock()
	st, ctx := open(t, server, dial(server), Options{now: clock.Now}), t.Context()
	name := st.reg.layout.Record("damaged/k")
	if _, err := st.reg.put(ctx, name, "", []byte("not a record")); err != nil {
		t.Fatal(err)
	}
	clock.Advance(100 * store.DefaultRetention)
	for what, err := range map[string]error{
		"acquire": one(ctx, st, claim("damaged/k", "ann")).Err,
		"list":    listing(ctx, st),
		"sweep":   func() error { _, err := st.Sweep(ctx); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v, want an error that names %s", what, err, name)
		}
	}
	if o, err := st.reg.get(ctx, name); err != nil || string(o.data) != "not a record" {
		t.Errorf("the damaged object is now %q, %v", o.data, err)
	}
}

// TestAVersionedBucketForgetsAndBeginsAgain: there the announcement stays, and
// the next record replaces it.
func TestAVersionedBucketForgetsAndBeginsAgain(t *testing.T) {
	t.Parallel()
	server := testenv.S3Alone(t)
	ctx := t.Context()
	_, err := dial(server).PutBucketVersioning(ctx, &awss3.PutBucketVersioningInput{Bucket: &server.Bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	if err != nil {
		t.Fatal(err)
	}
	clock := storetest.NewClock()
	st := open(t, server, dial(server), Options{now: clock.Now})
	st.reg.drop = dropping{within: time.Second, lapse: 2 * time.Second}
	for range 2 {
		mine := claim("versions/k", "ann")
		if a := one(ctx, st, mine); a.Err != nil || a.Record.Cause != tenure.First {
			t.Fatalf("cause %q, %v", a.Record.Cause, a.Err)
		}
		if a := one(ctx, st, then(tenure.Release, mine)); a.Err != nil {
			t.Fatal(a.Err)
		}
		clock.Advance(2 * store.DefaultRetention)
		if n, err := st.Sweep(ctx); n != 1 || err != nil {
			t.Fatalf("%d dropped, %v", n, err)
		}
	}
	g := openGuard(t, server, dial(server), objectName(server))
	for token := range fence.Token(3) {
		if err := write(ctx, g, stamp(10+token, int(token), 0), "content"); err != nil {
			t.Fatal(err)
		}
	}
	if got, _, err := content(ctx, g); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestASweepTakesTheTrialsOfDeadProbes: and no others.
func TestASweepTakesTheTrialsOfDeadProbes(t *testing.T) {
	t.Parallel()
	server := testenv.S3(t)
	st, ctx := open(t, server, dial(server), Options{}), t.Context()
	trials := func() (n int) {
		for page, err := range st.reg.list(ctx, st.reg.layout.Prefix()+"probes/trial-") {
			if err != nil {
				t.Fatal(err)
			}
			n += len(page)
		}
		return n
	}
	if _, err := st.reg.put(ctx, st.reg.layout.Trial(), "", []byte("left")); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Sweep(ctx); err != nil || trials() != 1 {
		t.Errorf("a trial that may be under way was taken: %d left, %v", trials(), err)
	}
	st.reg.trialAge = time.Second
	testenv.Eventually(t, "the trial is gone", func() error {
		_, err := st.Sweep(ctx)
		if n := trials(); err == nil && n != 0 {
			err = fmt.Errorf("%d are left", n)
		}
		return err
	})
}
