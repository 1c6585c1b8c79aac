// Package redis keeps leases in Redis, and guards data in it.
//
// A batch of requests on one namespace is one Lua script and one round trip; the law of package tenure is mirrored in apply.lua, by the server's clock. Records leave Redis by
// themselves, so nothing is left of a key a retention after it last mattered. Waiters are woken by pub/sub, over one connection per store.
// Over the same connection a holder learns at once that an operator has acted on
// its key.
//
// Redis replicates after it has answered: a failover can lose a grant that was confirmed. Tokens are therefore anchored in the server's clock, and what a stale owner writes
// through a guard is refused all the same. Options.WaitReplicas makes such a loss rarer, not impossible.
//
// A store's URL is "redis://user:password@host:port/db" ("rediss" for TLS), with ?retention=24h, ?prefix=croft:, ?wait=1 and ?cluster=true besides the options of go-redis. A
// guarded value is named by the URL of its database with its key behind "#".
package redis
