package mcp

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/croft-dev/croft/internal/admission"
)

// These bound the answers that are kept.
const (
	mostAnswers     = 4096
	mostAnswerBytes = 64 << 20 // of all of them
	longestAnswer   = 1 << 20  // a longer one is not kept
)

// answers keeps the answers of calls, so that a call that is made again is not
// carried out again. The oldest make room for new ones.
type answers struct {
	mu    sync.Mutex
	kept  map[fingerprint][]byte // encoded results
	order []fingerprint
	size  int
	most  int // bytes of all of them
}

func newAnswers(most int) *answers { return &answers{kept: map[fingerprint][]byte{}, most: most} }

// fingerprint stands for a call under a stamp.
type fingerprint [sha256.Size]byte

// fingerprintOf returns the fingerprint of a call. The order of its members
// does not count, nor does its _meta, which is another each time.
func fingerprintOf(w admission.Write, m message) fingerprint {
	s := w.Stamp
	s.Signature = ""
	call := m.params.without(func(name string) bool { return name == "_meta" })
	return sha256.Sum256(encode(list{s.String(), w.Resource, m.method, ordered(call)}))
}

// ordered returns a value with the members of its objects in the order of their
// names.
func ordered(value any) any {
	switch v := value.(type) {
	case object:
		o := make(object, len(v))
		for i, m := range v {
			o[i] = member{m.name, ordered(m.value)}
		}
		slices.SortFunc(o, func(a, b member) int { return strings.Compare(a.name, b.name) })
		return o
	case list:
		l := make(list, len(v))
		for i, each := range v {
			l[i] = ordered(each)
		}
		return l
	}
	return value
}

// put keeps the result of a call. It does not keep a failure, after which the
// agent may try again, nor a result that asks for another round.
func (a *answers) put(call fingerprint, result object) {
	failed, _ := result.get("isError")
	kind := result.text("resultType")
	if result == nil || failed == true || kind != "" && kind != "complete" || isTask(result) {
		return
	}
	text := encode(result)
	if len(text) > longestAnswer {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept[call] != nil {
		return
	}
	a.kept[call] = text
	a.order = append(a.order, call)
	for a.size += len(text); len(a.order) > mostAnswers || a.size > a.most; a.order = a.order[1:] {
		a.size -= len(a.kept[a.order[0]])
		delete(a.kept, a.order[0])
	}
}

// answer returns the answer to a call that was answered before, and says in its
// _meta that it is one.
func (a *answers) answer(call fingerprint, to message) (message, bool) {
	a.mu.Lock()
	text := a.kept[call]
	a.mu.Unlock()
	if text == nil {
		return message{}, false
	}
	value, _ := parse(text) // it was written by encode
	result, _ := value.(object)
	result = result.with("_meta", result.object("_meta").with("croft/answered", "before"))
	id, _ := to.body.get("id")
	return message{id: to.id, body: object{{"jsonrpc", "2.0"}, {"id", id}, {"result", result}}}, true
}
