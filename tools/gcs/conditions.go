package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// conditions is a front that handles one request at a time, under mu. It
// evaluates preconditions on the object's generation and metageneration. It
// also counts metagenerations, which fake-gcs-server does not: a new generation
// begins at 1, and every change of metadata adds one.
type conditions struct {
	behind http.Handler

	mu       sync.Mutex
	objects  map[string]version    // by bucket/name
	sessions map[string]url.Values // queries that began resumable uploads, by upload id
	save     func(o operation)     // keeps the change of an operation before its answer
}

type version struct{ generation, metageneration int64 }

func newConditions(behind http.Handler) *conditions {
	return &conditions{
		behind: behind, objects: map[string]version{}, sessions: map[string]url.Values{},
		save: func(operation) {},
	}
}

// keep starts with the kept objects, and keeps all changes from now on.
func (c *conditions) keep(fake *fakestorage.Server, k keeper, objects []kept) {
	for _, o := range objects {
		c.objects[o.Attrs.BucketName+"/"+o.Attrs.Name] = version{o.Attrs.Generation, o.Metageneration}
	}
	c.save = func(o operation) {
		bucket, name, _ := strings.Cut(o.key, "/")
		var err error
		switch {
		case o.makes:
			err = k.makeBucket(bucket)
		case o.deletes:
			err = k.remove(bucket, name)
		case o.changes:
			var object fakestorage.Object
			if object, err = fake.GetObject(bucket, name); err == nil {
				err = k.put(kept{object.ObjectAttrs, object.Content, c.objects[o.key].metageneration})
			}
		}
		if err != nil { // a change that is not kept must not be answered
			fmt.Fprintln(os.Stderr, "gcs: keeping", o.key+":", err)
			os.Exit(1)
		}
	}
}

func (c *conditions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // before the lock, so that a slow sender delays nobody
	if err != nil {
		return
	}
	answer := c.one(r, body)
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (c *conditions) one(r *http.Request, body []byte) *httptest.ResponseRecorder {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := read(r, body)
	query := r.URL.Query()
	id := query.Get("upload_id")
	if began, ok := c.sessions[id]; ok {
		query = began
	}
	if o.changes && !c.hold(query, o.key) {
		return refuse(
			http.StatusPreconditionFailed, "conditionNotMet",
			"At least one of the pre-conditions you specified did not hold.",
		)
	}
	answer := c.pass(r, body)
	if answer.Code >= 300 {
		return answer
	}
	switch {
	case o.begins:
		if location, err := url.Parse(answer.Header().Get("Location")); err == nil {
			c.sessions[location.Query().Get("upload_id")] = r.URL.Query()
		}
	case o.deletes:
		delete(c.objects, o.key)
	case o.patches:
		v := c.objects[o.key]
		v.metageneration++
		c.objects[o.key] = v
		// The fake's answer is not the object, so read the object.
		get := r.Clone(r.Context())
		get.Method = http.MethodGet
		answer = c.pass(get, nil)
	case o.changes:
		delete(c.sessions, id)
	}
	if r.URL.Query().Get("alt") != "media" { // media is content, without metadata
		answer = c.number(answer, o)
	}
	c.save(o)
	return answer
}

func (c *conditions) pass(r *http.Request, body []byte) *httptest.ResponseRecorder {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer := httptest.NewRecorder()
	c.behind.ServeHTTP(answer, r)
	return answer
}

// hold reports whether the preconditions hold. An absent object has generation
// 0 and metageneration 0.
func (c *conditions) hold(query url.Values, key string) bool {
	v := c.objects[key]
	for name, have := range map[string]int64{
		"ifGenerationMatch": v.generation, "ifMetagenerationMatch": v.metageneration,
	} {
		if text := query.Get(name); text != "" {
			if want, err := strconv.ParseInt(text, 10, 64); err != nil || want != have {
				return false
			}
		}
	}
	return true
}

// number puts metagenerations into an answer, and learns the generation of a
// written object.
func (c *conditions) number(answer *httptest.ResponseRecorder, o operation) *httptest.ResponseRecorder {
	var data map[string]any
	if json.Unmarshal(answer.Body.Bytes(), &data) != nil {
		return answer
	}
	objects := []map[string]any{data}
	if resource, ok := data["resource"].(map[string]any); ok {
		objects = append(objects, resource)
	}
	if items, ok := data["items"].([]any); ok {
		for _, item := range items {
			if object, ok := item.(map[string]any); ok {
				objects = append(objects, object)
			}
		}
	}
	for _, object := range objects {
		bucket, _ := object["bucket"].(string)
		name, _ := object["name"].(string)
		text, _ := object["generation"].(string)
		generation, err := strconv.ParseInt(text, 10, 64)
		if err != nil || bucket == "" {
			continue
		}
		key := bucket + "/" + name
		if o.changes && !o.patches && key == o.key {
			c.objects[key] = version{generation, 1}
		}
		if v := c.objects[key]; v.generation == generation {
			object["metageneration"] = strconv.FormatInt(v.metageneration, 10)
		}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return answer
	}
	answer.Body = bytes.NewBuffer(text)
	answer.Header().Del("Content-Length")
	return answer
}

func refuse(status int, reason, message string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	answer.WriteHeader(status)
	_ = json.NewEncoder(answer).Encode(map[string]any{"error": map[string]any{
		"code": status, "message": message,
		"errors": []map[string]string{{"domain": "global", "reason": reason, "message": message}},
	}})
	return answer
}

// operation says what a request does, and to which object.
type operation struct {
	key     string
	changes bool // it changes the object now, if its conditions hold
	begins  bool // it begins a resumable upload, which changes the object at its end
	patches bool
	deletes bool
	makes   bool // it makes a bucket
}

func read(r *http.Request, body []byte) operation {
	path := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	at := func(i int) string {
		if i >= len(path) {
			return ""
		}
		text, _ := url.PathUnescape(path[i])
		return text
	}
	query := r.URL.Query()
	if at(0) == "upload" { // upload/storage/v1/b/BUCKET/o
		name := query.Get("name")
		if name == "" {
			name = named(body)
		}
		o := operation{key: at(4) + "/" + name}
		switch {
		case query.Get("uploadType") != "resumable":
			o.changes = true
		case !query.Has("upload_id"):
			o.begins = true
		default:
			o.changes = final(r.Header.Get("Content-Range"))
		}
		return o
	}
	// storage/v1/b/BUCKET/o/NAME, perhaps with more after it
	o := operation{key: at(3) + "/" + at(5)}
	switch {
	case len(path) == 3 && at(2) == "b" && r.Method == http.MethodPost:
		o.key, o.makes = named(body)+"/", true
	case len(path) < 6:
	case at(6) == "rewriteTo" || at(6) == "copyTo":
		o.key, o.changes = at(8)+"/"+at(10), true
	case at(6) == "compose":
		o.changes = true
	case r.Method == http.MethodPatch || r.Method == http.MethodPut:
		o.changes, o.patches = true, true
	case r.Method == http.MethodDelete:
		o.changes, o.deletes = true, true
	}
	return o
}

// named returns the name in the JSON metadata at the beginning of a body.
func named(body []byte) string {
	start := bytes.IndexByte(body, '{')
	if start < 0 {
		return ""
	}
	var object struct{ Name string }
	_ = json.NewDecoder(bytes.NewReader(body[start:])).Decode(&object)
	return object.Name
}

// final reports whether a chunk is the last of its upload. Its range has the
// total length then.
func final(contentRange string) bool {
	_, total, ranged := strings.Cut(contentRange, "/")
	if !ranged || total == "*" {
		return !ranged
	}
	_, last, ok := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(contentRange, "/"+total), "bytes "), "-")
	if !ok {
		return true // bytes */N
	}
	end, err := strconv.ParseInt(last, 10, 64)
	whole, err2 := strconv.ParseInt(total, 10, 64)
	return err == nil && err2 == nil && end+1 >= whole
}
