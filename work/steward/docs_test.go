package steward

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/croft-dev/croft/internal/test/testenv"
)

// trial is a request for a verifier to judge.
type trial struct {
	Name    string            `json:"name"`
	Secret  string            `json:"secret"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"` // in hex
	Good    bool              `json:"good"`
}

// trials returns one valid request, one under two secrets, and changed ones.
func trials() (all []trial) {
	secret := strings.Repeat("secret of tests ", 3)
	try := func(name string, good bool, signedWith string, at time.Time, change func(*trial)) {
		h := http.Header{}
		for i, name := range signed {
			h.Set(name, "value-"+strconv.Itoa(i))
		}
		h.Set(HeaderTime, strconv.FormatInt(at.Unix(), 10))
		body := []byte(" x\n{\"name\": \"J\xc3\xb6rg\"}\r\n\x00\xff")
		one := trial{Name: name, Secret: signedWith, URL: "https://billing.example/hook?a=b", Headers: map[string]string{}, Body: hex.EncodeToString(body), Good: good}
		h.Set(HeaderSignature, "v2=00, "+Sign([]byte(signedWith), one.URL, h, body))
		for name := range h {
			one.Headers[name] = h.Get(name)
		}
		if change != nil {
			change(&one)
		}
		all = append(all, one)
	}
	now := time.Now()
	try("good", true, secret, now, nil)
	try("another secret", false, secret, now, func(t *trial) { t.Secret = strings.ToUpper(t.Secret) })
	try("an empty secret", false, "", now, nil)
	try("a short secret", false, secret[:31], now, nil)
	try("another receiver", false, secret, now, func(t *trial) { t.URL = "https://shop.example/hook?a=b" })
	try("another body", false, secret, now, func(t *trial) { t.Body += "00" })
	try("a line moved from the body to a header", false, secret, now, func(t *trial) {
		body, _ := hex.DecodeString(t.Body)
		line, rest, _ := bytes.Cut(body, []byte("\n"))
		t.Headers[HeaderAttempt] += "\n" + string(line)
		t.Body = hex.EncodeToString(rest)
	})
	try("no signature", false, secret, now, func(t *trial) { delete(t.Headers, HeaderSignature) })
	try("another version", false, secret, now, func(t *trial) {
		t.Headers[HeaderSignature] = strings.ReplaceAll(t.Headers[HeaderSignature], "v2=", "v3=")
	})
	try("an old copy", false, secret, now.Add(-time.Hour), nil)
	try("from the future", false, secret, now.Add(time.Hour), nil)
	for _, header := range signed {
		try("another "+header, false, secret, now, func(t *trial) { t.Headers[header] += "0" })
		try("no "+header, false, secret, now, func(t *trial) { delete(t.Headers, header) })
	}
	return all
}

// example returns the code in docs/webhooks.md in a language.
func example(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
	if m == nil {
		t.Fatalf("docs/webhooks.md has no example in %s", language)
	}
	return string(m[1])
}

// TestTheVerifiersOfTheDocumentationAgree: each verifier accepts the valid
// request and no other.
func TestTheVerifiersOfTheDocumentationAgree(t *testing.T) {
	t.Parallel()
	list, err := json.Marshal(trials())
	if err != nil {
		t.Fatal(err)
	}
	judge := func(t *testing.T, program, debianPackage, file, text string) {
		path := testenv.Program(t, program, debianPackage)
		dir := t.TempDir()
		for name, data := range map[string]string{file: text, "trials.json": string(list)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), path, file)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", program, err, out)
		}
		if got := strings.Fields(string(out)); len(got) != len(trials()) {
			t.Fatalf("%s judged %d of %d requests: %s", program, len(got), len(trials()), out)
		} else {
			for i, one := range trials() {
				if (got[i] == "good") != one.Good {
					t.Errorf("%s says of %q: %s", program, one.Name, got[i])
				}
			}
		}
	}
	t.Run("go", func(t *testing.T) {
		for _, one := range trials() {
			h := http.Header{}
			for name, value := range one.Headers {
				h.Set(name, value)
			}
			body, _ := hex.DecodeString(one.Body)
			if err := Verify([]byte(one.Secret), one.URL, h, body, time.Now(), 5*time.Minute); (err == nil) != one.Good {
				t.Errorf("Verify says of %q: %v", one.Name, err)
			}
		}
	})
	t.Run("python", func(t *testing.T) {
		judge(t, "python3", "python3", "verify.py", example(t, "python")+`

import json

for t in json.load(open("trials.json")):
    try:
        verify(t["secret"].encode(), t["url"], t["headers"], bytes.fromhex(t["body"]))
        print("good")
    except ValueError:
        print("bad")
`)
	})
	t.Run("typescript", func(t *testing.T) {
		// Some versions of node in use do not understand types. In this code
		// they stand only after parameters.
		text := regexp.MustCompile(`: (string|Headers|Buffer)\b`).ReplaceAllString(example(t, "typescript"), "")
		judge(t, "node", "nodejs", "verify.mjs", text+`
import { readFileSync } from "node:fs";
for (const t of JSON.parse(readFileSync("trials.json", "utf8"))) {
  try {
    verify(t.secret, t.url, new Headers(t.headers), Buffer.from(t.body, "hex"));
    console.log("good");
  } catch {
    console.log("bad");
  }
}
`)
	})
}
