package httpfence

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/croft-dev/croft/fence"
	"github.com/croft-dev/croft/internal/admission"
)

// TestRulesNameTheResource: rules decide which requests are writes, to which
// resource, and under which key.
func TestRulesNameTheResource(t *testing.T) {
	o := Options{Reads: []string{"GET", "HEAD", "OPTIONS", "TRACE"}}
	for _, text := range []string{
		"GET,POST /jobs/{id}/run as jobs/{id}", "/orders/{id} for shop/{id}", "/orders/{id}/{rest...} as orders/{id}", "PUT /once", "/",
	} {
		o.Rules = append(o.Rules, rule(t, text))
	}
	o.Exempt = []Rule{rule(t, "POST /orders/search"), rule(t, "/open/{x...}")}
	for request, want := range map[string]string{
		"PUT /orders/42":            "orders/42 shop/42",
		"PUT /orders/42?x=1":        "orders/42 shop/42",
		"PURGE /orders/42":          "orders/42 shop/42",
		"DELETE /orders/%34%32":     "orders/42 shop/42",
		"PUT /orders/a%20b":         "orders/a b shop/a b",
		"GET /orders/42":            "",
		"HEAD /orders/42":           "",
		"POST /orders/42/lines/7":   "orders/42",
		"POST /orders/42/":          "refused",
		"PUT /Orders/42":            "refused",
		"PUT /orders":               "refused",
		"POST /orders/search":       "",
		"PUT /orders/search":        "orders/search shop/search",
		"DELETE /open/a/b":          "",
		"PUT /once":                 "once",
		"POST /once":                "refused",
		"GET /once":                 "",
		"POST /jobs/7/run":          "jobs/7",
		"GET /jobs/7/run":           "jobs/7",
		"HEAD /jobs/7/run":          "jobs/7",
		"OPTIONS /jobs/7/run":       "",
		"PUT /jobs/7/run":           "refused",
		"POST /":                    "root",
		"PUT /nowhere":              "refused",
		"GET /nowhere":              "",
		"GET /a//b":                 "invalid", // a rule makes GET a write, so this path must be certain
		"HEAD /a//b":                "invalid", // services answer HEAD as they answer GET
		"OPTIONS /a//b":             "",
		"PUT /orders//42":           "invalid",
		"PUT /orders/./42":          "invalid",
		"PUT /x/../orders/42":       "invalid",
		"PUT /x/%2e%2e/orders/42":   "invalid",
		"PUT /orders/4%2F2":         "invalid",
		"PUT /orders/4%5C2":         "invalid",
		"PUT /orders/42;v=1":        "invalid",
		"PUT /orders/%00":           "invalid",
		"PUT /orders/%FF":           "invalid",
		"POST /open/../orders/42":   "invalid",
		"GET! /orders/42":           "invalid", // it may not be a GET of this path
		"POST! /orders/search":      "invalid",
		"POST! /open/a":             "invalid",
		"PUT /orders/4%252e2":       "invalid", // encoded twice
		"PUT /orders/%252e%252e":    "invalid",
		"PUT /orders/4%c0%ae2":      "invalid", // a dot that is not UTF-8
		"PUT /orders/4%002":         "invalid",
		"PUT /orders/100%25":        "orders/100% shop/100%",
		"PUT /orders/" + longest(t): "invalid",
	} {
		method, path, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(strings.TrimSuffix(method, "!"), path, nil)
		if strings.HasSuffix(method, "!") {
			r.Header["x_http_method.override"] = []string{"PUT"}
		}
		to, err := o.classify(r)
		got := strings.TrimSpace(to.resource + " " + to.key)
		var known *admission.Refusal
		switch {
		case errors.As(err, &known) && known.Status == http.StatusForbidden:
			got = "refused"
		case errors.Is(err, fence.ErrInvalid):
			got = "invalid"
		case err != nil:
			t.Errorf("%s: %v", request, err)
		}
		if got != want {
			t.Errorf("%s: %q (%v), want %q", request, got, err, want)
		}
	}
}

func longest(testing.TB) string { return strings.Repeat("x", fence.MaxKey) }

// TestBadRulesSayWhatIsWrong: a rule that does not mean what its author meant
// would be a hole in the fence.
func TestBadRulesSayWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "no pattern",
		"PUT":                        "no pattern",
		"orders/{id}":                "no pattern",
		"put /orders":                "is no method",
		"PUT,/orders /x":             "is no method",
		"/orders/{id":                "a whole segment",
		"/orders/x{id}":              "a whole segment",
		"/orders/{}":                 "no name",
		"/orders/{a}/{a}":            "twice",
		"/{rest...}/x":               "last segment",
		"/a//b":                      "empty segment",
		"/orders/{id} as":            `"as" is not understood`,
		"/orders/{id} to x":          `"to" is not understood`,
		"/orders/{id} as x as y":     `"as" is not understood`,
		"/orders/{id} as o/{other}":  "{other} is not in the pattern",
		"/orders/{id} as o/{id":      "is not in the pattern",
		"/orders/{id} as o//x":       "empty segment",
		"/orders/{id} for ../x":      `may not be ".."`,
		"/orders/{id} as o for k //": "not understood",
	} {
		if r, err := ParseRule(text); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want it to say %q", text, r, err, want)
		}
	}
	for _, text := range []string{"/orders/{id} as orders/{id}", "GET,POST /x/{rest...} as x for jobs/x"} {
		if got := rule(t, text).String(); got != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
}

// FuzzClassify: for no path do two spellings of one resource get two names, and
// no write is taken for a read.
func FuzzClassify(f *testing.F) {
	for _, path := range []string{"/orders/42", "/orders/%34%32", "/orders/../x", "//orders/42", "/orders/4%2f2", "/%6frders/42"} {
		f.Add(path)
	}
	rules := []Rule{{Pattern: "/orders/{id}"}, {Pattern: "/{path...}"}}
	for i := range rules {
		if err := rules[i].prepare(""); err != nil {
			f.Fatal(err)
		}
	}
	o := Options{Rules: rules, Reads: []string{"GET"}}
	f.Fuzz(func(t *testing.T, path string) {
		r, err := http.NewRequest(http.MethodPut, "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := r.URL.Parse("http://h" + path); err == nil && u.Host == "h" {
			r.URL = u
		} else {
			return
		}
		to, err := o.classify(r)
		if err != nil {
			return
		}
		if to.resource == "" {
			t.Fatalf("%q: a write was taken for a read", path)
		}
		if want := strings.TrimPrefix(r.URL.Path, "/"); to.resource != want {
			t.Errorf("%q names %q, want the plain path %q", path, to.resource, want)
		}
	})
}
