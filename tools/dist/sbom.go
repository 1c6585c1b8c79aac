package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// sbom is a list of parts in the form of CycloneDX 1.5. It has no time and no
// serial number, so that the same binary always gives the same bytes.
type sbom struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

// component is the binary itself, a Go module, or Go's standard library.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// readSBOM lists the parts of a Go binary, from the build information in it.
// The version is that of the release; the binary has it only as a string.
func readSBOM(binary, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum, err := sumFile(binary)
	if err != nil {
		return nil, err
	}
	bill, err := list(info, version, sum)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(bill); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// workspace is the version that the go command writes for modules of go.work.
// They are Croft's own: all have the version of the release, and none has a
// hash.
const workspace = "(devel)"

// list turns build information into an SBOM.
func list(info *debug.BuildInfo, version, sum string) (*sbom, error) {
	whole := library(info.Main.Path, version)
	whole.Type = "application"
	whole.Hashes = []hash{{"SHA-256", sum}}
	for _, s := range info.Settings {
		whole.Properties = append(whole.Properties, property{"go:build:" + s.Key, s.Value})
	}

	std := library("std", strings.TrimPrefix(info.GoVersion, "go"))
	bill := &sbom{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:   metadata{Component: whole},
		Components: []component{std},
	}
	for _, m := range info.Deps {
		if m.Version == workspace {
			bill.Components = append(bill.Components, library(m.Path, version))
			continue
		}
		if m.Replace != nil {
			m = m.Replace // the binary contains the replacement, not the original
		}
		c, err := module(m)
		if err != nil {
			return nil, err
		}
		bill.Components = append(bill.Components, c)
	}
	slices.SortFunc(bill.Components, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	return bill, nil
}

// module describes a Go module with its hash. Go's hash of a module is the
// SHA-256 of a list of its files: go.sum holds it in base64 behind "h1:".
func module(m *debug.Module) (component, error) {
	c := library(m.Path, m.Version)
	encoded, ok := strings.CutPrefix(m.Sum, "h1:")
	if !ok {
		return c, fmt.Errorf("module %s %s has no hash: is it replaced by a folder?", m.Path, m.Version)
	}
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return c, fmt.Errorf("hash of module %s %s: %w", m.Path, m.Version, err)
	}
	c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
	c.Properties = []property{{"go:sum", m.Sum}}
	return c, nil
}

func library(path, version string) component {
	p := packageURL(path, version)
	return component{Type: "library", Ref: p, Name: path, Version: version, PURL: p}
}

// packageURL returns the name of a module as scanners know it. The format
// demands lower case, and an escaped plus sign as in v2.0.0+incompatible.
func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
