package sim

import "github.com/croft-dev/croft/proof/patch"

// Mutants are the broken variants, each with the laws by which it is found.
var Mutants = []*Mutant{
	// The law of ownership.
	{Name: "no-anchor", Place: "law", Says: "the token is a plain counter", Profile: "redis", Laws: []Law{TokensRise}, Apply: noAnchor},
	{Name: "counter-restarts", Place: "law", Says: "a record that was dropped starts the counter anew", Profile: "postgres", Laws: []Law{TokensRise}, Apply: counterRestarts},
	{Name: "clock-is-token", Place: "law", Says: "the token is the clock, whatever was issued before", Profile: "clocks", Laws: []Law{TokensRise, OneGrant}, Apply: clockIsToken},
	{Name: "resurrects", Place: "law", Says: "a late copy of an acquire is granted again", Profile: "redis", Laws: []Law{OneGrant}, Apply: resurrects},
	{Name: "early-grant", Place: "law", Says: "a key is granted while another holds it", Profile: "postgres", Laws: []Law{NoEarlyGrant}, Apply: earlyGrant},
	{Name: "anybody-releases", Place: "law", Says: "a release is not asked who it is", Profile: "redis", Laws: []Law{WrongGrant}, Apply: anybodyReleases},
	{Name: "anybody-renews", Place: "law", Says: "a renewal is not asked who it is", Profile: "redis", Laws: []Law{WrongGrant}, Apply: anybodyRenews},
	{Name: "renews-the-dead", Place: "law", Says: "a renewal after the deadline revives the lease", Profile: "postgres", Laws: []Law{WrongGrant}, Apply: renewsTheDead},
	{Name: "takeover-keeps-token", Place: "law", Says: "a takeover burns no token", Profile: "redis", Laws: []Law{OneGrant, TokensRise}, Apply: takeoverKeepsToken},
	{Name: "revoke-keeps-token", Place: "law", Says: "a revocation only frees the key", Profile: "redis", Laws: []Law{WrongGrant}, Apply: revokeKeepsToken},
	{Name: "nameless-takeover", Place: "law", Says: "a takeover does not say by whom", Profile: "redis", Laws: []Law{Causes}, Apply: namelessTakeover},
	{Name: "causeless", Place: "law", Says: "every term is said to be the first", Profile: "redis", Laws: []Law{Causes}, Apply: causeless},

	// The law of writing.
	{Name: "equal-from-any", Place: "guard", Says: "an equal token is admitted from any grant", Profile: "amnesia", Laws: []Law{WritesInOrder}, Admit: equalFromAny},
	{Name: "equal-refused", Place: "guard", Says: "an equal token is refused", Profile: "network", Laws: []Law{FairRefusal}, Admit: equalRefused},
	{Name: "older-admitted", Place: "guard", Says: "an older token is admitted if it is not much older", Profile: "hosts", Laws: []Law{WritesInOrder, LostUpdate}, Admit: olderAdmitted},
	{Name: "repeats-admitted", Place: "guard", Says: "a late copy of a write is admitted again", Profile: "network", Laws: []Law{WritesInOrder}, Admit: repeatsAdmitted},
	{Name: "any-key", Place: "guard", Says: "a stamp for another key is admitted", Profile: "network", Laws: []Law{FairRefusal}, Admit: anyKey},
	{Name: "check-then-write", Place: "guard", Says: "the check and the write are two steps", Profile: "hosts", Laws: []Law{WritesInOrder, LostUpdate}, Bend: CheckThenWrite},
	{Name: "raise-forgotten", Place: "guard", Says: "a raise is answered and not kept", Profile: "hosts", Laws: []Law{WritesInOrder, LostUpdate}, Bend: RaiseIsForgotten},
	{Name: "write-then-mark", Place: "guard", Says: "the mark is advanced after the write", Profile: "guards", Laws: []Law{WritesInOrder, LostUpdate}, Bend: WriteThenMark},
	{Name: "no-file-lock", Place: "guard", Says: "two writers are in the guard of a file at once", Profile: "guards", Laws: []Law{WritesInOrder, LostUpdate}, Bend: NoFileLock},
	{Name: "blind-manifest", Place: "guard", Says: "a manifest is replaced whatever it has become", Profile: "network", Laws: []Law{WritesInOrder, LostUpdate}, Bend: BlindManifest},

	// The client: its clock, and the engine that decides for it.
	{Name: "monotonic-clock", Place: "client", Says: "the clock stands still in suspend", Profile: "hosts", Laws: []Law{LocalDeadline}, Bend: MonotonicClock},
	{Name: "time-from-reply", Place: "client", Says: "the TTL counts from the reply", Profile: "network", Laws: []Law{LocalDeadline}, Patch: patch.Patch{
		File: "internal/engine/engine.go", Old: "e.outbox.landed(b)",
		New: "e.outbox.landed(b)\n\tfor _, r := range b.requests {\n\t\tr.sent = e.now\n\t}",
	}},
	{Name: "time-from-last-send", Place: "client", Says: "the TTL counts from the last copy sent", Profile: "network", Laws: []Law{LocalDeadline}, Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "c.Terms.Until(first, r.sent, *answer)", New: "a.last.Add(c.Terms.TTL - c.Terms.Margin())",
	}},
	{Name: "no-margin", Place: "client", Says: "no room is left for clocks that differ in rate", Profile: "hosts", Laws: []Law{LocalDeadline}, Patch: patch.Patch{
		File: "internal/keep/terms.go", Old: "return until.Add(-t.Margin())", New: "return until",
	}},
	{Name: "ends-only-when-told", Place: "client", Says: "a lease does not end while a renewal hangs", Profile: "network", Laws: []Law{LocalDeadline, OneTruth}, Patch: patch.Patch{
		File: "internal/keep/keeper.go", Old: "{ return k.deadline.Add(-k.terms.Notice) }", New: "{ return Never - 1 }",
	}},
	{Name: "not-owned-retried", Place: "client", Says: "not owned is counted as one more failure", Profile: "redis", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/keep/keeper.go", Old: "notOwned(a.Answer); refusal != nil {", New: "notOwned(a.Answer); refusal != nil && false {",
	}},
	{Name: "late-refusal-ignored", Place: "client", Says: "not owned does not count if the caller has left", Profile: "postgres", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/engine/attempt.go", Old: "lossOf(answer.Err) != nil {", New: "false {",
	}},
	{Name: "unchanged-is-failed", Place: "client", Says: "a request that the record does not show is taken for failed", Profile: "network", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/engine/attempt.go", Old: "case refused && refusal.Why != tenure.WhyUnknown,", New: "case refused,",
	}},
	{Name: "abandons-unknown", Place: "client", Says: "an unknown outcome is left alone", Profile: "network", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/engine/attempt.go", Old: "\tif a.doubt == 0 {", New: "\tif a.doubt >= 0 {",
	}},
	{Name: "another-secret", Place: "client", Says: "an unknown outcome is asked for again with another secret", Profile: "network", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "\t\tcase a == nil:\n\t\t\ta = e.newAttempt(c)", New: "\t\tcase a == nil || a.sends > 0:\n\t\t\ta = e.newAttempt(c)",
	}},
	{Name: "used-secret-kept", Place: "client", Says: "a secret that is used up is sent on", Profile: "network", Laws: []Law{Liveness}, Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "c.attempt, c.unknown = nil, nil", New: "c.unknown = nil",
	}},
	{Name: "sends-the-abandoned", Place: "client", Says: "a request that was not sent is sent when its caller has left", Profile: "network", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/engine/attempt.go", Old: "\te.drop(a)\n\tc := a.call", New: "\tc := a.call",
	}},
	{Name: "closed-without-a-word", Place: "client", Says: "a client that closes does not say that an outcome is unknown", Profile: "network", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/engine/engine.go", Old: "\t\t\te.left = true\n\t\t\te.resolved(owner", New: "\t\t\te.resolved(owner",
	}},
	{Name: "resumes-anew", Place: "client", Says: "a lease is resumed with another token", Profile: "amnesia", Laws: []Law{OneTruth}, Patch: patch.Patch{
		File: "internal/engine/release.go", Old: "case answer.Record.Token != old.Token:", New: "case false:",
	}},
	{Name: "waits-for-hints", Place: "client", Says: "a waiter that watches does not poll", Profile: "redis", Laws: []Law{Liveness}, Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "at := max(c.next, c.acquire.earliest)",
		New: "at := max(c.next, c.acquire.earliest)\n\tif c.acquire.queue.watch == watched {\n\t\tat = eventually\n\t}",
	}},
	{Name: "no-raise-at-grant", Place: "client", Says: "a holder reads before the fence is up", Profile: "hosts", Laws: []Law{LostUpdate}, Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "\tif c.Guarded {", New: "\tif c.Guarded && false {",
	}},
	{Name: "refused-from-belief", Place: "client", Says: "a single try is refused by what was known before it", Profile: "redis", Laws: []Law{FreshRefusal}, Patch: patch.Patch{
		File: "internal/engine/queue.go", Old: "if q.asked < c.began {", New: "if false {",
	}},
	{Name: "period-for-all", Place: "client", Says: "a call is refused for the period of another", Profile: "sweeps", Laws: []Law{FreshRefusal}, Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "\tif !a.period {", New: "\tif true {",
	}},
	{Name: "period-blocks", Place: "client", Says: "a call that waits for its period holds up those behind it", Test: "internal/engine.TestAPeriodOfOneCallDoesNotHoldUpOthers", Patch: patch.Patch{
		File: "internal/engine/queue.go", Old: "if !c.acquire.period {", New: "if true {",
	}},
	{Name: "second-queue", Place: "client", Says: "a call that asks above a guard's token replaces the key's queue", Test: "internal/engine.TestAnAcquireThatAsksAboveJoinsTheQueueThatIsThere", Patch: patch.Patch{
		File: "internal/engine/queue.go", Old: "\tif q == nil {\n\t\tq = c.acquire.queue", New: "\tif q != c.acquire.queue {\n\t\tq = c.acquire.queue",
	}},
	{Name: "no-overtaking", Place: "client", Says: "a batch without an answer is waited for", Test: "internal/engine.TestABatchWithoutAnAnswerIsOvertaken", Patch: patch.Patch{
		File: "internal/engine/batch.go", Old: "bool { return now >= later(b.sent, hungAfter) }", New: "bool { return false }",
	}},
	{Name: "copies-with-others", Place: "client", Says: "copies of what hangs go with other requests", Test: "internal/engine.TestABatchWithoutAnAnswerIsOvertaken", Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "at = again", New: "at = fresh",
	}},
	{Name: "any-number-in-flight", Place: "client", Says: "more than four batches hang", Test: "internal/engine.TestABatchWithoutAnAnswerIsOvertaken", Patch: patch.Patch{
		File: "internal/engine/batch.go", Old: "return len(o.flying) < most && (", New: "return most > 0 && (",
	}},
	{Name: "skipped-never-alone", Place: "client", Says: "a renewal that the store skipped goes with others again", Test: "internal/engine.TestASkippedRenewalGoesAloneTheNextTime", Patch: patch.Patch{
		File: "internal/engine/lease.go", Old: "case l.alone:", New: "case l.alone && false:",
	}},
	{Name: "renewals-fill-the-batch", Place: "client", Says: "renewals leave no room for other requests", Test: "internal/engine.TestRenewalsLeaveRoomForOtherRequests", Patch: patch.Patch{
		File: "internal/engine/batch.go", Old: "maxRenewals = 800", New: "maxRenewals = maxBatch",
	}},
	{Name: "renewals-apart", Place: "client", Says: "renewals that are due soon do not go along", Test: "internal/engine.TestRenewalsNearEachOtherGoTogether", Patch: patch.Patch{
		File: "internal/engine/lease.go", Old: "e.leases[0].keeper.Early() <= e.now", New: "e.leases[0].keeper.Wake() <= e.now",
	}},
	{Name: "passes-without-end", Place: "client", Says: "a key is passed on within a client without end", Test: "internal/engine.TestAReleasedKeyIsPassedOnInTheSameBatch", Patch: patch.Patch{
		File: "internal/engine/queue.go", Old: "if q.yield || q.passed == maxPassed {", New: "if q.yield {",
	}},
	{Name: "no-yielding", Place: "client", Says: "a key is passed on while others wait", Test: "internal/engine.TestAKeyIsNotPassedOnWhileOthersWait", Patch: patch.Patch{
		File: "internal/engine/release.go", Old: "q.yield = c.Reply.Answer.Awaited", New: "q.yield = false",
	}},
	{Name: "takes-the-too-old", Place: "client", Says: "a grant that is too old is answered as a lease", Test: "internal/engine.TestAGrantThatIsTooOldGivesNoAuthority", Patch: patch.Patch{
		File: "internal/engine/acquire.go", Old: "if e.now >= deadline.Add(-c.Terms.Notice) {", New: "if false {",
	}},
	{Name: "never-looks", Place: "client", Says: "a stalled lease is given up without a look", Test: "internal/engine.TestAStalledLeaseIsLookedAtBeforeItIsGivenUp", Patch: patch.Patch{
		File: "internal/engine/lease.go", Old: "e.ready.Look = append(e.ready.Look, l)", New: "",
	}},

	// The stores.
	{Name: "date-is-exact", Place: "store", Says: "a date of whole seconds is taken for the time", Profile: "s3", Laws: []Law{LocalDeadline, NoEarlyGrant}, Bend: DateIsExact},
	{Name: "earliest-is-told", Place: "store", Says: "what is left of a term is told from the earliest that it may be", Profile: "s3", Laws: []Law{LocalDeadline}, Bend: EarliestIsTold},
	{Name: "unconditional-put", Place: "store", Says: "a swap does not compare", Profile: "network", Laws: []Law{OneGrant, TokensRise, NoEarlyGrant, WrongGrant, Causes, LocalDeadline}, Bend: UnconditionalPut},
	{Name: "blind-drop", Place: "store", Says: "a sweep drops what has been taken since it looked", Profile: "sweeps", Laws: []Law{NoEarlyGrant}, Bend: BlindDrop},
	{Name: "conflict-is-done", Place: "store", Says: "a 409 is taken for done", Profile: "s3", Laws: []Law{OneTruth, LocalDeadline}, Bend: ConflictIsDone},
	{Name: "lost-is-done", Place: "store", Says: "a reply that was lost is taken for done", Profile: "network", Laws: []Law{OneTruth, LocalDeadline}, Bend: LostIsDone},
	{Name: "skipped-is-done", Place: "store", Says: "rows that were skipped are reported as renewed", Profile: "postgres", Laws: []Law{LocalDeadline}, Bend: SkippedIsDone},
	{Name: "clock-before-lock", Place: "store", Says: "the deadline is reckoned before the row is locked", Profile: "postgres", Laws: []Law{LocalDeadline, NoEarlyGrant}, Bend: ClockBeforeLock},

	// Stores that grant a key in the step that frees it.
	{Name: "award-full-term", Place: "store", Says: "what a bid was granted is said to last for a TTL from when it is asked for", Profile: "etcd", Laws: []Law{LocalDeadline}, Bend: AwardIsFullTerm},
	{Name: "award-releasers-clock", Place: "store", Says: "what is left of it is reckoned from the clock of whoever released the key", Profile: "etcd", Laws: []Law{LocalDeadline}, Bend: AwardByReleasersClock},
	{Name: "award-from-last-bid", Place: "store", Says: "it counts from the last bid with the same secret, whichever was granted", Profile: "etcd", Laws: []Law{LocalDeadline}, Bend: AwardFromLastBid},
	{Name: "award-dated-by-sender", Place: "store", Says: "it begins when the release was sent", Profile: "etcd", Laws: []Law{NoEarlyGrant, LocalDeadline, TokensRise}, Bend: AwardIsDatedBySender},
	{Name: "award-to-absent", Place: "store", Says: "a bid is granted that was withdrawn or replaced", Profile: "etcd", Laws: []Law{OneTruth}, Bend: AwardToAbsent},
	{Name: "award-again", Place: "store", Says: "a bid that was granted stays in its place, and is granted again", Profile: "etcd", Laws: []Law{OneGrant}, Bend: AwardAgain},
	{Name: "award-over-hold", Place: "store", Says: "a bid is granted within a hold", Profile: "etcd", Laws: []Law{NoEarlyGrant}, Bend: AwardOverHold},
	{Name: "award-after-refusal", Place: "store", Says: "a bid is granted though the release was refused", Profile: "etcd", Laws: []Law{NoEarlyGrant, Causes}, Bend: AwardAfterRefusal},
	{Name: "claimed-while-given", Place: "store", Says: "a bid's grant is answered for while it is given back", Profile: "etcd", Laws: []Law{LocalDeadline}, Bend: ClaimedWhileGiven},
	{Name: "claims-only-the-told", Place: "store", Says: "a bid's grant is given back though the server has told its holder of it", Profile: "etcd", Laws: []Law{LocalDeadline}, Bend: OnlyTheTold},
}
