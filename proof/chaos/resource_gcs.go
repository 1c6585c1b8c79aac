package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/croft-dev/croft/backend/gcs"
	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/guard"
)

// gcsResource is an object. site is the URL of its bucket: the endpoint with
// the bucket's name as the path.
type gcsResource struct {
	endpoint, bucket, object string
	g                        *gcs.Guard
}

func openBlob(ctx context.Context, site, key string) (resource, error) {
	u, err := url.Parse(site)
	if err != nil {
		return nil, err
	}
	p := &gcsResource{endpoint: "http://" + u.Host, bucket: strings.Trim(u.Path, "/"), object: "resource/" + key}
	p.g, err = gcs.OpenGuard(ctx, p.bucket, p.object, &gcs.GuardOptions{
		Connection: gcs.Connection{Endpoint: p.endpoint}, SkipProbe: true,
	})
	return p, err
}

func (p *gcsResource) guard() guard.Guard { return p.g }

func (p *gcsResource) read(ctx context.Context) (string, error) {
	status, text, err := p.ask(
		ctx, http.MethodGet, "/storage/v1/b/"+p.bucket+"/o/"+url.PathEscape(p.object)+"?alt=media",
		"",
	)
	if status == http.StatusNotFound {
		return "", nil
	}
	return text, err
}

func (p *gcsResource) write(ctx context.Context, stamp fence.Stamp, update string) error {
	_, err := p.g.Write(ctx, stamp, strings.NewReader(update))
	return err
}

func (p *gcsResource) bare(ctx context.Context, update string) error {
	_, _, err := p.ask(
		ctx, http.MethodPost,
		"/upload/storage/v1/b/"+p.bucket+"/o?"+url.Values{"uploadType": {"media"}, "name": {p.object}}.Encode(),
		update,
	)
	return err
}

func (p *gcsResource) ask(ctx context.Context, method, path, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.endpoint+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp.StatusCode, string(text), err
}

func (p *gcsResource) applied(context.Context) ([]string, bool, error) { return nil, false, nil }

func (p *gcsResource) close() { _ = p.g.Close() }
