package redis

import (
	"slices"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/store"
	"github.com/croft-dev/croft/tenure"
)

// chunkSize is how many requests one script carries out at most. While it runs,
// Redis serves nobody else.
const chunkSize = 256

// chunk holds the requests of one script. All belong to one namespace.
type chunk struct {
	namespace string
	indexes   []int // of the requests in their batch
	wave      int
}

// split divides a batch into waves of chunks, and answers bad requests. No key
// is in two chunks of one wave, so requests on one key are carried out in their
// order, even if a chunk fails.
func split(requests []tenure.Request, answers []store.Answer) [][]*chunk {
	if c := single(requests); c != nil {
		c.indexes = slices.DeleteFunc(c.indexes, func(i int) bool { return invalid(&requests[i], &answers[i]) })
		if len(c.indexes) == 0 {
			return nil
		}
		return [][]*chunk{{c}}
	}
	open := map[string]*chunk{}   // by namespace
	chunks := map[string]*chunk{} // by key
	var all []*chunk
	last := -1
	for i := range requests {
		if invalid(&requests[i], &answers[i]) {
			continue
		}
		key := requests[i].Key
		namespace := fence.Namespace(key)
		c := open[namespace]
		if c == nil || len(c.indexes) == chunkSize {
			c = &chunk{namespace: namespace}
			open[namespace] = c
			all = append(all, c)
		}
		if before := chunks[key]; before != nil && before != c {
			c.wave = max(c.wave, before.wave+1)
		}
		c.indexes = append(c.indexes, i)
		chunks[key] = c
		last = max(last, c.wave)
	}
	waves := make([][]*chunk, last+1)
	for _, c := range all {
		waves[c.wave] = append(waves[c.wave], c)
	}
	return waves
}

// single returns the batch as one chunk, or nil if it needs more than one. Most
// batches need one.
func single(requests []tenure.Request) *chunk {
	if len(requests) == 0 || len(requests) > chunkSize {
		return nil
	}
	c := &chunk{namespace: fence.Namespace(requests[0].Key), indexes: make([]int, len(requests))}
	for i := range requests {
		if c.indexes[i] = i; fence.Namespace(requests[i].Key) != c.namespace {
			return nil
		}
	}
	return c
}

// invalid reports whether a request is bad input, and sets its answer if so.
func invalid(req *tenure.Request, a *store.Answer) bool {
	a.Err = req.Check()
	return a.Err != nil
}
