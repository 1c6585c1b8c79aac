// Package redis keeps leases in Redis, and guards data in it.
//
// A store's URL is "redis://user:password@host:port/db" ("rediss" for TLS). It
// may have ?retention=24h, ?prefix=croft:, ?wait=1 and ?cluster=true, and the
// options of go-redis. The URL of a guarded value is that of its database, with
// its key after "#".
//
// # Requests
//
// A batch of requests on one namespace is one Lua script and one round trip.
// apply.lua carries out the law of package tenure, by the server's clock.
// Redis expires records by itself: a retention after a key last mattered,
// nothing is left of it.
//
// A store has no goroutine for requests. The caller makes the call itself if
// the server was prompt the last time. Otherwise a new goroutine makes it, so
// that the caller can leave when its context ends: see Apply.
//
// # Failover
//
// Redis replicates a change after it has answered. A failover can therefore
// lose a grant that was confirmed. Tokens are anchored in the server's clock,
// so a guard still refuses the writes of a stale owner. Options.WaitReplicas
// makes such a loss rarer, not impossible.
//
// # Waiting
//
// One connection per store is subscribed to channels: one for each key that
// callers wait for, and one for operators' acts, by which holders learn at once
// of a takeover. Two goroutines belong to it, from the first watch until Close.
// One reads messages and tells the hub of package internal/turns. The other
// checks every 15 seconds that the server still knows all subscriptions.
package redis
