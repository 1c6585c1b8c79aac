package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
	"github.com/croft-dev/croft/internal/objects"
	"github.com/croft-dev/croft/store"
)

// manifest is the commit point of a guarded object. A write is made when its
// manifest replaces the old one, on condition that the old one has not changed
// since it was read.
type manifest struct {
	Format int `json:"croft"`
	// Nonce is new in every write, so that no ETag comes back.
	Nonce   string         `json:"nonce"`
	Mark    fence.Mark     `json:"mark"`
	Payload *payload       `json:"payload,omitempty"` // nil before the first guarded write
	Writes  uint64         `json:"writes,omitempty"`  // admitted so far
	Changed time.Time      `json:"changed,omitzero"`  // by the writer's clock
	Rekeyed *guard.Rekeyed `json:"rekeyed,omitempty"`
}

// payload is the content: an object that is never changed.
type payload struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ErrManifestDamaged is matched by the error about a manifest that no guard has
// written. The guard then admits nothing.
var ErrManifestDamaged = errors.New("the manifest is damaged")

// seen is a manifest as it was read. Its tag is empty if there is none yet.
type seen struct {
	manifest
	tag  string
	date time.Time
}

func (g *Guard) read(ctx context.Context) (seen, error) {
	o, err := g.get(ctx, g.manifestName())
	if errors.Is(err, errAbsent) {
		return seen{date: o.date}, nil
	}
	if err != nil {
		return seen{}, err
	}
	s := seen{tag: o.tag, date: o.date}
	damaged := func(why string) (seen, error) {
		return seen{}, fmt.Errorf("%w: %s: %s; once no old writer lives, delete it and raise the fence"+
			" with the present owner's stamp", ErrManifestDamaged, g.manifestName(), why)
	}
	if len(o.data) > objects.MaxBody {
		return damaged("it is larger than any manifest")
	}
	switch err := json.Unmarshal(o.data, &s.manifest); {
	case err != nil:
		return damaged(fmt.Sprintf("it cannot be read: %.200s", err))
	case s.Format < 1 || s.Nonce == "":
		return damaged("no guard has written it")
	case s.Format > objects.Format:
		return seen{}, fmt.Errorf("%s has format %d, this version knows %d: a newer version of Croft writes there;"+
			" upgrade this one", g.manifestName(), s.Format, objects.Format)
	case s.Mark.Check() != nil:
		return damaged("it holds an impossible mark")
	case s.Payload != nil && !g.owns(s.Payload):
		// Writers delete the payload that they replace, and copy the payload
		// that they find.
		return damaged(fmt.Sprintf("it names %.200q, which is no payload of this object", s.Payload.Name))
	}
	return s, nil
}

// owns reports whether writers of this guard could have made a payload. A
// stranger may have written the manifest.
func (g *Guard) owns(p *payload) bool {
	name, ok := strings.CutPrefix(p.Name, g.key+payloadFolder)
	return ok && name != "" && !strings.Contains(name, "/") && len(p.SHA256) == 64 && p.Size >= 0
}

// replace commits a manifest in place of old.
func (g *Guard) replace(ctx context.Context, old seen, next manifest) (seen, error) {
	next.Format, next.Nonce, next.Changed = objects.Format, objects.NewNonce(), time.Now().UTC()
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return seen{}, err
	}
	tag, err := g.swap(ctx, g.manifestName(), old.tag, append(data, '\n'))
	if err != nil {
		return seen{}, err
	}
	return seen{manifest: next, tag: tag}, nil
}

// change changes the manifest without new content. It writes nothing if to
// changes nothing.
func (g *Guard) change(ctx context.Context, to func(seen) (manifest, error)) (fence.Mark, error) {
	for {
		if ctx.Err() != nil {
			return fence.Mark{}, store.Unknown(context.Cause(ctx))
		}
		now, err := g.read(ctx)
		if err != nil {
			return fence.Mark{}, unknown(err)
		}
		next, err := to(now)
		if err != nil {
			return now.Mark, err
		}
		if next == now.manifest {
			return now.Mark, nil
		}
		if _, err := g.replace(ctx, now, next); err == nil {
			return next.Mark, nil
		} else if !errors.Is(err, errOvertaken) {
			return fence.Mark{}, unknown(err)
		}
	}
}
