// Package renewal decides when to renew a lease and when to give it up.
//
// A [Renewer] is the state machine of one lease. [Renewer.Step] takes an event
// and the time, and returns [Orders]: renew now, read the record, or the lease
// is over. The package has no goroutine, channel, clock or store. Package
// engine has one Renewer for each lease.
//
// # The local deadline
//
// The store's deadline is a time on the store's clock. A holder cannot read
// that clock, so it computes a local deadline that comes earlier: see
// [Policy.Until]. Only a confirmed grant or renewal moves it. At the local
// deadline, or Notice before it, the lease is over, whatever the store would
// say.
//
// # Renewals
//
// A lease is renewed once per interval, a third of its TTL. A renewal is open
// from its first sending until the store confirms it. It is sent again after a
// short pause if the answer is unknown, and after half an interval if there is
// no answer. A renewal that is still open when the next one begins counts as a
// failure. After MaxFailures of them in a row the lease is over.
//
// A lease is kept with the TTL that its record shows. The holder may change it
// ([tenure.Renew] with a TTL). A change never brings the store's deadline
// nearer, so the local deadline stays where it is, too. A TTL that is too short
// for Notice is not followed: the Renewer asks for its own again.
//
// With StallAfter, a renewal is withheld while the work reports no progress.
// The Renewer then asks to look at the record, because another process may have
// reported. If progress comes before the local deadline, the renewal goes out
// at once.
//
// If somebody says that the key may have been given to another ([Doubted]), the
// Renewer renews out of turn. The store's refusal then ends the lease early.
package renewal
