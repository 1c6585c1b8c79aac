package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/backend/mem"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/fence/signed"
	"github.com/croft-dev/croft/internal/wire"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
	"github.com/croft-dev/croft/work"
)

// document is openapi.json, as far as the tests need it.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct {
		Schemas    map[string]*schema
		Parameters map[string]parameter
		Headers    map[string]struct{ Schema *schema }
	}
}

type operation struct {
	OperationID string
	Parameters  []struct {
		Ref string `json:"$ref"`
	}
	RequestBody *content
	Responses   map[string]content
}

type content struct {
	Content map[string]struct{ Schema *schema }
	Headers map[string]struct {
		Ref string `json:"$ref"`
	}
}

type parameter struct{ Name, In string }

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]*schema
	Required             []string
	AdditionalProperties *bool
	Items                *schema
	Enum                 []string
	Pattern              string
	Format               string
	MaxItems             *int
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(openAPI, &d); err != nil || !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Fatalf("openapi.json: %v, version %s", err, d.OpenAPI)
	}
	return d
}

// whole follows a reference.
func (d document) whole(s *schema) *schema {
	for s != nil && s.Ref != "" {
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

// check returns the faults of a value. It is stricter than the document:
// an answer has no member that the document does not describe.
func (d document) check(where string, s *schema, v any) []string {
	s = d.whole(s)
	if s == nil {
		return []string{where + ": the document has no schema for it"}
	}
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, where+": "+fmt.Sprintf(format, args...)) }
	kind := "null"
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for name, member := range v {
			if s.Properties[name] == nil {
				say("the document has no member %s", name)
				continue
			}
			wrong = append(wrong, d.check(where+"."+name, s.Properties[name], member)...)
		}
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				say("%s is missing", name)
			}
		}
	case []any:
		kind = "array"
		for i, item := range v {
			wrong = append(wrong, d.check(fmt.Sprintf("%s[%d]", where, i), s.Items, item)...)
		}
		if s.MaxItems != nil && len(v) > *s.MaxItems {
			say("%d items", len(v))
		}
	case string:
		kind = "string"
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			say("%q does not match %s", v, s.Pattern)
		}
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
			say("%q is none of %q", v, s.Enum)
		}
		if _, err := time.Parse(time.RFC3339Nano, v); s.Format == "date-time" && err != nil {
			say("%v", err)
		}
	case json.Number:
		kind = "integer"
		if _, err := v.Int64(); err != nil {
			say("%v", err)
		}
	case bool:
		kind = "boolean"
	}
	if !strings.Contains(fmt.Sprint(s.Type), kind) {
		say("it is %s, not %v", kind, s.Type)
	}
	return wrong
}

// checkText is check for a JSON document.
func (d document) checkText(t *testing.T, where string, s *schema, text string) {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Errorf("%s: %v in %.200s", where, err, text)
	}
	for _, wrong := range d.check(where, s, v) {
		t.Error(wrong)
	}
}

// described returns how the document names a call. It has no paths with dots:
// a client writes the slashes of the path of a file as %2F.
func (r route) described() string { return strings.Replace(r.pattern, "...}", "}", 1) }

// inPath matches the parameters in a path.
var inPath = regexp.MustCompile(`\{[^}]*\}`)

// TestTheDocumentHasTheCallsOfTheAPI, and no others. Each says which parameters
// its path has.
func TestTheDocumentHasTheCallsOfTheAPI(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	described := map[string]bool{}
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			described[strings.ToUpper(method)+" "+path] = true
			if ids[op.OperationID] || op.OperationID == "" {
				t.Errorf("%s: the name %q is taken", path, op.OperationID)
			}
			ids[op.OperationID] = true
			var names []string
			for _, p := range op.Parameters {
				said, ok := d.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
				if !ok {
					t.Errorf("%s: the document has no %s", path, p.Ref)
				}
				if said.In == "path" {
					names = append(names, "{"+said.Name+"}")
				}
			}
			if want := inPath.FindAllString(path, -1); !slices.Equal(names, want) {
				t.Errorf("%s: the parameters of the path are %q", path, names)
			}
		}
	}
	srv := New(mem.New(nil), nil)
	defer srv.Drain()
	for _, r := range srv.api() {
		if !described[r.described()] {
			t.Errorf("openapi.json does not describe %s", r.described())
		}
		delete(described, r.described())
	}
	for call := range described {
		t.Errorf("openapi.json describes %s, which the server does not have", call)
	}
}

// TestTheDocumentHasTheMembersOfBodies: a server takes each of them and, since
// it refuses all others, the document has each that a server takes.
func TestTheDocumentHasTheMembersOfBodies(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	r := newRig(t, &Options{Ledger: mem.NewLedger(nil)})
	every := map[string]bool{"wait": true, "requests": true, "stamp": true}
	stamp := fence.Stamp{Key: "a/b", Token: 1, Grant: tenure.NewSecret().Grant()}
	settlements, _ := wire.SettleBatches([]work.Settlement{{
		Effect: work.EffectID{Item: work.NewID(), Name: "n"}, Attempt: 1, State: work.Pending, Delay: time.Hour, Error: "e",
		Stamp: stamp, Actor: "a", Note: "n",
	}})
	for name, full := range map[string][]byte{
		"Request": wire.Request(tenure.Request{
			Verb: tenure.Acquire, Key: "a/b", Secret: tenure.NewSecret(), Owner: "o", Instance: "i", TTL: time.Hour, Above: 1,
			Every: time.Hour, HoldFor: time.Hour, Guards: []string{"g"}, Resume: true, Progress: "p", Checkpoint: "c",
			Failed: true, Actor: "a", Note: "n",
		}),
		"WorkRequest": wire.WorkRequest(work.Request{
			Verb: work.Add, ID: work.NewID(), Token: 1, Secret: tenure.NewSecret(), Queue: "q", Unique: "u", Partition: "p", Payload: []byte("p"),
			Priority: 1, Limit: 1, NotBefore: time.Now(), Guards: []string{"g"}, Delay: time.Hour, TTL: time.Hour, Progress: "p",
			State: []byte("s"), Result: []byte("r"), Effects: []work.Emission{{Name: "n", To: "t", Body: []byte("b"), AtMostOnce: true}},
			Error: "e", Final: true, Owner: "o", Instance: "i", Actor: "a", Note: "n", Again: true,
		}),
		"Claim": wire.Claim(work.Claim{
			Queues: []string{"q"}, Limit: 1, Secret: tenure.NewSecret(), Owner: "o", Instance: "i", TTL: time.Hour, Again: true,
		}),
		"Taking":      wire.Taking(work.Taking{Stamp: stamp, To: []string{"t"}, Ordered: true, Limit: 1, Hold: time.Hour}),
		"Settlements": settlements[0],
		"RuleChange": wire.RuleChange(work.RuleChange{
			Verb: work.SetLimit, Queue: "q", Partition: "p", Limit: work.Limit{Running: 1, Starts: 1, Interval: time.Hour},
			Actor: "a", Note: "n",
		}),
		"Prune": wire.Prune(work.Retention{Done: time.Hour, Dead: time.Hour, Refusals: time.Hour}, 1),
		"FileAct": wire.FileAct{
			Act: wire.RaiseFile, Stamp: stamp.String(), Key: "a/b", Floor: 1, Actor: "a", Note: "n",
		}.Bytes(),
	} {
		d.checkText(t, "a full "+name, d.Components.Schemas[name], string(full))
	}
	for _, s := range d.Components.Schemas {
		for name := range s.Properties {
			every[name] = true
		}
	}
	takes := func(path, list, name string) bool {
		body := fmt.Sprintf(`{%q:1}`, name)
		if list != "" && name != list {
			body = fmt.Sprintf(`{%q:[%s]}`, list, body)
		}
		path = strings.NewReplacer("{key}", "a%2Fb", "{path}", "a%2Fb", "{id}", string(work.NewID()), "{verb}", "add").Replace(path)
		_, answer := r.post(path, body)
		return !strings.Contains(answer, "no such member")
	}
	for path, methods := range d.Paths {
		op, ok := methods["post"]
		if !ok || path == "/v1/sweep" { // it reads no member
			continue
		}
		s := d.whole(op.RequestBody.Content[wire.JSON].Schema)
		if s.AdditionalProperties == nil || *s.AdditionalProperties {
			t.Errorf("%s: the document allows further members", path)
		}
		members, list := maps.Clone(s.Properties), ""
		if items := members["requests"]; items != nil {
			list = "requests"
			maps.Copy(members, d.whole(items.Items).Properties)
		}
		for name := range every {
			if described := members[name] != nil; described != takes(path, list, name) {
				t.Errorf("%s: the document has the member %s: %t; the server does not agree", path, name, described)
			}
		}
	}
}

// TestTheAnswersAreAsTheDocumentSays: those of all calls, and refusals.
func TestTheAnswersAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	uploads, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = uploads.Close() })
	r := rigOver(t, mem.New(nil), func(st store.Store) store.Store { return examined{st.(*mem.Store)} }, &Options{
		Ledger: mem.NewLedger(nil), SignKey: signed.NewKey(), Files: filesIn(folder), Uploads: uploads,
	})
	r.srv.feed.every = 5 * time.Millisecond
	answered := map[string]bool{}
	described := func(method, path string) content {
		t.Helper()
		op, ok := d.Paths[path][strings.ToLower(method)]
		if !ok {
			t.Fatalf("openapi.json does not describe %s %s", method, path)
		}
		answered[method+" "+path] = true
		return op.Responses["200"]
	}
	ask := func(path string, req *http.Request) (text string) {
		t.Helper()
		resp, err := r.front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s %s, %v", req.Method, req.URL, resp.Status, body, err)
		}
		said, kind := described(req.Method, path), resp.Header.Get("Content-Type")
		in, ok := said.Content[kind]
		if !ok {
			t.Errorf("%s %s: the document has no answer of the type %q", req.Method, path, kind)
		}
		for name, h := range said.Headers {
			s := d.Components.Headers[strings.TrimPrefix(h.Ref, "#/components/headers/")].Schema
			for _, wrong := range d.check(path+" "+name, s, resp.Header.Get(name)) {
				t.Error(wrong)
			}
		}
		switch kind {
		case wire.JSON, wire.Lines:
			for line := range strings.Lines(string(body)) {
				d.checkText(t, path, in.Schema, line)
			}
		}
		return string(body)
	}
	do := func(method, path, query, body string) (text string) {
		t.Helper()
		return ask(path, r.request(method, strings.NewReplacer("{key}", "a%2Fb", "{path}", "sub%2Fout").Replace(path)+query, body))
	}
	stream := func(path, query string) (line func()) {
		lines, end := r.stream(path + query)
		t.Cleanup(end)
		return func() {
			t.Helper()
			d.checkText(t, path, described(http.MethodGet, path).Content[wire.Events].Schema, strings.TrimPrefix(next(lines, "data: "), "data: "))
		}
	}
	watched, acted, told := stream("/v1/watch", "?key=a%2Fb"), stream("/v1/acts", ""), stream("/v1/events", "?prefix=a/")
	lease := func(verb, more string) (text string) {
		t.Helper()
		return do(http.MethodPost, "/v1/leases/{key}/"+verb, "", `{`+more+`}`)
	}
	one, byHand := secret(1), `,"owner":"opal","actor":"opal","note":"why","ttl":"1h"`
	lease("acquire", one+`,"owner":"ann","instance":"i","ttl":"1h","every":"1h","hold_for":"2s","guards":["file:///x"]`)
	lease("renew", one)
	lease("report", one+`,"progress":"half"`)
	lease("checkpoint", one+`,"checkpoint":"aGk="`)
	lease("release", one)
	lease("takeover", secret(2)+byHand)
	lease("reserve", secret(3)+byHand)
	lease("revoke", secret(4)+`,"actor":"opal","note":"why"`)
	woken := stream("/v1/work/wake", "?queue=q")
	ids := []work.ID{work.NewID(), work.NewID()}
	call := func(verb string, n int, more string) {
		t.Helper()
		path := "/v1/work/items/{id}/{verb}"
		ask(path, r.request(http.MethodPost, "/v1/work/items/"+string(ids[n])+"/"+verb, "{"+more+"}"))
	}
	call("add", 0, `"queue":"q","payload":"aGk=","unique":"u","guards":["file:///x"]`)
	call("add", 1, `"queue":"q","limit":3`)
	do(http.MethodPost, "/v1/work/claim", "", `{"queues":["q"],"limit":2,`+secret(20)+`,"owner":"ann","instance":"i"}`)
	ledger := r.srv.o.Ledger
	token := func(n int) string {
		it, err := ledger.Get(t.Context(), ids[n])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`"token":%d,`, it.Record.Token)
	}
	call("heartbeat", 0, token(0)+secret(20))
	call("report", 0, token(0)+secret(20)+`,"progress":"half"`)
	call("checkpoint", 0, token(0)+secret(20)+`,"state":"aGk="`)
	call("complete", 0, token(0)+secret(20)+`,"result":"aGk=","effects":[{"name":"mail","to":"m","body":"aGk=","at_most_once":true}]`)
	call("takeover", 1, secret(21)+`,"actor":"opal","note":"why"`)
	do(http.MethodPost, "/v1/work/apply", "", `{"requests":[{"verb":"heartbeat","id":"`+string(ids[1])+`","token":1,`+secret(20)+`},`+
		`{"verb":"cancel","id":"`+string(ids[1])+`",`+secret(22)+`,"actor":"opal","note":"why"},`+
		`{"verb":"replay","id":"`+string(work.NewID())+`",`+secret(23)+`,"actor":"opal","note":"why"}]}`)
	stamp := fence.Stamp{Key: "work/dispatcher", Token: 1, Grant: tenure.NewSecret().Grant()}
	do(http.MethodPost, "/v1/work/take", "", `{"stamp":"`+stamp.String()+`","limit":5,"hold":"1m"}`)
	effectID := work.EffectID{Item: ids[0], Name: "mail"}.String()
	do(http.MethodPost, "/v1/work/settle", "", `{"requests":[{"effect":"`+effectID+`","attempt":1,"state":"failed","error":"no","stamp":"`+stamp.String()+`"},`+
		`{"effect":"`+effectID+`","attempt":9,"state":"sent","actor":"opal","note":"why"}]}`)
	for _, list := range []string{"items", "effects", "refusals", "stats"} {
		do(http.MethodGet, "/v1/work/"+list, "", "")
	}
	ask("/v1/work/items/{id}", r.request(http.MethodGet, "/v1/work/items/"+string(ids[0]), ""))
	do(http.MethodGet, "/v1/work/now", "", "")
	do(http.MethodPost, "/v1/work/rules", "", `{"verb":"pause","queue":"q","actor":"opal","note":"why"}`)
	do(http.MethodPost, "/v1/work/rules", "", `{"verb":"limit","queue":"q","partition":"*","running":2,"starts":3,"interval":"1m","note":"why","actor":"a"}`)
	do(http.MethodGet, "/v1/work/rules", "", "")
	do(http.MethodPost, "/v1/work/prune", "", `{"limit":10}`)
	for _, line := range []func(){watched, acted, told, woken} {
		line()
	}
	do(http.MethodPost, "/v1/apply", "", `{"requests":[{`+secret(5)+`,"verb":"acquire","key":"a/b","owner":"ann","ttl":"1h"},`+
		`{`+secret(6)+`,"verb":"acquire","key":"a/b","owner":"bob","ttl":"1h"},{`+secret(1)+`,"verb":"renew","key":"a/b"},`+
		`{`+secret(7)+`,"verb":"renew","key":"a//b"}]}`)
	do(http.MethodGet, "/v1/leases", "", "")
	do(http.MethodGet, "/v1/leases/{key}", "", "")
	do(http.MethodGet, "/v1/leases/{key}/history", "", "")
	do(http.MethodGet, "/v1/now", "", "")
	do(http.MethodGet, "/v1/examine", "", "")
	do(http.MethodPost, "/v1/sweep", "", "{}")
	rec, err := r.mem.Get(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	do(http.MethodPost, "/v1/verify", "", `{"stamp":"`+rec.Stamp().String()+`"}`)
	if _, err := signed.ParseKeys([]byte(do(http.MethodGet, "/v1/keys", "", ""))); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "sub", "out"), []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	stampOf := func(lease string) fence.Stamp {
		t.Helper()
		var said struct{ Stamp string }
		if err := json.Unmarshal([]byte(lease), &said); err != nil {
			t.Fatal(err)
		}
		stamp, err := fence.ParseStamp(said.Stamp)
		if err != nil {
			t.Fatal(err)
		}
		return stamp
	}
	former := stampOf(lease("renew", secret(5)))
	ask("/files/{path}", r.put("/files/sub%2Fout", former, "content"))
	whole := uploadOf(1, "content")
	part := func(from, to int) *http.Request {
		return (&uploadRig{rig: r}).part("/files/sub%2Fout", former, whole, "content", from, to)
	}
	ask("/files/{path}", part(0, 3))
	_, gap := r.do(part(5, 7))
	d.checkText(t, "a gap", d.Components.Schemas["Problem"], gap)
	ask("/files/{path}", part(3, 7))
	newer := stampOf(lease("takeover", secret(9)+byHand))
	act := func(more string) { t.Helper(); do(http.MethodPost, "/v1/files/{path}", "", `{`+more+`}`) }
	act(`"act":"raise","stamp":"` + newer.String() + `"`)
	_, stale := r.do(r.put("/files/sub%2Fout", former, "late"))
	act(`"act":"rekey","key":"a/c","actor":"opal","note":"why"`)
	_, wrongKey := r.do(r.put("/files/sub%2Fout", newer, "late"))
	if text := do(http.MethodGet, "/files/{path}", "", ""); text != "content" {
		t.Errorf("the file has %q", text)
	}
	do(http.MethodGet, "/v1/files/{path}", "", "")
	for code, text := range map[wire.Code]string{wire.Stale: stale, wire.WrongKey: wrongKey} {
		if p, err := wire.ReadProblem([]byte(text)); err != nil || p.Code != code || p.WorkFacts == nil || p.Newest == nil {
			t.Errorf("a refusal is not %s with the mark of the file: %s, %v", code, text, err)
		}
		d.checkText(t, string(code), d.Components.Schemas["Problem"], text)
	}
	for _, call := range r.srv.api() {
		if !answered[call.described()] {
			t.Errorf("the test has no answer to %s", call.described())
		}
	}
	far := newer
	far.Token = fence.MaxToken
	for _, c := range [][2]string{
		{"/v1/leases/a%2Fb/acquire", `{` + secret(8) + `,"owner":"bob","ttl":"1h"}`},
		{"/v1/leases/a%2Fb/renew", `{` + secret(8) + `}`},
		{"/v1/leases/a%2Fb/renew", `{}`},
		{"/v1/files/sub%2Fout", `{"act":"raise","stamp":"` + far.String() + `"}`},
		{"/v1/nothing", `{}`},
	} {
		_, body := r.post(c[0], c[1])
		d.checkText(t, c[0], d.Components.Schemas["Problem"], body)
	}
}

// examined is a store in memory that can be examined.
type examined struct{ *mem.Store }

func (examined) Examine(context.Context) ([]store.Finding, error) {
	return []store.Finding{{Check: "clock", Level: store.Warn, Seen: "late", Advice: "set it"}}, nil
}

// TestEverybodyMayReadTheDocument.
func TestEverybodyMayReadTheDocument(t *testing.T) {
	t.Parallel()
	r := newRig(t, &Options{Access: rules{}})
	if status, body := r.get("/v1/openapi.json"); status != http.StatusOK || body != string(openAPI) {
		t.Errorf("%d %.100s", status, body)
	}
}
