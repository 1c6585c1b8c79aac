package file

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/croft-dev/croft/internal/mount"
	"github.com/croft-dev/croft/store"
)

// Examine tells which guard the file has and why: `croft doctor` prints it. On
// a network mount it tries whether link(2) is as it must be, and leaves nothing
// behind.
func (f *File) Examine(ctx context.Context) ([]store.Finding, error) {
	v, err := f.visit()
	if err != nil {
		return nil, err
	}
	defer v.leave()
	m, err := mount.Of(f.folder)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, fmt.Errorf("guard %s: %w", f.path, err)
	}
	c, err := v.chain()
	if err != nil {
		return []store.Finding{finding("guard", store.Bad, "repair what is named", "%v", err)}, nil
	}
	folder := filepath.Base(f.sidecar) + chainSuffix
	switch {
	case c != nil && f.remote:
		return append(v.examineLinks(), c.examine(ctx, fmt.Sprintf(
			"a chain of versions in %s, because the file lies on a network or FUSE mount (%s)",
			folder, m.Name))...), nil
	case c != nil:
		return c.examine(ctx, fmt.Sprintf(
			"a chain of versions in %s, because other machines write the file over a network mount", folder)), nil
	case f.remote:
		links := v.examineLinks()
		if links[0].Level != store.OK {
			return append(links, v.withoutLinks(m)), nil
		}
		return append(links, finding("guard", store.OK, "",
			"a chain of versions in %s, from the first write on, because the file lies on a network or FUSE mount (%s)",
			folder, m.Name)), nil
	}
	return []store.Finding{finding("guard", store.OK, "",
		"a lock and the sidecar %s, because the file lies on a local disk (%s)", filepath.Base(f.sidecar), m.Name)}, nil
}

// withoutLinks tells what guards a file on a network mount without links.
func (v *visit) withoutLinks(m mount.Mount) store.Finding {
	if v.options.AllowNetwork {
		return finding("guard", store.Warn, "guard it on a mount whose server has hard links",
			"a lock and the sidecar %s, by network=allow: a second writer is noticed, not prevented (%s)",
			filepath.Base(v.sidecar), m.Name)
	}
	return finding("guard", store.Bad,
		"guard it on a mount whose server has hard links, in a database or in object storage",
		"none: writes are refused on this network or FUSE mount (%s)", m.Name)
}

// examineLinks tries whether a second link to one name is refused.
func (v *visit) examineLinks() []store.Finding {
	trial := &chain{v, v.newStageName()}
	err := trial.furnish()
	trial.clear()
	if err != nil {
		return []store.Finding{finding("link", store.Bad, "choose a mount whose server has hard links", "%v", err)}
	}
	return []store.Finding{finding("link", store.OK, "", "a second link to one name is refused, as it must be")}
}

// examine tells of a chain: its newest version, and the copy for readers.
func (c *chain) examine(ctx context.Context, why string) []store.Finding {
	newest, err := c.state(ctx)
	if err != nil {
		return []store.Finding{finding("guard", store.Bad, "repair what is named", "%v", err)}
	}
	findings := []store.Finding{
		finding("guard", store.OK, "", "%s", why),
		finding("version", store.OK, "", "%d, of %s", newest.Number, slotTime(newest.Changed)),
	}
	switch {
	case newest.Content == nil:
	case c.isPlain(newest):
		findings = append(findings, finding("copy", store.OK, "", "the file is what was committed"))
	default:
		findings = append(findings, finding("copy", store.Warn,
			"croft guard show repairs it; croft read gives what was committed",
			"the file is not what was committed: a writer was stopped in the middle, "+
				"or another program has written it"))
	}
	return findings
}

func finding(check string, level store.Level, advice, format string, args ...any) store.Finding {
	return store.Finding{Check: check, Level: level, Seen: fmt.Sprintf(format, args...), Advice: advice}
}
