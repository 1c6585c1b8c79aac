package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/store"
)

// Examine reports how fit the cluster is to keep leases. `croft doctor` prints
// it. It also reports what etcd does not show to this user.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	e := &examination{ctx: failFast(ctx), s: s}
	if err := e.ask(); err != nil {
		return nil, store.Unknown(err)
	}
	if e.halted != nil {
		return []store.Finding{e.members(), e.leader(), e.agreement(), e.version(), e.clock(), e.access()}, nil
	}
	return []store.Finding{
		e.members(), e.leader(), e.version(), e.tier(), e.clock(), e.alarms(), e.space(), e.access(), e.keys(),
	}, nil
}

// examination is what a cluster says of itself.
type examination struct {
	ctx     context.Context
	s       *Store
	cluster *clientv3.MemberListResponse
	states  []state
	hidden  error // why the members cannot be listed
	halted  error // why the cluster does not answer, though some members do
	// apart says that no member answers at the address that it advertises.
	// advertised is such an address.
	apart      bool
	advertised string
}

// state is the answer of one member.
type state struct {
	name, url string
	status    *clientv3.StatusResponse
	err       error
}

// ask reads everything that the findings need. It returns an error if no member
// answers.
func (e *examination) ask() error {
	// A read through the leader: without a leader, nothing else matters.
	_, err := e.s.txn(e.ctx, nil, []clientv3.Op{clientv3.OpGet(e.s.names.records(), clientv3.WithCountOnly())}, nil)
	if err != nil && !transient(err) {
		return err
	}
	list := repeated[*clientv3.MemberListResponse]
	var options []clientv3.OpOption
	if e.halted = err; err != nil { // then any member may list them
		list, options = once[*clientv3.MemberListResponse], append(options, clientv3.WithSerializable())
	}
	e.cluster, e.hidden = list(e.ctx, requestTimeout, func(ctx context.Context) (*clientv3.MemberListResponse, error) {
		return e.s.client.MemberList(ctx, options...)
	})
	if e.hidden == nil {
		for _, m := range e.cluster.Members {
			st := state{name: m.Name, err: errors.New("it has not started yet")}
			if len(m.ClientURLs) > 0 {
				st = state{name: m.Name, url: m.ClientURLs[0]}
			}
			e.states = append(e.states, st)
		}
		if e.see(); len(e.states) > 0 && e.states[0].url != "" {
			e.advertised = e.states[0].url
		}
	}
	if up, _ := e.up(); up == 0 {
		e.apart, e.states = e.hidden == nil, nil
		for _, url := range e.s.client.Endpoints() {
			e.states = append(e.states, state{name: url, url: url})
		}
		e.see()
	}
	if up, _ := e.up(); up == 0 {
		return e.halted
	}
	return nil
}

// see asks each member for its status.
func (e *examination) see() {
	var all sync.WaitGroup
	for i := range e.states {
		st := &e.states[i]
		if st.err != nil {
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(e.ctx, requestTimeout)
			defer cancel()
			st.status, st.err = e.s.client.Status(ctx, st.url)
		})
	}
	all.Wait()
}

// up counts the members that answer, and names the others.
func (e *examination) up() (n int, down []string) {
	for _, st := range e.states {
		if st.err == nil {
			n++
		} else {
			down = append(down, st.name)
		}
	}
	return n, down
}

func (e *examination) members() store.Finding {
	const check = "members"
	up, down := e.up()
	seen := fmt.Sprintf("%d of %d answer", up, len(e.states))
	if len(down) > 0 {
		seen += "; not " + strings.Join(down, ", ")
	}
	switch {
	case e.apart:
		return examine.Found(check, store.Warn, fmt.Sprintf("none answers from here at the address it advertises, "+
			"such as %s; of the addresses given %s", e.advertised, seen),
			"let --advertise-client-urls name addresses that clients reach")
	case e.halted != nil && e.hidden == nil && up <= len(e.states)/2:
		return examine.Found(check, store.Bad, seen,
			fmt.Sprintf("bring them back: with fewer than %d no lease can be had", len(e.states)/2+1))
	case e.hidden != nil:
		return examine.Found(check, store.Warn, "cannot be seen: "+e.hidden.Error()+"; of the addresses given "+seen,
			"look with `etcdctl member list` as root")
	case len(e.states) == 1:
		return examine.Found(check, store.Warn,
			seen+": while this one is down no lease can be had, and what its disk loses is lost",
			"run three members, or five")
	case len(e.states)%2 == 0:
		return examine.Found(check, store.Warn, seen+": an even number survives no more losses than one member less",
			"run an odd number of members")
	case len(down) > 0:
		return examine.Found(check, store.Warn, seen,
			fmt.Sprintf("bring them back: with fewer than %d no lease can be had", len(e.states)/2+1))
	}
	return examine.Found(check, store.OK, seen, "")
}

func (e *examination) leader() store.Finding {
	leaders := map[uint64]bool{}
	name := ""
	for _, st := range e.states {
		if st.err != nil {
			continue
		}
		leaders[st.status.Leader] = true
		if st.status.Leader == st.status.Header.MemberId {
			name = st.name
		}
	}
	switch {
	case leaders[0] || len(leaders) == 0:
		return examine.Found("leader", store.Bad,
			"a member knows of no leader", "see whether the members reach each other")
	case len(leaders) > 1:
		return examine.Found("leader", store.Warn, "members disagree about the leader: an election is under way",
			"ask again; if it goes on, look at their network and disks")
	}
	return examine.Found("leader", store.OK, fmt.Sprintf("one, %q", name), "")
}

// agreement reports that members answer, but not on anything that most of them
// must agree on.
func (e *examination) agreement() store.Finding {
	return examine.Found("agreement", store.Bad, "nothing can be read or changed: "+e.halted.Error(),
		"bring back most of the members, and see whether they reach each other and their disks keep up")
}

func (e *examination) version() store.Finding {
	versions := map[string]bool{}
	var list []string
	old := false
	for _, st := range e.states {
		if st.err != nil || versions[st.status.Version] {
			continue
		}
		versions[st.status.Version] = true
		list = append(list, st.status.Version)
		old = old || !atLeast(st.status.Version, 3, 4)
	}
	seen := "etcd " + strings.Join(list, ", ")
	switch {
	case len(list) == 0:
		return examine.Found("version", store.Warn, "cannot be seen", "make sure that it is etcd 3.4 or newer")
	case old:
		return examine.Found("version", store.Bad, seen+": older than what this was made for", "use etcd 3.5 or newer")
	case len(list) > 1:
		return examine.Found("version", store.Warn, seen+": the members differ", "finish the upgrade")
	}
	return examine.Found("version", store.OK, seen, "")
}

func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA == nil && errB == nil && (a > major || a == major && b >= minor)
}

func (e *examination) tier() store.Finding {
	return examine.Found("tier", store.OK, "tokens and fencing are consistent, whatever members fail; "+
		"expiry is best effort: it goes by the leader's clock and the rates of clients' clocks", "")
}

// clock compares this machine's clock with those of the members, by the Date
// header of HTTP: to the second.
func (e *examination) clock() store.Finding {
	const check = "clock"
	var most time.Duration
	asked := 0
	client := &http.Client{
		Timeout: requestTimeout, Transport: &http.Transport{DisableKeepAlives: true},
		// A redirect would lead to another machine's clock.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for _, st := range e.states {
		if st.err != nil || !strings.HasPrefix(st.url, "http://") {
			continue
		}
		req, err := http.NewRequestWithContext(e.ctx, http.MethodGet, st.url+"/version", nil)
		if err != nil {
			continue
		}
		before := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			continue
		}
		asked++
		// The member's clock was within this second when it answered.
		low, high := time.Until(date), date.Add(time.Second).Sub(before)
		if offset := max(low, -high, 0); offset > most {
			most = offset
		}
	}
	switch {
	case asked == 0:
		return examine.Found(check, store.OK, "not compared: etcd tells its time only over HTTP without TLS. "+
			"Leases do not need the clocks to agree; tokens are higher than earlier ones by this machine's clock", "")
	case most > time.Second:
		return examine.Found(check, store.Warn,
			fmt.Sprintf("this machine's clock and a member's differ by %s or more", most.Round(time.Second)),
			"leases are not harmed, but holds and periods go by the clients' clocks, "+
				"and tokens after a lost record do: run NTP everywhere")
	}
	return examine.Found(check, store.OK, "this machine's clock and the members' agree to a second or two", "")
}

func (e *examination) alarms() store.Finding {
	resp, err := repeated(e.ctx, requestTimeout, e.s.client.AlarmList)
	if err != nil {
		return examine.Found("alarms", store.Warn,
			"cannot be seen: "+err.Error(), "look with `etcdctl alarm list` as root")
	}
	for _, a := range resp.Alarms {
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			return examine.Found("alarms", store.Bad,
				"NOSPACE: the quota is used up, no lease can be taken, renewed or released",
				"compact and defragment, or raise --quota-backend-bytes; then `etcdctl alarm disarm`")
		case etcdserverpb.AlarmType_CORRUPT:
			return examine.Found("alarms", store.Bad, "CORRUPT: members disagree about the data",
				"restore or replace the member that is wrong")
		}
	}
	return examine.Found("alarms", store.OK, "none", "")
}

func (e *examination) space() store.Finding {
	const check = "space"
	var size, used, quota int64
	for _, st := range e.states {
		if st.err == nil && st.status.DbSize > size {
			size, used, quota = st.status.DbSize, st.status.DbSizeInUse, st.status.DbSizeQuota
		}
	}
	if quota == 0 {
		quota = 2 << 30 // etcd's default; older members do not tell
	}
	seen := fmt.Sprintf("%.1f MiB of %.0f MiB, %.1f MiB of it in use",
		float64(size)/(1<<20), float64(quota)/(1<<20), float64(used)/(1<<20))
	switch {
	case size > quota*8/10:
		return examine.Found(check, store.Warn, seen, "compact (run etcd with --auto-compaction-retention=1h) "+
			"and defragment before it is full: then nothing can be changed any more")
	case size > 64<<20 && used < size/2:
		return examine.Found(check, store.Warn, seen, "defragment to give the rest back")
	}
	return examine.Found(check, store.OK, seen, "")
}

func (e *examination) access() store.Finding {
	plain, user := false, e.s.client.Username != ""
	for _, url := range e.s.client.Endpoints() {
		plain = plain || !strings.HasPrefix(url, "https://")
	}
	who := "no user"
	if user {
		who = "a user"
	}
	if user && e.open() {
		return examine.Found("access", store.Warn, "a user is given, but the cluster asks nobody who they are: "+
			"whoever reaches it can read and take leases",
			"`etcdctl auth enable`, or leave the user out of the URL")
	}
	if plain {
		return examine.Found("access", store.Warn,
			"no TLS, "+who+": whoever reaches the network can read and take leases",
			"give members certificates and use etcds://, "+
				"with cert= and key= or a user where others share the cluster")
	}
	return examine.Found("access", store.OK, "TLS, "+who, "")
}

// open reports whether the cluster is known to need no login.
func (e *examination) open() bool {
	auth, err := once(e.ctx, requestTimeout, func(ctx context.Context) (*clientv3.AuthStatusResponse, error) {
		return e.s.client.AuthStatus(ctx)
	})
	return err == nil && !auth.Enabled
}

func (e *examination) keys() store.Finding {
	n := 0
	for _, err := range e.s.List(e.ctx, "") {
		if errors.Is(err, ErrDamaged) {
			return examine.Found("keys", store.Bad, err.Error(), "delete what is named, if the key may be forgotten")
		}
		if err != nil {
			return examine.Found("keys", store.Warn, err.Error(), "ask again")
		}
		n++
	}
	return examine.Found("keys", store.OK, strconv.Itoa(n), "")
}
