package sim

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

	// The client.
	{Name: "time-from-reply", Place: "client", Says: "the TTL counts from the reply", Profile: "network", Laws: []Law{LocalDeadline}, Bend: TimeFromReply},
	{Name: "time-from-last-send", Place: "client", Says: "the TTL counts from the last copy sent", Profile: "network", Laws: []Law{LocalDeadline}, Bend: TimeFromLastSend},
	{Name: "monotonic-clock", Place: "client", Says: "the clock stands still in suspend", Profile: "hosts", Laws: []Law{LocalDeadline}, Bend: MonotonicClock},
	{Name: "no-margin", Place: "client", Says: "no room is left for clocks that differ in rate", Profile: "hosts", Laws: []Law{LocalDeadline}, Bend: NoMargin},
	{Name: "ends-only-when-told", Place: "client", Says: "a lease does not end while a renewal hangs", Profile: "network", Laws: []Law{LocalDeadline, OneTruth}, Bend: EndsOnlyWhenTold},
	{Name: "not-owned-retried", Place: "client", Says: "not owned is counted as one more failure", Profile: "redis", Laws: []Law{OneTruth}, Bend: NotOwnedIsRetried},
	{Name: "unchanged-is-failed", Place: "client", Says: "a record that is unchanged is read as failure", Profile: "network", Laws: []Law{OneTruth}, Bend: UnchangedIsFailed},
	{Name: "abandons-unknown", Place: "client", Says: "an unknown outcome is left alone", Profile: "network", Laws: []Law{OneTruth}, Bend: AbandonsUnknown},
	{Name: "resumes-anew", Place: "client", Says: "a lease is resumed with another token", Profile: "amnesia", Laws: []Law{OneTruth}, Bend: ResumesAnew},
	{Name: "waits-for-hints", Place: "client", Says: "a waiter that watches does not poll", Profile: "redis", Laws: []Law{Liveness}, Bend: WaitsForHints},
	{Name: "no-raise-at-grant", Place: "client", Says: "a holder reads before the fence is up", Profile: "hosts", Laws: []Law{LostUpdate}, Bend: NoRaiseAtGrant},

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
