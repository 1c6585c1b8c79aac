package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

var _ store.Examiner = (*Store)(nil)

// server holds the settings that the server reports.
type server struct {
	version                                            string
	number                                             int
	standby, readOnly                                  bool
	syncCommit, fsync, fullPages, syncStandbys, encode string
	isolation                                          string
	replicas                                           int64
	mayCreate, made                                    bool
	owner                                              string // of the schema
}

// Examine reports how fit the server and its configuration are to keep leases.
// `croft doctor` prints the findings. Examine creates nothing.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	var v server
	err := s.pool.QueryRow(ctx, s.sql.examine).Scan(
		&v.version, &v.number, &v.standby, &v.readOnly,
		&v.syncCommit, &v.fsync, &v.fullPages, &v.syncStandbys,
		&v.replicas, &v.encode, &v.mayCreate, &v.made, &v.isolation, &v.owner)
	if err != nil {
		return nil, store.Unknown(explainStore(ctx, err))
	}
	findings := []store.Finding{
		v.examineVersion(), v.examineTier(), v.examineCommit(),
		v.examineDisk(), v.examineEncoding(), v.examineIsolation(),
	}
	for _, look := range []func(context.Context, *server) store.Finding{
		s.examineClock, s.examineSchema, s.examineNotify, s.examineIdle, s.examineKeys,
	} {
		if ctx.Err() != nil {
			return findings, store.Unknown(wait.Ended(ctx))
		}
		findings = append(findings, look(ctx, &v))
	}
	return findings, nil
}

func (v *server) examineVersion() store.Finding {
	switch {
	case v.number < 120000:
		return examine.Found("version", store.Bad, "PostgreSQL "+v.version, "use PostgreSQL 14 or newer")
	case v.number < 140000:
		return examine.Found("version", store.Warn, "PostgreSQL "+v.version+", which is not maintained any more",
			"use PostgreSQL 14 or newer")
	}
	return examine.Found("version", store.OK, "PostgreSQL "+v.version, "")
}

func (v *server) examineTier() store.Finding {
	switch {
	case v.standby:
		return examine.Found("tier", store.Bad, "this server is a standby: it takes no changes",
			"name the primary, or add target_session_attrs=read-write to the URL and list all servers in it")
	case v.readOnly:
		return examine.Found("tier", store.Bad, "transactions are read-only here",
			"set default_transaction_read_only to off for this role")
	case v.replicas > 0 && v.syncStandbys == "":
		return examine.Found("tier", store.Warn, fmt.Sprintf(
			"consistent on this primary; %d replicas follow it asynchronously: "+
				"one that is promoted may lack grants that were confirmed. "+
				"Two may then believe in one lease for up to a TTL; "+
				"tokens rise with the clock, so guarded writes of the older are refused", v.replicas),
			"set synchronous_standby_names where a failover must lose nothing")
	case v.replicas > 0:
		return examine.Found("tier", store.OK, fmt.Sprintf(
			"consistent; of %d replicas, those in %q have every confirmed grant", v.replicas, v.syncStandbys), "")
	}
	return examine.Found("tier", store.OK, "consistent on this one primary; nothing follows it", "")
}

func (v *server) examineCommit() store.Finding {
	const check = "synchronous_commit"
	switch {
	case v.syncCommit == "off":
		return examine.Found(check, store.Warn,
			"off: a crash of the server forgets the last moments of what it has confirmed: "+
				"leases, and marks of guards with the data they guard",
			"ALTER ROLE … SET synchronous_commit = on, for the role that keeps leases")
	case v.syncCommit == "local" && v.syncStandbys != "":
		return examine.Found(check, store.Warn, "local: a grant is confirmed before the synchronous standby has it",
			"set it to on")
	}
	return examine.Found(check, store.OK, v.syncCommit, "")
}

func (v *server) examineDisk() store.Finding {
	switch {
	case v.fsync != "on":
		return examine.Found("fsync", store.Bad,
			v.fsync+": a power cut can destroy the whole database", "set fsync = on")
	case v.fullPages != "on":
		return examine.Found("fsync", store.Warn, "on, but full_page_writes is off: a power cut can tear pages",
			"set full_page_writes = on, unless the file system promises whole pages")
	}
	return examine.Found("fsync", store.OK, "on", "")
}

func (v *server) examineEncoding() store.Finding {
	if v.encode != "UTF8" {
		return examine.Found("encoding", store.Warn,
			v.encode+": keys and names with other characters are refused or kept as bytes",
			"use a database with the encoding UTF8")
	}
	return examine.Found("encoding", store.OK, v.encode, "")
}

func (v *server) examineIsolation() store.Finding {
	if v.isolation != "read committed" && v.isolation != "read uncommitted" {
		return examine.Found("isolation", store.Warn, "transactions are "+v.isolation+" by default: "+
			"requests that meet others are given up by the server and sent again",
			"ALTER ROLE … SET default_transaction_isolation = 'read committed', for the role that keeps leases")
	}
	return examine.Found("isolation", store.OK, v.isolation, "")
}

func (s *Store) examineClock(ctx context.Context, _ *server) store.Finding {
	var now time.Time
	before := time.Now()
	err := s.pool.QueryRow(ctx, s.sql.clock).Scan(&now)
	took := time.Since(before)
	if err != nil {
		return examine.Found("clock", store.Bad, explainStore(ctx, err).Error(), "ask again")
	}
	offset := now.Sub(before.Add(took / 2))
	seen := fmt.Sprintf("the server's clock and this machine's differ by %s", offset.Round(time.Millisecond))
	if offset.Abs() > time.Second+took { // more than the round trip can account for
		return examine.Found("clock", store.Warn, seen, "leases go by the server's clock and are not harmed, "+
			"but a failover to a server whose clock is behind weakens the order of tokens: run NTP on all servers")
	}
	return examine.Found("clock", store.OK, seen, "")
}

func (s *Store) examineSchema(ctx context.Context, v *server) store.Finding {
	want := newestVersion()
	if !v.made {
		if v.mayCreate {
			return examine.Found("schema", store.OK,
				fmt.Sprintf("%s is not there yet; the first use makes it", s.sql.schema), "")
		}
		return examine.Found("schema", store.Bad,
			fmt.Sprintf("%s is not there, and this role may not make it", s.sql.schema),
			"let a DBA run `croft schema postgres` and grant what its last lines say")
	}
	var version int
	if err := s.pool.QueryRow(ctx, s.sql.version).Scan(&version); err != nil {
		return examine.Found("schema", store.Bad, explainStore(ctx, err).Error(),
			"grant this role what the last lines of `croft schema postgres` say")
	}
	seen := fmt.Sprintf("%s, owned by %s, version %d", s.sql.schema, v.owner, version)
	if version < want {
		return examine.Found("schema", store.Warn, fmt.Sprintf("%s of %d", seen, want),
			"its owner brings it up to date by any use of it: run `croft ls` as that role")
	}
	return examine.Found("schema", store.OK, seen, "")
}

func (s *Store) examineNotify(ctx context.Context, _ *server) store.Finding {
	switch err := s.listener.listening(ctx); {
	case err == nil:
		return examine.Found("notifications", store.OK,
			"arrive: waiters are woken, and holders told of operators' acts", "")
	case errors.Is(err, errors.ErrUnsupported):
		return examine.Found("notifications", store.Warn, err.Error(),
			"connect to the server itself, or to a pooler in session mode; "+
				"until then waiters poll, and holders learn of operators' acts by renewing")
	default:
		return examine.Found("notifications", store.Warn, explainStore(ctx, err).Error(), "ask again")
	}
}

func (s *Store) examineIdle(ctx context.Context, _ *server) store.Finding {
	const check = "open transactions"
	var n, pid int64
	if err := s.pool.QueryRow(ctx, s.sql.idle).Scan(&n, &pid); err != nil {
		return examine.Found(check, store.Warn, explainStore(ctx, err).Error(), "ask again")
	}
	if n > 0 {
		return examine.Found(check, store.Warn, fmt.Sprintf(
			"%d have locked rows of leases or guards and do nothing, server process %d among them", n, pid),
			"find out who it is in pg_stat_activity; SELECT pg_terminate_backend(…) ends it. "+
				"Set idle_in_transaction_session_timeout for roles that forget")
	}
	return examine.Found(check, store.OK, "none holds a lease's or guard's row for long", "")
}

func (s *Store) examineKeys(ctx context.Context, v *server) store.Finding {
	if !v.made {
		return examine.Found("keys", store.OK, "none", "")
	}
	var n int64
	if err := s.pool.QueryRow(ctx, s.sql.count).Scan(&n); err != nil {
		return examine.Found("keys", store.Bad, explainStore(ctx, err).Error(),
			"grant this role what the last lines of `croft schema postgres` say")
	}
	return examine.Found("keys", store.OK, fmt.Sprint(n), "")
}
