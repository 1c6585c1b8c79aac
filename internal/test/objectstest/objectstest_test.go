package objectstest

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/failures"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/internal/test/suite"
	"github.com/croft-dev/croft/store/cas"
	"github.com/croft-dev/croft/store/storetest"
	"github.com/croft-dev/croft/tenure"
)

// memory is a bucket in a map, and a register in it. Tests replace its function
// fields by flawed ones. Planted sends one request at a time, so it needs no
// lock.
type memory struct {
	layout  objects.Layout
	clock   *storetest.Clock
	objects map[string]Object
	tags    map[string]int

	read  func(name string, data []byte) (objects.Body, error)
	found func(name string, err error) error // changes the errors of a scan
}

func newMemory() *memory {
	m := &memory{clock: storetest.NewClock(), objects: map[string]Object{}, tags: map[string]int{}}
	m.read = m.layout.Read
	m.found = func(_ string, err error) error { return err }
	return m
}

func (m *memory) put(o Object) {
	m.objects[o.Name] = o
	m.tags[o.Name]++
}

func (m *memory) version(name string) cas.Version {
	if _, there := m.objects[name]; !there {
		return ""
	}
	return cas.Version(strconv.Itoa(m.tags[name]))
}

func (m *memory) entry(name string) (cas.Entry, error) {
	e := cas.Entry{Version: m.version(name), Now: m.clock.Now()}
	if e.Version == "" {
		return e, nil
	}
	body, err := m.read(name, m.objects[name].Data)
	if err == nil && body.Record != nil {
		e.Record = *body.Record
	}
	return e, err
}

func (m *memory) Load(_ context.Context, key string) (cas.Entry, error) {
	return m.entry(m.layout.Record(key))
}

func (m *memory) Swap(_ context.Context, old cas.Version, next tenure.Record, _ bool) error {
	name := m.layout.Record(next.Key)
	if m.version(name) != old {
		return cas.ErrConflict
	}
	data, _, err := objects.Write(next)
	m.put(Object{Name: name, Data: data})
	return err
}

func (m *memory) Drop(_ context.Context, key string, old cas.Version) error {
	if m.version(m.layout.Record(key)) != old {
		return cas.ErrConflict
	}
	delete(m.objects, m.layout.Record(key))
	return nil
}

func (m *memory) Scan(context.Context) iter.Seq2[cas.Entry, error] {
	return func(yield func(cas.Entry, error) bool) {
		var failed failures.List
		for name := range m.objects {
			if !m.layout.IsRecord(name) {
				continue
			}
			e, err := m.entry(name)
			if err = m.found(name, err); err != nil {
				failed.Add(err)
			} else if !yield(e, nil) {
				return
			}
		}
		if err := failed.Err(); err != nil {
			yield(cas.Entry{}, err)
		}
	}
}

func (m *memory) Now(context.Context) (time.Time, error) { return m.clock.Now(), nil }
func (m *memory) Close() error                           { return nil }

func (m *memory) harness() Harness {
	return Harness{
		Store: cas.New(m, &cas.Options{SweepEvery: -1}), Layout: m.layout, Advance: m.clock.Advance,
		Put: func(_ testing.TB, o Object) { m.put(o) },
		Get: func(_ testing.TB, name string) []byte {
			if o, there := m.objects[name]; there {
				return append([]byte{}, o.Data...)
			}
			return nil
		},
	}
}

func TestASoundRegisterPasses(t *testing.T) { Planted(t, newMemory().harness()) }

// TestEveryPlantIsNoticed: the register here takes every plant for a missing
// record. Planted must report each of them.
func TestEveryPlantIsNoticed(t *testing.T) {
	m := newMemory()
	m.read = func(name string, data []byte) (objects.Body, error) {
		body, err := m.layout.Read(name, data)
		if err != nil {
			return objects.Body{}, nil
		}
		return body, nil
	}
	said := strings.Join(suite.Record(t, func(tb testing.TB) { Planted(tb, m.harness()) }), "\n")
	for _, row := range plants {
		for _, want := range []string{row.what + ": acquire", row.what + ": takeover", row.what + ": get", row.what + ": it was changed"} {
			if !strings.Contains(said, want) {
				t.Errorf("nothing is said of %q:\n%s", want, said)
			}
		}
	}
}

// TestFlawedRegistersAreCaught: each has one flaw.
func TestFlawedRegistersAreCaught(t *testing.T) {
	for what, c := range map[string]struct {
		flaw func(*memory)
		want string
	}{
		"believes a record about another key": {func(m *memory) { m.read = objects.Read }, "another's deletion: acquire"},
		"repeats what was planted": {func(m *memory) {
			m.read = func(name string, data []byte) (objects.Body, error) {
				body, err := m.layout.Read(name, data)
				if err != nil {
					err = errors.Join(err, errors.New(string(data)))
				}
				return body, err
			}
		}, "deep: acquire"},
		"names no object": {func(m *memory) {
			m.read = func(name string, data []byte) (objects.Body, error) {
				body, err := m.layout.Read(name, data)
				if errors.Is(err, cas.ErrDamaged) {
					err = cas.ErrDamaged
				}
				return body, err
			}
		}, "nothing: acquire"},
		"hides damage in listings": {func(m *memory) {
			m.found = func(string, error) error { return nil }
		}, `under ""`},
		"removes what is damaged": {func(m *memory) {
			m.found = func(name string, err error) error {
				if errors.Is(err, cas.ErrDamaged) {
					delete(m.objects, name)
				}
				return err
			}
		}, "nothing: it was changed"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMemory()
			c.flaw(m)
			said := strings.Join(suite.Record(t, func(tb testing.TB) { Planted(tb, m.harness()) }), "\n")
			if !strings.Contains(said, c.want) {
				t.Errorf("said:\n%s\nwant %q", said, c.want)
			}
		})
	}
}

func TestAFollowedRedirectIsNoticed(t *testing.T) {
	for what, c := range map[string]struct {
		client http.Client
		caught int
	}{
		"follows":       {http.Client{}, 5},
		"does not":      {http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, 0},
		"sends nothing": {http.Client{Transport: http.NewFileTransport(http.Dir(t.TempDir()))}, 5},
	} {
		said := suite.Record(t, func(tb testing.TB) {
			Redirects(tb, func(_ int, endpoint string) {
				resp, err := c.client.Get(endpoint)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			})
		})
		if len(said) != c.caught {
			t.Errorf("a client that %s: %q", what, said)
		}
	}
}
