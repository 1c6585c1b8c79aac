package gcs

import (
	"context"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/guard"
)

var _ guard.Host = (*Store)(nil)

// Guard opens the guard of an object in the store's own bucket: see
// [guard.Host].
func (s *Store) Guard(_ context.Context, target string) (guard.Guard, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "gs" || u.Fragment != "" {
		return nil, guard.ErrElsewhere
	}
	endpoint, err := endpointOf(u.Query().Get("endpoint"))
	if err != nil || endpoint+"/"+u.Host != s.reg.address {
		return nil, guard.ErrElsewhere
	}
	object := strings.TrimPrefix(u.Path, "/")
	if err := checkObject(object); err != nil {
		return nil, err
	}
	return &Guard{bucket: s.reg.bucket, object: object, target: target, inMemory: defaultInMemory, chunk: chunk}, nil
}
