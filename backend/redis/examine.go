package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/croft-dev/croft/internal/examine"
	"github.com/croft-dev/croft/internal/wait"
	"github.com/croft-dev/croft/store"
)

// Examine checks whether the server is fit to keep leases. `croft doctor`
// prints the findings. They also name settings that this user may not see.
func (s *Store) Examine(ctx context.Context) ([]store.Finding, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return wait.For(ctx, func() ([]store.Finding, error) {
		e := &examination{ctx: ctx, client: s.client}
		if err := e.ask(); err != nil {
			return nil, store.Unknown(err)
		}
		return []store.Finding{
			e.version(), e.script(s), e.tier(s), e.replicas(s), e.clock(),
			e.eviction(), e.memory(), e.persistence(), e.keys(s),
		}, nil
	})
}

// examination holds what a server says about itself.
type examination struct {
	ctx    context.Context
	client goredis.UniversalClient
	info   map[string]string
	config map[string]string
	hidden error // why the configuration cannot be seen
}

// ask reads the server's information and configuration. On a cluster it asks
// one node.
func (e *examination) ask() error {
	text, err := e.client.Info(e.ctx).Result()
	if err != nil {
		return explainStore(err)
	}
	e.info = map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			e.info[name] = value
		}
	}
	e.config = map[string]string{}
	for _, name := range []string{"maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write"} {
		values, err := e.client.ConfigGet(e.ctx, name).Result()
		if err != nil {
			e.hidden = err // managed services forbid CONFIG
			break
		}
		e.config[name] = values[name]
	}
	// INFO has these two for every user.
	if policy := e.info["maxmemory_policy"]; policy != "" {
		e.config["maxmemory-policy"] = policy
	}
	if e.info["aof_enabled"] == "1" {
		e.config["appendonly"] = "yes"
	}
	return nil
}

func (e *examination) version() store.Finding {
	version := e.info["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	switch {
	case err != nil:
		return examine.Found("version", store.Warn, fmt.Sprintf("the server says %q", version),
			"make sure that it runs Lua scripts as Redis does")
	case n < 5:
		return examine.Found("version", store.Bad,
			"Redis "+version+": a script that reads the clock may not write there",
			"use Redis 6.2 or newer, or Valkey")
	case n < 6:
		return examine.Found("version", store.Warn, "Redis "+version+", which is not maintained any more",
			"use Redis 6.2 or newer, or Valkey")
	}
	return examine.Found("version", store.OK, "Redis "+version, "")
}

// script runs the script that reads records, on a key that nobody uses.
func (e *examination) script(s *Store) store.Finding {
	c := newCall(s.read, goredis.NewStringSliceCmd, 1, 3)
	c.args = append(c.args, s.names.record("croft.doctor/probe"), "", 0, false)
	c.run(e.ctx, s.client)
	if err := c.cmd.Err(); err != nil {
		return examine.Found("scripts", store.Bad, explain(err).Error(),
			"allow this user EVAL and EVALSHA on keys that begin with "+string(s.names))
	}
	return examine.Found("scripts", store.OK, "Lua scripts run", "")
}

func (e *examination) tier(s *Store) store.Finding {
	switch {
	case e.info["role"] == "slave":
		return examine.Found("tier", store.Bad, "this server is a replica: it takes no changes",
			"connect to its primary, or to Sentinel")
	case e.info["cluster_enabled"] == "1":
		if _, ok := s.client.(*goredis.ClusterClient); !ok {
			return examine.Found("tier", store.Bad, "this server is part of a cluster and the client does not know",
				"add ?cluster=true to the URL, or use a cluster client")
		}
	case e.info["connected_slaves"] == "0" || e.info["connected_slaves"] == "":
		return examine.Found("tier", store.OK, "consistent while this one server keeps its memory; "+
			"what it loses in a crash is healed by tokens that rise with the clock", "")
	}
	return examine.Found("tier", store.Warn, "best effort under failover: "+
		"a replica that is promoted may lack grants that were confirmed. "+
		"Two may then believe in the same lease for up to a TTL; "+
		"tokens rise with the clock, so guarded writes of the older are refused",
		"write through guards; or use PostgreSQL or etcd where two holders at once do harm that no guard can stop")
}

func (e *examination) replicas(s *Store) store.Finding {
	n, _ := strconv.Atoi(e.info["connected_slaves"])
	least, _ := strconv.Atoi(e.config["min-replicas-to-write"])
	seen := fmt.Sprintf("%d connected; changes wait for %d of them (?wait=), "+
		"the server demands %d (min-replicas-to-write)", n, s.wait, least)
	switch {
	case s.wait > n:
		return examine.Found("replicas", store.Bad, seen+": no change can be confirmed",
			"connect the replicas, or lower ?wait=")
	case n > 0 && s.wait == 0:
		return examine.Found("replicas", store.Warn, seen+": a grant is confirmed before any replica has it",
			"add ?wait=1 to the URL: a failover then loses fewer grants, "+
				"at the price of a round trip between the servers")
	}
	return examine.Found("replicas", store.OK, seen, "")
}

func (e *examination) clock() store.Finding {
	before := time.Now()
	now, err := e.client.Time(e.ctx).Result()
	took := time.Since(before)
	if err != nil {
		return examine.Found("clock", store.Bad, explain(err).Error(), "allow this user the command TIME")
	}
	offset := now.Sub(before.Add(took / 2))
	seen := fmt.Sprintf("the server's clock and this machine's differ by %s", offset.Round(time.Millisecond))
	if offset.Abs() > time.Second+took { // more than the duration of the call explains
		return examine.Found("clock", store.Warn, seen, "leases go by the server's clock and are not harmed, "+
			"but a failover to a server whose clock is behind weakens the order of tokens: run NTP on all servers")
	}
	return examine.Found("clock", store.OK, seen, "")
}

func (e *examination) eviction() store.Finding {
	policy := e.config["maxmemory-policy"]
	limit := e.info["maxmemory"]
	switch {
	case policy == "":
		return examine.Found("maxmemory-policy", store.Warn, "cannot be seen", "make sure that it is noeviction: "+
			"an evicted record is a lost lease, an evicted mark lets an old owner in")
	case policy == "noeviction":
		return examine.Found("maxmemory-policy", store.OK, policy, "")
	case limit == "0":
		return examine.Found("maxmemory-policy", store.Warn,
			policy+", though no maxmemory is set that would make it act",
			"CONFIG SET maxmemory-policy noeviction, before somebody sets a limit")
	}
	return examine.Found("maxmemory-policy", store.Bad, policy+": when memory runs short, "+
		"leases and marks of guards are thrown away: two owners at once, and old owners let in",
		"CONFIG SET maxmemory-policy noeviction, or give Croft a Redis of its own")
}

func (e *examination) memory() store.Finding {
	used, _ := strconv.ParseFloat(e.info["used_memory"], 64)
	limit, _ := strconv.ParseFloat(e.info["maxmemory"], 64)
	if limit == 0 {
		return examine.Found("memory", store.OK, fmt.Sprintf("%.0f MiB used, no limit set", used/(1<<20)), "")
	}
	level := store.OK
	if used > 0.9*limit {
		level = store.Warn
	}
	return examine.Found("memory", level, fmt.Sprintf("%.0f MiB used of %.0f MiB", used/(1<<20), limit/(1<<20)),
		"make room or raise maxmemory: on a full server no lease can be taken, renewed or released")
}

func (e *examination) persistence() store.Finding {
	const check = "persistence"
	if e.hidden != nil && e.config["appendonly"] == "" {
		return examine.Found(check, store.Warn, "cannot be seen: "+e.hidden.Error(),
			"find out whether a restart forgets what was confirmed; "+
				"if it does, guards on this server forget who wrote last")
	}
	appendonly, fsync := e.config["appendonly"], e.config["appendfsync"]
	switch {
	case e.info["aof_last_write_status"] == "err":
		return examine.Found(check, store.Bad, "the last write to the append-only file failed",
			"make room on the server's disk")
	case appendonly != "yes" && e.config["save"] == "":
		return examine.Found(check, store.Warn, "none: a restart forgets every lease and every mark. "+
			"Leases begin again with higher tokens; "+
			"a guard on this server that has forgotten its mark lets any owner in",
			"CONFIG SET appendonly yes where guarded data lives on this server")
	case appendonly != "yes":
		return examine.Found(check, store.Warn, "snapshots ("+e.config["save"]+"), no append-only file: "+
			"a restart forgets minutes of leases and marks", "CONFIG SET appendonly yes")
	case fsync == "always":
		return examine.Found(check, store.OK, "appendonly yes, appendfsync always: "+
			"what is confirmed survives a crash of this server", "")
	case fsync == "":
		return examine.Found(check, store.Warn, "appendonly yes, appendfsync cannot be seen",
			"with everysec a power cut forgets about a second; with always nothing that was confirmed")
	}
	return examine.Found(check, store.Warn, "appendonly yes, appendfsync "+fsync+": "+
		"a power cut forgets the last second or more; leases are healed by rising tokens, marks of guards are not",
		"CONFIG SET appendfsync always where a second matters; "+
			"it makes every change wait for the disk (about a sixth of the throughput)")
}

func (e *examination) keys(s *Store) store.Finding {
	n := 0
	for _, err := range s.List(e.ctx, "") {
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
