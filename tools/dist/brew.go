package main

import (
	"path/filepath"
	"strings"
	"text/template"
)

// formulaFile is the name of the formula for Homebrew.
const formulaFile = "croft.rb"

// formula installs the archive of a platform with its pages and completions.
var formula = template.Must(template.New(formulaFile).Parse(`class Croft < Formula
  desc "{{.Summary}}"
  homepage "{{.Home}}"
  version "{{.Version}}"
  license "Apache-2.0"
{{range .Systems}}
  on_{{.Name}} do
{{- range .Archives}}
    on_{{.Processor}} do
      url "{{.URL}}"
      sha256 "{{.Sum}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "croft"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/croft.bash" => "croft"
    zsh_completion.install "completions/_croft"
    fish_completion.install "completions/croft.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/croft --version")
    assert_match "my turn", shell_output("#{bin}/croft --store #{testpath}/store run hello -- echo my turn")
  end
end
`))

type (
	brewSystem struct {
		Name     string
		Archives []brewArchive
	}
	brewArchive struct{ Processor, URL, Sum string }
)

// writeFormula returns the formula of a release, from the archives in the
// folder out.
func writeFormula(o origin, out string) (string, error) {
	var systems []brewSystem
	for _, system := range []struct{ name, os string }{{"macos", "darwin"}, {"linux", "linux"}} {
		s := brewSystem{Name: system.name}
		for _, processor := range []struct{ name, arch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			archive := whole.stem(platform{system.os, processor.arch}, o) + ".tar.gz"
			sum, err := sumFile(filepath.Join(out, archive))
			if err != nil {
				return "", err
			}
			url := home + "/releases/download/" + o.version + "/" + archive
			s.Archives = append(s.Archives, brewArchive{processor.name, url, sum})
		}
		systems = append(systems, s)
	}
	var text strings.Builder
	err := formula.Execute(&text, map[string]any{
		"Summary": summary, "Home": home, "Version": strings.TrimPrefix(o.version, "v"), "Systems": systems,
	})
	return text.String(), err
}
