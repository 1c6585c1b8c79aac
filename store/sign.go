package store

import (
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/tenure"
)

// Sign signs the stamp of the grant in the answer to q, if the grant is that of
// q's secret. If key is nil, it does nothing.
func (a *Answer) Sign(key *signed.Key, q tenure.Request) {
	if key != nil && a.Err == nil && a.Record.Grant == q.Secret.Grant() {
		a.Signature = key.Sign(a.Record.Stamp()).Signature
	}
}

// SignGrants signs the answers to those requests that can make a grant.
// The others are about leases whose stamps are signed.
func SignGrants(key *signed.Key, requests []tenure.Request, answers []Answer) {
	if key == nil {
		return
	}
	for i := range answers {
		if q := requests[i]; q.Verb == tenure.Acquire || q.Verb.ByHand() || q.Resume {
			answers[i].Sign(key, q)
		}
	}
}
