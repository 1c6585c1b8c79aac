package sim

// Mutants are all broken variants, each with the laws or the test that finds
// it.
var Mutants = []*Mutant{
	// The law of ownership.
	{
		Name: "no-anchor", Part: "law", Says: "the token is a plain counter",
		Profile: "redis", Laws: []Law{TokensRise}, Apply: noAnchor,
	},
	{
		Name: "counter-restarts", Part: "law", Says: "a record that was dropped starts the counter anew",
		Profile: "postgres", Laws: []Law{TokensRise}, Apply: counterRestarts,
	},
	{
		Name: "clock-is-token", Part: "law", Says: "the token is the clock, whatever was issued before",
		Profile: "clocks", Laws: []Law{TokensRise, OneGrant}, Apply: clockIsToken,
	},
	{
		Name: "resurrects", Part: "law", Says: "a late copy of an acquire is granted again",
		Profile: "redis", Laws: []Law{OneGrant}, Apply: resurrects,
	},
	{
		Name: "early-grant", Part: "law", Says: "a key is granted while another holds it",
		Profile: "postgres", Laws: []Law{NoEarlyGrant}, Apply: earlyGrant,
	},
	{
		Name: "anybody-releases", Part: "law", Says: "anybody can release a lease",
		Profile: "redis", Laws: []Law{WrongGrant}, Apply: anybodyReleases,
	},
	{
		Name: "forgets-checkpoints", Part: "law", Says: "the next holder does not get the checkpoint",
		Profile: "redis", Laws: []Law{WrongGrant}, Apply: forgetsCheckpoints,
	},
	{
		Name: "anybody-renews", Part: "law", Says: "a renewal is not asked who it is",
		Profile: "redis", Laws: []Law{WrongGrant}, Apply: anybodyRenews,
	},
	{
		Name: "renews-the-dead", Part: "law", Says: "a renewal after the deadline revives the lease",
		Profile: "postgres", Laws: []Law{WrongGrant}, Apply: renewsTheDead,
	},
	{
		Name: "takeover-keeps-token", Part: "law", Says: "a takeover burns no token",
		Profile: "redis", Laws: []Law{OneGrant, TokensRise}, Apply: takeoverKeepsToken,
	},
	{
		Name: "revoke-keeps-token", Part: "law", Says: "a revocation only frees the key",
		Profile: "redis", Laws: []Law{WrongGrant}, Apply: revokeKeepsToken,
	},
	{
		Name: "nameless-takeover", Part: "law", Says: "a takeover does not say by whom",
		Profile: "redis", Laws: []Law{Causes}, Apply: namelessTakeover,
	},
	{
		Name: "causeless", Part: "law", Says: "every term is said to be the first",
		Profile: "redis", Laws: []Law{Causes}, Apply: causeless,
	},

	// The law of writing.
	{
		Name: "equal-from-any", Part: "guard", Says: "an equal token is admitted from any grant",
		Profile: "amnesia", Laws: []Law{WritesInOrder}, Admit: equalFromAny,
	},
	{
		Name: "equal-refused", Part: "guard", Says: "an equal token is refused",
		Profile: "network", Laws: []Law{FairRefusal}, Admit: equalRefused,
	},
	{
		Name: "older-admitted", Part: "guard", Says: "an older token is admitted if it is not much older",
		Profile: "hosts", Laws: []Law{WritesInOrder, LostUpdate}, Admit: olderAdmitted,
	},
	{
		Name: "repeats-admitted", Part: "guard", Says: "a late copy of a write is admitted again",
		Profile: "network", Laws: []Law{WritesInOrder}, Admit: repeatsAdmitted,
	},
	{
		Name: "any-key", Part: "guard", Says: "a stamp for another key is admitted",
		Profile: "network", Laws: []Law{FairRefusal}, Admit: anyKey,
	},
	{
		Name: "check-then-write", Part: "guard", Says: "the check and the write are two steps",
		Profile: "hosts", Laws: []Law{WritesInOrder, LostUpdate},
	},
	{
		Name: "raise-forgotten", Part: "guard", Says: "a raise is answered and not kept",
		Profile: "hosts", Laws: []Law{WritesInOrder, LostUpdate},
	},
	{
		Name: "write-then-mark", Part: "guard", Says: "the mark is advanced after the write",
		Profile: "guards", Laws: []Law{WritesInOrder, LostUpdate},
	},
	{
		Name: "no-file-lock", Part: "guard", Says: "two writers are in the guard of a file at once",
		Profile: "guards", Laws: []Law{WritesInOrder, LostUpdate},
	},
	{
		Name: "blind-manifest", Part: "guard", Says: "a manifest is replaced whatever it has become",
		Profile: "network", Laws: []Law{WritesInOrder, LostUpdate},
	},

	// The client: its clock, and the engine that decides for it.
	{
		Name: "monotonic-clock", Part: "client", Says: "the clock stands still in suspend",
		Profile: "hosts", Laws: []Law{LocalDeadline},
	},
	inEngine("time-from-reply", "the TTL counts from the reply").byLaw("network", LocalDeadline).
		patch(
			"engine/engine.go", "e.pipeline.landed(b)",
			"e.pipeline.landed(b)\n\tfor _, r := range b.requests {\n\t\tr.sent = e.now\n\t}",
		),
	inEngine("time-from-last-send", "the TTL counts from the last copy sent").byLaw("network", LocalDeadline).
		patch(
			"engine/acquire.go", "c.Policy.Until(first, r.sent, *answer)",
			"a.last.Add(c.Policy.TTL - c.Policy.Margin())",
		),
	inEngine("no-margin", "no room is left for clocks that differ in rate").byLaw("hosts", LocalDeadline).
		patch("renewal/policy.go", "return until.Add(-p.Margin())", "return until"),
	inEngine("ends-only-when-told", "a lease does not end while a renewal hangs").
		byLaw("network", LocalDeadline, OneTruth).
		patch("renewal/renewer.go", "{ return r.deadline.Add(-r.policy.Notice) }", "{ return Never - 1 }"),
	inEngine("not-owned-retried", "not owned is counted as one more failure").byLaw("redis", OneTruth).
		patch(
			"renewal/renewer.go", "notOwned(a.Answer); refusal != nil {",
			"notOwned(a.Answer); refusal != nil && false {",
		),
	inEngine("late-refusal-ignored", "not owned does not count if the caller has left").byLaw("postgres", OneTruth).
		patch("engine/attempt.go", "lossOf(answer.Err) != nil {", "false {"),
	inEngine("unchanged-is-failed", "a request that the record does not show is taken for failed").
		byLaw("network", OneTruth).
		patch("engine/attempt.go", "case refused && refusal.Why != tenure.WhyUnknown,", "case refused,"),
	inEngine("abandons-unknown", "an unknown outcome is left alone").byLaw("network", OneTruth).
		patch("engine/attempt.go", "\tif a.doubt == 0 {", "\tif a.doubt >= 0 {"),
	inEngine("another-secret", "an unknown outcome is asked for again with another secret").byLaw("network", OneTruth).
		patch(
			"engine/acquire.go", "\t\tcase a == nil:\n\t\t\ta = e.newAttempt(c)",
			"\t\tcase a == nil || a.sends > 0:\n\t\t\ta = e.newAttempt(c)",
		),
	inEngine("used-secret-kept", "a secret that is used up is sent on").byLaw("network", Liveness).
		patch("engine/acquire.go", "c.attempt, c.unknown = nil, nil", "c.unknown = nil"),
	inEngine("sends-the-abandoned", "a request that was not sent is sent when its caller has left").
		byLaw("network", OneTruth).
		patch("engine/attempt.go", "\te.drop(a)\n\tc := a.call", "\tc := a.call"),
	inEngine("closed-without-a-word", "a client that closes does not say that an outcome is unknown").
		byLaw("network", OneTruth).
		patch("engine/engine.go", "\t\t\te.left = true\n\t\t\te.resolved(owner", "\t\t\te.resolved(owner"),
	inEngine("resumes-anew", "a lease is resumed with another token").byLaw("amnesia", OneTruth).
		patch("engine/release.go", "case answer.Record.Token != old.Token:", "case false:"),
	inEngine("waits-for-hints", "a waiter that watches does not poll").byLaw("redis", Liveness).
		patch(
			"engine/acquire.go", "at := max(c.next, c.acquire.earliest)",
			"at := max(c.next, c.acquire.earliest)\n\tif c.acquire.queue.watch == watched {\n\t\tat = eventually\n\t}",
		),
	inEngine("no-raise-at-grant", "a holder reads before the fence is up").byLaw("hosts", LostUpdate).
		patch("engine/acquire.go", "\tif c.Guarded {", "\tif c.Guarded && false {"),
	inEngine("refused-from-belief", "a single try is refused by what was known before it").byLaw("redis", FreshRefusal).
		patch("engine/queue.go", "if q.asked < c.began {", "if false {"),
	inEngine("period-for-all", "a call is refused for the period of another").
		byTest("TestAPeriodOfOneCallDoesNotHoldUpOthers").
		patch("engine/queue.go", "q.every != c.Request.Every:", "false:"),
	inEngine("period-blocks", "a call that waits for its period holds up those behind it").
		byTest("TestAPeriodOfOneCallDoesNotHoldUpOthers").
		patch("engine/queue.go", "if c.acquire.period {", "if false {"),
	inEngine("second-queue", "a call that asks above a guard's token replaces the key's queue").
		byTest("TestAnAcquireThatAsksAboveJoinsTheQueueThatIsThere").
		patch(
			"engine/queue.go", "\tq := e.queueOf(c.Request.Key)\n\tc.acquire.queue",
			"\tq := c.acquire.queue\n\te.queues[q.key] = q\n\tc.acquire.queue",
		),
	inEngine("no-overtaking", "a batch without an answer is waited for").byTest("TestABatchWithoutAnAnswerIsOvertaken").
		patch("engine/batch.go", "bool { return now >= renewal.After(b.sent, hungAfter) }", "bool { return false }"),
	inEngine("copies-with-others", "copies of what hangs go with other requests").
		byTest("TestABatchWithoutAnAnswerIsOvertaken").
		patch("engine/acquire.go", "at = again", "at = fresh"),
	inEngine("any-number-in-flight", "more than four batches hang").byTest("TestABatchWithoutAnAnswerIsOvertaken").
		patch("engine/batch.go", "return len(p.flying) < maxInFlight", "return true"),
	inEngine("skipped-never-alone", "a renewal that the store skipped goes with others again").
		byTest("TestASkippedRenewalGoesAloneTheNextTime").
		patch("engine/lease.go", "case l.alone:", "case l.alone && false:"),
	inEngine("renewals-fill-the-batch", "renewals leave no room for other requests").
		byTest("TestRenewalsLeaveRoomForOtherRequests").
		patch("engine/batch.go", "maxRenewals = 800", "maxRenewals = maxBatch"),
	inEngine("renewals-apart", "renewals that are due soon do not go along").
		byTest("TestRenewalsNearEachOtherGoTogether").
		patch("engine/lease.go", "e.leases[0].renewer.Early() <= e.now", "e.leases[0].renewer.Wake() <= e.now"),
	inEngine("passes-without-end", "a key is passed on within a client without end").
		byTest("TestAReleasedKeyIsPassedOnInTheSameBatch").
		patch("engine/queue.go", "if q.yield || q.passed == maxPassed {", "if q.yield {"),
	inEngine("no-yielding", "a key is passed on while others wait").byTest("TestAKeyIsNotPassedOnWhileOthersWait").
		patch("engine/release.go", "q.yield = c.Reply.Answer.Awaited", "q.yield = false"),
	inEngine("watches-late", "a contended key is asked for before hints about it come").
		byTest("TestAContendedKeyIsWatchedBeforeItIsAskedFor").
		patch("engine/queue.go", "c.acquire.queue.contended && e.now < c.acquire.end", "false"),
	inEngine("takes-the-too-old", "a grant that is too old is answered as a lease").
		byTest("TestAGrantThatIsTooOldGivesNoAuthority").
		patch("engine/acquire.go", "if e.now >= deadline.Add(-c.Policy.Notice) {", "if false {"),
	inEngine("never-looks", "a stalled lease is given up without a look").
		byTest("TestAStalledLeaseIsLookedAtBeforeItIsGivenUp").
		patch("engine/lease.go", "e.ready.Look = append(e.ready.Look, l)", ""),
	inEngine("deaf-to-operators", "a lease is not renewed out of turn when an operator has acted on its key").
		byTest("TestALeaseTakenByAnOperatorEndsAtOnce").
		patch("engine/queue.go", "e.stepLease(q.holder, renewal.Doubted{})", ""),

	// The stores.
	{
		Name: "date-is-exact", Part: "store", Says: "a date of whole seconds is taken for the time",
		Profile: "s3", Laws: []Law{LocalDeadline, NoEarlyGrant},
	},
	{
		Name: "earliest-is-told", Part: "store",
		Says:    "the time left of a term is told for the earliest possible time",
		Profile: "s3", Laws: []Law{LocalDeadline},
	},
	{
		Name: "unconditional-put", Part: "store", Says: "a swap does not compare",
		Profile: "network", Laws: []Law{OneGrant, TokensRise, NoEarlyGrant, WrongGrant, Causes, LocalDeadline},
	},
	{
		Name: "blind-drop", Part: "store", Says: "a sweep drops a record that was acquired since it looked",
		Profile: "sweeps", Laws: []Law{NoEarlyGrant},
	},
	{
		Name: "conflict-is-done", Part: "store", Says: "a 409 is taken for done",
		Profile: "s3", Laws: []Law{OneTruth, LocalDeadline},
	},
	{
		Name: "lost-is-done", Part: "store", Says: "a reply that was lost is taken for done",
		Profile: "network", Laws: []Law{OneTruth, LocalDeadline},
	},
	{
		Name: "skipped-is-done", Part: "store", Says: "rows that were skipped are reported as renewed",
		Profile: "postgres", Laws: []Law{LocalDeadline},
	},
	{
		Name: "mixes-answers", Part: "store", Says: "a server of croft gives clients the answers of others",
		Profile: "served", Laws: []Law{OneTruth},
	},
	{
		Name: "clock-before-lock", Part: "store", Says: "the deadline is reckoned before the row is locked",
		Profile: "postgres", Laws: []Law{LocalDeadline, NoEarlyGrant},
	},
}
