package main

// mistakes are known mistakes of leases and fences that have been in use, each
// with the variant that makes it. All of them must be run and found.
var mistakes = []struct{ says, variant string }{
	{"time counts from the reply instead of the sending", "time-from-reply"},
	{"time counts from the last sending instead of the first", "time-from-last-send"},
	{"a monotonic clock only, which stands still in suspend", "monotonic-clock"},
	{"a record that reads unchanged is taken for failure", "unchanged-is-failed"},
	{"an equal token is admitted from any grant", "equal-from-any"},
	{"an equal token is refused to its own grant", "equal-refused"},
	{"the deadline is reckoned before the lock is had", "clock-before-lock"},
	{"a dropped record resets the counter", "counter-restarts"},
	{"tokens are not anchored in time", "no-anchor"},
	{"anybody can release a lease", "anybody-releases"},
	{"a late acquire resurrects what is over", "resurrects"},
	{"the fence is advanced after the write", "write-then-mark"},
	{"check and write are two steps", "check-then-write"},
	{"nothing is raised at the grant", "no-raise-at-grant"},
	{"not owned counts as one more retry", "not-owned-retried"},
	{"a link is taken for a grant without listing again", "a store without a second listing"},
	{"the identity of an effect has the token in it", "puts the token into the identity of effects"},
}
