package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/internal/wire"
)

// TestAThinClientGetsSignedStamps, and the public keys for guards: those of the
// key that signs, and of the one before.
func TestAThinClientGetsSignedStamps(t *testing.T) {
	t.Parallel()
	key, before := signed.NewKey(), signed.NewKey()
	published, err := signed.ParseKeys(append(key.Public().PEM(), before.Public().PEM()...))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, &Options{SignKey: key, Keys: published})
	status, body := r.get("/v1/keys")
	keys, err := signed.ParseKeys([]byte(body))
	if err != nil || status != http.StatusOK || strings.Join(keys.IDs(), " ") != key.ID()+" "+before.ID() || strings.Contains(body, "PRIVATE") {
		t.Fatalf("keys: %d %s, %v", status, body, err)
	}
	for _, step := range []struct{ verb, body string }{
		{"acquire", `{` + secret(1) + `,"owner":"ann","ttl":"1m"}`},
		{"acquire", `{` + secret(1) + `,"owner":"ann","ttl":"1m"}`},
		{"renew", `{` + secret(1) + `}`},
		{"report", `{` + secret(1) + `,"progress":"half"}`},
		{"takeover", `{` + secret(2) + `,"owner":"opal","actor":"opal","note":"why","ttl":"1m"}`},
	} {
		status, body := r.post(path("a/b", step.verb), step.body)
		var lease struct{ Stamp string }
		if err := json.Unmarshal([]byte(body), &lease); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", step.verb, status, body, err)
		}
		stamp, err := fence.ParseStamp(lease.Stamp)
		if err == nil {
			err = keys.CheckNow(stamp)
		}
		if err != nil {
			t.Errorf("%s: the stamp is %q: %v", step.verb, lease.Stamp, err)
		}
		if status, body := r.post("/v1/verify", `{"stamp":"`+lease.Stamp+`"}`); status != http.StatusOK {
			t.Errorf("%s: verify: %d %s", step.verb, status, body)
		}
		stamp.Signature = signed.NewKey().Sign(stamp).Signature
		status, body = r.post("/v1/verify", `{"stamp":"`+stamp.String()+`"}`)
		refused(t, "verifying what a stranger signed", status, body, http.StatusBadRequest, wire.Invalid)
	}
	status, body = r.post(path("a/b", "acquire"), `{`+secret(3)+`,"owner":"bob","ttl":"1m"}`)
	refused(t, "another's acquire", status, body, http.StatusConflict, wire.Held)
	if strings.Contains(body, key.ID()) {
		t.Errorf("a refusal has a signature: %s", body)
	}
	status, body = newRig(t, nil).get("/v1/keys")
	refused(t, "a server without a key", status, body, http.StatusNotFound, wire.NotFound)
}
